//! Opens the files of mappings, each once for all processes, and keeps them open.

use std::{collections::HashMap, fs::File, io, os::unix::fs::MetadataExt, path::Path, sync::Arc};

use profiler_addresses::{ElfAddress, FileMapping, FileOffset, RuntimeAddress};
use profiler_binary_reader::{Image, WorkBudget};
use profiler_dotnet_symbols::readytorun::{AssemblyLocation, Bundle};
use profiler_processes::{
    Backing, FileId, Mapping, ProcFs, Process, ProcessKey, root_directory::RootDirectory,
};
use profiler_profile::{FrameKind, Reason};

use crate::{
    CodeKey, ModuleKey, NativeOptions, SymbolizedCode, debug_file::DebugFiles, module_code::ModuleCode,
    native::NativeModule, reasons, symbol::SymbolHint,
};

/// Open files. The limit bounds the profiler's file descriptors when a target maps files without end.
const MAX_MODULES: usize = 16 * 1024;

/// All opened modules.
pub(super) struct Modules {
    proc: Arc<ProcFs>,
    host: Arc<RootDirectory>,
    opened: Vec<Module>,
    by_file: HashMap<ModuleFile, ModuleKey>,
    /// Assemblies in single-file programs, by their file offset.
    bundled: HashMap<(ModuleKey, u64), Result<ModuleKey, Reason>>,
    /// Files that could not be opened, by process: another process may have permission or another root directory.
    failed: HashMap<(ModuleFile, ProcessKey), Reason>,
    unopened_paths: HashMap<FileId, Arc<str>>,
    budget: Arc<WorkBudget>,
}

