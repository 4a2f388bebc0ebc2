//! The id of a process, which neither a thread id nor an id in another PID namespace can take the place of.

use std::fmt;

/// The id of a process, in the profiler's PID namespace unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Pid(pub u32);

impl Pid {
    /// The id of the calling process.
    #[must_use]
    pub fn own() -> Self {
        Self(std::process::id())
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
