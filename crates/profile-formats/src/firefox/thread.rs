//! A thread of the processed format: its samples, markers, stacks, frames and functions.

use std::borrow::Cow;

use indexmap::IndexSet;
use serde::Serialize;
use serde_json::Number;

use super::{
    category_index,
    markers::{Markers, NS_PER_MS, Schemas, marker_name},
    rows::{Owner, Row},
    table::{Frames, Functions, NativeSymbols, Resources, Samples, Stacks},
};
use crate::label;
use profiler_profile::{
    EventId, FrameId, ModuleId, Profile, RuntimeEvent, Sample, Sampling, StackId, StringId, ThreadState,
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Thread<'a> {
    name: Cow<'a, str>,
    process_name: Cow<'a, str>,
    process_type: &'static str,
    is_main_thread: bool,
    pid: String,
    tid: u32,
    process_startup_time: f64,
    process_shutdown_time: Option<f64>,
    register_time: f64,
    unregister_time: Option<f64>,
    paused_ranges: [(); 0],
    show_markers_in_timeline: bool,
    samples: Samples,
    markers: Markers<'a>,
    stack_table: Stacks,
    frame_table: Frames,
    func_table: Functions,
    resource_table: Resources,
    native_symbols: NativeSymbols,
    string_array: IndexSet<Cow<'a, str>>,
}

/// What all threads are made from.
pub(super) struct Source<'a> {
    pub(super) profile: &'a Profile,
    pub(super) schemas: Schemas<'a>,
    trees: Trees,
}

impl<'a> Source<'a> {
    pub(super) fn of(profile: &'a Profile) -> Self {
        Self { profile, schemas: Schemas::of(profile), trees: Trees::of(profile) }
    }
}

impl<'a> Thread<'a> {
    /// The samples of one event of a thread, and its runtime events.
    pub(super) fn of(source: &'a Source<'a>, (owner, event): (Owner, EventId), row: &Row<'_>) -> Self {
        let profile = source.profile;
        let (nodes, tree) = source.trees.of_stacks(profile, row);
        let mut tables = Tables::of(profile, &tree.frames);
        let empty = Self::empty(profile, owner);
        let event_name = label::printable(&profile.event(event).name);
        let name = match event {
            EventId::FIRST => empty.name,
            _ => format!("{} ({event_name})", empty.name).into(),
        };
        Self {
            name,
            show_markers_in_timeline: !row.runtime_events.is_empty(),
            samples: sampled(profile, event, &row.samples, &nodes),
            markers: markers(source, &row.runtime_events, &nodes, &mut tables),
            stack_table: tree.stacks,
            frame_table: tables.frames,
            func_table: tables.functions,
            resource_table: tables.resources,
            string_array: tables.strings,
            ..empty
        }
    }

    fn empty(profile: &'a Profile, owner: Owner) -> Self {
        match owner {
            Owner::Thread(id) => {
                let thread = profile.thread_view(id);
                let process = thread.process();
                let is_main_thread = thread.tid() == process.pid();
                Self {
                    is_main_thread,
                    ..Self::new(thread.name(), process.name(), process.pid(), thread.tid())
                }
            }
            Owner::Process(id) => {
                let process = profile.process_view(id);
                Self::new(process.name(), process.name(), process.pid(), process.pid())
            }
        }
    }

    /// A main thread without samples.
    pub(super) fn new(name: &'a str, process_name: &'a str, pid: u32, tid: u32) -> Self {
        Self {
            name: label::escaped(name),
            process_name: label::escaped(process_name),
            process_type: "default",
            is_main_thread: true,
            pid: pid.to_string(),
            tid,
            process_startup_time: 0.0,
            process_shutdown_time: None,
            register_time: 0.0,
            unregister_time: None,
            paused_ranges: [],
            show_markers_in_timeline: false,
            samples: Samples { weight_type: "samples", ..Samples::default() },
            markers: Markers::default(),
            stack_table: Stacks::default(),
            frame_table: Frames::default(),
            func_table: Functions::default(),
            resource_table: Resources::default(),
            native_symbols: NativeSymbols::default(),
            string_array: IndexSet::new(),
        }
    }
}

