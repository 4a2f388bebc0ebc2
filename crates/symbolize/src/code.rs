//! The identity of the code at an address, its symbols, and the label of an unsymbolized frame.

use std::sync::Arc;

use profiler_addresses::{ElfAddress, FileOffset, RuntimeAddress};
use profiler_dotnet_symbols::managed::Tier;
use profiler_processes::{Backing, FileId, Mapping, ProcessKey};
use profiler_profile::{FrameKind, Reason};

use crate::symbol::{SymbolHint, Symbolized};

/// Identifies the code at an address. Equal keys have the same symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodeKey {
    /// Kernel code, by its runtime address.
    Kernel(RuntimeAddress),
    /// Code of an opened module, by its address in the file.
    Module(ModuleKey, ElfAddress),
    /// Code of a .NET runtime in a process, by its address in the file: names also come from the memory of the process.
    Runtime(ProcessKey, ModuleKey, ElfAddress),
    /// JIT code of a process, by its runtime address and [`jit_epoch`](crate::Symbolizer::jit_epoch).
    Jit(ProcessKey, RuntimeAddress, u32),
    /// Code of a file that could not be opened or parsed, by its file offset.
    Unopened(FileId, FileOffset, Reason),
    /// An address without a mapping or without a source of symbols.
    Unknown(Reason, RuntimeAddress),
}

/// Identifies an opened module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModuleKey(pub(crate) u32);

/// The symbols of the code at an address.
#[derive(Clone, Debug)]
pub struct SymbolizedCode {
    /// The kind of code.
    pub kind: FrameKind,
    /// Path and build id of the module, when the code belongs to one. The build id can be empty.
    pub module: Option<(Arc<str>, Arc<[u8]>)>,
    /// The address in the file of the module; the runtime address when there is no module; the offset in the function for
    /// kernel code, 0 for kernel code without a symbol.
    pub address: ElfAddress,
    /// The functions at the address, or the reason for which there is no symbol.
    pub names: Result<Symbolized, Reason>,
    /// What is known about the location when there is no symbol.
    pub hint: SymbolHint,
}

impl SymbolizedCode {
    /// Whether the code continues a managed method in the middle of a loop, on top of the frame of other code of the method
    /// (on-stack replacement).
    pub fn replaces_on_stack(&self) -> bool {
        self.names.as_ref().is_ok_and(|names| names.tier == Some(Tier::OptimizedTier1Osr))
    }

    /// Code without a symbol and without a module.
    pub(crate) fn unsymbolized(kind: FrameKind, address: ElfAddress, reason: Reason) -> Self {
        Self { kind, module: None, address, names: Err(reason), hint: SymbolHint::default() }
    }
}

/// The label of a frame without a symbol, such as `[libc.so.6+0x1234]`.
pub fn placeholder(code: &SymbolizedCode, reason: Reason, mapping: Option<&Mapping>) -> String {
    match (code.kind, &code.module) {
        (FrameKind::Kernel, _) => "[kernel]".to_owned(),
        (FrameKind::Jit, _) if reason == Reason::RuntimeStub => "[stub]".to_owned(),
        (FrameKind::Jit, _) => format!("[JIT 0x{:x}]", code.address),
        // The start address merges all addresses of a function into one frame of a flame graph.
        (_, Some((path, _))) => {
            let address = code.hint.function_start.unwrap_or(code.address);
            match &code.hint.preceding_symbol {
                Some(symbol) => format!("[{}+0x{address:x} near {symbol}]", file_name(path)),
                None => format!("[{}+0x{address:x}]", file_name(path)),
            }
        }
        (_, None) => match mapping.map(|mapping| &mapping.backing) {
            Some(Backing::Special(name)) => name.to_string(),
            _ => "[unmapped]".to_owned(),
        },
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
