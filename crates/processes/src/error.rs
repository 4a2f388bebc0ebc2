//! The error of looking for a process, a cgroup or a container.

use std::io;

use thiserror::Error;

/// Why a target cannot be found.
#[non_exhaustive]
#[derive(Debug, Error)]
pub enum FindError {
    /// What was given names nothing, or more than one thing.
    #[error("{0}")]
    Invalid(String),
    /// Nothing of that name exists.
    #[error("{0}")]
    NotFound(String),
    /// A file of `/proc` cannot be read.
    #[error("{action}")]
    Io {
        /// The action that failed and its object.
        action: String,
        /// What the system says.
        source: io::Error,
    },
}
