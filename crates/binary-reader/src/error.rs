//! The error type of the parsers of binary files.

use std::fmt;

/// The reason why a file cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// The file is not an ELF file, or its byte order, word size or architecture is not that of this machine.
    NotElf,
    /// The file contradicts itself, is truncated, or cannot be read.
    Malformed,
    /// The file exceeds a size limit or the [work budget](crate::WorkBudget).
    TooLarge,
    /// A read of the file did not end in time: its file system does not answer.
    TimedOut,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotElf => "not an ELF file of this machine",
            Self::Malformed => "malformed file",
            Self::TooLarge => "limit exceeded",
            Self::TimedOut => "a read did not end in time",
        })
    }
}

impl std::error::Error for ParseError {}
