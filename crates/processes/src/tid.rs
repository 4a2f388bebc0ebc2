//! The id of a thread, which no process id can take the place of.

use std::fmt;

use crate::Pid;

/// The id of a thread, in the profiler's PID namespace unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Tid(pub u32);

impl Tid {
    /// The leader of the process with this id: its first thread, which has the id of the process.
    #[must_use]
    pub fn leader_of(pid: Pid) -> Self {
        Self(pid.0)
    }

    /// Whether the thread is the leader of the process with this id.
    #[must_use]
    pub fn is_leader_of(self, pid: Pid) -> bool {
        self.0 == pid.0
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
