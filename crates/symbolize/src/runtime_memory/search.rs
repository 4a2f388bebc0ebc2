//! Searches the memory of a process for the helpers, the prestub and the allocators of its .NET runtime.

use std::{path::Path, sync::Arc};

use profiler_addresses::{ElfAddress, MonotonicTime, RuntimeAddress};
use profiler_dotnet_symbols::{
    calls::MAX_CALL_BYTES,
    readytorun::{Helper, HelperCell, RuntimeCells},
    stubs::prestub_pointer,
};
use profiler_processes::{Backing, Mapping, ProcFs, Process};

use crate::{CodeKey, ModuleKey, modules::Modules};

/// The image whose cells have all helpers. In a single-file program, no mapping has its name.
const CORE_LIBRARY: &str = "System.Private.CoreLib.dll";

/// The JIT compiler of a runtime that is not in a single-file program.
const JIT_COMPILER: &str = "libclrjit.so";

/// The number of cells from which on an image is taken for the core library, which has 53.
const CORE_LIBRARY_CELLS: usize = 40;

/// Images whose cells are read to find that with most.
const MAX_IMAGES: usize = 64;

/// Cells of images that all searches in a process read. The core library has 10,000, and is read first.
pub(super) const MAX_READ_CELLS: u32 = 256 << 10;

/// Mappings that are searched for a precode.
const MAX_PRECODE_MAPPINGS: usize = 64;

/// The distance of two cells that are read together: a page, so that no hole is between them. Each read takes 0.1 ms.
const MAX_CELL_DISTANCE_BYTES: u64 = 4 << 10;

/// The distance of the first and the last cell that are read at once.
const MAX_READ_BYTES: u64 = 32 << 10;

const POINTER_BYTES: usize = 8;

/// What contains an address.
pub(super) enum Location {
    /// A module, and the address in it.
    Function(ModuleKey, ElfAddress),
    /// Memory without a file.
    JitMemory,
}

/// A search in the memory of a process.
pub(crate) struct Search<'a> {
    pub(crate) modules: &'a mut Modules,
    pub(crate) proc: &'a ProcFs,
    pub(crate) process: &'a Process,
    pub(crate) time: MonotonicTime,
}

