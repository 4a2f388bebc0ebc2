//! Errors of this interface.

use std::ffi::{CString, c_char};

use profiler::ErrorKind as Kind;

use crate::pointer::{c_string, give, take};

/// What failed. [`profiler_error_free`] frees it.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: CString,
}

/// The kind of an error, to branch on.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// An invalid setting or argument.
    InvalidInput,
    /// The process to sample does not exist.
    NoSuchTarget,
    /// A file that the caller named does not exist.
    NoSuchFile,
    /// A privilege is missing.
    PermissionDenied,
    /// The kernel, the machine or this build lacks a capability that is needed.
    Unsupported,
    /// A file that is damaged or of another format.
    InvalidData,
    /// Any other error of the operating system.
    Io,
}

impl From<profiler::Error> for Error {
    fn from(error: profiler::Error) -> Self {
        let kind = match error.kind() {
            Kind::InvalidInput => ErrorKind::InvalidInput,
            Kind::NoSuchTarget => ErrorKind::NoSuchTarget,
            Kind::NoSuchFile => ErrorKind::NoSuchFile,
            Kind::PermissionDenied(_) => ErrorKind::PermissionDenied,
            Kind::Unsupported => ErrorKind::Unsupported,
            Kind::InvalidData => ErrorKind::InvalidData,
            _ => ErrorKind::Io,
        };
        Self::new(kind, &with_sources(&error))
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::new(ErrorKind::Io, &error.to_string())
    }
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: &str) -> Self {
        Self { kind, message: c_string(message) }
    }
}

/// The messages of an error and of its sources.
fn with_sources(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |error| error.source());
    sources.fold(error.to_string(), |message, source| format!("{message}: {source}"))
}

/// The value of a result for the caller; null after an error, which is stored.
///
/// # Safety
/// `error` is null or can be written to.
pub(crate) unsafe fn give_result<T>(result: Result<T, impl Into<Error>>, error: *mut *mut Error) -> *mut T {
    match result {
        Ok(value) => give(value),
        Err(failure) => {
            // SAFETY: by the condition of this function.
            unsafe { store(failure.into(), error) };
            std::ptr::null_mut()
        }
    }
}

/// Stores an error where the caller wants it.
///
/// # Safety
/// `error` is null or can be written to.
pub(crate) unsafe fn store(failure: Error, error: *mut *mut Error) {
    if !error.is_null() {
        // SAFETY: by the condition of this function.
        unsafe { error.write(give(failure)) };
    }
}

/// The kind of an error.
#[unsafe(no_mangle)]
pub extern "C" fn profiler_error_kind_of(error: &Error) -> ErrorKind {
    error.kind
}

/// What failed, and what helps. The text lives as long as the error.
#[unsafe(no_mangle)]
pub extern "C" fn profiler_error_message(error: &Error) -> *const c_char {
    error.message.as_ptr()
}

/// Frees an error, or does nothing with null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn profiler_error_free(error: *mut Error) {
    // SAFETY: see the crate.
    drop(unsafe { take(error) });
}
