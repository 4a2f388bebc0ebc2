//! The files behind mappings: opened once, whoever maps them, and kept open.

use crate::absence;
use profiler_binary_reader::{Image, WorkBudget};
use profiler_dotnet_symbols::readytorun::{AssemblyLocation, Bundle};
use std::{collections::HashMap, fs::File, io, os::unix::fs::MetadataExt, path::Path, sync::Arc};

use super::{
    CodeKey, ModuleKey, NativeOptions, SymbolizedCode, debug_file::DebugFiles, module_code::ModuleCode,
    native::NativeModule, symbol::Nearby,
};
use profiler_addresses::{ElfAddress, FileOffset, RuntimeAddress};
use profiler_processes::{
    Backing, FileId, Mapping, ProcFs, Process, ProcessKey, root_directory::RootDirectory,
};
use profiler_profile::{FrameKind, Reason};

/// How many files are kept open. A target that maps files without end must not cost the profiler its
/// descriptors.
const MAX_MODULES: usize = 16 * 1024;

/// Every module that was opened.
pub(super) struct Modules {
    proc: Arc<ProcFs>,
    host: Arc<RootDirectory>,
    opened: Vec<Module>,
    by_file: HashMap<Identity, ModuleKey>,
    /// The assemblies in single-file programs, by where they begin, or why they could not be opened.
    bundled: HashMap<(ModuleKey, u64), Result<ModuleKey, Reason>>,
    /// What could not be opened for one process may still be for another.
    failed: HashMap<(Identity, ProcessKey), Reason>,
    closed_paths: HashMap<FileId, Arc<str>>,
    budget: Arc<WorkBudget>,
}

/// What is opened once.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Identity {
    File(FileId),
    Vdso,
}

/// What an opened module is.
pub(super) enum What<'a> {
    /// Native code, and how many assemblies the file carries as they are and compressed.
    Native(&'a mut NativeModule, Option<(usize, usize)>),
    /// A .NET image.
    Image { is_composite: bool },
}

struct Module {
    path: Arc<str>,
    build_id: Arc<[u8]>,
    code: ModuleCode,
    /// Read when an address is in the file and in none of its segments.
    bundle: Option<Result<Option<Arc<Bundle>>, Reason>>,
}

impl Modules {
    pub(super) fn new(proc: Arc<ProcFs>, host: Arc<RootDirectory>) -> Self {
        Self {
            proc,
            host,
            opened: Vec::new(),
            by_file: HashMap::new(),
            bundled: HashMap::new(),
            failed: HashMap::new(),
            closed_paths: HashMap::new(),
            budget: Arc::default(),
        }
    }

    /// The module's code at a runtime address in one of its mappings.
    pub(super) fn code_at(
        &mut self,
        process: &Process,
        mapping: &Mapping,
        address: RuntimeAddress,
    ) -> CodeKey {
        let found = self.module_of(process, mapping).and_then(|key| self.code_in(key, mapping, address));
        found.unwrap_or_else(|reason| self.closed(mapping, address, reason))
    }

    /// The file's own code, else that of an assembly which it carries.
    fn code_in(
        &mut self,
        key: ModuleKey,
        mapping: &Mapping,
        address: RuntimeAddress,
    ) -> Result<CodeKey, Reason> {
        let module = self.get(key).ok_or(Reason::FileMissing)?;
        if let Some(own) = module.code.address(mapping.start, mapping.offset, address) {
            return Ok(CodeKey::Module(key, own));
        }
        let (key, offset) = self.bundled_at(key, offset_in_file(mapping, address))?;
        let module = self.get(key).ok_or(Reason::FileMissing)?;
        // As if the mapping began there: where it does begin may be another assembly's.
        let own = module.code.address(address, offset, address);
        Ok(CodeKey::Module(key, own.ok_or(Reason::MalformedFile)?))
    }

