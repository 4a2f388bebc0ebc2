//! Why a frame is unsymbolized: a value, not an error.

use std::fmt;

/// Why a frame has no symbol.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub enum Reason {
    /// The address is in no known executable mapping.
    NoMapping,
    /// The process ended before its mappings could be read.
    ProcessGone,
    /// The profiler lacks the privilege to read the mappings.
    ProcessNotReadable,
    /// The mapped file is deleted or not reachable.
    FileMissing,
    /// The profiler lacks the privilege to open the mapped file.
    FileNotReadable,
    /// The file at the path is not the mapped one.
    FileReplaced,
    /// Not a regular file.
    NotAFile,
    /// The file is neither an ELF file for this machine nor a .NET image.
    NotElf,
    /// The file is inconsistent or truncated.
    MalformedFile,
    /// The file exceeds a limit of the profiler.
    TooLarge,
    /// The file has no symbol table, or only one of exported functions without an entry here, and no debug file was
    /// found; or it is a .NET image without precompiled code for this machine.
    NoSymbols,
    /// As [`NoSymbols`](Self::NoSymbols), but an exported function starts shortly before this one; the frame shows it as a hint.
    OnlyNearestExport,
    /// As [`NoSymbols`](Self::NoSymbols), and no symbol server has the debug file.
    NotOnSymbolServer,
    /// As [`NoSymbols`](Self::NoSymbols), and a request to a symbol server failed.
    SymbolServerFailed,
    /// As [`NoSymbols`](Self::NoSymbols), and the download of the debug file did not end in time.
    SymbolsOnTheWay,
    /// The file has a symbol table, but no symbol at this address.
    NoSymbolHere,
    /// JIT code of an unknown runtime with neither a perf map nor a jitdump.
    NoJitMap,
    /// JIT code whose perf map or jitdump is not trusted: owned by another user, older than the process, or not a
    /// regular file.
    JitMapRefused,
    /// JIT code at an address for which neither the runtime nor its map has an entry.
    NoJitEntry,
    /// Code of a .NET runtime that belongs to no method: a stub or a helper.
    RuntimeStub,
    /// JIT code of a runtime whose diagnostics socket is not trusted: another process or user listens there, or the
    /// answers are not those of a runtime.
    RuntimeRefused,
    /// JIT code of a runtime whose diagnostics socket the profiler lacks the privilege to open.
    RuntimeNotReachable,
    /// JIT code of a runtime that did not send its events before the deadline.
    RuntimeSilent,
    /// `/proc/kallsyms` shows no addresses to this process.
    KernelAddressesHidden,
    /// `/proc/kallsyms` could not be read.
    KernelSymbolsNotReadable,
    /// Opening or reading a file or an entry of `/proc` did not end in time: a file system in user space does not answer,
    /// or another process holds a lease on the file.
    NotResponding,
    /// A file or an entry of `/proc` could not be opened: the limit of open files of the profiler or of the system is
    /// reached.
    TooManyOpenFiles,
    /// Reading the symbols of the files of a container, or of those of the host, took as much CPU time after the end of
    /// sampling as it may.
    OutOfTime,
    /// JIT code of Java with neither a perf map nor a jitdump.
    NoJavaMap,
    /// JIT code of .NET with neither a diagnostics socket nor a perf map nor a jitdump.
    NoDotnetMap,
    /// JIT code of Mono with neither a perf map nor a jitdump.
    NoMonoMap,
    /// JIT code of Erlang with neither a perf map nor a jitdump.
    NoErlangMap,
    /// JIT code of Node.js with neither a perf map nor a jitdump.
    NoNodeMap,
    /// JIT code of PHP with neither a perf map nor a jitdump.
    NoPhpMap,
    /// JIT code of Ruby with neither a perf map nor a jitdump.
    NoRubyMap,
    /// JIT code of LuaJIT with neither a perf map nor a jitdump.
    NoLuaJitMap,
    /// JIT code from before the first event of a runtime that unloads methods: which one was at the address is unknown.
    JitCodeUnloaded,
    /// JIT code at an address whose code was replaced at about the time of the sample: which one was there is unknown.
    JitCodeReplaced,
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
        Self::NotResponding,
        Self::TooManyOpenFiles,
        Self::OutOfTime,
        Self::NoJavaMap,
        Self::NoDotnetMap,
        Self::NoMonoMap,
        Self::NoErlangMap,
        Self::NoNodeMap,
        Self::NoPhpMap,
        Self::NoRubyMap,
        Self::NoLuaJitMap,
        Self::JitCodeUnloaded,
        Self::JitCodeReplaced,
    ];
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoMapping => "no executable mapping at the address",
            Self::ProcessGone => "process ended before its mappings were read",
            Self::ProcessNotReadable => "no permission to read the process's mappings",
            Self::FileMissing => "file no longer reachable",
            Self::FileNotReadable => "no permission to open the file",
            Self::FileReplaced => "the file at the path is not the mapped one",
            Self::NotAFile => "not a regular file",
            Self::NotElf => "not an ELF file",
            Self::MalformedFile => "malformed file",
            Self::TooLarge => "file too large",
            Self::NoSymbols => "no symbols",
            Self::OnlyNearestExport => "no symbols but a nearby export",
            Self::NotOnSymbolServer => "no symbols, and none on a symbol server",
            Self::SymbolServerFailed => "no symbols, and a failed symbol server request",
            Self::SymbolsOnTheWay => "no symbols, and a download that did not end in time",
            Self::NoSymbolHere => "no symbol at the address",
            Self::NoJitMap => "JIT code without a perf map or jitdump",
            Self::NoJavaMap => "JIT code of Java without a perf map or jitdump",
            Self::NoDotnetMap => "JIT code of .NET without a perf map or jitdump",
            Self::NoMonoMap => "JIT code of Mono without a perf map or jitdump",
            Self::NoErlangMap => "JIT code of Erlang without a perf map or jitdump",
            Self::NoNodeMap => "JIT code of Node.js without a perf map or jitdump",
            Self::NoPhpMap => "JIT code of PHP without a perf map or jitdump",
            Self::NoRubyMap => "JIT code of Ruby without a perf map or jitdump",
            Self::NoLuaJitMap => "JIT code of LuaJIT without a perf map or jitdump",
            Self::JitMapRefused => "JIT code with an untrusted perf map",
            Self::NoJitEntry => "JIT code without an entry at the address",
            Self::JitCodeUnloaded => "JIT code that the runtime may have unloaded since",
            Self::JitCodeReplaced => "JIT code at an address whose code was replaced at about that time",
            Self::RuntimeStub => "a stub of the .NET runtime",
            Self::NotResponding => "a file or process that did not respond in time",
            Self::RuntimeRefused => "JIT code of a runtime with an untrusted socket",
            Self::RuntimeNotReachable => "no permission to open the runtime's diagnostics socket",
            Self::RuntimeSilent => "JIT code of a runtime that did not answer in time",
            Self::KernelAddressesHidden => "kernel hides its addresses",
            Self::KernelSymbolsNotReadable => "no permission to read the kernel's symbols",
            Self::TooManyOpenFiles => "the profiler's limit of open files",
            Self::OutOfTime => "no time left to read the symbols after the end of sampling",
        })
    }
}