fn sampled(profile: &Profile, event: EventId, samples: &[&Sample], nodes: &[Option<u32>]) -> Samples {
    let event = profile.event(event);
    let (weight_type, weight_unit) = match event.sampling {
        Sampling::Durations { .. } | Sampling::Times { .. } => ("tracing-ms", NS_PER_MS),
        _ => ("samples", 1.0),
    };
    let mut last_ns = 0;
    let mut column = Samples { length: samples.len(), weight_type, ..Samples::default() };
    for sample in samples {
        column.stack.push(nodes.get(sample.stack.index()).copied().flatten());
        column.time_deltas.push(sample.time_ns.saturating_sub(last_ns) as f64 / NS_PER_MS);
        column.weight.push(weight(sample.value, weight_unit));
        last_ns = sample.time_ns;
    }
    // The CPU time of a sample is unknown without a frequency.
    if let Some(unit_ns) = event.unit_ns() {
        let on_cpu_ns = samples.iter().map(|sample| {
            let is_on_cpu = sample.state.is_none_or(|state| state == ThreadState::OnCpu);
            if is_on_cpu { sample.value.saturating_mul(unit_ns) } else { 0 }
        });
        column.thread_cpu_delta = Some(on_cpu_ns.collect());
    }
    column
}

fn markers<'a>(
    source: &'a Source<'a>,
    events: &[&RuntimeEvent],
    nodes: &[Option<u32>],
    tables: &mut Tables<'a>,
) -> Markers<'a> {
    let Source { profile, schemas, .. } = source;
    let mut markers = Markers::default();
    for event in events {
        let name = tables.strings.insert_full(marker_name(profile, event)).0;
        let node = event.stack.and_then(|stack| nodes.get(stack.index()).copied().flatten());
        markers.push(event, name, schemas.data(profile, event, node));
    }
    markers
}

/// A whole number where the unit is 1, since a float has fewer digits.
fn weight(value: u64, unit: f64) -> Number {
    if unit == 1.0 { value.into() } else { Number::from_f64(value as f64 / unit).unwrap_or_else(|| 0.into()) }
}

/// The source of the stack trees of all threads.
pub(super) struct Trees {
    /// All stacks, sorted by their frames from the root, so that neighbours share a prefix.
    order: Vec<StackId>,
}

/// The stack tree of a thread.
struct Tree {
    stacks: Stacks,
    /// The frames of the tree, by index.
    frames: IndexSet<FrameId>,
}

impl Trees {
    pub(super) fn of(profile: &Profile) -> Self {
        let sampled = profile.samples().iter().map(|sample| sample.stack);
        let event_stacks = profile.runtime_events().iter().filter_map(|event| event.stack);
        let mut order: Vec<StackId> = sampled.chain(event_stacks).collect();
        order.sort_unstable();
        order.dedup();
        let path = |id: &StackId| profile.stack(*id).frames.iter().rev();
        order.sort_unstable_by(|a, b| path(a).cmp(path(b)));
        Self { order }
    }