    /// The assembly at an offset of a single-file program, and where in it that is.
    fn bundled_at(&mut self, key: ModuleKey, at: FileOffset) -> Result<(ModuleKey, FileOffset), Reason> {
        let module = self.opened.get_mut(key.0 as usize).ok_or(Reason::FileMissing)?;
        let read = || module.code.bundle(&self.budget).map(|bundle| bundle.map(Arc::new));
        let bundle = module.bundle.get_or_insert_with(read).clone()?.ok_or(Reason::MalformedFile)?;
        let assembly = bundle.assembly_at(at).ok_or(Reason::MalformedFile)?;
        let offset = FileOffset(at.0 - assembly.start);
        if let Some(known) = self.bundled.get(&(key, assembly.start)) {
            return known.map(|key| (key, offset));
        }
        let path = format!("{}/{}", module.path, assembly.path).into();
        let image = bundle.image_of(assembly).map_err(absence::of_defect)?;
        let code = ModuleCode::of_assembly(image, AssemblyLocation::from_bundle(&bundle), &self.budget);
        let opened = code.and_then(|code| self.add(path, code));
        self.bundled.insert((key, assembly.start), opened);
        opened.map(|key| (key, offset))
    }

    /// The path of a file that could not be opened or understood.
    pub(super) fn closed_path(&self, file: FileId) -> Option<Arc<str>> {
        self.closed_paths.get(&file).cloned()
    }

    fn closed(&mut self, mapping: &Mapping, address: RuntimeAddress, reason: Reason) -> CodeKey {
        let Backing::File { id, path } = &mapping.backing else { return CodeKey::Nowhere(reason, address) };
        if self.closed_paths.len() < MAX_MODULES {
            self.closed_paths.entry(*id).or_insert_with(|| Arc::clone(path));
        }
        CodeKey::Closed(*id, offset_in_file(mapping, address), reason)
    }

    /// The names at an address of a module.
    pub(super) fn names(
        &mut self,
        key: ModuleKey,
        address: ElfAddress,
        options: NativeOptions,
        debug_files: &DebugFiles,
    ) -> SymbolizedCode {
        let Some(module) = self.opened.get_mut(key.0 as usize) else {
            return SymbolizedCode::unnamed(FrameKind::Native, address, Reason::FileMissing);
        };
        let mut names = module.code.symbolize(address, options, debug_files);
        let mut nearby = Nearby::default();
        if let Err(reason) = &mut names {
            nearby = module.code.nearby(address);
            if *reason == Reason::NoSymbols && nearby.symbol.is_some() {
                *reason = Reason::OnlyNearestExport;
            }
        }
        let file = (Arc::clone(&module.path), Arc::clone(&module.build_id));
        SymbolizedCode { kind: module.code.kind(), module: Some(file), address, names, nearby }
    }

    /// Whether the module's debug file is on its way from a symbol server.
    pub(super) fn awaits_debug_file(
        &mut self,
        key: ModuleKey,
        options: NativeOptions,
        debug_files: &DebugFiles,
    ) -> bool {
        let module = self.opened.get_mut(key.0 as usize);
        module.is_some_and(|module| module.code.awaits_debug_file(options, debug_files))
    }

    /// What a module is, and its path.
    pub(super) fn what(&mut self, key: ModuleKey) -> Option<(Arc<str>, What<'_>)> {
        let module = self.opened.get_mut(key.0 as usize)?;
        let path = Arc::clone(&module.path);
        let carried =
            module.code.bundle(&self.budget).ok().flatten().map(|bundle| (bundle.len(), bundle.compressed));
        Some((
            path,
            match &mut module.code {
                ModuleCode::Native(native) => What::Native(native, carried),
                ModuleCode::ReadyToRun(image) => What::Image { is_composite: image.is_composite() },
            },
        ))
    }

    /// Gives what could not be opened another chance.
    pub(super) fn forget_failures(&mut self) {
        self.failed.clear();
        self.closed_paths.clear();
    }

