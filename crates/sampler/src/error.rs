//! The error type of the sampler: a kind to branch on, a message, and its source.

use std::{borrow::Cow, error::Error as StdError, fmt, io};

/// The result of the sampler's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the sampler. The message names the action and its object, without the cause, which is the source.
pub struct Error {
    /// The kind to branch on.
    pub kind: ErrorKind,
    /// The action and its object.
    pub message: Cow<'static, str>,
    /// The cause.
    pub source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kind of an error.
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

impl ErrorKind {
    /// The kind of a failed `operation`. A file that does not exist is [`NoSuchFile`](Self::NoSuchFile).
    #[must_use]
    pub fn of_io(operation: Operation, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::PermissionDenied(operation),
            io::ErrorKind::NotFound => Self::NoSuchFile,
            _ => Self::Io,
        }
    }

    /// The kind of a failed `operation` on a file that exists as long as the target does: a file that does not exist is
    /// [`NoSuchTarget`](Self::NoSuchTarget).
    #[must_use]
    pub fn of_target_io(operation: Operation, error: &io::Error) -> Self {
        match Self::of_io(operation, error) {
            Self::NoSuchFile => Self::NoSuchTarget,
            kind => kind,
        }
    }
}

impl Error {
    /// An error without a source.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// An error with its source.
    pub fn with_source(
        kind: ErrorKind,
        message: impl Into<Cow<'static, str>>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self { kind, message: message.into(), source: Some(source.into()) }
    }

    /// The error of a failed `operation`.
    pub fn from_io(operation: Operation, message: impl Into<Cow<'static, str>>, source: io::Error) -> Self {
        Self::with_source(ErrorKind::of_io(operation, &source), message, source)
    }

    /// The error of a failed `operation` on a file that exists as long as the target does.
    pub fn from_target_io(
        operation: Operation,
        message: impl Into<Cow<'static, str>>,
        source: io::Error,
    ) -> Self {
        Self::with_source(ErrorKind::of_target_io(operation, &source), message, source)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Prints the whole chain of sources.
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
        self.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}
