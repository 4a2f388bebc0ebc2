//! The code of a module: an ELF file or a ReadyToRun image, by the file's magic number.

use std::{path::Path, sync::Arc};

use profiler_addresses::{ElfAddress, FileMapping, RuntimeAddress};
use profiler_binary_reader::{Image, WorkBudget};
use profiler_dotnet_symbols::{
    jit_helpers::JitHelpers,
    pe::is_pe,
    readytorun::{AssemblyLocation, Bundle, ReadyToRunModule, RuntimeCells},
};
use profiler_profile::{FrameKind, Reason, SymbolSource};

use crate::{
    NativeOptions,
    debug_file::DebugFiles,
    native::NativeModule,
    reasons,
    runtime_detection::{has_jit_compiler, is_jit_compiler},
    symbol::{SymbolHint, Symbolized},
};

/// The code and symbols of an opened file.
pub(super) enum ModuleCode {
    /// An ELF file.
    Native(Box<NativeModule>),
    /// A .NET assembly (PE file) with precompiled code.
    ReadyToRun(Box<ReadyToRunModule>),
}

impl ModuleCode {
    /// Parses the file at `path` in the root directory of its process. All modules share `budget`.
    pub(super) fn from_image(image: Image, path: &Path, budget: &Arc<WorkBudget>) -> Result<Self, Reason> {
        if is_pe(&image) {
            return Self::from_assembly(image, AssemblyLocation::from_image_path(path), budget);
        }
        NativeModule::open(image, path, budget).map(Box::new).map(Self::Native)
    }

    /// Parses a .NET assembly. Other assemblies of the application are found through `home`.
    pub(super) fn from_assembly(
        image: Image,
        home: AssemblyLocation,
        budget: &Arc<WorkBudget>,
    ) -> Result<Self, Reason> {
        let opened = ReadyToRunModule::open(image, home, budget).map_err(reasons::name_error_reason);
        opened.map(Box::new).map(Self::ReadyToRun)
    }

    /// The bundle of assemblies in the file, if it is a single-file .NET program.
    pub(super) fn bundle(&self, budget: &WorkBudget) -> Result<Option<Bundle>, Reason> {
        match self {
            Self::Native(module) => {
                let elf = module.elf();
                Bundle::read(elf.image(), elf.writable_data(), budget).map_err(reasons::parse_error_reason)
            }
            Self::ReadyToRun(_) => Ok(None),
        }
    }

    /// Whether all names come from the file itself and from these debug files. Those of an assembly come from the assemblies
    /// beside it too.
    pub(super) fn is_self_contained(&mut self, options: NativeOptions, debug_files: &DebugFiles) -> bool {
        match self {
            Self::Native(module) => module.is_self_contained(options, debug_files),
            Self::ReadyToRun(_) => false,
        }
    }

    /// Whether it is a .NET runtime with a JIT compiler.
    pub(super) fn is_runtime(&self) -> bool {
        match self {
            Self::Native(module) => has_jit_compiler(module.elf()),
            Self::ReadyToRun(_) => false,
        }
    }

    /// Whether it is the JIT compiler of a .NET runtime.
    pub(super) fn is_jit_compiler(&self) -> bool {
        match self {
            Self::Native(module) => is_jit_compiler(module.elf()),
            Self::ReadyToRun(_) => false,
        }
    }

    /// Where the runtime puts the addresses of helpers and allocators. A malformed image has no such cells.
    pub(super) fn runtime_cells(&mut self) -> RuntimeCells {
        match self {
            Self::Native(_) => RuntimeCells::default(),
            Self::ReadyToRun(module) => module.runtime_cells().unwrap_or_default(),
        }
    }

    /// The names of helpers, by number, in the file of a JIT compiler.
    pub(super) fn helper_names(&self) -> Vec<String> {
        match self {
            Self::Native(module) => module.helper_names(),
            Self::ReadyToRun(_) => Vec::new(),
        }
    }

    /// The helpers of a .NET runtime that have these names by number.
    pub(super) fn jit_helpers(&mut self, names: &[String]) -> JitHelpers {
        match self {
            Self::Native(module) => module.jit_helpers(names),
            Self::ReadyToRun(_) => JitHelpers::default(),
        }
    }

    /// Discards what was read from debug files.
    pub(super) fn discard_symbols(&mut self) {
        match self {
            Self::Native(module) => module.discard_symbols(),
            Self::ReadyToRun(_) => {}
        }
    }

    pub(super) fn kind(&self) -> FrameKind {
        match self {
            Self::Native(_) => FrameKind::Native,
            Self::ReadyToRun(_) => FrameKind::Precompiled,
        }
    }

    /// The build id; empty when the file has none.
    pub(super) fn build_id(&self) -> &[u8] {
        match self {
            Self::Native(module) => module.build_id(),
            Self::ReadyToRun(_) => &[],
        }
    }

    /// Converts a runtime address in a mapping of the file to an address in the file.
    pub(super) fn address(&self, mapping: FileMapping, address: RuntimeAddress) -> Option<ElfAddress> {
        match self {
            Self::Native(module) => module.elf_address(mapping, address),
            Self::ReadyToRun(module) => module.address(mapping, address),
        }
    }

    /// The functions at an address in the file.
    pub(super) fn symbolize(
        &mut self,
        address: ElfAddress,
        options: NativeOptions,
        debug_files: &DebugFiles,
    ) -> Result<Symbolized, Reason> {
        match self {
            Self::Native(module) => module.symbolize(address, options, debug_files),
            Self::ReadyToRun(module) => module
                .symbolize(address, debug_files)
                .map(|name| Symbolized::from_managed(SymbolSource::ReadyToRun, name))
                .map_err(reasons::name_error_reason),
        }
    }

    /// What is known about an address without a symbol.
    pub(super) fn hint(&mut self, address: ElfAddress) -> SymbolHint {
        match self {
            Self::Native(module) => module.nearby(address),
            Self::ReadyToRun(_) => SymbolHint::default(),
        }
    }

    /// Whether the debug file is still being downloaded from a symbol server.
    pub(super) fn awaits_debug_file(&mut self, options: NativeOptions, debug_files: &DebugFiles) -> bool {
        match self {
            Self::Native(module) => module.awaits_debug_file(options, debug_files),
            Self::ReadyToRun(_) => false,
        }
    }
}