    fn get(&self, key: ModuleKey) -> Option<&Module> {
        self.opened.get(key.0 as usize)
    }

    fn module_of(&mut self, process: &Process, mapping: &Mapping) -> Result<ModuleKey, Reason> {
        let (identity, path) = match &mapping.backing {
            Backing::File { id, path } => (Identity::File(*id), Arc::clone(path)),
            _ => (Identity::Vdso, "[vdso]".into()),
        };
        if let Some(key) = self.by_file.get(&identity) {
            return Ok(*key);
        }
        if let Some(reason) = self.failed.get(&(identity, process.key)) {
            return Err(*reason);
        }
        match self.open(process, mapping, identity, path) {
            Ok(key) => {
                self.by_file.insert(identity, key);
                Ok(key)
            }
            Err(reason) => {
                self.failed.insert((identity, process.key), reason);
                Err(reason)
            }
        }
    }

    fn open(
        &mut self,
        process: &Process,
        mapping: &Mapping,
        identity: Identity,
        path: Arc<str>,
    ) -> Result<ModuleKey, Reason> {
        let code = match identity {
            Identity::Vdso => {
                let bytes = self.proc.vdso().map_err(|_| Reason::FileMissing)?;
                ModuleCode::of_image(Image::Memory(bytes), Path::new(&*path), &self.budget)?
            }
            Identity::File(id) => {
                let file = self.open_file(process, mapping, id, Path::new(&*path))?;
                if let Err(error) = self.proc.keep_mapped(process.pid, mapping, &file) {
                    log::warn!("`{path}` is missing in the capture: {error}");
                }
                ModuleCode::of_image(
                    Image::of_file(file).map_err(absence::of_defect)?,
                    Path::new(&*path),
                    &self.budget,
                )?
            }
        };
        self.add(path, code)
    }

    fn add(&mut self, path: Arc<str>, code: ModuleCode) -> Result<ModuleKey, Reason> {
        if self.opened.len() >= MAX_MODULES {
            return Err(Reason::TooLarge);
        }
        let key = ModuleKey(u32::try_from(self.opened.len()).map_err(|_| Reason::TooLarge)?);
        self.opened.push(Module { path, build_id: code.build_id().into(), code, bundle: None });
        Ok(key)
    }

    /// The very file that is mapped; else the one at its path, in the process's root or in ours, when it has
    /// the same inode. The device is no help: btrfs and overlayfs show another one in mappings.
    fn open_file(
        &self,
        process: &Process,
        mapping: &Mapping,
        id: FileId,
        path: &Path,
    ) -> Result<File, Reason> {
        let mapped = if process.has_ended() {
            Err(io::Error::from(io::ErrorKind::NotFound))
        } else {
            self.proc.open_mapped(process.pid, mapping)
        };
        let mapped = match mapped {
            Ok(file) => return Ok(file),
            Err(error) => reason(&error),
        };
        let target = process.identity.as_ref().and_then(|identity| identity.root.as_ref());
        let mut worst = if mapped == Reason::NotAFile { Reason::NotAFile } else { Reason::FileMissing };
        for root in target.into_iter().chain([&self.host]) {
            match root.open_file(path) {
                Ok(file) if file.metadata().is_ok_and(|metadata| metadata.ino() == id.inode) => {
                    return Ok(file);
                }
                Ok(_) => worst = Reason::FileReplaced,
                Err(error) if worst == Reason::FileMissing => worst = reason(&error),
                Err(_) => {}
            }
        }
        Err(if worst == Reason::FileMissing { mapped } else { worst })
    }
}

fn offset_in_file(mapping: &Mapping, address: RuntimeAddress) -> FileOffset {
    FileOffset(mapping.offset.0.wrapping_add(address.0.wrapping_sub(mapping.start.0)))
}

fn reason(error: &io::Error) -> Reason {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Reason::FileNotReadable,
        io::ErrorKind::InvalidInput => Reason::NotAFile,
        _ => Reason::FileMissing,
    }
}
