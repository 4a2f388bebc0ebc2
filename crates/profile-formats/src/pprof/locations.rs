//! The tables of a pprof profile: locations, functions and mappings.

use std::collections::HashMap;

use indexmap::{IndexMap, IndexSet};

use super::{
    Strings,
    message::{Function, Line, Location, Mapping, Profile as Piece},
};
use profiler_profile::{
    Frame, FrameId, FrameKind, Module, ModuleId, Profile, StackId, StringId, Symbolization,
};

/// The builder of the tables.
pub(super) struct Locations<'a> {
    profile: &'a Profile,
    /// A frame, after the functions that are inlined into it. Ids are indices plus one, as in all tables of pprof.
    locations: IndexSet<Box<[FrameId]>>,
    /// The locations of stacks, cached because several threads have the same stack.
    of_stacks: HashMap<StackId, Box<[u64]>>,
}

impl<'a> Locations<'a> {
    pub(super) fn of(profile: &'a Profile) -> Self {
        Self { profile, locations: IndexSet::new(), of_stacks: HashMap::new() }
    }

    /// The location ids of a stack, leaf first.
    pub(super) fn of_stack(&mut self, stack: StackId) -> &[u64] {
        let Self { profile, locations, of_stacks } = self;
        of_stacks.entry(stack).or_insert_with(|| {
            let is_inlined = |id: &FrameId| profile.frame(*id).kind == FrameKind::Inlined;
            let frames = profile.stack(stack).frames.chunk_by(|frame, _| is_inlined(frame));
            frames
                .map(|location| match locations.get_index_of(location) {
                    Some(known) => id(known),
                    None => id(locations.insert_full(location.into()).0),
                })
                .collect()
        })
    }

    /// The tables of all locations.
    pub(super) fn tables(self, strings: &mut Strings<'a>) -> Piece {
        let profile = self.profile;
        let mappings = mappings(profile, strings);
        let mut functions = IndexSet::<(StringId, Option<StringId>)>::new();
        let mut line = |frame: &Frame| {
            let file = frame.location.map(|location| location.file);
            let line = frame.location.map_or(0, |location| location.line);
            Line { function_id: id(functions.insert_full((frame.name, file)).0), line: line.into() }
        };
        let location: Vec<_> = self
            .locations
            .iter()
            .zip(1..)
            .filter_map(|(frames, id)| {
                let outermost = profile.frame(*frames.last()?);
                let mapping = outermost.module.and_then(|module| mappings.get_index_of(&module));
                Some(Location {
                    id,
                    mapping_id: mapping.map_or(0, self::id),
                    address: outermost.address.0,
                    line: frames.iter().map(|frame| line(profile.frame(*frame))).collect(),
                })
            })
            .collect();
        let function = functions.iter().zip(1..).map(|(&(name, file), id)| {
            let name = strings.number(profile.string(name));
            let filename = file.map_or(0, |file| strings.number(profile.string(file)));
            Function { id, name, system_name: name, filename }
        });
        Piece {
            function: function.collect(),
            mapping: mappings.into_values().collect(),
            location,
            ..Piece::default()
        }
    }
}

/// A mapping for each module. Addresses are those of the file, so each mapping starts at zero: a profile has many
/// processes, which map a module at different addresses.
fn mappings<'a>(profile: &'a Profile, strings: &mut Strings<'a>) -> IndexMap<ModuleId, Mapping> {
    let mut mappings = IndexMap::<ModuleId, Mapping>::new();
    // pprof shows the first mapping as the program.
    let program = program(profile);
    let path = |frame: &Frame| frame.module.map(|module| profile.module(module).path);
    let mut frames: Vec<&Frame> = profile.frames().collect();
    frames.sort_by_key(|frame| (frame.kind == FrameKind::Kernel, path(frame) != program));
    for frame in frames {
        let Some(module) = frame.module else { continue };
        let number = id(mappings.len());
        let mapping = mappings
            .entry(module)
            .or_insert_with(|| new_mapping(number, profile.module(module), profile, strings));
        let is_named = matches!(frame.symbolization, Symbolization::Symbol(_));
        mapping.memory_limit = mapping.memory_limit.max(frame.address.0.saturating_add(1));
        // pprof symbolizes mappings without function names itself.
        mapping.has_functions |= is_named;
        mapping.has_filenames |= frame.location.is_some();
        mapping.has_line_numbers |= frame.location.is_some_and(|location| location.line != 0);
        mapping.has_inline_frames |= frame.kind == FrameKind::Inlined;
    }
    mappings
}