impl Search<'_> {
    /// The load address and the cells of the core library, or of the image that has most. Adds the cells that it read to
    /// `read_cells`.
    pub(super) fn core_library(&mut self, read_cells: &mut u32) -> Option<(u64, RuntimeCells)> {
        let process = self.process;
        let images = process.mappings().filter(|mapping| matches!(mapping.backing, Backing::File { .. }));
        let is_core_library = |mapping: &&Mapping| match &mapping.backing {
            Backing::File { path, .. } => path.ends_with(CORE_LIBRARY),
            _ => false,
        };
        let (core_library, others): (Vec<_>, Vec<_>) = images.partition(is_core_library);
        let mut most: Option<(u64, RuntimeCells)> = None;
        for mapping in core_library.into_iter().chain(others).take(MAX_IMAGES) {
            let address = mapping.middle();
            let CodeKey::Module(module, in_image) = self.modules.code_at(process, mapping, address) else {
                continue;
            };
            let cells = self.modules.runtime_cells(module);
            *read_cells = read_cells.saturating_add(cells.read);
            let count = cells.helpers.len();
            if count > most.as_ref().map_or(0, |(_, most)| most.helpers.len()) {
                most = Some((address.0.wrapping_sub(in_image.0), cells));
            }
            if count >= CORE_LIBRARY_CELLS || *read_cells >= MAX_READ_CELLS {
                break;
            }
        }
        most
    }

    /// The JIT compiler, if it is a library of its own.
    pub(super) fn jit_compiler(&mut self) -> Option<ModuleKey> {
        let process = self.process;
        let libraries = file_mappings(process).filter(|(_, path)| has_file_name(path, JIT_COMPILER));
        libraries.take(MAX_IMAGES).find_map(|(mapping, _)| {
            match self.modules.code_at(process, mapping, mapping.middle()) {
                CodeKey::Module(module, _) if self.modules.is_jit_compiler(module) => Some(module),
                _ => None,
            }
        })
    }

    /// The load address of a module of the process: what is added to addresses in its file.
    pub(super) fn load_address(&mut self, wanted: ModuleKey) -> Option<u64> {
        let (process, path) = (self.process, self.modules.path(wanted)?);
        let name = Path::new(&*path).file_name()?.to_str()?;
        // Another process can have mapped it under another name.
        let (likely, others): (Vec<_>, Vec<_>) =
            file_mappings(process).partition(|(_, path)| has_file_name(path, name));
        likely.into_iter().chain(others).take(MAX_IMAGES).find_map(|(mapping, _)| {
            let address = mapping.middle();
            match self.modules.code_at(process, mapping, address) {
                CodeKey::Module(module, in_file) if module == wanted => {
                    Some(address.0.wrapping_sub(in_file.0))
                }
                _ => None,
            }
        })
    }

    /// The helpers in the cells of an image that is loaded at `base`.
    pub(super) fn helpers(&self, base: u64, cells: &[HelperCell]) -> Vec<(Helper, RuntimeAddress)> {
        let address = |cell: &HelperCell| RuntimeAddress(base.wrapping_add(cell.address.0));
        let cells: Vec<_> = cells.iter().map(|cell| (address(cell), cell.helper)).collect();
        self.contents(&cells)
    }

    /// What cells contain: pointers in the memory of the process. Cells next to each other are read together.
    pub(super) fn contents<T: Copy>(&self, cells: &[(RuntimeAddress, T)]) -> Vec<(T, RuntimeAddress)> {
        let mut contents = Vec::new();
        let mut start = cells.first().map_or(0, |(first, _)| first.0);
        let is_near = |first: &(RuntimeAddress, T), second: &(RuntimeAddress, T)| {
            let distance = |from: u64| second.0.0.checked_sub(from).unwrap_or(u64::MAX);
            let is_near = distance(first.0.0) < MAX_CELL_DISTANCE_BYTES && distance(start) < MAX_READ_BYTES;
            if !is_near {
                start = second.0.0;
            }
            is_near
        };
        for run in cells.chunk_by(is_near) {
            let (Some((first, _)), Some((last, _))) = (run.first(), run.last()) else { continue };
            let bytes = (last.0 - first.0) as usize + POINTER_BYTES;
            let Ok(memory) = self.proc.read_memory(self.process, *first, bytes) else { continue };
            contents.extend(run.iter().filter_map(|(address, value)| {
                let content = memory.get((address.0 - first.0) as usize..)?.first_chunk()?;
                Some((*value, RuntimeAddress(u64::from_le_bytes(*content))))
            }));
        }
        contents
    }

    /// The content of one cell.
    pub(super) fn pointer_at(&self, cell: RuntimeAddress) -> Option<RuntimeAddress> {
        self.contents(&[(cell, ())]).pop().map(|((), content)| content)
    }

    /// The code up to the end of the call instruction whose last byte is at an address.
    pub(super) fn read_call(&self, call_site: RuntimeAddress) -> Option<Vec<u8>> {
        let mapping = self.process.find_mapping(call_site, self.time).ok()?;
        let end = call_site.0.checked_add(1)?;
        let start = end.saturating_sub(MAX_CALL_BYTES as u64).max(mapping.start.0);
        let bytes = usize::try_from(end.checked_sub(start)?).ok()?;
        self.proc.read_memory(self.process, RuntimeAddress(start), bytes).ok()
    }

    /// The prestub, which a precode at the start of a mapping points to.
    pub(super) fn prestub(&self) -> Option<RuntimeAddress> {
        const PRECODE_BYTES: usize = 24;
        let jit_memory = self.process.mappings().filter(|mapping| is_jit_memory(mapping));
        let read = |address, bytes| self.proc.read_memory(self.process, address, bytes).ok();
        jit_memory.take(MAX_PRECODE_MAPPINGS).find_map(|mapping| {
            let pointer = prestub_pointer(&read(mapping.start, PRECODE_BYTES)?, mapping.start)?;
            let content = read(pointer, POINTER_BYTES)?;
            content.first_chunk().map(|content| RuntimeAddress(u64::from_le_bytes(*content)))
        })
    }

    /// Whether an address is in executable memory without a file.
    pub(super) fn is_jit_code(&self, address: RuntimeAddress) -> bool {
        self.process.find_mapping(address, self.time).is_ok_and(|mapping| is_jit_memory(mapping))
    }

    pub(super) fn locate(&mut self, target: RuntimeAddress) -> Option<Location> {
        let mapping: &Arc<Mapping> = self.process.find_mapping(target, self.time).ok()?;
        if is_jit_memory(mapping) {
            return Some(Location::JitMemory);
        }
        match self.modules.code_at(self.process, mapping, target) {
            CodeKey::Module(module, address) => Some(Location::Function(module, address)),
            _ => None,
        }
    }
}

/// The mappings of files, and their paths.
fn file_mappings(process: &Process) -> impl Iterator<Item = (&Mapping, &str)> {
    process.mappings().filter_map(|mapping| match &mapping.backing {
        Backing::File { path, .. } => Some((mapping, &**path)),
        _ => None,
    })
}

fn has_file_name(path: &str, name: &str) -> bool {
    Path::new(path).file_name().is_some_and(|found| found == name)
}

fn is_jit_memory(mapping: &Mapping) -> bool {
    matches!(mapping.backing, Backing::Jit | Backing::DotnetJit)
}
