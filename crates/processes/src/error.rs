//! The errors of finding a process, a cgroup, a container, or the mapping of an address.

use std::io;

use rustix::io::Errno;
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
    /// The limit of open files of the profiler or of the system is reached.
    #[error("the mappings of the process could not be read: too many open files")]
    TooManyOpenFiles,
}

impl LookupError {
    /// Classifies an error of reading an entry of a process. A process has ended only if `/proc` has no entry of it.
    pub(crate) fn from_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::ProcessGone,
            // A thread could not be started, or the operation did not end.
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::TimedOut,
            _ if Errno::from_io_error(error) == Some(Errno::SRCH) => Self::ProcessGone,
            _ if is_open_files_limit(error) => Self::TooManyOpenFiles,
            _ => Self::NotReadable,
        }
    }
}

/// Whether the limit of open files of this process or of the system is reached.
pub(crate) fn is_open_files_limit(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_ended_only_if_proc_has_no_entry_of_it() {
        let errors = [
            (Errno::NOENT, LookupError::ProcessGone),
            (Errno::SRCH, LookupError::ProcessGone),
            (Errno::MFILE, LookupError::TooManyOpenFiles),
            (Errno::NFILE, LookupError::TooManyOpenFiles),
            (Errno::ACCESS, LookupError::NotReadable),
            (Errno::PERM, LookupError::NotReadable),
            (Errno::NOMEM, LookupError::NotReadable),
            (Errno::AGAIN, LookupError::TimedOut),
        ];
        for (errno, expected) in errors {
            assert_eq!(LookupError::from_io(&errno.into()), expected, "{errno}");
        }
        assert_eq!(LookupError::from_io(&io::ErrorKind::TimedOut.into()), LookupError::TimedOut);
    }
}
