//! The one error of the library: opaque, with a kind to branch on and a chain to print.

use std::{borrow::Cow, error::Error as StdError, fmt, io};

use profiler_processes::FindError;
use profiler_profile::{FilterError, ReadError};
use profiler_symbolize::OpenDirectoryError;

/// The result of the library's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What could not be done.
///
/// The message names the action and its object: ``failed to open `/proc/1234/maps` ``. What lies below it is
/// in [`source`](StdError::source).
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

/// What to branch on.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A setting that cannot be met: nothing was tried.
    InvalidInput,
    /// The target does not exist, or no longer.
    NoSuchTarget,
    /// The kernel refused for want of a privilege; [`Operation`] says at what.
    PermissionDenied(Operation),
    /// The kernel or the machine cannot do this.
    Unsupported,
    /// A file that was not written by this program, or by another version of it.
    InvalidData,
    /// Anything else between here and the system.
    Io,
}

/// The operations of the profiler that need a privilege of their own.
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
}

impl Error {
    /// An error without a cause below it.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { inner: Box::new(Inner { kind, message: message.into(), source: None }) }
    }

    /// An error with what caused it.
    pub(crate) fn with_source(
        kind: ErrorKind,
        message: impl Into<Cow<'static, str>>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self { inner: Box::new(Inner { kind, message: message.into(), source: Some(source.into()) }) }
    }

    /// An error of the system. A refusal is one of `operation`'s.
    pub(crate) fn from_io(
        operation: Operation,
        message: impl Into<Cow<'static, str>>,
        source: io::Error,
    ) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied(operation),
            io::ErrorKind::NotFound => ErrorKind::NoSuchTarget,
            _ => ErrorKind::Io,
        };
        Self::with_source(kind, message, source)
    }

    /// What to branch on.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }
}

impl From<FindError> for Error {
    fn from(error: FindError) -> Self {
        match error {
            FindError::Io { action, source } => Self::from_io(Operation::ReadProcess, action, source),
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

impl From<FilterError> for Error {
    fn from(error: FilterError) -> Self {
        Self::new(ErrorKind::InvalidInput, error.to_string())
    }
}

impl From<OpenDirectoryError> for Error {
    fn from(error: OpenDirectoryError) -> Self {
        let message = error.to_string();
        Self::from_io(Operation::OpenTargetFile, message, error.source)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)
    }
}

/// Prints the whole chain, so that `unwrap` in a test or a `main` that returns it says everything.
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
    fn a_refusal_of_the_system_names_the_operation() {
        let refused = io::Error::from(io::ErrorKind::PermissionDenied);
        let error =
            Error::from_io(Operation::OpenPerfEvent, "failed to open a timer event on CPU 0", refused);
        assert_eq!(error.kind(), ErrorKind::PermissionDenied(Operation::OpenPerfEvent));
        assert_eq!(error.to_string(), "failed to open a timer event on CPU 0");
        assert_eq!(format!("{error:?}"), "failed to open a timer event on CPU 0: permission denied");
    }
}
