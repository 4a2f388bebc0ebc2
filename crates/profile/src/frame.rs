//! Frames: what one level of a stack is, and how it got its name.

use std::fmt;

use super::{ModuleId, Reason, StringId};
use profiler_addresses::ElfAddress;

/// What kind of code a frame runs.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrameKind {
    /// The kernel or one of its modules.
    Kernel,
    /// Compiled ahead of time: code of a file, or the vdso.
    Native,
    /// Managed code that was compiled ahead of time: of a .NET image.
    Precompiled,
    /// Compiled at run time.
    Jit,
    /// A function that the compiler put into the frame that follows it towards the root.
    Inlined,
}

/// What views colour a frame by: its kind, unless it has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum CodeKind {
    Kernel,
    Native,
    Precompiled,
    Jit,
    Inlined,
    UnsymbolizedFrames,
}

impl CodeKind {
    pub const ALL: &'static [Self] =
        &[Self::Kernel, Self::Native, Self::Precompiled, Self::Jit, Self::Inlined, Self::UnsymbolizedFrames];
}

/// A file that code comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Module {
    /// The path as the process sees it; `[kernel]`, `[vdso]` and `[name]` for a kernel module.
    pub path: StringId,
    /// The build id, empty where the file has none.
    pub build_id: Box<[u8]>,
}

/// A place in a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceLocation {
    /// Path as the debug information has it.
    pub file: StringId,
    /// Line from 1; 0 where the compiler names none.
    pub line: u32,
}

/// Where a name came from.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SymbolSource {
    /// The kernel's own symbols, those of `/proc/kallsyms`.
    Kallsyms,
    /// `.symtab` of the file itself.
    SymbolTable,
    /// `.dynsym` of the file: exported functions only.
    DynamicSymbols,
    /// `.gnu_debugdata` of the file.
    MiniDebugInfo,
    /// `.symtab` of a separate debug file.
    DebugFile,
    /// DWARF, of the file or of a separate debug file.
    Dwarf,
    /// A `perf-PID.map` that the target's runtime writes.
    PerfMap,
    /// A `jit-PID.dump` that the target's runtime writes.
    JitDump,
    /// The tables of precompiled code (ReadyToRun) in a .NET image.
    ReadyToRun,
    /// The events that the target's .NET runtime tells of at its diagnostics socket.
    RuntimeEvents,
}

impl fmt::Display for SymbolSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kallsyms => "kallsyms",
            Self::SymbolTable => ".symtab",
            Self::DynamicSymbols => ".dynsym",
            Self::MiniDebugInfo => ".gnu_debugdata",
            Self::DebugFile => "debug file",
            Self::Dwarf => "DWARF",
            Self::PerfMap => "perf map",
            Self::JitDump => "jitdump",
            Self::ReadyToRun => "ReadyToRun",
            Self::RuntimeEvents => "runtime events",
        })
    }
}

/// How a frame got its name, or why it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Symbolization {
    /// The name is a symbol's.
    Symbol(SymbolSource),
    /// The name is an address.
    Address(Reason),
}

/// One level of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// What to print: the function, or the address in brackets.
    pub name: StringId,
    /// What kind of code it is.
    pub kind: FrameKind,
    /// The file it comes from; JIT code and unmapped addresses have none.
    pub module: Option<ModuleId>,
    /// The address in the module; for JIT code the runtime address.
    pub address: ElfAddress,
    /// Where in the source, when that was asked for and is known.
    pub location: Option<SourceLocation>,
    /// How it got its name.
    pub naming: Symbolization,
}

impl Frame {
    pub fn code_kind(&self) -> CodeKind {
        match (self.naming, self.kind) {
            (Symbolization::Address(_), _) => CodeKind::UnsymbolizedFrames,
            (_, FrameKind::Kernel) => CodeKind::Kernel,
            (_, FrameKind::Native) => CodeKind::Native,
            (_, FrameKind::Precompiled) => CodeKind::Precompiled,
            (_, FrameKind::Jit) => CodeKind::Jit,
            (_, FrameKind::Inlined) => CodeKind::Inlined,
        }
    }
}
