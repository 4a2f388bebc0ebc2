//! The runtime of a process, and the method at an address of its code.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::Arc,
};

use profiler_addresses::{ElfAddress, RuntimeAddress};
use profiler_binary_reader::{Image, ReadAt, WorkBudget};
use profiler_dotnet_symbols::{
    readytorun::{AssemblyFiles, AssemblyLocation, NameError, ReadyToRunModule},
    stubs::{MAX_STUB_BYTES, stub_name},
};

use crate::{
    code_header::{CodeBlock, MethodHeader, find_code, read_header},
    code_ranges::{CodeRange, CodeRangeContent, CodeRangeMap},
    descriptor::DataDescriptor,
    error::{DescriptorError, LookupError, StateError},
    freeable_code,
    function_frames::{self, FunctionFrames},
    layout::Layouts,
    memory::{LimitedMemory, Memory, MemoryImage, ReadError, ReadLimits},
    method_desc::{Definition, MethodDesc},
    method_names::build_name,
    modules::Modules,
    monitors::{HeldMonitor, MonitorReader},
    threads::{Listing, ManagedThread, RawThread, ThreadReader},
};

/// Precompiled images whose tables are kept. Beyond, all are forgotten. The .NET frameworks have two hundred.
const MAX_IMAGES: usize = 256;

/// Cached bytes of all precompiled images. Beyond, all are forgotten.
const MAX_IMAGE_CACHE_BYTES: usize = 32 << 20;

/// The largest precompiled image. A framework in one image has 200 MB.
const MAX_IMAGE_BYTES: u64 = 512 << 20;

/// The first address that no code has (x86-64 with four levels of page tables).
const CODE_END: u64 = 1 << 47;

/// Where the runtime of a process has what describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeSymbols {
    /// The address of `DotNetRuntimeContractDescriptor`.
    pub descriptor: RuntimeAddress,
    /// The address of `g_dacTable`. Only .NET 9 needs it.
    pub dac_table: Option<RuntimeAddress>,
}

/// A method, a stub or a function of precompiled code.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeCode {
    /// The first address. That of a stub is the address that was looked up: no table has the starts of stubs.
    pub start: RuntimeAddress,
    /// The number of bytes; 0 for a stub.
    pub size_bytes: u64,
    /// `assembly!Namespace.Type.Method(arguments)`, as in names from EventPipe; `stub` and its kind for a stub.
    pub name: String,
    /// The name of the file of the module, or of a module without a file; empty for a stub.
    pub module_file_name: String,
    /// What it is.
    pub kind: CodeKind,
    /// Whether the runtime frees the code when nothing refers to it, and uses its memory for other code.
    pub can_be_freed: bool,
}

/// What code of a runtime is.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeKind {
    /// A method that the JIT compiled.
    Compiled,
    /// A method without metadata: a `DynamicMethod`, whose code the runtime frees when nothing refers to it, or a stub of the
    /// runtime in IL, whose code stays.
    Dynamic,
    /// Code that the runtime made from a template.
    Stub,
    /// A method that was compiled ahead of time (ReadyToRun).
    Precompiled,
}

/// What is at an address, and what describes its frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeWithFrames {
    /// What is at the address.
    pub code: RuntimeCode,
    /// What describes the frames of the method, function by function in ascending order. It holds as long as the process runs.
    ///
    /// Code that the runtime can free has [`LookupError::CanBeFreed`] instead, a stub or precompiled code
    /// [`LookupError::NoMethod`], another method the reason why its frames cannot be read.
    pub frames: Result<Vec<FunctionFrames>, LookupError>,
}

/// The runtime of a process.
#[derive(Debug)]
pub struct DotNetRuntime {
    memory: Arc<LimitedMemory>,
    layouts: Layouts,
    modules: Modules,
    budget: Arc<WorkBudget>,
    /// Precompiled images, by the address where they are loaded.
    images: HashMap<u64, PrecompiledImage>,
    ranges: CodeRangeMap,
}

/// Where a lookup found a method.
struct MethodPlace {
    range: CodeRange,
    /// The list node of its code heap.
    heap: u64,
    /// The address that is looked up.
    address: u64,
    header: MethodHeader,
}

/// A precompiled image in memory.
struct PrecompiledImage {
    module: u64,
    tables: ReadyToRunModule,
}

impl std::fmt::Debug for PrecompiledImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrecompiledImage").field("module", &self.module).finish_non_exhaustive()
    }
}