/// Identifies the file of a module.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum ModuleFile {
    File(FileId),
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
            unopened_paths: HashMap::new(),
            budget: Arc::default(),
        }
    }

    /// Identifies the code at a runtime address in a mapping. Opens the file if it is not open yet.
    pub(super) fn code_at(
        &mut self,
        process: &Process,
        mapping: &Mapping,
        address: RuntimeAddress,
    ) -> CodeKey {
        let found = self.module_of(process, mapping).and_then(|key| self.code_in(key, mapping, address));
        found.unwrap_or_else(|reason| self.unopened(mapping, address, reason))
    }

    /// Identifies the code in an opened file, or in an assembly that is bundled in it.
    fn code_in(
        &mut self,
        key: ModuleKey,
        mapping: &Mapping,
        address: RuntimeAddress,
    ) -> Result<CodeKey, Reason> {
        let module = self.get(key).ok_or(Reason::FileMissing)?;
        if let Some(file_address) = module.code.address(mapping.file_mapping(), address) {
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
        let module = self.opened.get_mut(key.0 as usize).ok_or(Reason::FileMissing)?;
        let read = || module.code.bundle(&self.budget).map(|bundle| bundle.map(Arc::new));
        let bundle = module.bundle.get_or_insert_with(read).clone()?.ok_or(Reason::MalformedFile)?;
        let assembly = bundle.assembly_at(file_offset).ok_or(Reason::MalformedFile)?;
        let offset = FileOffset(file_offset.0 - assembly.start);
        if let Some(known) = self.bundled.get(&(key, assembly.start)) {
            return known.map(|key| (key, offset));
        }
        let path = format!("{}/{}", module.path, assembly.path).into();
        let image = bundle.image_of(assembly).map_err(reasons::parse_error_reason)?;
        let code = ModuleCode::from_assembly(image, AssemblyLocation::from_bundle(&bundle), &self.budget);
        let opened = code.and_then(|code| self.add(path, code));
        self.bundled.insert((key, assembly.start), opened);
        opened.map(|key| (key, offset))
    }

    /// The path of a file that could not be opened or parsed.
    pub(super) fn unopened_path(&self, file: FileId) -> Option<Arc<str>> {
        self.unopened_paths.get(&file).cloned()
    }

    fn unopened(&mut self, mapping: &Mapping, address: RuntimeAddress, reason: Reason) -> CodeKey {
        let Backing::File { id, path } = &mapping.backing else { return CodeKey::Unknown(reason, address) };
        if self.unopened_paths.len() < MAX_MODULES {
            self.unopened_paths.entry(*id).or_insert_with(|| Arc::clone(path));
        }
        CodeKey::Unopened(*id, offset_in_file(mapping, address), reason)
    }

    /// The functions at an address in a module.
    pub(super) fn symbolize(
        &mut self,
        key: ModuleKey,
        address: ElfAddress,
        options: NativeOptions,
        debug_files: &DebugFiles,
    ) -> SymbolizedCode {
        let Some(module) = self.opened.get_mut(key.0 as usize) else {
            return SymbolizedCode::unsymbolized(FrameKind::Native, address, Reason::FileMissing);
        };
        let mut names = module.code.symbolize(address, options, debug_files);
        let mut hint = SymbolHint::default();
        if let Err(reason) = &mut names {
            hint = module.code.hint(address);
            if *reason == Reason::NoSymbols && hint.preceding_symbol.is_some() {
                *reason = Reason::OnlyNearestExport;
            }
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
        let module = self.opened.get_mut(key.0 as usize);
        module.is_some_and(|module| module.code.awaits_debug_file(options, debug_files))
    }

    /// Path and format of a module.
    pub(super) fn path_and_format(&mut self, key: ModuleKey) -> Option<(Arc<str>, ModuleFormat<'_>)> {
        let module = self.opened.get_mut(key.0 as usize)?;
        let path = Arc::clone(&module.path);
        let bundled =
            module.code.bundle(&self.budget).ok().flatten().map(|bundle| (bundle.len(), bundle.compressed));
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

    /// Discards the failures, so that files that could not be opened are tried again.
    pub(super) fn clear_failures(&mut self) {
        self.failed.clear();
        self.unopened_paths.clear();
    }

    fn get(&self, key: ModuleKey) -> Option<&Module> {
        self.opened.get(key.0 as usize)
    }

    fn module_of(&mut self, process: &Process, mapping: &Mapping) -> Result<ModuleKey, Reason> {
        let (file, path) = match &mapping.backing {
            Backing::File { id, path } => (ModuleFile::File(*id), Arc::clone(path)),
            _ => (ModuleFile::Vdso, "[vdso]".into()),
        };
        if let Some(key) = self.by_file.get(&file) {
            return Ok(*key);
        }
        if let Some(reason) = self.failed.get(&(file, process.key)) {
            return Err(*reason);
        }
        match self.open(process, mapping, file, path) {
            Ok(key) => {
                self.by_file.insert(file, key);
                Ok(key)
            }
            Err(reason) => {
                self.failed.insert((file, process.key), reason);
                Err(reason)
            }
        }
    }

    fn open(
        &mut self,
        process: &Process,
        mapping: &Mapping,
        file: ModuleFile,
        path: Arc<str>,
    ) -> Result<ModuleKey, Reason> {
        let code = match file {
            ModuleFile::Vdso => {
                let bytes = self.proc.vdso().map_err(|_| Reason::FileMissing)?;
                ModuleCode::from_image(Image::Memory(bytes), Path::new(&*path), &self.budget)?
            }
            ModuleFile::File(id) => {
                let file = self.open_file(process, mapping, id, Path::new(&*path))?;
                if let Err(error) = self.proc.capture_mapped_file(process.pid, mapping, &file) {
                    log::warn!("the capture lacks `{path}`: {error}");
                }
                ModuleCode::from_image(
                    Image::from_file(file).map_err(reasons::parse_error_reason)?,
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

    /// Opens the mapped file itself; else the file at the path of the mapping, in the root of the process or of the host,
    /// when it has the same inode. The device is not compared: btrfs and overlayfs show another one in mappings.
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
            Err(error) => io_error_reason(&error),
        };
        let target = process.identity.as_ref().and_then(|identity| identity.root.as_ref());
        let mut worst = if mapped == Reason::NotAFile { Reason::NotAFile } else { Reason::FileMissing };
        for root in target.into_iter().chain([&self.host]) {
            match root.open_file(path) {
                Ok(file) if file.metadata().is_ok_and(|metadata| metadata.ino() == id.inode) => {
                    return Ok(file);
                }
                Ok(_) => worst = Reason::FileReplaced,
                Err(error) if worst == Reason::FileMissing => worst = io_error_reason(&error),
                Err(_) => {}
            }
        }
        Err(if worst == Reason::FileMissing { mapped } else { worst })
    }
}

fn offset_in_file(mapping: &Mapping, address: RuntimeAddress) -> FileOffset {
    FileOffset(mapping.offset.0.wrapping_add(address.0.wrapping_sub(mapping.start.0)))
}

fn io_error_reason(error: &io::Error) -> Reason {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Reason::FileNotReadable,
        io::ErrorKind::InvalidInput => Reason::NotAFile,
        _ => Reason::FileMissing,
    }
}
