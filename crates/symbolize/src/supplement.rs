//! Names for a profile that was recorded where symbols were missing, from files that are here now.

use profiler_binary_reader::WorkBudget;
use profiler_elf_symbols::BuildId;
use std::{
    collections::{BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    NativeOptions,
    debug_file::{DebugDirectories, DebugFiles},
    native::NativeModule,
    symbol::Symbolized,
};
use profiler_processes::root_directory::RootDirectory;
use profiler_profile::{
    Frame, FrameId, FrameKind, Ledger, Module, ModuleId, Profile, ProfileCopy, Reason, SourceLocation,
    StackId, Symbolization, UnsymbolizedFrames,
};
use thiserror::Error;

/// Where symbols are that were missing when a profile was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    /// Debug files, or the modules themselves, laid out in any way that gdb or a build knows. After these, where the
    /// system keeps debug files.
    pub directories: Vec<PathBuf>,
    /// Whether inlined functions are frames of their own in what is named now.
    pub inlines: bool,
    /// Whether frames that are named now have file and line.
    pub lines: bool,
}

/// A directory of debug files that cannot be opened.
#[derive(Debug, Error)]
#[error("failed to open the directory `{}`", path.display())]
pub struct OpenDirectoryError {
    /// The directory.
    pub path: PathBuf,
    /// What the system says.
    pub source: std::io::Error,
}

impl Symbols {
    /// A copy of `profile` with names for frames of native code that had none. A file counts only when it has the build id that
    /// the module had: modules without one stay as they are, and names are never replaced.
    ///
    /// # Errors
    /// When one of the directories cannot be opened.
    pub fn name_frames(&self, profile: &Profile) -> Result<Profile, OpenDirectoryError> {
        let mut naming = Supplement::new(profile, self)?;
        let mut copy = ProfileCopy::of(profile);
        let (mut stacks, mut counts) = (HashMap::new(), HashMap::<_, u64>::new());
        for sample in profile.samples() {
            let stack = *stacks.entry(sample.stack).or_insert_with(|| naming.stack(sample.stack, &mut copy));
            *counts.entry(sample.stack).or_default() += sample.count;
            copy.sample(sample, stack);
        }
        counts.into_iter().for_each(|(stack, count)| naming.count(stack, count));
        let mut header = profile.header().clone();
        let count = naming.named_addresses();
        if count > 0 {
            header.edits.push(format!("{count} addresses named later"));
        }
        let ledger = naming.ledger;
        Ok(copy.finish_with(header, ledger))
    }
}

/// What was found for the frames of a profile.
struct Supplement<'a> {
    profile: &'a Profile,
    options: NativeOptions,
    debug_files: DebugFiles,
    budget: Arc<WorkBudget>,
    modules: HashMap<ModuleId, Option<NativeModule>>,
    found: HashMap<FrameId, Option<Symbolized>>,
    ledger: Ledger,
}

impl<'a> Supplement<'a> {
    fn new(profile: &'a Profile, symbols: &Symbols) -> Result<Self, OpenDirectoryError> {
        let open = |path: &Path| {
            let opened = RootDirectory::open(path).map(Arc::new);
            opened.map_err(|source| OpenDirectoryError { path: path.to_owned(), source })
        };
        let given = symbols.directories.iter().map(|path| open(path)).collect::<Result<_, _>>()?;
        let host = open(Path::new("/"))?;
        let places = DebugDirectories { configured: given, host, caches: Vec::new(), servers: None };
        Ok(Self {
            profile,
            options: NativeOptions { inlines: symbols.inlines, lines: symbols.lines },
            debug_files: DebugFiles { target: None, shared: Arc::new(places), capture: None },
            budget: Arc::default(),
            modules: HashMap::new(),
            found: HashMap::new(),
            ledger: profile.ledger().clone(),
        })
    }

    /// A stack in the copy, with the names that were found.
    fn stack(&mut self, stack: StackId, copy: &mut ProfileCopy<'_>) -> StackId {
        let profile = self.profile;
        let stack = profile.stack(stack);
        let mut frames = Vec::new();
        for (id, found_by) in stack.frames.iter().zip(&stack.found_by) {
            match self.find(*id) {
                Some(symbolized) => {
                    let named = frames_of(symbolized, profile.frame(*id), copy);
                    frames.extend(named.into_iter().map(|frame| (frame, *found_by)));
                }
                None => frames.push((copy.frame(*id), *found_by)),
            }
        }
        copy.builder().walked_stack(frames, stack.end)
    }

    fn find(&mut self, id: FrameId) -> Option<&Symbolized> {
        if !self.found.contains_key(&id) {
            let found = self.look_up(self.profile.frame(id));
            self.found.insert(id, found);
        }
        self.found.get(&id)?.as_ref()
    }

    fn look_up(&mut self, frame: &Frame) -> Option<Symbolized> {
        let module = frame.module.filter(|_| frame.kind == FrameKind::Native && unnamed(frame).is_some())?;
        let (profile, debug_files, budget) = (self.profile, &self.debug_files, &self.budget);
        let open = || {
            let Module { path, build_id } = profile.module(module);
            let found = debug_files.find_by_id(&BuildId::new(build_id)?, Path::new(profile.string(*path)))?;
            Some(NativeModule::from_elf(found.elf, &found.path, budget))
        };
        let module = self.modules.entry(module).or_insert_with(open).as_mut()?;
        module.symbolize(frame.address, self.options, debug_files).ok()
    }