/// The path of the program of the first sampled process: the module whose file name starts with the comm, which the
/// kernel cuts at 15 bytes.
fn program(profile: &Profile) -> Option<StringId> {
    let name = profile.sample_views().next()?.thread().process().name();
    let is_program = |path: &StringId| {
        let file = profile.string(*path).rsplit('/').next();
        file.is_some_and(|file| !name.is_empty() && file.starts_with(name))
    };
    profile.modules().map(|module| module.path).find(is_program)
}

fn new_mapping<'a>(id: u64, module: &Module, profile: &'a Profile, strings: &mut Strings<'a>) -> Mapping {
    let build_id: String = module.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    Mapping {
        id,
        filename: strings.number(profile.string(module.path)),
        build_id: strings.number_of(&build_id),
        ..Mapping::default()
    }
}

/// The id of the entry at an index.
fn id(place: usize) -> u64 {
    place as u64 + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_addresses::ElfAddress;
    use profiler_profile::{Header, ProfileBuilder, SourceLocation, StackEnd, SymbolSource};

    #[test]
    fn the_program_is_the_first_mapping_and_the_kernel_the_last() {
        let mut builder = ProfileBuilder::default();
        let mut frame = |module: &str, kind| {
            let (name, module) = (builder.string("f"), Some(builder.module(module, &[])));
            let symbolization = Symbolization::Symbol(SymbolSource::SymbolTable);
            builder.frame(Frame { name, kind, module, address: ElfAddress(1), location: None, symbolization })
        };
        let frames = vec![
            frame("[kernel]", FrameKind::Kernel),
            frame("/lib/libc.so.6", FrameKind::Native),
            frame("/srv/a-program-of-mine-with-a-long-name", FrameKind::Native),
        ];
        let stack = builder.stack(frames, StackEnd::Root);
        let process = builder.process(1, "a-program-of-mi");
        let thread = builder.thread(process, 1, "worker");
        builder.sample(0, 0, thread, stack, 1);
        let profile = builder.finish(Header::default());

        let mut strings = Strings::default();
        let mappings = mappings(&profile, &mut strings);
        let name =
            |mapping: &Mapping| strings.0.get_index(usize::try_from(mapping.filename).unwrap()).unwrap();
        let names: Vec<_> = mappings.values().map(name).collect();
        assert_eq!(names, ["/srv/a-program-of-mine-with-a-long-name", "/lib/libc.so.6", "[kernel]"]);
    }

    #[test]
    fn inlined_functions_are_lines_of_their_location() {
        let mut builder = ProfileBuilder::default();
        let module = Some(builder.module("/bin/app", &[0xab, 0x01]));
        let file = builder.string("/src/a.rs");
        let mut frame = |name: &str, kind, line| {
            let name = builder.string(name);
            builder.frame(Frame {
                name,
                kind,
                module,
                address: ElfAddress(0x1234),
                location: Some(SourceLocation { file, line }),
                symbolization: Symbolization::Symbol(SymbolSource::Dwarf),
            })
        };
        let inner = frame("inner", FrameKind::Inlined, 3);
        let middle = frame("middle", FrameKind::Inlined, 2);
        let outer = frame("outer", FrameKind::Native, 1);
        let stack = builder.stack(vec![inner, middle, outer, outer], StackEnd::Root);
        let profile = builder.finish(Header::default());

        let mut locations = Locations::of(&profile);
        assert_eq!(locations.of_stack(stack), [1, 2]);
        assert_eq!(locations.of_stack(stack), [1, 2]);
        let mut strings = Strings::default();
        let tables = locations.tables(&mut strings);
        let lines: Vec<Vec<i64>> =
            tables.location.iter().map(|place| place.line.iter().map(|line| line.line).collect()).collect();
        assert_eq!(lines, [vec![3, 2, 1], vec![1]]);
        let mapping = tables.mapping[0];
        assert_eq!((mapping.memory_start, mapping.memory_limit), (0, 0x1235));
        assert!(mapping.has_functions && mapping.has_inline_frames && mapping.has_line_numbers);
        let build_id = strings.0.get_index(usize::try_from(mapping.build_id).unwrap()).unwrap();
        assert_eq!(build_id, "ab01");
    }
}
