//! The cached result of building the unwind table of a file.

use std::time::Instant;

use super::back_off::BackOff;

/// Identifies a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TableKey(pub(super) u32);

/// The result of the last attempt to build and install the table of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CachedTable {
    Installed(TableKey),
    /// The file has no table: it cannot be opened, is no ELF file, is malformed, or has no call frame information.
    Absent,
    /// The attempt failed for a reason that can pass, and is repeated after the back-off.
    Failed(BackOff),
}

impl CachedTable {
    /// The result of an attempt that gave no table, after the result of the previous attempt.
    pub(super) fn without_table(is_transient: bool, previous: Option<Self>) -> Self {
        let previous = match previous {
            Some(Self::Failed(back_off)) => Some(back_off),
            _ => None,
        };
        if is_transient {
            Self::Failed(BackOff::after_failure(previous, Instant::now()))
        } else {
            Self::Absent
        }
    }

    /// The installed table.
    pub(super) fn key(self) -> Option<TableKey> {
        match self {
            Self::Installed(key) => Some(key),
            Self::Absent | Self::Failed(_) => None,
        }
    }

    /// The time of the next attempt, if the last one failed.
    pub(super) fn retry_at(self) -> Option<Instant> {
        match self {
            Self::Failed(back_off) => Some(back_off.retry_at()),
            Self::Installed(_) | Self::Absent => None,
        }
    }

    /// Whether the time of the next attempt has come.
    pub(super) fn must_retry(self, now: Instant) -> bool {
        matches!(self, Self::Failed(back_off) if back_off.has_passed(now))
    }
}
