//! Symbolizes frames of a saved profile whose symbols were missing when it was recorded.

use std::{
    collections::{BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
};

use profiler_binary_reader::WorkBudget;
use profiler_elf_symbols::BuildId;
use profiler_processes::root_directory::RootDirectory;
use profiler_profile::{
    EventId, Frame, FrameId, FrameKind, Ledger, Module, ModuleId, Profile, ProfileCopy, Reason,
    SourceLocation, StackId, Symbolization, UnsymbolizedFrames, sum,
};
use thiserror::Error;

use crate::{
    NativeOptions,
    debug_file::{DebugDirectories, DebugFiles},
    native::NativeModule,
    symbol::Symbolized,
};

/// Directories with the debug files of a saved profile's modules, and options for symbolizing its frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SymbolDirectories {
    /// Directories with debug files or modules, in a layout of gdb or of a build directory. The debug directory of the
    /// system is searched last.
    pub directories: Vec<PathBuf>,
    /// Whether inlined functions become separate frames.
    pub inlines: bool,
    /// Whether frames get source file and line.
    pub lines: bool,
}

/// The error of opening a directory with debug files.
#[derive(Debug, Error)]
#[error("failed to open the directory `{}`", path.display())]
pub struct OpenDirectoryError {
    /// The directory.
    pub path: PathBuf,
    /// The error of the system call.
    pub source: std::io::Error,
}

impl SymbolDirectories {
    /// Copies `profile` and symbolizes its unsymbolized frames of native code. Only files with the build id of the module
    /// are used. Modules without a build id and existing symbols do not change.
    ///
    /// # Errors
    /// When one of the directories cannot be opened.
    pub fn symbolize_profile(&self, profile: &Profile) -> Result<Profile, OpenDirectoryError> {
        let mut resymbolizer = Resymbolizer::new(profile, self)?;
        let mut copy = ProfileCopy::of(profile);
        let (mut stacks, mut counts) = (HashMap::new(), HashMap::<(EventId, StackId), u64>::new());
        for sample in profile.samples() {
            let stack =
                *stacks.entry(sample.stack).or_insert_with(|| resymbolizer.stack(sample.stack, &mut copy));
            let count = profile.event(sample.event).sample_count(sample.value);
            sum::add(counts.entry((sample.event, sample.stack)).or_default(), count);
            copy.sample(sample, stack);
        }
        copy.runtime_events();
        counts
            .into_iter()
            .for_each(|((event, stack), count)| resymbolizer.update_ledger(event, stack, count));
        let mut header = profile.header().clone();
        let count = resymbolizer.symbolized_addresses();
        if count > 0 {
            header.edits.push(format!("{count} addresses symbolized later"));
        }
        let ledger = resymbolizer.ledger;
        Ok(copy.finish_with(header, ledger))
    }
}

/// Symbolizes the frames of one profile. Modules and frames are looked up once.
struct Resymbolizer<'a> {
    profile: &'a Profile,
    options: NativeOptions,
    debug_files: DebugFiles,
    budget: Arc<WorkBudget>,
    modules: HashMap<ModuleId, Option<NativeModule>>,
    found: HashMap<FrameId, Option<Symbolized>>,
    ledger: Ledger,
}

impl<'a> Resymbolizer<'a> {
    fn new(profile: &'a Profile, symbols: &SymbolDirectories) -> Result<Self, OpenDirectoryError> {
        let open = |path: &Path| {
            let opened = RootDirectory::open(path).map(Arc::new);
            opened.map_err(|source| OpenDirectoryError { path: path.to_owned(), source })
        };
        let given = symbols.directories.iter().map(|path| open(path)).collect::<Result<_, _>>()?;
        let host = open(Path::new("/"))?;
        let places = DebugDirectories { configured: given, host, caches: Vec::new(), servers: None };
        Ok(Self {
            profile,
            options: NativeOptions { inlines: symbols.inlines, lines: symbols.lines, raw_names: false },
            debug_files: DebugFiles { target: None, tenant: None, shared: Arc::new(places), capture: None },
            budget: Arc::default(),
            modules: HashMap::new(),
            found: HashMap::new(),
            ledger: profile.ledger().clone(),
        })
    }

