//! Errors of reading a recording and of parsing filters.

use std::io;

use thiserror::Error;

/// Why a recording cannot be read.
#[non_exhaustive]
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file does not begin as a recording does.
    #[error("not a recorded profile (`profiler -o FILE.profile`)")]
    NotARecording,
    /// A later version of the format.
    #[error("a profile of version {version}; this program reads up to version {supported}")]
    NewerVersion {
        /// The version that the file states.
        version: u32,
        /// The latest version that can be read.
        supported: u32,
    },
    /// The file ends, or is damaged, before its header.
    #[error("a recorded profile without a header: {damage}")]
    NoHeader {
        /// What is wrong with the file.
        damage: String,
    },
    /// A read failed.
    #[error("failed to read the recorded profile")]
    Io(#[source] io::Error),
}

/// Why a filter cannot be parsed.
#[cfg(feature = "filters")]
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FilterError {
    /// Not a regular expression.
    #[error("`{text}` is not a valid regular expression: {reason}")]
    Pattern {
        /// The text that was given.
        text: String,
        /// What the parser says.
        reason: String,
    },
    /// Not a percentage.
    #[error("`{text}` is not a share such as 0.5% (0 to 100)")]
    Share {
        /// The text that was given.
        text: String,
    },
}
