//! Opens the files of mappings, and keeps those that are in use open.
//!
//! A file is opened and parsed once for all processes, if its names come from the file itself, the host or the user. If
//! they may come from other files of a container, such as a debug file or the assemblies beside it, it is a module of that
//! container: a container cannot give names to another one.

#[cfg(feature = "dotnet-memory")]
mod dotnet_runtime;
mod host_file;
mod jit_helpers;
mod mapped_modules;

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use profiler_addresses::{ElfAddress, FileMapping, FileOffset, RuntimeAddress};
use profiler_binary_reader::{Image, WorkBudget};
use profiler_dotnet_symbols::{
    jit_helpers::JitHelpers,
    readytorun::{AssemblyLocation, Bundle, RuntimeCells},
};
use profiler_processes::{
    Backing, FileId, FileVersion, MappedFile, MappedFiles, Mapping, MappingOwner, ProcFs, Process,
    ProcessKey, root_directory::RootDirectory, tenants::Tenant,
};
use profiler_profile::{FrameKind, Reason};

use self::mapped_modules::{MappedModules, MappedPath};
use crate::{
    CodeKey, ModuleKey, NativeOptions, SymbolizedCode,
    debug_file::{DebugDirectories, DebugFiles},
    module_code::ModuleCode,
    native::NativeModule,
    reasons,
    symbol::SymbolHint,
};

/// Modules in memory. The limit bounds the profiler's file descriptors when a target maps files without end: beyond it,
/// the half that has been idle longest is closed.
const MAX_MODULES: usize = 1024;

/// A module that was not used for so long is closed, and opened again when it is used.
const MAX_IDLE_TIME: Duration = Duration::from_secs(20);

/// How often idle modules are searched.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// How long a file is taken for unchanged when other processes map it.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Failures and paths that are remembered.
const MAX_FAILURES: usize = 16 * 1024;

/// All modules.
pub(super) struct Modules {
    proc: Arc<ProcFs>,
    files: Arc<MappedFiles>,
    options: NativeOptions,
    places: Arc<DebugDirectories>,
    modules: HashMap<ModuleKey, Module>,
    next_key: u32,
    by_file: HashMap<(ModuleFile, Tenant), ModuleKey>,
    mapped: MappedModules,
    /// Assemblies in single-file programs, by their file offset.
    bundled: HashMap<(ModuleKey, u64), Result<ModuleKey, Reason>>,
    /// Files that could not be opened, by process: another process may have permission or another root directory.
    failed: HashMap<(FileId, ProcessKey), Reason>,
    unopened_paths: HashMap<FileId, Arc<str>>,
    budget: Arc<WorkBudget>,
    budgets: HashMap<Tenant, Weak<WorkBudget>>,
    /// The helpers of a .NET runtime, by its JIT compiler and itself.
    jit_helpers: HashMap<(ModuleKey, ModuleKey), Arc<JitHelpers>>,
    last_sweep: Instant,
}

/// Identifies the file of a module.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum ModuleFile {
    File(FileVersion),
    Vdso,
}

/// The format of a module, for the report on a process's symbol sources.
pub(super) enum ModuleFormat<'a> {
    /// An ELF file; of a single-file .NET program, also the number of its assemblies, uncompressed and compressed.
    Native(&'a mut NativeModule, Option<(usize, usize)>),
    /// A ReadyToRun image.
    ReadyToRun { is_composite: bool },
}

struct Module {
    path: Arc<str>,
    build_id: Arc<[u8]>,
    code: ModuleCode,
    /// Read at the first address that is in none of the file's segments.
    bundle: Option<Result<Option<Arc<Bundle>>, Reason>>,
    is_runtime: bool,
    /// Found out when it is asked for.
    is_jit_compiler: Option<bool>,
    /// The root directory of the container that it belongs to; `None` for a module of all processes.
    root: Option<Arc<RootDirectory>>,
    /// Whether containers can share it; found out when the second one maps it.
    is_self_contained: Option<bool>,
    budget: Arc<WorkBudget>,
    last_used: Instant,
}