impl DotNetRuntime {
    /// Reads the descriptor of a runtime. `limits` bound this and each lookup; `budget` all reads of metadata together.
    ///
    /// # Errors
    /// [`DescriptorError`] when the runtime is of a version with other data structures.
    pub fn open(
        memory: Arc<dyn Memory>,
        symbols: RuntimeSymbols,
        limits: ReadLimits,
        budget: &Arc<WorkBudget>,
    ) -> Result<Self, DescriptorError> {
        let memory = Arc::new(LimitedMemory::new(memory, limits));
        let descriptor = DataDescriptor::read(&memory, symbols.descriptor.0)?;
        let layouts = Layouts::new(descriptor, || {
            // The table of the debugger's data access begins with the map of code ranges (`inc/dacvars.h`).
            let table = symbols.dac_table.ok_or(DescriptorError::CodeMapMissing)?;
            Ok(memory.u64(table.0)?)
        })?;
        let modules = Modules::new(&memory, layouts.module.clone(), budget);
        Ok(Self {
            memory,
            layouts,
            modules,
            budget: Arc::clone(budget),
            images: HashMap::new(),
            ranges: CodeRangeMap::default(),
        })
    }

    /// Returns the method, stub or precompiled function at an address. `files` opens the assemblies that names of precompiled
    /// methods refer to.
    ///
    /// # Errors
    /// [`LookupError`], which states why the address has none.
    pub fn find(
        &mut self,
        address: RuntimeAddress,
        files: &dyn AssemblyFiles,
    ) -> Result<RuntimeCode, LookupError> {
        self.look_up(address, files, false).map(|found| found.code)
    }

    /// Returns what [`find`](Self::find) does, and what describes the frames of the method.
    ///
    /// # Errors
    /// Those of [`find`](Self::find). Frames that cannot be read have an error of their own.
    pub fn find_with_frames(
        &mut self,
        address: RuntimeAddress,
        files: &dyn AssemblyFiles,
    ) -> Result<CodeWithFrames, LookupError> {
        self.look_up(address, files, true)
    }

    fn look_up(
        &mut self,
        address: RuntimeAddress,
        files: &dyn AssemblyFiles,
        reads_frames: bool,
    ) -> Result<CodeWithFrames, LookupError> {
        self.memory.begin();
        self.modules.begin();
        if address.0 >= CODE_END {
            return Err(LookupError::NoCode);
        }
        let range = self.ranges.find(&self.memory, &self.layouts.code, address.0)?;
        let without_frames = |code| CodeWithFrames { code, frames: Err(LookupError::NoMethod) };
        match range.content {
            CodeRangeContent::Stubs => self.stub_at(address).map(without_frames),
            CodeRangeContent::Precompiled(module) => {
                self.find_precompiled(&range, module, address, files).map(without_frames)
            }
            CodeRangeContent::Heap(heap) => {
                let code = find_code(&self.memory, &self.layouts.code, &range, heap, address.0)?;
                match code {
                    CodeBlock::Stub => self.stub_at(address).map(without_frames),
                    CodeBlock::Method(header) => {
                        let place = MethodPlace { range, heap, address: address.0, header };
                        self.read_method(&place, reads_frames)
                    }
                }
            }
        }
    }

    /// Returns the starts of the methods whose code the runtime can free ([`RuntimeCode::can_be_freed`]). One that is compiled
    /// meanwhile can be missing.
    ///
    /// # Errors
    /// [`LookupError`] when the map of code cannot be read.
    pub fn freeable_code(&mut self) -> Result<Listing<RuntimeAddress>, LookupError> {
        self.memory.begin_list();
        freeable_code::list(&self.memory, &self.layouts)
    }

    /// Returns the managed threads that have started and have not ended.
    ///
    /// # Errors
    /// [`StateError`] when the runtime describes none, or the list cannot be read.
    pub fn threads(&mut self) -> Result<Listing<ManagedThread>, StateError> {
        self.describe_threads(|_| true)
    }

    /// Returns the managed threads that own these monitors. One that has ended meanwhile is not among them.
    ///
    /// # Errors
    /// [`StateError`] when the runtime describes no threads, or their list cannot be read.
    pub fn owners(&mut self, monitors: &[HeldMonitor]) -> Result<Listing<ManagedThread>, StateError> {
        let ids = |monitor: &HeldMonitor| (monitor.owner_os_id, monitor.owner_managed_id);
        let owners: HashSet<_> = monitors.iter().map(ids).collect();
        if owners.is_empty() {
            return Ok(Listing { entries: Vec::new(), is_complete: true });
        }
        self.describe_threads(|thread| owners.contains(&(thread.os_id, thread.managed_id)))
    }

