//! The errors of finding a process, a cgroup, a container, or the mapping of an address.

use std::io;

use thiserror::Error;

/// Why a target cannot be found.
#[non_exhaustive]
#[derive(Debug, Error)]
pub enum FindError {
    /// The given id or path is malformed, or matches more than one object.
    #[error("{0}")]
    Invalid(String),
    /// No process, cgroup or container has this id or path.
    #[error("{0}")]
    NotFound(String),
    /// A file in `/proc` cannot be read.
    #[error("{action}")]
    Io {
        /// The failed action and the path.
        action: String,
        /// The error of the system call.
        source: io::Error,
    },
}

/// Why a process has no mapping at an address.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LookupError {
    /// The address is in none of the executable mappings.
    #[error("the address is in no executable mapping")]
    NoMapping,
    /// The process ended before its mappings were read.
    #[error("the process ended before its mappings were read")]
    ProcessGone,
    /// The profiler has no permission to read the mappings.
    #[error("no permission to read the mappings of the process")]
    NotReadable,
    /// Reading the mappings did not end in time.
    #[error("the mappings of the process could not be read in time")]
    TimedOut,
}