impl Modules {
    pub(super) fn new(proc: Arc<ProcFs>, options: NativeOptions, places: Arc<DebugDirectories>) -> Self {
        let files = Arc::new(MappedFiles::new(Arc::clone(&proc), Arc::clone(&places.host)));
        Self {
            proc,
            files,
            options,
            places,
            modules: HashMap::new(),
            next_key: 0,
            by_file: HashMap::new(),
            mapped: MappedModules::default(),
            bundled: HashMap::new(),
            failed: HashMap::new(),
            unopened_paths: HashMap::new(),
            budget: Arc::default(),
            budgets: HashMap::new(),
            jit_helpers: HashMap::new(),
            last_sweep: Instant::now(),
        }
    }

    /// The budget of all files.
    pub(super) fn budget(&self) -> &Arc<WorkBudget> {
        &self.budget
    }

    /// The open files of mappings.
    pub(super) fn files(&self) -> &Arc<MappedFiles> {
        &self.files
    }

    /// Identifies the code at a runtime address in a mapping. Opens the file if it is not open yet.
    pub(super) fn code_at(
        &mut self,
        process: &Process,
        mapping: &Mapping,
        address: RuntimeAddress,
    ) -> CodeKey {
        let found = self
            .module_of(process, mapping)
            .and_then(|key| self.code_in(key, mapping.file_mapping(), address));
        found.unwrap_or_else(|reason| self.unopened(mapping, address, reason))
    }

    /// Identifies the code in an opened file, or in an assembly that is bundled in it.
    fn code_in(
        &mut self,
        key: ModuleKey,
        mapping: FileMapping,
        address: RuntimeAddress,
    ) -> Result<CodeKey, Reason> {
        let module = self.get(key).ok_or(Reason::FileMissing)?;
        if let Some(file_address) = module.code.address(mapping, address) {
            return Ok(CodeKey::Module(key, file_address));
        }
        let (key, offset) = self.bundled_at(key, offset_in_file(mapping, address))?;
        let module = self.get(key).ok_or(Reason::FileMissing)?;
        // The start of the mapping can be in another assembly.
        let file_address = module.code.address(FileMapping { start: address, offset }, address);
        Ok(CodeKey::Module(key, file_address.ok_or(Reason::MalformedFile)?))
    }

    /// The assembly at an offset of a single-file program, and the offset in the assembly.
    fn bundled_at(
        &mut self,
        key: ModuleKey,
        file_offset: FileOffset,
    ) -> Result<(ModuleKey, FileOffset), Reason> {
        let module = self.modules.get_mut(&key).ok_or(Reason::FileMissing)?;
        let read = || module.code.bundle(&module.budget).map(|bundle| bundle.map(Arc::new));
        // Runtimes that save their memory append it to their file: Lisp, Smalltalk.
        let bundle = module.bundle.get_or_insert_with(read).clone()?.ok_or(Reason::NoJitMap)?;
        let assembly = bundle.assembly_at(file_offset).ok_or(Reason::MalformedFile)?;
        let offset = FileOffset(file_offset.0 - assembly.start);
        if let Some(known) = self.bundled.get(&(key, assembly.start)) {
            return known.map(|key| (key, offset));
        }
        let path = format!("{}/{}", module.path, assembly.path).into();
        let (root, budget) = (module.root.clone(), Arc::clone(&module.budget));
        let image = bundle.image_of(assembly).map_err(reasons::parse_error_reason)?;
        let code = ModuleCode::from_assembly(image, AssemblyLocation::from_bundle(&bundle), &budget);
        let opened = code.map(|code| self.add(path, code, root, budget));
        self.bundled.insert((key, assembly.start), opened);
        opened.map(|key| (key, offset))
    }

    /// The path of a file that could not be opened or parsed.
    pub(super) fn unopened_path(&self, file: FileId) -> Option<Arc<str>> {
        self.unopened_paths.get(&file).cloned()
    }

    fn unopened(&mut self, mapping: &Mapping, address: RuntimeAddress, reason: Reason) -> CodeKey {
        let Backing::File { id, path } = &mapping.backing else { return CodeKey::Unknown(reason, address) };
        if self.unopened_paths.len() < MAX_FAILURES {
            self.unopened_paths.entry(*id).or_insert_with(|| Arc::clone(path));
        }
        CodeKey::Unopened(*id, offset_in_file(mapping.file_mapping(), address), reason)
    }

