//! What the memory of a process lacks, so that names need the events of its runtime.

use std::fmt;

/// What the memory of a process lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryLack {
    /// The runtime does not describe its data structures, or in another version.
    Description,
    /// The profiler lacks the permission to read it.
    Permission,
    /// Dynamic methods that the runtime compiles while it is sampled, or more than are read at the start.
    DynamicMethods,
    /// Code that the runtime has freed, in whose place other code can be by now.
    FreedCode,
    /// The name of a method of another kind.
    MethodName,
    /// Code that is neither that of a method nor a known stub.
    UnknownCode,
}

impl fmt::Display for MemoryLack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Description => "its runtime does not describe its data structures",
            Self::Permission => "its memory cannot be read",
            Self::DynamicMethods => "its runtime compiles dynamic methods",
            Self::FreedCode => "its runtime frees code",
            Self::MethodName => "its memory has no name of a method",
            Self::UnknownCode => "it has code that is neither a method nor a known stub",
        })
    }
}
