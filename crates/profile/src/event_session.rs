//! Why .NET runtimes were asked for the events of their methods.

use std::fmt;

/// Why a .NET runtime was asked for the events of its methods. For them it opens an EventPipe session, compiles methods of its own, and
/// lists its methods. The names of methods are in the memory of the process in most cases.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventSessionCause {
    /// The settings of the session request them: names from events, compilation tiers, compilations, a perf map, or runtime events.
    Requested,
    /// The runtime does not describe its data structures (before .NET 9, and single-file programs of .NET 9), or in another version.
    NotDescribed,
    /// The profiler lacks the permission to read the memory of the process.
    MemoryNotReadable,
    /// The runtime compiles dynamic methods, or has more than are read at the start.
    DynamicMethods,
    /// The runtime frees code, in whose place other code can be by now.
    FreedCode,
    /// The memory has no name of a method that was sampled.
    NoMethodName,
    /// Code was sampled that is neither that of a method nor a known stub.
    UnknownCode,
}

impl EventSessionCause {
    /// Every cause, for tables and tests.
    pub const ALL: &'static [Self] = &[
        Self::Requested,
        Self::NotDescribed,
        Self::MemoryNotReadable,
        Self::DynamicMethods,
        Self::FreedCode,
        Self::NoMethodName,
        Self::UnknownCode,
    ];
}

impl fmt::Display for EventSessionCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requested => "an option requests them",
            Self::NotDescribed => "its runtime does not describe its data structures",
            Self::MemoryNotReadable => "its memory cannot be read",
            Self::DynamicMethods => "its runtime compiles dynamic methods",
            Self::FreedCode => "its runtime frees code",
            Self::NoMethodName => "its memory has no name of a method",
            Self::UnknownCode => "it has code that is neither a method nor a known stub",
        })
    }
}
