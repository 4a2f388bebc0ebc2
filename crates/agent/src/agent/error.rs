//! Why an agent cannot start, and what fails while it runs.

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use crate::{
    delivery::DeliveryError,
    naming::{KubeletError, TooManyLabels},
};

/// Why an agent cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The time of a window is not one of [`WINDOW_LIMITS`](super::WINDOW_LIMITS).
    #[error("a window takes from 1s to 10m, not {0:?}")]
    Window(Duration),
    /// The probability is not one of [`PROBABILITY_LIMITS`](super::PROBABILITY_LIMITS).
    #[error("a probability is a number from 0.001 to 1, not {0}")]
    Probability(f64),
    /// The agent has neither a delivery nor a function that writes windows.
    #[error("an agent needs a backend, or a function that writes windows")]
    NoOutput,
    /// The name of the host cannot be read.
    #[error("failed to read the name of the host")]
    HostName(#[source] io::Error),
    /// There are more labels than backends accept.
    #[error(transparent)]
    Labels(#[from] TooManyLabels),
    /// The kubelet cannot be asked.
    #[error(transparent)]
    Kubelet(#[from] KubeletError),
    /// The directory of the spool cannot be created or opened.
    #[error("failed to open the spool directory `{}`", .path.display())]
    SpoolDirectory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The delivery cannot start.
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
    /// The address is in use or not of this machine, or the thread of the metrics cannot be started.
    #[error("failed to listen at {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// The settings of the session are not valid.
    #[error(transparent)]
    Settings(profiler::Error),
    /// The session cannot start, or a thread cannot be confined.
    #[error(transparent)]
    Start(#[from] profiler::Error),
    /// The thread that measures memory cannot be started.
    #[error("failed to start a thread")]
    Thread(#[source] io::Error),
}

/// The requests of a window have other samples than the window: a defect of an encoder. They are sent as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the window has {window} samples, and its requests have {requests}")]
pub struct AccountError {
    /// The samples of the window, with their weight.
    pub window: u64,
    /// The samples in requests, and those that exceed a limit of the backend.
    pub requests: u64,
}