    /// The chosen threads with their names and exceptions.
    fn describe_threads(
        &mut self,
        is_chosen: impl Fn(&RawThread) -> bool,
    ) -> Result<Listing<ManagedThread>, StateError> {
        self.memory.begin_list();
        self.modules.begin();
        let layout = self.layouts.threads.as_ref().map_err(Clone::clone)?;
        let reader = ThreadReader { memory: &self.memory, layout };
        let listed = reader.read_all()?;
        let mut threads = Listing { entries: Vec::new(), is_complete: listed.is_complete };
        for thread in listed.entries.iter().filter(|thread| is_chosen(thread)) {
            match reader.describe(&self.layouts.types, &mut self.modules, thread) {
                Ok(Some(thread)) => threads.entries.push(thread),
                Ok(None) => threads.is_complete = false,
                Err(ReadError::LimitExceeded) => {
                    threads.is_complete = false;
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(threads)
    }

    /// Returns the monitors (`lock` in C#) that threads hold. One that no thread has waited for is in the header of its object ("thin
    /// lock"), and is not among them.
    ///
    /// # Errors
    /// [`StateError`] when the runtime describes none, or its threads cannot be read.
    pub fn monitors(&mut self) -> Result<Listing<HeldMonitor>, StateError> {
        self.memory.begin_list();
        let layout = self.layouts.monitors.as_ref().map_err(Clone::clone)?;
        let threads = self.layouts.threads.as_ref().map_err(Clone::clone)?;
        let threads = ThreadReader { memory: &self.memory, layout: threads };
        MonitorReader { memory: &self.memory, layout, threads }.read_all()
    }

    /// The reads and bytes that the last lookup took.
    pub fn last_cost(&self) -> ReadLimits {
        self.memory.cost()
    }

    /// The number of bytes of the process that are kept for later lookups.
    pub fn cached_bytes(&self) -> usize {
        self.modules.cached_bytes() + self.image_cache_bytes()
    }

    fn image_cache_bytes(&self) -> usize {
        self.images.values().map(|image| image.tables.cached_bytes()).sum()
    }

    /// Reads the name of a method, and what describes its frames if `reads_frames`. What identifies the code is read again
    /// afterwards: the runtime frees code and reuses its memory at any time.
    fn read_method(
        &mut self,
        place: &MethodPlace,
        reads_frames: bool,
    ) -> Result<CodeWithFrames, LookupError> {
        let MethodPlace { range, header, .. } = place;
        let method = MethodDesc::read(&self.memory, &self.layouts.method, header.method)?;
        let named = build_name(&self.memory, &self.layouts.types, &mut self.modules, &method);
        // Stubs in IL are in code heaps that are never freed, except with a collectible assembly.
        let (kind, is_lightweight) = match method.definition {
            Definition::Metadata(_) => (CodeKind::Compiled, false),
            Definition::Dynamic { is_lightweight, .. } => (CodeKind::Dynamic, is_lightweight),
        };
        let can_be_freed = range.is_collectible || is_lightweight;
        let frames = match (can_be_freed, reads_frames && named.is_ok()) {
            (true, _) => Err(LookupError::CanBeFreed),
            (false, true) => function_frames::read(&self.memory, range, header),
            (false, false) => Ok(Vec::new()),
        };
        self.check_is_unchanged(place, &method, can_be_freed)?;
        let named = named?;
        let code = RuntimeCode {
            start: RuntimeAddress(header.start),
            size_bytes: header.end - header.start,
            name: named.name,
            module_file_name: named.file_name,
            kind,
            can_be_freed,
        };
        Ok(CodeWithFrames { code, frames })
    }

    /// Reads again what identifies the code and the method. That of a method whose code can be freed is found anew: its entry in
    /// the map of methods can be gone, or its description that of another method.
    fn check_is_unchanged(
        &self,
        place: &MethodPlace,
        method: &MethodDesc,
        can_be_freed: bool,
    ) -> Result<(), LookupError> {
        let (memory, layout) = (&self.memory, &self.layouts.code);
        let MethodPlace { range, heap, address, header } = place;
        memory.begin_check();
        let is_unchanged = || -> Result<bool, LookupError> {
            if !can_be_freed {
                return Ok(read_header(memory, layout, range, header.start)?.as_ref() == Some(header));
            }
            let code = find_code(memory, layout, range, *heap, *address)?;
            let same = MethodDesc::read(memory, &self.layouts.method, header.method)?;
            Ok(matches!(code, CodeBlock::Method(again) if again == *header) && same == *method)
        };
        match is_unchanged() {
            Ok(true) => Ok(()),
            Err(error @ LookupError::Read(ReadError::LimitExceeded | ReadError::TimedOut)) => Err(error),
            Ok(false) | Err(_) => Err(LookupError::CodeChanged),
        }
    }

    /// Recognizes a stub by its code. The code around it can be at the end of a mapping.
    fn stub_at(&self, address: RuntimeAddress) -> Result<RuntimeCode, LookupError> {
        const PAGE_BYTES: u64 = 4 << 10;
        let around = MAX_STUB_BYTES as u64;
        let page = address.0 & !(PAGE_BYTES - 1);
        let (wide_start, wide_end) = (address.0.saturating_sub(around), address.0.saturating_add(around));
        let places = [
            (wide_start, wide_end),
            (wide_start.max(page), wide_end),
            (wide_start, wide_end.min(page + PAGE_BYTES)),
            (wide_start.max(page), wide_end.min(page + PAGE_BYTES)),
        ];
        let read = |(start, end): (u64, u64)| {
            Some((start, self.memory.bytes(start, usize::try_from(end.checked_sub(start)?).ok()?).ok()?))
        };
        let (start, code) = places.into_iter().find_map(read).ok_or(ReadError::NotMapped)?;
        let kind = stub_name(&code, (address.0 - start) as usize).ok_or(LookupError::UnknownStub)?;
        Ok(RuntimeCode {
            start: address,
            size_bytes: 0,
            name: format!("stub {kind}"),
            module_file_name: String::new(),
            kind: CodeKind::Stub,
            can_be_freed: true,
        })
    }

    /// Names precompiled code from the tables of its image, as those of an image file.
    fn find_precompiled(
        &mut self,
        range: &CodeRange,
        module: u64,
        address: RuntimeAddress,
        files: &dyn AssemblyFiles,
    ) -> Result<RuntimeCode, LookupError> {
        let path = self.modules.path(module).unwrap_or_default();
        let image = self.precompiled_image(range, module, &path)?;
        let relative = ElfAddress(address.0 - range.begin);
        let named = image.symbolize(relative, files);
        let function = image.function_range(relative);
        let (name, function) = match (named, function) {
            (Ok(named), Ok(function)) => (named.name.into_owned(), function),
            // Thunks are not among the functions.
            (Ok(named), Err(NameError::NoMethod)) => (named.name.into_owned(), relative..relative),
            (Err(error), _) | (_, Err(error)) => {
                if let NameError::ParseError(_) = error {
                    // The limits of one lookup must not decide about all later ones.
                    self.images.remove(&range.begin);
                }
                return Err(LookupError::Precompiled(error));
            }
        };
        Ok(RuntimeCode {
            start: RuntimeAddress(range.begin + function.start.0),
            size_bytes: function.end.0.saturating_sub(function.start.0),
            name,
            module_file_name: path.rsplit('/').next().unwrap_or_default().to_owned(),
            kind: CodeKind::Precompiled,
            can_be_freed: range.is_collectible,
        })
    }

    fn precompiled_image(
        &mut self,
        range: &CodeRange,
        module: u64,
        path: &str,
    ) -> Result<&mut ReadyToRunModule, LookupError> {
        let is_known = self.images.get(&range.begin).is_some_and(|image| image.module == module);
        if !is_known {
            if range.end - range.begin > MAX_IMAGE_BYTES {
                return Err(LookupError::TooLarge("precompiled image"));
            }
            if self.images.len() >= MAX_IMAGES || self.image_cache_bytes() > MAX_IMAGE_CACHE_BYTES {
                self.images.clear();
            }
            let reader: Arc<dyn ReadAt> =
                Arc::new(MemoryImage { memory: Arc::clone(&self.memory), base: range.begin });
            let image = Image::Reader { reader, start: 0, length: range.end - range.begin };
            let location = AssemblyLocation::from_image_path(Path::new(path));
            let tables = ReadyToRunModule::open_loaded(image, location, &self.budget)
                .map_err(LookupError::Precompiled)?;
            self.images.insert(range.begin, PrecompiledImage { module, tables });
        }
        let image = self.images.get_mut(&range.begin).ok_or(LookupError::NoCode)?;
        Ok(&mut image.tables)
    }
}