    /// The leaf node of each stack by stack index, and the tree of the stacks of a row.
    fn of_stacks(&self, profile: &Profile, row: &Row<'_>) -> (Vec<Option<u32>>, Tree) {
        let mut is_in_row = vec![false; profile.stack_count()];
        let sampled = row.samples.iter().map(|sample| sample.stack);
        for stack in sampled.chain(row.runtime_events.iter().filter_map(|event| event.stack)) {
            if let Some(is_in_row) = is_in_row.get_mut(stack.index()) {
                *is_in_row = true;
            }
        }
        let mut nodes = vec![None; profile.stack_count()];
        let mut tree = Tree { stacks: Stacks::default(), frames: IndexSet::new() };
        // The path that was added last, with its nodes.
        let mut path: Vec<(FrameId, u32)> = Vec::new();
        for stack in self.order.iter().filter(|stack| is_in_row.get(stack.index()) == Some(&true)) {
            let frames = &profile.stack(*stack).frames;
            let shared = path.iter().zip(frames.iter().rev()).take_while(|((a, _), b)| a == *b).count();
            path.truncate(shared);
            for frame in frames.iter().rev().skip(shared) {
                let node = tree.push(path.last().map(|(_, node)| *node), *frame);
                path.push((*frame, node));
            }
            if let Some(leaf) = nodes.get_mut(stack.index()) {
                *leaf = path.last().map(|(_, node)| *node);
            }
        }
        (nodes, tree)
    }
}

impl Tree {
    fn push(&mut self, prefix: Option<u32>, frame: FrameId) -> u32 {
        let node = u32::try_from(self.stacks.length).unwrap_or(u32::MAX);
        self.stacks.length += 1;
        self.stacks.prefix.push(prefix);
        self.stacks.frame.push(self.frames.insert_full(frame).0);
        node
    }
}

/// The frame, function and resource tables.
#[derive(Default)]
struct Tables<'a> {
    frames: Frames,
    functions: Functions,
    resources: Resources,
    strings: IndexSet<Cow<'a, str>>,
    /// Indices of functions and modules.
    function_keys: IndexSet<(StringId, Option<ModuleId>, Option<StringId>)>,
    module_keys: IndexSet<ModuleId>,
}

impl<'a> Tables<'a> {
    fn of(profile: &'a Profile, ids: &IndexSet<FrameId>) -> Self {
        let mut tables = Self::default();
        for id in ids {
            let frame = profile.frame(*id);
            let file = frame.location.map(|location| location.file);
            let line = frame.location.map(|location| location.line).filter(|line| *line != 0);
            let function = tables.function(profile, frame.name, frame.module, file);
            tables.frames.push(function, category_index(frame.kind), line);
        }
        tables
    }

    fn function(
        &mut self,
        profile: &'a Profile,
        name: StringId,
        module: Option<ModuleId>,
        file: Option<StringId>,
    ) -> usize {
        let (place, is_new) = self.function_keys.insert_full((name, module, file));
        if is_new {
            let name = self.string(profile.string(name));
            let resource = module.map(|module| self.resource(profile, module));
            let file = file.map(|file| self.string(profile.string(file)));
            self.functions.push(name, resource, file);
        }
        place
    }

    fn resource(&mut self, profile: &'a Profile, module: ModuleId) -> usize {
        let (place, is_new) = self.module_keys.insert_full(module);
        if is_new {
            let path = profile.string(profile.module(module).path);
            let name = self.string(path.rsplit('/').next().unwrap_or(path));
            self.resources.push(module.index(), name);
        }
        place
    }

    fn string(&mut self, text: &'a str) -> usize {
        self.strings.insert_full(label::escaped(text)).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_profile::test_profile;

    #[test]
    fn common_prefixes_of_stacks_are_shared() {
        let profile =
            test_profile::folded(&[("a;main;b", 1), ("a;main;a;c", 1), ("a;main", 1), ("a;main;a", 1)]);
        let row = Row { samples: profile.samples().iter().collect(), ..Row::default() };
        let (nodes, tree) = Trees::of(&profile).of_stacks(&profile, &row);
        assert_eq!(tree.stacks.length, 4);
        for sample in row.samples {
            let mut frames = Vec::new();
            let mut next = nodes[sample.stack.index()];
            while let Some(node) = next {
                frames.push(tree.frames[tree.stacks.frame[node as usize]]);
                next = tree.stacks.prefix[node as usize];
            }
            assert_eq!(*frames, *profile.stack(sample.stack).frames);
        }
    }
}
