//! The error type of the library: opaque, with a kind to branch on and a chain of sources.

use std::{borrow::Cow, error::Error as StdError, fmt, io};

use profiler_processes::FindError;
#[cfg(feature = "filters")]
use profiler_profile::FilterError;
use profiler_profile::ReadError;
pub use profiler_sampler::{ErrorKind, Operation};
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
    inner: Box<profiler_sampler::Error>,
}

impl Error {
    /// An error without a source.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        profiler_sampler::Error::new(kind, message).into()
    }

    /// An error with its source.
    pub(crate) fn with_source(
        kind: ErrorKind,
        message: impl Into<Cow<'static, str>>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        profiler_sampler::Error::with_source(kind, message, source).into()
    }

    /// The error of a failed `operation`.
    pub(crate) fn from_io(
        operation: Operation,
        message: impl Into<Cow<'static, str>>,
        source: io::Error,
    ) -> Self {
        profiler_sampler::Error::from_io(operation, message, source).into()
    }

    /// The error of a failed `operation` on a file that exists as long as the target does.
    pub(crate) fn from_target_io(
        operation: Operation,
        message: impl Into<Cow<'static, str>>,
        source: io::Error,
    ) -> Self {
        profiler_sampler::Error::from_target_io(operation, message, source).into()
    }

    /// The kind to branch on.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }
}

impl From<profiler_sampler::Error> for Error {
    fn from(error: profiler_sampler::Error) -> Self {
        Self { inner: Box::new(error) }
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
        self.inner.fmt(f)
    }
}

/// Prints the whole chain of sources, for `unwrap` in a test and a `main` that returns the error.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner, f)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner.source()
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
