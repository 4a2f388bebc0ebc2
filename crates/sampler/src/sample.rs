//! A sample as it was taken, with the ids of its stacks.

use std::borrow::Cow;

use profiler_addresses::MonotonicTime;
use profiler_common::{COMM_BYTES, system_call::SystemCallAbi};
use profiler_processes::{Pid, Tid};
use profiler_profile::ThreadState;

use crate::stack::RawStackId;

/// A sample as it was taken: stacks by id.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "capture", derive(serde::Serialize, serde::Deserialize))]
pub struct RawSample {
    /// Its time.
    #[cfg_attr(feature = "capture", serde(rename = "time_ns"))]
    pub time: MonotonicTime,
    /// The CPU on which it was taken.
    pub cpu: u32,
    /// The process, in the profiler's PID namespace.
    pub pid: Pid,
    /// The thread, in the profiler's PID namespace.
    pub tid: Tid,
    /// The thread's name.
    pub comm: Comm,
    /// The stack in the kernel.
    pub kernel_stack: RawStackId,
    /// The stack in user space.
    pub user_stack: RawStackId,
    /// What was measured.
    #[cfg_attr(feature = "capture", serde(default, skip_serializing_if = "crate::capture::is_default"))]
    pub origin: Origin,
    /// In the unit of the origin.
    #[cfg_attr(feature = "capture", serde(rename = "weight", default = "own_tick"))]
    pub value: u64,
    /// The task that ended the wait, for a wait that is sampled with it.
    #[cfg_attr(feature = "capture", serde(default, skip_serializing_if = "Option::is_none"))]
    pub waker: Option<Box<RawWaker>>,
    /// The system call, for an event that samples system calls.
    #[cfg_attr(feature = "capture", serde(default, skip_serializing_if = "Option::is_none"))]
    pub system_call: Option<CalledSystemCall>,
}

/// The system call whose entry or exit is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "capture", derive(serde::Serialize, serde::Deserialize))]
pub struct CalledSystemCall {
    /// Its number in the table.
    pub number: i64,
    /// The table that has the number.
    #[cfg_attr(feature = "capture", serde(with = "crate::capture::RecordedAbi"))]
    pub abi: SystemCallAbi,
}

/// The task that ended a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "capture", derive(serde::Serialize, serde::Deserialize))]
pub struct RawWaker {
    /// 0 is the idle task.
    pub pid: Pid,
    /// The thread, in the profiler's PID namespace.
    pub tid: Tid,
    /// The thread's name.
    pub comm: Comm,
    /// The stack in the kernel.
    pub kernel_stack: RawStackId,
    /// The stack in user space.
    pub user_stack: RawStackId,
}

/// What a sample measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "capture", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct Origin {
    /// The index of its event in the plan. Ticks of CPUs are the first one where there are any.
    pub event: u16,
    /// The state of the thread, for an event that has states.
    #[cfg_attr(feature = "capture", serde(skip_serializing_if = "Option::is_none"))]
    pub state: Option<ThreadState>,
    /// Whether the value is a length of time, nanoseconds, at whose end the sample was taken. Else it is a number of occurrences
    /// or ticks: its own, and those that were skipped before it.
    #[cfg_attr(feature = "capture", serde(skip_serializing_if = "crate::capture::is_default"))]
    pub is_duration: bool,
}

impl Origin {
    /// The number of samples that the ledger counts for a value.
    pub fn sample_count(self, value: u64) -> u64 {
        if self.is_duration { 1 } else { value }
    }
}

/// The value of a tick before which no other was skipped.
#[cfg(feature = "capture")]
fn own_tick() -> u64 {
    1
}

/// A thread's name, padded with NUL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "capture", derive(serde::Serialize, serde::Deserialize))]
pub struct Comm(pub [u8; COMM_BYTES]);

impl Comm {
    /// The name as text.
    pub fn text(&self) -> Cow<'_, str> {
        let end = memchr::memchr(0, &self.0).unwrap_or(self.0.len());
        String::from_utf8_lossy(&self.0[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_at_its_padding() {
        assert_eq!(Comm(*b"dotnet\0\0\0\0\0\0\0\0\0\0").text(), "dotnet");
        assert_eq!(Comm(*b"sixteen_bytes_xx").text(), "sixteen_bytes_xx");
        assert_eq!(Comm([0xff; 16]).text(), "\u{fffd}".repeat(16));
    }
}