    /// Copies a stack and replaces its unsymbolized frames where symbols are found.
    fn stack(&mut self, stack: StackId, copy: &mut ProfileCopy<'_>) -> StackId {
        let profile = self.profile;
        let stack = profile.stack(stack);
        let mut frames = Vec::new();
        for (id, found_by) in stack.frames.iter().zip(&stack.found_by) {
            match self.find(*id) {
                Some(symbolized) => {
                    let symbolized = symbolized_frames(symbolized, profile.frame(*id), copy);
                    frames.extend(symbolized.into_iter().map(|frame| (frame, *found_by)));
                }
                None => frames.push((copy.frame(*id), *found_by)),
            }
        }
        copy.builder().unwound_stack(frames, stack.end)
    }

    fn find(&mut self, id: FrameId) -> Option<&Symbolized> {
        if !self.found.contains_key(&id) {
            let found = self.look_up(self.profile.frame(id));
            self.found.insert(id, found);
        }
        self.found.get(&id)?.as_ref()
    }

    fn look_up(&mut self, frame: &Frame) -> Option<Symbolized> {
        let module = frame
            .module
            .filter(|_| frame.kind == FrameKind::Native && unsymbolized_reason(frame).is_some())?;
        let (profile, debug_files, budget) = (self.profile, &self.debug_files, &self.budget);
        let open = || {
            let Module { path, build_id } = profile.module(module);
            let found = debug_files.find_by_id(&BuildId::new(build_id)?, Path::new(profile.string(*path)))?;
            Some(NativeModule::from_elf(found.elf, &found.path, budget))
        };
        let module = self.modules.entry(module).or_insert_with(open).as_mut()?;
        module.symbolize(frame.address, self.options, debug_files).ok()
    }

    /// Moves the frames of `count` samples of an event that are symbolized now from the unsymbolized to the symbolized counts.
    fn update_ledger(&mut self, event: EventId, stack: StackId, count: u64) {
        let ledger = &mut self.ledger.events[event.index()];
        for id in &self.profile.stack(stack).frames {
            let frame = self.profile.frame(*id);
            let (Some(Some(found)), Some(reason)) = (self.found.get(id), unsymbolized_reason(frame)) else {
                continue;
            };
            let module = frame.module.map(|module| self.profile.module(module).path);
            let module = module.map_or("", |path| self.profile.string(path)).to_owned();
            let unsymbolized = UnsymbolizedFrames { module, reason };
            if let Some(frames) = ledger.unsymbolized.get_mut(&unsymbolized) {
                *frames = frames.saturating_sub(count);
                if *frames == 0 {
                    ledger.unsymbolized.remove(&unsymbolized);
                }
            }
            let symbolized = ledger.symbolized.entry(found.source).or_default();
            *symbolized = symbolized.saturating_add(count.saturating_mul(found.functions.len() as u64));
        }
    }

    fn symbolized_addresses(&self) -> usize {
        let symbolized = self.found.iter().filter(|(_, found)| found.is_some());
        let address = |id: &FrameId| (self.profile.frame(*id).module, self.profile.frame(*id).address);
        symbolized.map(|(id, _)| address(id)).collect::<BTreeSet<_>>().len()
    }
}

fn unsymbolized_reason(frame: &Frame) -> Option<Reason> {
    match frame.symbolization {
        Symbolization::Address(reason) => Some(reason),
        Symbolization::Symbol(_) => None,
    }
}