    /// The functions at an address in a module.
    pub(super) fn symbolize(
        &mut self,
        key: ModuleKey,
        address: ElfAddress,
        options: NativeOptions,
        debug_files: &DebugFiles,
    ) -> SymbolizedCode {
        let Some(module) = self.modules.get_mut(&key) else {
            return SymbolizedCode::unsymbolized(FrameKind::Native, address, Reason::FileMissing);
        };
        let (budget, own_files) = (Arc::clone(&module.budget), module.own_files(debug_files));
        let found = budget.timed(|| {
            let names = module.code.symbolize(address, options, &own_files);
            let hint = if names.is_err() { module.code.hint(address) } else { SymbolHint::default() };
            (names, hint)
        });
        let (mut names, hint) = found.unwrap_or_else(|| (Err(Reason::OutOfTime), SymbolHint::default()));
        if names == Err(Reason::NoSymbols) && hint.preceding_symbol.is_some() {
            names = Err(Reason::OnlyNearestExport);
        }
        let file = (Arc::clone(&module.path), Arc::clone(&module.build_id));
        SymbolizedCode { kind: module.code.kind(), module: Some(file), address, names, hint }
    }

    /// Whether the debug file of a module is still being downloaded from a symbol server.
    pub(super) fn awaits_debug_file(
        &mut self,
        key: ModuleKey,
        options: NativeOptions,
        debug_files: &DebugFiles,
    ) -> bool {
        self.modules.get_mut(&key).is_some_and(|module| {
            let debug_files = module.own_files(debug_files);
            module.code.awaits_debug_file(options, &debug_files)
        })
    }

    /// Whether a module contains a .NET runtime with a JIT compiler.
    pub(super) fn is_runtime(&self, key: ModuleKey) -> bool {
        self.get(key).is_some_and(|module| module.is_runtime)
    }

    /// Whether a module is the JIT compiler of a .NET runtime.
    pub(super) fn is_jit_compiler(&mut self, key: ModuleKey) -> bool {
        self.modules.get_mut(&key).is_some_and(|module| {
            let code = &module.code;
            *module.is_jit_compiler.get_or_insert_with(|| code.is_jit_compiler())
        })
    }

    /// Whether a module is a ReadyToRun image.
    pub(super) fn is_precompiled(&self, key: ModuleKey) -> bool {
        self.get(key).is_some_and(|module| module.code.kind() == FrameKind::Precompiled)
    }

    /// Whether a function of a module without a symbol table starts at an address.
    pub(super) fn is_function_start(&mut self, key: ModuleKey, address: ElfAddress) -> bool {
        self.modules.get_mut(&key).is_some_and(|module| {
            let (budget, code) = (Arc::clone(&module.budget), &mut module.code);
            let hint = budget.timed(|| code.hint(address)).unwrap_or_default();
            hint.function_start == Some(address)
        })
    }

    /// Reads from a module within the time of its budget.
    fn read<T: Default>(&mut self, key: ModuleKey, read: impl FnOnce(&mut ModuleCode) -> T) -> T {
        let Some(module) = self.modules.get_mut(&key) else { return T::default() };
        let budget = Arc::clone(&module.budget);
        budget.timed(|| read(&mut module.code)).unwrap_or_default()
    }

    /// The cells of a ReadyToRun image with the addresses of helpers and allocators; empty for another module.
    pub(super) fn runtime_cells(&mut self, key: ModuleKey) -> RuntimeCells {
        let module = self.modules.get_mut(&key);
        module.map(|module| module.code.runtime_cells()).unwrap_or_default()
    }

    /// The path of a module.
    pub(super) fn path(&self, key: ModuleKey) -> Option<Arc<str>> {
        self.get(key).map(|module| Arc::clone(&module.path))
    }

    /// Path and format of a module.
    pub(super) fn path_and_format(&mut self, key: ModuleKey) -> Option<(Arc<str>, ModuleFormat<'_>)> {
        let module = self.modules.get_mut(&key)?;
        let path = Arc::clone(&module.path);
        let bundled =
            module.code.bundle(&module.budget).ok().flatten().map(|bundle| (bundle.len(), bundle.compressed));
        Some((
            path,
            match &mut module.code {
                ModuleCode::Native(native) => ModuleFormat::Native(native, bundled),
                ModuleCode::ReadyToRun(image) => {
                    ModuleFormat::ReadyToRun { is_composite: image.is_composite() }
                }
            },
        ))
    }

