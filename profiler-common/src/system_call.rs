//! The entries of threads into system calls, from which their durations are measured.

/// The table that has the number of a system call (`arch/x86/entry/syscalls`).
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SystemCallAbi {
    /// That of 64-bit code.
    X64 = 1,
    /// That of 32-bit code.
    I386 = 2,
}

impl SystemCallAbi {
    /// The table with this number; `None` for an unknown one.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::X64, Self::I386].into_iter().find(|abi| *abi as u32 == number)
    }
}

/// The key of the entry that has the start of sampling, for calls that had begun before: no task is at this address. Where there
/// is no such entry, these calls have no duration.
pub const BEGUN_BEFORE: u64 = 0;

/// The last entry of a thread into a system call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct SystemCallEntry {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub entered_ns: u64,
    /// The number of the system call.
    pub number: i64,
    /// The events that have taken the duration, a bit for each index.
    pub taken_by: u64,
}