/// The functions at the address of a frame as frames, innermost first.
fn symbolized_frames(
    symbolized: &Symbolized,
    unsymbolized: &Frame,
    copy: &mut ProfileCopy<'_>,
) -> Vec<FrameId> {
    let unsymbolized = copy.translated(unsymbolized);
    let builder = copy.builder();
    let outermost = symbolized.functions.len().saturating_sub(1);
    let frames = symbolized.functions.iter().enumerate().map(|(index, function)| {
        let location = function.location.as_ref();
        let location =
            location.map(|(file, line)| SourceLocation { file: builder.string(file), line: *line });
        let frame = Frame {
            name: builder.string(&function.name),
            kind: if index == outermost { FrameKind::Native } else { FrameKind::Inlined },
            location,
            symbolization: Symbolization::Symbol(symbolized.source),
            ..unsymbolized
        };
        builder.frame(frame)
    });
    frames.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use object::elf::SHT_SYMTAB;
    use profiler_addresses::ElfAddress;
    use profiler_elf_symbols::test_file::{TestFile, function};
    use profiler_profile::{Header, ProfileBuilder, StackEnd, SymbolSource};
    use tempfile::TempDir;

    use super::*;

    const ID: [u8; 4] = [0xab, 0xcd, 0xef, 0x01];

    /// A profile with samples of an unsymbolized address in each of these modules.
    fn unsymbolized_profile(modules: &[(&str, &[u8])], reason: Reason) -> Profile {
        let mut builder = ProfileBuilder::default();
        let process = builder.process(1, "app");
        let thread = builder.thread(process, 1, "app");
        for (path, build_id) in modules {
            let (name, module) = (builder.string("[x.so+0x1008]"), Some(builder.module(path, build_id)));
            let address = ElfAddress(0x1008);
            let symbolization = Symbolization::Address(reason);
            let kind = FrameKind::Native;
            let frame = builder.frame(Frame { name, kind, module, address, location: None, symbolization });
            let stack = builder.stack(vec![frame, frame], StackEnd::Root);
            builder.sample(0, 0, thread, stack, 3);
        }
        builder.finish(Header::default())
    }

    fn directory_with_file(path: &str, id: &[u8]) -> TempDir {
        let directory = tempfile::tempdir().unwrap();
        let symbols = [function("found", 0x1000, 0x10)];
        let file = TestFile::with_code().build_id(id).symbols(SHT_SYMTAB, &symbols);
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file.bytes()).unwrap();
        directory
    }

    fn symbolize(profile: &Profile, directory: &TempDir) -> Profile {
        let directories = vec![directory.path().to_owned()];
        SymbolDirectories { directories, ..SymbolDirectories::default() }.symbolize_profile(profile).unwrap()
    }

    fn leaf_name(profile: &Profile) -> &str {
        let stack = profile.stack(profile.samples()[0].stack);
        profile.string(profile.frame(stack.frames[0]).name)
    }

    #[test]
    fn a_file_with_the_build_id_of_the_module_symbolizes_its_frames() {
        let profile = unsymbolized_profile(&[("/opt/libx.so", &ID)], Reason::NoSymbols);
        for path in ["libx.so", "libx.so.dbg", ".build-id/ab/cdef01.debug", "opt/libx.so.debug"] {
            let symbolized = symbolize(&profile, &directory_with_file(path, &ID));
            assert_eq!(leaf_name(&symbolized), "found", "{path}");
            assert_eq!(symbolized.header().edits, ["1 addresses symbolized later"]);
        }
    }

    #[test]
    fn the_ledger_counts_the_frames_that_were_symbolized() {
        let profile =
            unsymbolized_profile(&[("/opt/libx.so", &ID), ("/opt/liby.so", &[9])], Reason::NoSymbols);
        let symbolized = symbolize(&profile, &directory_with_file("libx.so", &ID));
        let ledger = symbolized.first_ledger();
        assert_eq!((ledger.symbolized[&SymbolSource::SymbolTable], ledger.unsymbolized_total()), (6, 6));
        assert_eq!(ledger.worst_unnamed().unwrap().0.module, "/opt/liby.so");
        assert!(ledger.adds_up());
    }

    #[test]
    fn a_file_with_another_build_id_is_not_used() {
        let profile = unsymbolized_profile(&[("/opt/libx.so", &ID)], Reason::NoSymbols);
        let same = symbolize(&profile, &directory_with_file("libx.so", &[1, 2, 3, 4]));
        assert_eq!((leaf_name(&same), same.ledger()), ("[x.so+0x1008]", profile.ledger()));
        assert!(same.header().edits.is_empty());
    }

    #[test]
    fn a_module_without_a_build_id_does_not_change() {
        let profile = unsymbolized_profile(&[("/opt/libx.so", &[])], Reason::FileMissing);
        assert_eq!(leaf_name(&symbolize(&profile, &directory_with_file("libx.so", &[]))), "[x.so+0x1008]");
    }

    #[test]
    fn a_missing_directory_is_an_error_that_contains_its_path() {
        let symbols =
            SymbolDirectories { directories: vec!["/no/such".into()], ..SymbolDirectories::default() };
        let error = symbols.symbolize_profile(&Profile::default()).unwrap_err();
        assert!(error.to_string().contains("/no/such"), "{error}");
    }
}