    /// Ends an interval: closes idle modules, and discards the failures, so that files that could not be opened are
    /// tried again.
    pub(super) fn end_interval(&mut self) {
        self.failed.clear();
        self.unopened_paths.clear();
        self.close_idle();
    }

    fn get(&self, key: ModuleKey) -> Option<&Module> {
        self.modules.get(&key)
    }

    fn module_of(&mut self, process: &Process, mapping: &Mapping) -> Result<ModuleKey, Reason> {
        let Backing::File { id, path } = &mapping.backing else { return self.vdso() };
        let root = self.container_root(process);
        let tenant = root.as_ref().and_then(|root| root.id());
        let mapped = MappedPath { tenant, id: *id, path: Arc::clone(path) };
        let now = Instant::now();
        if let Some(known) = self.mapped.find(&mapped, now)
            && (known.process == process.key || now - known.checked < RECHECK_INTERVAL)
            && let Some(module) = self.modules.get_mut(&known.module)
        {
            module.last_used = now;
            return Ok(known.module);
        }
        if let Some(reason) = self.failed.get(&(*id, process.key)) {
            return Err(*reason);
        }
        let opened = self.open(process, mapping, path, root);
        match opened {
            Ok(module) => self.mapped.insert(mapped, module, process.key, now),
            Err(reason) => {
                if self.failed.len() >= MAX_FAILURES {
                    self.failed.clear();
                }
                self.failed.insert((*id, process.key), reason);
            }
        }
        opened
    }

    /// The root directory of a process, if it is not that of the host.
    fn container_root(&self, process: &Process) -> Option<Arc<RootDirectory>> {
        let root = process.identity.as_ref()?.root.as_ref()?;
        let is_of_host = root.id().is_some() && root.id() == self.places.host.id();
        (!is_of_host).then(|| Arc::clone(root))
    }

    fn vdso(&mut self) -> Result<ModuleKey, Reason> {
        let file = (ModuleFile::Vdso, None);
        if let Some(key) = self.used_module(&file) {
            return Ok(key);
        }
        let bytes = self.proc.vdso().map_err(|_| Reason::FileMissing)?;
        let budget = self.budget_of(None).part();
        let code = ModuleCode::from_image(Image::Memory(bytes), Path::new("[vdso]"), &budget)?;
        let key = self.add("[vdso]".into(), code, None, budget);
        self.by_file.insert(file, key);
        Ok(key)
    }

    /// The module of a mapped file, which is opened and, if it is new, parsed.
    fn open(
        &mut self,
        process: &Process,
        mapping: &Mapping,
        path: &Arc<str>,
        root: Option<Arc<RootDirectory>>,
    ) -> Result<ModuleKey, Reason> {
        // The entries of a capture stay.
        let has_entries = !process.has_ended() || !self.proc.is_live();
        let owner = MappingOwner { pid: has_entries.then_some(process.pid), root: process.root() };
        let MappedFile { file, version } =
            self.files.open(owner, mapping).map_err(reasons::open_error_reason)?;
        if let Err(error) = self.proc.capture_mapped_file(process.pid, mapping, &file) {
            log::warn!("the capture lacks `{path}`: {error}");
        }
        let image = Image::of_target(file, version.bytes());
        let version = ModuleFile::File(version);
        let tenant = root.as_ref().and_then(|root| root.id());
        let known = self.used_module(&(version, tenant));
        if let Some(key) = known.or_else(|| self.used_shared_module(version)) {
            return Ok(key);
        }
        let budget = self.budget_of(tenant).part();
        let parsed = budget.timed(|| ModuleCode::from_image(image, Path::new(&**path), &budget));
        let mut code = parsed.unwrap_or(Err(Reason::OutOfTime))?;
        let files = DebugFiles { tenant, ..self.shared_files() };
        let root = root.filter(|_| !code.is_self_contained(self.options, &files));
        if root.is_some() {
            code.discard_symbols();
        }
        let tenant = root.as_ref().and_then(|root| root.id());
        let key = self.add(Arc::clone(path), code, root, budget);
        self.by_file.insert((version, tenant), key);
        Ok(key)
    }

