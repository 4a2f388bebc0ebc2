//! The error type of the analysis.

use std::fmt;

/// Why there are no rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The caller cancelled the analysis.
    Cancelled,
    /// The program exceeds a limit.
    TooLarge,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cancelled => "cancelled",
            Self::TooLarge => "limit exceeded",
        })
    }
}

impl std::error::Error for Error {}
