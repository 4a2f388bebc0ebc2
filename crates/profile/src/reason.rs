//! Why something has no name: a value, not an error.

use std::fmt;

/// Why a frame has no symbol.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The address lies in no executable mapping that was seen.
    NoMapping,
    /// The process ended before its mappings could be read.
    ProcessGone,
    /// The mappings could not be read for want of a privilege.
    ProcessNotReadable,
    /// The mapped file could not be opened: deleted and no longer reachable.
    FileMissing,
    /// The mapped file could not be opened for want of a privilege.
    FileNotReadable,
    /// The path leads to something else than the file that is mapped.
    FileReplaced,
    /// Not a regular file.
    NotAFile,
    /// The file is neither an ELF file of this machine nor a .NET image.
    NotElf,
    /// The file contradicts itself or ends too early.
    MalformedFile,
    /// The file is beyond a limit of the profiler.
    TooLarge,
    /// The file has no symbols, or only those of exported functions and none here, and no debug file was found; or it
    /// is a .NET image without precompiled code for this machine.
    NoSymbols,
    /// As [`NoSymbols`](Self::NoSymbols), but an exported function stands near before this one, and is named as such.
    OnlyNearestExport,
    /// As [`NoSymbols`](Self::NoSymbols), and no symbol server has the debug file.
    NotOnSymbolServer,
    /// As [`NoSymbols`](Self::NoSymbols), and a symbol server did not answer as it should.
    SymbolServerFailed,
    /// As [`NoSymbols`](Self::NoSymbols), and the debug file was still on its way from a symbol server.
    SymbolsOnTheWay,
    /// The file has symbols, but none at this address.
    NoSymbolHere,
    /// JIT code, and the runtime neither answers at a socket nor writes a perf map or jitdump.
    NoJitMap,
    /// JIT code, and the map is not one to trust: another user's, older than the process, no regular file.
    JitMapRefused,
    /// JIT code, and neither the runtime nor its map has an entry at this address.
    NoJitEntry,
    /// JIT code of a .NET runtime, and none of its methods: a stub or helper, by which methods are called.
    RuntimeStub,
    /// JIT code, and what listens at the runtime's diagnostics socket is not to be trusted: another process or user,
    /// or it does not answer as a runtime does.
    RuntimeRefused,
    /// JIT code, and the runtime's diagnostics socket is closed to the profiler for want of a privilege.
    RuntimeNotReachable,
    /// JIT code, and the runtime did not tell of it in time.
    RuntimeSilent,
    /// `/proc/kallsyms` shows no addresses to this process.
    KernelAddressesHidden,
    /// `/proc/kallsyms` could not be read.
    KernelSymbolsNotReadable,
}

impl Reason {
    /// Every reason, for tables and tests.
    pub const ALL: &'static [Self] = &[
        Self::NoMapping,
        Self::ProcessGone,
        Self::ProcessNotReadable,
        Self::FileMissing,
        Self::FileNotReadable,
        Self::FileReplaced,
        Self::NotAFile,
        Self::NotElf,
        Self::MalformedFile,
        Self::TooLarge,
        Self::NoSymbols,
        Self::OnlyNearestExport,
        Self::NotOnSymbolServer,
        Self::SymbolServerFailed,
        Self::SymbolsOnTheWay,
        Self::NoSymbolHere,
        Self::NoJitMap,
        Self::JitMapRefused,
        Self::NoJitEntry,
        Self::RuntimeStub,
        Self::RuntimeRefused,
        Self::RuntimeNotReachable,
        Self::RuntimeSilent,
        Self::KernelAddressesHidden,
        Self::KernelSymbolsNotReadable,
    ];
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoMapping => "no executable mapping there",
            Self::ProcessGone => "process ended before its mappings were read",
            Self::ProcessNotReadable => "no permission to read the process's mappings",
            Self::FileMissing => "file no longer reachable",
            Self::FileNotReadable => "no permission to open the file",
            Self::FileReplaced => "path leads to another file than the one mapped",
            Self::NotAFile => "not a regular file",
            Self::NotElf => "not an ELF file",
            Self::MalformedFile => "malformed file",
            Self::TooLarge => "file too large",
            Self::NoSymbols => "no symbols",
            Self::OnlyNearestExport => "no symbols but an export nearby",
            Self::NotOnSymbolServer => "no symbols, and none on a symbol server",
            Self::SymbolServerFailed => "no symbols, and a symbol server that failed",
            Self::SymbolsOnTheWay => "no symbols, and a download that was not done in time",
            Self::NoSymbolHere => "no symbol at the address",
            Self::NoJitMap => "JIT code without a perf map or jitdump",
            Self::JitMapRefused => "JIT code with a perf map that is not to be trusted",
            Self::NoJitEntry => "JIT code that the runtime does not name",
            Self::RuntimeStub => "a stub of the .NET runtime",
            Self::RuntimeRefused => "JIT code of a runtime whose socket is not to be trusted",
            Self::RuntimeNotReachable => "no permission to ask the runtime for its JIT code",
            Self::RuntimeSilent => "JIT code of a runtime that did not tell of it in time",
            Self::KernelAddressesHidden => "kernel hides its addresses",
            Self::KernelSymbolsNotReadable => "no permission to read the kernel's symbols",
        })
    }
}
