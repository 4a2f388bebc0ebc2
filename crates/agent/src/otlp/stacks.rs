//! Adds the stacks of a profile to a dictionary.

use std::{borrow::Cow, collections::HashMap};

use profiler_profile::{Frame, FrameId, FrameKind, Module, ModuleId, Profile, StackId};

use super::{
    dictionary::Dictionary,
    frame_type,
    messages::{Function, Line, Location, Mapping, Stack},
    text,
};

/// The indices of the stacks and locations that a dictionary has already.
pub(super) struct StackIndices<'a> {
    profile: &'a Profile,
    /// The end of the addresses of each module.
    module_limits: &'a [u64],
    max_frames: usize,
    of_stacks: HashMap<StackId, i32>,
    /// By a frame after the functions that are inlined into it.
    of_locations: HashMap<&'a [FrameId], i32>,
}

impl<'a> StackIndices<'a> {
    pub(super) fn new(profile: &'a Profile, module_limits: &'a [u64], max_frames: usize) -> Self {
        Self { profile, module_limits, max_frames, of_stacks: HashMap::new(), of_locations: HashMap::new() }
    }

    /// The index of a stack, which is added where it is missing.
    pub(super) fn index(&mut self, stack: StackId, dictionary: &mut Dictionary<'a>) -> i32 {
        if let Some(index) = self.of_stacks.get(&stack) {
            return *index;
        }
        let frames = &self.profile.stack(stack).frames;
        let is_inlined = |frame: &FrameId| self.profile.frame(*frame).kind == FrameKind::Inlined;
        let places = frames.chunk_by(|frame, _| is_inlined(frame)).take(self.max_frames);
        let mut location_indices: Vec<_> = places.map(|frames| self.location(frames, dictionary)).collect();
        if location_indices.is_empty() {
            // Backends leave out samples without a frame.
            location_indices.push(unknown_location(dictionary));
        }
        let index = dictionary.stack(Stack { location_indices });
        self.of_stacks.insert(stack, index);
        index
    }

    /// The index of the location of a frame and the functions that are inlined into it, which precede it.
    fn location(&mut self, frames: &'a [FrameId], dictionary: &mut Dictionary<'a>) -> i32 {
        if let Some(index) = self.of_locations.get(frames) {
            return *index;
        }
        let profile = self.profile;
        let lines = frames.iter().map(|frame| line(profile, profile.frame(*frame), dictionary)).collect();
        let outermost = frames.last().map(|frame| profile.frame(*frame));
        let mapping = outermost.and_then(|frame| frame.module).map(|module| self.mapping(module, dictionary));
        let frame_type = outermost.and_then(|frame| frame_type::of(frame, profile.string(frame.name)));
        let frame_type =
            frame_type.map(|name| dictionary.attribute("profile.frame.type", Cow::Borrowed(name)));
        let index = dictionary.location(Location {
            mapping_index: mapping.unwrap_or_default(),
            address: outermost.map_or(0, |frame| frame.address.0),
            lines,
            attribute_indices: frame_type.into_iter().collect(),
        });
        self.of_locations.insert(frames, index);
        index
    }

    /// The index of a module. Addresses are those of the file, so each mapping starts at 0: a resource has many processes,
    /// which map a module at different addresses.
    fn mapping(&self, id: ModuleId, dictionary: &mut Dictionary<'a>) -> i32 {
        let module = self.profile.module(id);
        let build_id = (!module.build_id.is_empty())
            .then(|| dictionary.attribute("process.executable.build_id.gnu", build_id(module).into()));
        let filename_strindex = dictionary.string(text::clean(self.profile.string(module.path)));
        dictionary.mapping(Mapping {
            memory_start: 0,
            memory_limit: self.module_limits.get(id.index()).copied().unwrap_or_default(),
            file_offset: 0,
            filename_strindex,
            attribute_indices: build_id.into_iter().collect(),
        })
    }
}

/// The end of the addresses of each module, by its index: mappings are known before their locations are.
pub(super) fn module_limits(profile: &Profile) -> Vec<u64> {
    let mut limits = vec![0_u64; profile.modules().len()];
    for frame in profile.frames() {
        let limit = frame.module.and_then(|module| limits.get_mut(module.index()));
        if let Some(limit) = limit {
            *limit = (*limit).max(frame.address.0.saturating_add(1));
        }
    }
    limits
}

/// The function of a frame. An unsymbolized frame has one, too: one location without a line makes Pyroscope treat the whole
/// mapping as not symbolized.
fn line<'a>(profile: &'a Profile, frame: &Frame, dictionary: &mut Dictionary<'a>) -> Line {
    let name_strindex = dictionary.string(text::function_name(profile.string(frame.name)));
    let file = frame.location.map(|location| text::clean(profile.string(location.file)));
    let filename_strindex = file.map_or(0, |file| dictionary.string(file));
    let function = Function { name_strindex, system_name_strindex: 0, filename_strindex, start_line: 0 };
    let line = frame.location.map_or(0, |location| location.line.into());
    Line { function_index: dictionary.function(function), line, column: 0 }
}

/// The location of a stack without frames.
fn unknown_location(dictionary: &mut Dictionary<'_>) -> i32 {
    let name_strindex = dictionary.string(text::function_name(""));
    let function_index = dictionary.function(Function { name_strindex, ..Function::default() });
    let line = Line { function_index, line: 0, column: 0 };
    dictionary.location(Location { lines: vec![line], ..Location::default() })
}

fn build_id(module: &Module) -> String {
    module.build_id.iter().map(|byte| format!("{byte:02x}")).collect()
}
