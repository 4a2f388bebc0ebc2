//! Why a delivery cannot start.

use std::{io, path::PathBuf};

/// Why a delivery cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeliveryError {
    /// The URL of the backend cannot be used.
    #[error("cannot use the URL `{url}`: {reason}")]
    InvalidUrl {
        /// As it was given.
        url: String,
        /// What is wrong with it, and the remedy.
        reason: String,
    },
    /// A header cannot be sent.
    #[error("cannot send the header `{name}`: {reason}")]
    InvalidHeader {
        /// Its name.
        name: String,
        /// What is wrong with it, and the remedy.
        reason: String,
    },
    /// The bearer token cannot be read.
    #[error("failed to read the bearer token from {path}: {source}", path = path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The root certificates cannot be read.
    #[error("failed to read certificates from {path}: {reason}", path = path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// TLS cannot be configured.
    #[error("failed to configure TLS: {0}")]
    Tls(String),
    /// The spool cannot be used.
    #[error("cannot use the spool directory {path}: {source}", path = path.display())]
    Spool {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A thread or its event queue cannot be created.
    #[error("failed to start the thread that sends profiles: {0}")]
    Thread(#[source] io::Error),
}