    /// Takes the frames of `count` samples that have a name now from those without one.
    fn count(&mut self, stack: StackId, count: u64) {
        for id in &self.profile.stack(stack).frames {
            let frame = self.profile.frame(*id);
            let (Some(Some(found)), Some(reason)) = (self.found.get(id), unnamed(frame)) else { continue };
            let module = frame.module.map(|module| self.profile.module(module).path);
            let module = module.map_or("", |path| self.profile.string(path)).to_owned();
            let gap = UnsymbolizedFrames { module, reason };
            if let Some(left) = self.ledger.unnamed.get_mut(&gap) {
                *left = left.saturating_sub(count);
                if *left == 0 {
                    self.ledger.unnamed.remove(&gap);
                }
            }
            let named = self.ledger.named.entry(found.source).or_default();
            *named = named.saturating_add(count.saturating_mul(found.functions.len() as u64));
        }
    }

    fn named_addresses(&self) -> usize {
        let named = self.found.iter().filter(|(_, found)| found.is_some());
        let address = |id: &FrameId| (self.profile.frame(*id).module, self.profile.frame(*id).address);
        named.map(|(id, _)| address(id)).collect::<BTreeSet<_>>().len()
    }
}

fn unnamed(frame: &Frame) -> Option<Reason> {
    match frame.naming {
        Symbolization::Address(reason) => Some(reason),
        Symbolization::Symbol(_) => None,
    }
}

/// The functions at a frame's address as frames, innermost first.
fn frames_of(symbolized: &Symbolized, unnamed: &Frame, copy: &mut ProfileCopy<'_>) -> Vec<FrameId> {
    let unnamed = copy.copied(unnamed);
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
            naming: Symbolization::Symbol(symbolized.source),
            ..unnamed
        };
        builder.frame(frame)
    });
    frames.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use object::elf::SHT_SYMTAB;
    use tempfile::TempDir;

    use super::*;
    use profiler_addresses::ElfAddress;
    use profiler_elf_symbols::test_file::{TestFile, function};
    use profiler_profile::{Header, ProfileBuilder, StackEnd, SymbolSource};

    const ID: [u8; 4] = [0xab, 0xcd, 0xef, 0x01];

    /// Samples of an address without a name in each of these modules.
    fn recorded(modules: &[(&str, &[u8])], reason: Reason) -> Profile {
        let mut builder = ProfileBuilder::default();
        let process = builder.process(1, "app");
        let thread = builder.thread(process, 1, "app");
        for (path, build_id) in modules {
            let (name, module) = (builder.string("[x.so+0x1008]"), Some(builder.module(path, build_id)));
            let address = ElfAddress(0x1008);
            let naming = Symbolization::Address(reason);
            let kind = FrameKind::Native;
            let frame = builder.frame(Frame { name, kind, module, address, location: None, naming });
            let stack = builder.stack(vec![frame, frame], StackEnd::Root);
            builder.sample(0, 0, thread, stack, 3);
        }
        builder.finish(Header::default())
    }

    fn with_file(path: &str, id: &[u8]) -> TempDir {
        let directory = tempfile::tempdir().unwrap();
        let symbols = [function("found", 0x1000, 0x10)];
        let file = TestFile::with_code().build_id(id).symbols(SHT_SYMTAB, &symbols);
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file.bytes()).unwrap();
        directory
    }

    fn named(profile: &Profile, directory: &TempDir) -> Profile {
        let directories = vec![directory.path().to_owned()];
        Symbols { directories, ..Symbols::default() }.name_frames(profile).unwrap()
    }

    fn leaf_name(profile: &Profile) -> &str {
        let stack = profile.stack(profile.samples()[0].stack);
        profile.string(profile.frame(stack.frames[0]).name)
    }

    #[test]
    fn a_frame_is_named_by_a_file_of_its_module_s_build_id_wherever_that_is() {
        let profile = recorded(&[("/opt/libx.so", &ID)], Reason::NoSymbols);
        for path in ["libx.so", "libx.so.dbg", ".build-id/ab/cdef01.debug", "opt/libx.so.debug"] {
            let named = named(&profile, &with_file(path, &ID));
            assert_eq!(leaf_name(&named), "found", "{path}");
            assert_eq!(named.header().edits, ["1 addresses named later"]);
        }
    }

    #[test]
    fn the_ledger_counts_what_was_named() {
        let profile = recorded(&[("/opt/libx.so", &ID), ("/opt/liby.so", &[9])], Reason::NoSymbols);
        let named = named(&profile, &with_file("libx.so", &ID));
        let ledger = named.ledger();
        assert_eq!((ledger.named[&SymbolSource::SymbolTable], ledger.unnamed_total()), (6, 6));
        assert_eq!(ledger.worst_unnamed().unwrap().0.module, "/opt/liby.so");
        assert!(ledger.adds_up());
    }

    #[test]
    fn a_file_of_another_build_names_nothing() {
        let profile = recorded(&[("/opt/libx.so", &ID)], Reason::NoSymbols);
        let same = named(&profile, &with_file("libx.so", &[1, 2, 3, 4]));
        assert_eq!((leaf_name(&same), same.ledger()), ("[x.so+0x1008]", profile.ledger()));
        assert!(same.header().edits.is_empty());
    }

    #[test]
    fn a_module_without_a_build_id_stays_as_it_is() {
        let profile = recorded(&[("/opt/libx.so", &[])], Reason::FileMissing);
        assert_eq!(leaf_name(&named(&profile, &with_file("libx.so", &[]))), "[x.so+0x1008]");
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error_with_its_name() {
        let symbols = Symbols { directories: vec!["/no/such".into()], ..Symbols::default() };
        let error = symbols.name_frames(&Profile::default()).unwrap_err();
        assert!(error.to_string().contains("/no/such"), "{error}");
    }
}
