//! Frames: kind of code, module, address, symbol, and its source or the reason why it is missing.

use std::fmt;

use crate::{ModuleId, Reason, StringId};
use profiler_addresses::ElfAddress;

/// The kind of code of a frame.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrameKind {
    /// The kernel or one of its modules.
    Kernel,
    /// Code of an ELF file or of the vdso.
    Native,
    /// Precompiled (ReadyToRun) code of a .NET image.
    Precompiled,
    /// JIT code.
    Jit,
    /// A function that was inlined into the next frame towards the root.
    Inlined,
    /// No code but a text: the separator between a waiting stack and that of its waker, the name of the waker.
    Label,
    /// No code but the cause of a wait: `[lock]`. The frames below it, towards the leaf, are those in which the thread waits.
    Wait,
}

/// The kind of a frame by which views colour it: that of its code, or unsymbolized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum CodeKind {
    /// [`FrameKind::Kernel`]
    Kernel,
    /// [`FrameKind::Native`]
    Native,
    /// [`FrameKind::Precompiled`]
    Precompiled,
    /// [`FrameKind::Jit`]
    Jit,
    /// [`FrameKind::Inlined`]
    Inlined,
    /// A frame of any kind without a symbol.
    Unsymbolized,
    /// [`FrameKind::Wait`]
    Wait,
}

impl CodeKind {
    /// Every kind.
    pub const ALL: &'static [Self] = &[
        Self::Kernel,
        Self::Native,
        Self::Precompiled,
        Self::Jit,
        Self::Inlined,
        Self::Unsymbolized,
        Self::Wait,
    ];
}

/// A file that code was loaded from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Module {
    /// The path in the mount namespace of the process; `[kernel]`, `[vdso]` and `[name]` for a kernel module.
    pub path: StringId,
    /// The build id; empty where the file has none.
    pub build_id: Box<[u8]>,
}

/// A line of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceLocation {
    /// The path in the debug information.
    pub file: StringId,
    /// The line, from 1; 0 where the debug information has none.
    pub line: u32,
}

/// The source of a symbol.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SymbolSource {
    /// The symbols of the kernel, those of `/proc/kallsyms`.
    Kallsyms,
    /// `.symtab` of the file itself.
    SymbolTable,
    /// `.dynsym` of the file: exported functions only.
    DynamicSymbols,
    /// `.gnu_debugdata` of the file.
    MiniDebugInfo,
    /// `.symtab` of a separate debug file.
    DebugFile,
    /// DWARF of the file or of a separate debug file.
    Dwarf,
    /// A `perf-PID.map` that the target's runtime writes.
    PerfMap,
    /// A `jit-PID.dump` that the target's runtime writes.
    JitDump,
    /// The tables of precompiled code (ReadyToRun) in a .NET image.
    ReadyToRun,
    /// EventPipe events of the .NET runtime, from its diagnostics socket.
    RuntimeEvents,
    /// The tables through which managed code calls native functions of the .NET runtime.
    RuntimeCallTable,
    /// Cells in the memory of the target through which code calls helpers of the .NET runtime.
    RuntimeHelper,
    /// The code of a stub of the .NET runtime, in the memory of the target.
    StubCode,
    /// The function table of a Go program (`.gopclntab`), which stripping leaves.
    GoFunctionTable,
    /// The data structures of the .NET runtime in the memory of the target (data contracts).
    RuntimeMemory,
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
            Self::RuntimeCallTable => "runtime call tables",
            Self::RuntimeHelper => "runtime helpers",
            Self::StubCode => "stub code",
            Self::GoFunctionTable => ".gopclntab",
            Self::RuntimeMemory => "runtime memory",
        })
    }
}

/// The source of the symbol of a frame, or the reason why it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Symbolization {
    /// The name of the frame is a symbol.
    Symbol(SymbolSource),
    /// The name of the frame is an address.
    Address(Reason),
}

/// One level of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The symbol, or the address in brackets.
    pub name: StringId,
    /// The kind of code.
    pub kind: FrameKind,
    /// The file of the code; JIT code and unmapped addresses have none.
    pub module: Option<ModuleId>,
    /// The address in the module; for JIT code the runtime address; for kernel code the offset in the function, which
    /// does not reveal where the kernel is in memory.
    pub address: ElfAddress,
    /// The source line, where it was requested and is known.
    pub location: Option<SourceLocation>,
    /// The source of the symbol, or the reason why it is missing.
    pub symbolization: Symbolization,
}

impl Frame {
    /// The kind by which views colour the frame.
    #[must_use]
    pub fn code_kind(&self) -> CodeKind {
        match (self.symbolization, self.kind) {
            (Symbolization::Address(_), _) => CodeKind::Unsymbolized,
            (_, FrameKind::Kernel) => CodeKind::Kernel,
            (_, FrameKind::Native | FrameKind::Label) => CodeKind::Native,
            (_, FrameKind::Precompiled) => CodeKind::Precompiled,
            (_, FrameKind::Jit) => CodeKind::Jit,
            (_, FrameKind::Inlined) => CodeKind::Inlined,
            (_, FrameKind::Wait) => CodeKind::Wait,
        }
    }
}
