//! The text of findings on threads that queue for one thing.

use profiler_profile::{FindingFacts, FindingKind};

use super::{at_a_time, method_after, share, threads};

/// What threads queue for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    Lock,
    /// The global interpreter lock of Python.
    Interpreter,
    /// The lock of the memory map of the process.
    MemoryMap,
    /// The lock of a file or a directory.
    File,
    /// Locks on rows or tables.
    Transactions,
    Connections,
    /// Room in a full queue.
    Capacity,
    /// Room in the queue of the console logger of .NET.
    ConsoleLogger,
    /// The commit of another thread.
    GroupCommit,
}

impl Queue {
    pub(super) fn kind(self) -> FindingKind {
        match self {
            Self::Lock | Self::Interpreter | Self::MemoryMap | Self::File | Self::Transactions => {
                FindingKind::LockConvoy
            }
            Self::Connections => FindingKind::ConnectionLimit,
            Self::Capacity | Self::ConsoleLogger => FindingKind::FullQueue,
            Self::GroupCommit => FindingKind::Disk,
        }
    }

    pub(super) fn evidence(self, facts: &FindingFacts) -> String {
        let below = |words| method_after(words, facts);
        let (waits, end) = match self {
            Self::Lock if facts.place.is_none() => ("wait for locks".to_owned(), String::new()),
            Self::Lock => (format!("wait for the lock{}", below(" in ")), String::new()),
            Self::Interpreter => {
                ("wait for the global interpreter lock of Python".to_owned(), String::new())
            }
            Self::MemoryMap => (
                "wait for the lock of the memory map of the process".to_owned(),
                format!("; threads map and unmap memory at the same time{}", below(" below ")),
            ),
            Self::File => (
                "wait for the lock of a file or a directory that other threads change".to_owned(),
                below(", most below "),
            ),
            Self::Transactions => {
                (format!("wait for locks of other sessions{}", below(", most in ")), String::new())
            }
            Self::Connections => (
                "wait for a connection, as all that the limit of their pool allows are in use".to_owned(),
                below(", most below "),
            ),
            Self::Capacity => ("wait for room in a full queue".to_owned(), below(", most below ")),
            Self::ConsoleLogger => (
                "wait for room in the queue of the console logger, which one thread writes to the standard output"
                    .to_owned(),
                below(", most below "),
            ),
            Self::GroupCommit => (
                format!("wait{} until another one has synchronized a file", below(" in ")),
                String::new(),
            ),
        };
        format!(
            "{:.1} of {} threads at a time {waits} ({}){end}",
            at_a_time(facts),
            threads(facts),
            share(facts)
        )
    }

    pub(super) fn remedy(self) -> &'static str {
        match self {
            Self::Lock => "hold the lock for a shorter time, or divide what it protects",
            Self::Interpreter => "compute in several processes, or in native code that releases the lock",
            Self::MemoryMap => "reuse memory in place of mapping and unmapping it",
            Self::File => "write to a file from one thread, or to one file for each thread",
            Self::Transactions => "find the session that holds them, and end its transactions sooner",
            Self::Connections => "hold connections for a shorter time, or raise the limit of the pool",
            Self::Capacity => "take more from the queue at a time, by more or faster consumers",
            Self::ConsoleLogger => "log less, or read the standard output faster",
            Self::GroupCommit => "commit less often, or use a disk that synchronizes faster",
        }
    }
}
