//! Sideband events of processes: mmap, comm, exec, fork, thread start and exit.

use profiler_addresses::MonotonicTime;

use crate::{Mapping, Pid, Tid};

/// A sideband event and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SidebandEvent {
    /// Its time.
    #[cfg_attr(feature = "serde", serde(rename = "time_ns"))]
    pub time: MonotonicTime,
    /// Id of the process, in the profiler's PID namespace.
    pub pid: Pid,
    /// Id of the thread that caused the event, in the profiler's PID namespace.
    pub tid: Tid,
    /// The kind of event, with its data.
    pub kind: SidebandEventKind,
}

/// The kinds of sideband events. The names of the variants are part of the capture format.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum SidebandEventKind {
    /// An executable mapping was created (mmap).
    Map(Mapping),
    /// A thread changed its name (comm).
    Rename(String),
    /// The process executes another program (exec), with this thread name. Its previous mappings no longer exist.
    Execute(String),
    /// The process was forked.
    Fork {
        /// Process id of the parent.
        parent: Pid,
    },
    /// A thread was started.
    StartThread,
    /// A thread exited. The process exits with its last thread.
    Exit,
}
