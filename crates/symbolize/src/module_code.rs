//! The code of one file, whatever kind of file it is: what its first bytes say decides.

use crate::absence;
use profiler_binary_reader::{Image, WorkBudget};
use profiler_dotnet_symbols::pe::is_pe;
use profiler_dotnet_symbols::readytorun::{AssemblyLocation, Bundle, ReadyToRunModule};
use std::{path::Path, sync::Arc};

use super::{
    NativeOptions,
    debug_file::DebugFiles,
    native::NativeModule,
    symbol::{Nearby, Symbolized},
};
use profiler_addresses::{ElfAddress, FileOffset, RuntimeAddress};
use profiler_profile::{FrameKind, Reason, SymbolSource};

/// A file that was opened for its names.
pub(super) enum ModuleCode {
    Native(Box<NativeModule>),
    /// A .NET image.
    ReadyToRun(Box<ReadyToRunModule>),
}

impl ModuleCode {
    /// The code of the file at `path` in its process; `budget` is that of all debug information.
    pub(super) fn of_image(image: Image, path: &Path, budget: &Arc<WorkBudget>) -> Result<Self, Reason> {
        if is_pe(&image) {
            return Self::of_assembly(image, AssemblyLocation::from_image_path(path), budget);
        }
        NativeModule::open(image, path, budget).map(Box::new).map(Self::Native)
    }

    /// The code of a .NET image that has its neighbours at `home`.
    pub(super) fn of_assembly(
        image: Image,
        home: AssemblyLocation,
        budget: &Arc<WorkBudget>,
    ) -> Result<Self, Reason> {
        let opened = ReadyToRunModule::open(image, home, budget).map_err(absence::of_name_error);
        opened.map(Box::new).map(Self::ReadyToRun)
    }

    /// The assemblies that the file carries, if it is a single-file .NET program.
    pub(super) fn bundle(&self, budget: &WorkBudget) -> Result<Option<Bundle>, Reason> {
        match self {
            Self::Native(module) => {
                let elf = module.elf();
                Bundle::read(elf.image(), elf.variables(), budget).map_err(absence::of_defect)
            }
            Self::ReadyToRun(_) => Ok(None),
        }
    }

    pub(super) fn kind(&self) -> FrameKind {
        match self {
            Self::Native(_) => FrameKind::Native,
            Self::ReadyToRun(_) => FrameKind::Precompiled,
        }
    }

    /// Empty where the file has none.
    pub(super) fn build_id(&self) -> &[u8] {
        match self {
            Self::Native(module) => module.build_id(),
            Self::ReadyToRun(_) => &[],
        }
    }

    /// The file's own address of code that runs at `address`, in a mapping of its bytes from
    /// `mapping_offset` on to the memory from `mapping_start` on.
    pub(super) fn address(
        &self,
        mapping_start: RuntimeAddress,
        mapping_offset: FileOffset,
        address: RuntimeAddress,
    ) -> Option<ElfAddress> {
        match self {
            Self::Native(module) => module.elf_address(mapping_start, mapping_offset, address),
            Self::ReadyToRun(module) => module.address(mapping_start, mapping_offset, address),
        }
    }

    /// The functions at an address of the file.
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
                .map(|name| Symbolized::managed(SymbolSource::ReadyToRun, name))
                .map_err(absence::of_name_error),
        }
    }

    /// What is known of an address for which there is no name.
    pub(super) fn nearby(&mut self, address: ElfAddress) -> Nearby {
        match self {
            Self::Native(module) => module.nearby(address),
            Self::ReadyToRun(_) => Nearby::default(),
        }
    }

    /// Whether the debug file that would say more is on its way from a symbol server.
    pub(super) fn awaits_debug_file(&mut self, options: NativeOptions, debug_files: &DebugFiles) -> bool {
        match self {
            Self::Native(module) => module.awaits_debug_file(options, debug_files),
            Self::ReadyToRun(_) => false,
        }
    }
}
