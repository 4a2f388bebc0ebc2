//! The error type of the library: opaque, with a kind to branch on and a chain of sources.

use std::{borrow::Cow, error::Error as StdError, fmt, io};

use profiler_processes::FindError;
#[cfg(feature = "filters")]
use profiler_profile::FilterError;
use profiler_profile::ReadError;
use profiler_symbolize::OpenDirectoryError;

/// The result of the library's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the profiler.
///
/// The message names the action and its object: ``failed to open `/proc/1234/maps` ``. The cause is in
/// [`source`](StdError::source).
///
/// ```
/// use profiler::{ErrorKind, Profiler, Target};
///
/// let error = Profiler::builder().target(Target::Pid(1)).frequency_hz(0).build().unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidInput);
/// assert!(error.to_string().contains("frequency"));
/// ```
pub struct Error {
    inner: Box<Inner>,
}

struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kind of an [`Error`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// An invalid setting or argument.
    InvalidInput,
    /// The process, thread, cgroup or container to sample does not exist.
    NoSuchTarget,
    /// A file or directory that the caller named does not exist: a command, a debug directory, a capture.
    NoSuchFile,
    /// The kernel refused this operation because a privilege is missing.
    PermissionDenied(Operation),
    /// The kernel, the machine or this build of the library lacks a capability that is needed.
    Unsupported,
    /// A file that is damaged, of another format, or of a newer version.
    InvalidData,
    /// Any other error of the operating system.
    Io,
}

/// An operation that needs a privilege.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Opening a timer event on a CPU (`perf_event_open`).
    OpenPerfEvent,
    /// Creating a BPF map.
    CreateMap,
    /// Loading a BPF program.
    LoadProgram,
    /// Reading another process's `/proc` entries.
    ReadProcess,
    /// Opening a file of another process.
    OpenTargetFile,
    /// Opening a file or directory that the caller named.
    OpenFile,
}

impl Error {
    /// An error without a source.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { inner: Box::new(Inner { kind, message: message.into(), source: None }) }
    }

    /// An error with its source.
    pub(crate) fn with_source(
        kind: ErrorKind,
        message: impl Into<Cow<'static, str>>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self { inner: Box::new(Inner { kind, message: message.into(), source: Some(source.into()) }) }
    }

    /// The error of a failed `operation`. A file that does not exist is [`ErrorKind::NoSuchFile`].
    pub(crate) fn from_io(
        operation: Operation,
        message: impl Into<Cow<'static, str>>,
        source: io::Error,
    ) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied(operation),
            io::ErrorKind::NotFound => ErrorKind::NoSuchFile,
            _ => ErrorKind::Io,
        };
        Self::with_source(kind, message, source)
    }

    /// The error of a failed `operation` on a file that exists as long as the target does: a file that does not exist
    /// is [`ErrorKind::NoSuchTarget`].
    pub(crate) fn from_target_io(
        operation: Operation,
        message: impl Into<Cow<'static, str>>,
        source: io::Error,
    ) -> Self {
        let mut error = Self::from_io(operation, message, source);
        if error.kind() == ErrorKind::NoSuchFile {
            error.inner.kind = ErrorKind::NoSuchTarget;
        }
        error
    }

    /// The kind to branch on.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }
}

impl From<FindError> for Error {
    fn from(error: FindError) -> Self {
        match error {
            FindError::Io { action, source } => Self::from_target_io(Operation::ReadProcess, action, source),
            FindError::NotFound(message) => Self::new(ErrorKind::NoSuchTarget, message),
            invalid => Self::new(ErrorKind::InvalidInput, invalid.to_string()),
        }
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Self {
        let message = error.to_string();
        match error {
            ReadError::Io(source) => Self::with_source(ErrorKind::Io, message, source),
            _ => Self::new(ErrorKind::InvalidData, message),
        }
    }
}

#[cfg(feature = "filters")]
impl From<FilterError> for Error {
    fn from(error: FilterError) -> Self {
        Self::new(ErrorKind::InvalidInput, error.to_string())
    }
}

impl From<OpenDirectoryError> for Error {
    fn from(error: OpenDirectoryError) -> Self {
        let message = error.to_string();
        Self::from_io(Operation::OpenFile, message, error.source)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)
    }
}

/// Prints the whole chain of sources, for `unwrap` in a test and a `main` that returns the error.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut source = self.source();
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_privilege_names_the_operation() {
        let refused = io::Error::from(io::ErrorKind::PermissionDenied);
        let error =
            Error::from_io(Operation::OpenPerfEvent, "failed to open a timer event on CPU 0", refused);
        assert_eq!(error.kind(), ErrorKind::PermissionDenied(Operation::OpenPerfEvent));
        assert_eq!(error.to_string(), "failed to open a timer event on CPU 0");
        assert_eq!(format!("{error:?}"), "failed to open a timer event on CPU 0: permission denied");
    }

    #[test]
    fn a_file_that_does_not_exist_is_no_missing_target() {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let error = Error::from_io(Operation::OpenFile, "failed to open the directory `/typo`", missing());
        assert_eq!(error.kind(), ErrorKind::NoSuchFile);
        let error = Error::from(OpenDirectoryError { path: "/typo".into(), source: missing() });
        assert_eq!(error.kind(), ErrorKind::NoSuchFile);
        let error = Error::from_target_io(Operation::ReadProcess, "failed to inspect the cgroup", missing());
        assert_eq!(error.kind(), ErrorKind::NoSuchTarget);
    }
}
