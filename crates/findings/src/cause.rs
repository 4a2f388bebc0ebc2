//! The causes of waits.

use std::fmt;

/// What a thread waits for.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WaitCause {
    /// Work: a pool worker without a work item, an event loop, a timer, a service thread of a runtime.
    Idle,
    /// A lock.
    Lock,
    /// A signal of another thread: a condition variable, an event.
    ConditionVariable,
    /// The end of asynchronous work, in a method that could be asynchronous itself.
    SyncOverAsync,
    /// A garbage collection, or the suspension of threads before it.
    GcSuspension,
    /// A socket.
    SocketIo,
    /// A file.
    FileIo,
    /// The end of a time that the thread has chosen.
    Sleep,
    /// A page of memory.
    PageFault,
    /// A CPU.
    RunQueue,
    /// The next period of the CPU quota of its cgroup.
    CpuQuota,
    /// Room in a queue that is full.
    FullQueue,
    /// A semaphore that limits how many threads proceed.
    Semaphore,
    /// A connection of a pool of clients, which has a limit.
    Connection,
    /// The lock of the memory map of its process, which `mmap`, `munmap` and page faults take.
    MemoryMap,
    /// The lock of a file or a directory, which writes and changes take.
    FileLock,
    /// A child process, until it executes a program or ends.
    ChildProcess,
    /// A grace period of the kernel (RCU).
    GracePeriod,
    /// No rule matches.
    Other,
    /// Input or output of a pipe.
    Pipe,
    /// The other threads of a barrier or of a countdown.
    Barrier,
    /// The address of a host, from the name service (DNS).
    NameResolution,
}

impl WaitCause {
    /// Every cause, for tables and tests.
    pub const ALL: &'static [Self] = &[
        Self::Idle,
        Self::Lock,
        Self::ConditionVariable,
        Self::SyncOverAsync,
        Self::GcSuspension,
        Self::SocketIo,
        Self::FileIo,
        Self::Sleep,
        Self::PageFault,
        Self::RunQueue,
        Self::CpuQuota,
        Self::FullQueue,
        Self::Semaphore,
        Self::Connection,
        Self::MemoryMap,
        Self::FileLock,
        Self::ChildProcess,
        Self::GracePeriod,
        Self::Other,
        Self::Pipe,
        Self::Barrier,
        Self::NameResolution,
    ];

    /// The name of the frame of the cause in a stack: `[lock]`.
    #[must_use]
    pub fn frame_name(self) -> String {
        match self {
            // The method of .NET in which a thread waits for asynchronous work.
            Self::SyncOverAsync => "[Task.Wait]".to_owned(),
            Self::Other => "[wait]".to_owned(),
            cause => format!("[{cause}]"),
        }
    }

    /// What ends the wait.
    #[must_use]
    pub fn group(self) -> WaitGroup {
        match self {
            Self::Lock
            | Self::FullQueue
            | Self::Semaphore
            | Self::Connection
            | Self::MemoryMap
            | Self::FileLock => WaitGroup::Lock,
            Self::ConditionVariable | Self::SyncOverAsync | Self::ChildProcess | Self::Barrier => {
                WaitGroup::Partner
            }
            Self::SocketIo | Self::FileIo | Self::PageFault | Self::Pipe | Self::NameResolution => {
                WaitGroup::Io
            }
            Self::RunQueue | Self::CpuQuota => WaitGroup::Cpu,
            Self::GcSuspension => WaitGroup::Collection,
            Self::Idle | Self::Sleep | Self::GracePeriod | Self::Other => WaitGroup::Rest,
        }
    }

    /// The cause whose frame has a name.
    #[must_use]
    pub fn of_frame_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|cause| cause.frame_name() == name)
    }
}

/// What ends waits, by which views colour them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WaitGroup {
    /// Another thread leaves something that few can have: a lock, room in a queue, a connection.
    Lock,
    /// Another thread or process does its part.
    Partner,
    /// Input or output.
    Io,
    /// A CPU becomes free.
    Cpu,
    /// A garbage collection ends.
    Collection,
    /// Time, work that comes, or something unknown.
    Rest,
}

impl WaitGroup {
    /// Every group.
    pub const ALL: &'static [Self] =
        &[Self::Lock, Self::Partner, Self::Io, Self::Cpu, Self::Collection, Self::Rest];

    /// The name in pages: `lock`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Partner => "partner",
            Self::Io => "io",
            Self::Cpu => "cpu",
            Self::Collection => "collection",
            Self::Rest => "rest",
        }
    }
}

impl fmt::Display for WaitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "idle",
            Self::Lock => "lock",
            Self::ConditionVariable => "condition variable",
            Self::SyncOverAsync => "sync over async",
            Self::GcSuspension => "GC suspension",
            Self::SocketIo => "socket I/O",
            Self::FileIo => "file I/O",
            Self::Sleep => "sleep",
            Self::PageFault => "page fault",
            Self::RunQueue => "run queue",
            Self::CpuQuota => "CPU quota",
            Self::FullQueue => "full queue",
            Self::Semaphore => "semaphore",
            Self::Connection => "connection",
            Self::MemoryMap => "memory map",
            Self::FileLock => "file lock",
            Self::ChildProcess => "child process",
            Self::GracePeriod => "grace period",
            Self::Other => "other",
            Self::Pipe => "pipe",
            Self::Barrier => "barrier",
            Self::NameResolution => "name resolution",
        })
    }
}
