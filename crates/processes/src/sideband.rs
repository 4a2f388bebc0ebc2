//! What the side band tells of processes.

use super::Mapping;

/// One event, with the moment it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SidebandEvent {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// The process it happened to, in the profiler's pid namespace.
    pub pid: u32,
    /// The thread it happened in.
    pub tid: u32,
    /// What happened.
    pub kind: SidebandEventKind,
}

/// What happened to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum SidebandEventKind {
    /// An executable mapping was made.
    Map(Mapping),
    /// A thread was renamed.
    Rename(String),
    /// The process executes another program, under this name: its mappings are gone.
    Execute(String),
    /// The process was forked from `parent`.
    Fork {
        /// The parent's process id.
        parent: u32,
    },
    /// A thread was started.
    StartThread,
    /// A thread ended; the process with it when it was the last.
    Exit,
}