    /// The module that all containers share, if its names do not depend on other files of a container.
    fn used_shared_module(&mut self, version: ModuleFile) -> Option<ModuleKey> {
        let files = self.shared_files();
        let key = *self.by_file.get(&(version, None))?;
        let module = self.modules.get_mut(&key)?;
        let code = &mut module.code;
        let is_shared =
            *module.is_self_contained.get_or_insert_with(|| code.is_self_contained(self.options, &files));
        if is_shared {
            module.last_used = Instant::now();
        }
        is_shared.then_some(key)
    }

    fn used_module(&mut self, file: &(ModuleFile, Tenant)) -> Option<ModuleKey> {
        let key = *self.by_file.get(file)?;
        self.modules.get_mut(&key)?.last_used = Instant::now();
        Some(key)
    }

    /// The debug files of the host and of the user.
    fn shared_files(&self) -> DebugFiles {
        DebugFiles { target: None, tenant: None, shared: Arc::clone(&self.places), capture: None }
    }

    /// The budget that the processes of a tenant share.
    pub(crate) fn budget_of(&mut self, tenant: Tenant) -> Arc<WorkBudget> {
        if let Some(budget) = self.budgets.get(&tenant).and_then(Weak::upgrade) {
            return budget;
        }
        self.budgets.retain(|_, budget| budget.strong_count() > 0);
        let budget = self.budget.share();
        self.budgets.insert(tenant, Arc::downgrade(&budget));
        budget
    }

    fn add(
        &mut self,
        path: Arc<str>,
        code: ModuleCode,
        root: Option<Arc<RootDirectory>>,
        budget: Arc<WorkBudget>,
    ) -> ModuleKey {
        if self.last_sweep.elapsed() > SWEEP_INTERVAL || self.modules.len() >= MAX_MODULES {
            self.close_idle();
        }
        let key = ModuleKey(self.next_key);
        self.next_key = self.next_key.wrapping_add(1);
        let (build_id, last_used) = (code.build_id().into(), Instant::now());
        let (bundle, is_runtime, is_self_contained) = (None, code.is_runtime(), None);
        let module = Module {
            path,
            build_id,
            code,
            bundle,
            is_runtime,
            is_jit_compiler: None,
            root,
            is_self_contained,
            budget,
            last_used,
        };
        self.modules.insert(key, module);
        key
    }

    /// Closes the modules that were not used for [`MAX_IDLE_TIME`]; the older half of all, if there are too many.
    fn close_idle(&mut self) {
        self.last_sweep = Instant::now();
        let mut oldest = self.last_sweep.checked_sub(MAX_IDLE_TIME);
        if self.modules.len() >= MAX_MODULES {
            let mut uses: Vec<_> = self.modules.values().map(|module| module.last_used).collect();
            oldest = Some(*uses.select_nth_unstable(MAX_MODULES / 2).1);
        }
        let Some(oldest) = oldest else { return };
        let count = self.modules.len();
        self.modules.retain(|_, module| module.last_used >= oldest);
        if self.modules.len() < count {
            let modules = &self.modules;
            self.by_file.retain(|_, key| modules.contains_key(key));
            self.jit_helpers.retain(|(compiler, runtime), _| {
                modules.contains_key(compiler) && modules.contains_key(runtime)
            });
            self.mapped.retain_modules(|key| modules.contains_key(&key));
            self.bundled.retain(|(key, _), assembly| {
                modules.contains_key(key) && assembly.is_ok_and(|assembly| modules.contains_key(&assembly))
            });
        }
    }
}

impl Module {
    /// The debug files that may give names to the module.
    fn own_files(&self, files: &DebugFiles) -> DebugFiles {
        let tenant = self.root.as_ref().and_then(|root| root.id());
        DebugFiles { target: self.root.clone(), tenant, ..files.clone() }
    }
}

fn offset_in_file(mapping: FileMapping, address: RuntimeAddress) -> FileOffset {
    FileOffset(mapping.offset.0.wrapping_add(address.0.wrapping_sub(mapping.start.0)))
}

#[cfg(test)]
mod tests;
