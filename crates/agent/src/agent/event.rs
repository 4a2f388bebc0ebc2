//! What an agent reports to the program that runs it.

use std::io;

use super::{error::AccountError, memory_limit::MemoryAction, memory_use::MemoryUse, sender::Sent};
use crate::delivery::DeliveryLedger;

/// What an agent has done, or failed to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum AgentEvent {
    /// The memory limit evicted stacks or changed the frequency.
    MemoryLimited {
        /// What was done.
        action: MemoryAction,
        /// The memory in use before.
        used: MemoryUse,
        /// The frequency of CPU samples from now on, hertz.
        frequency_hz: u64,
    },
    /// A window has ended that was not sampled, because of the probability.
    Skipped {
        /// The samples that were taken in it nevertheless: those of waiting threads.
        samples: u64,
    },
    /// A sampled window has ended.
    Window(WindowAccount),
    /// The function that writes windows has failed. The agent goes on.
    NotWritten(io::Error),
    /// The requests of a window have other samples than the window. The agent goes on.
    WrongAccount(AccountError),
    /// Sampling has ended. The agent waits at most five seconds for the backend.
    Stopping,
    /// The agent has ended, with the account of its delivery if it has one.
    Stopped(Option<DeliveryLedger>),
}

/// What became of the samples of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowAccount {
    /// Samples that were taken.
    pub samples: u64,
    /// Samples that were due and are lost.
    pub lost: u64,
    /// Of the samples, those of resources that are not selected.
    pub filtered: u64,
    /// By which the values of the other samples are multiplied when they are sent.
    pub weight: u64,
    /// The requests of the window; `None` without a backend, and after [`AgentEvent::WrongAccount`].
    pub sent: Option<Sent>,
    /// The account of the delivery since its start; `None` without a backend.
    pub delivery: Option<DeliveryLedger>,
}
