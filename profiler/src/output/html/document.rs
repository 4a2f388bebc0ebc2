//! What the page's script reads: the profile in columns, everything that repeats once.
//!
//! Several profiles can share strings, functions, tree and threads, each with its own samples over time.

use std::collections::HashMap;

use indexmap::IndexSet;
use serde::Serialize;

use super::{
    function::{self, Functions, Kind},
    ledger::{self, Section},
    text::Texts,
    timeline::{Placed, Timeline},
    tree::Tree,
};
use crate::{
    output::OutputOptions,
    profile::{ProcessId, Profile, StackId, ThreadId},
};

#[derive(Serialize)]
pub(super) struct Document<'a> {
    /// What stands between the root and the stacks at first: `comm`, `process` or `thread`.
    roots: &'static str,
    kinds: [Kind; Kind::ALL.len()],
    functions: function::Columns,
    tree: Tree,
    processes: Processes,
    threads: Threads,
    profiles: [Measured; 1],
    strings: Texts<'a>,
}

#[derive(Default, Serialize)]
struct Processes {
    pid: Vec<u32>,
    comm: Vec<usize>,
}

#[derive(Default, Serialize)]
struct Threads {
    process: Vec<usize>,
    tid: Vec<u32>,
    comm: Vec<usize>,
}

/// One profile: what was measured, when what ran, and what became of it all.
#[derive(Serialize)]
struct Measured {
    target: usize,
    event: usize,
    frequency_hz: u64,
    cpus: u32,
    duration_ns: u64,
    started_unix_ms: u64,
    lost: u64,
    timeline: Timeline,
    ledger: Vec<Section>,
}

impl<'a> Document<'a> {
    pub(super) fn of(profile: &'a Profile, options: &OutputOptions) -> Self {
        let mut texts = Texts::new();
        let mut functions = Functions::default();
        let (tree, nodes) = Tree::of(stacks(profile, &mut functions));
        let threads = profile.samples().iter().map(|sample| sample.thread).collect();
        let timeline = timeline(profile, &nodes.into_iter().collect(), &threads);
        let functions = functions.columns(profile, &mut texts);
        let (processes, threads) = owners(profile, &threads, &mut texts);
        let profiles = [measured(profile, timeline, &mut texts)];
        Self {
            roots: roots(options),
            kinds: Kind::ALL,
            functions,
            tree,
            processes,
            threads,
            profiles,
            strings: texts,
        }
    }
}

fn roots(options: &OutputOptions) -> &'static str {
    match (options.per_thread, options.per_process) {
        (true, _) => "thread",
        (false, true) => "process",
        (false, false) => "comm",
    }
}

/// The stacks that were sampled, as functions, root first.
fn stacks(profile: &Profile, functions: &mut Functions) -> Vec<(StackId, Vec<u32>)> {
    let mut samples_of = HashMap::<StackId, u64>::new();
    for sample in profile.samples() {
        let samples = samples_of.entry(sample.stack).or_default();
        *samples = samples.saturating_add(sample.count);
    }
    // Numbers that depend on the order of a hash map would make another page of the same profile.
    let mut stacks: Vec<(StackId, u64)> = samples_of.into_iter().collect();
    stacks.sort_unstable();
    let mut path = |(id, samples)| {
        let frames = profile.stack(id).frames.iter().rev();
        (id, frames.map(|frame| functions.number(profile, *frame, samples)).collect())
    };
    stacks.into_iter().map(&mut path).collect()
}

fn timeline(profile: &Profile, nodes: &HashMap<StackId, u32>, threads: &IndexSet<ThreadId>) -> Timeline {
    let last_sample_ns = profile.samples().last().map_or(0, |sample| sample.time_ns);
    let placed = profile.samples().iter().map(|sample| Placed {
        time_ns: sample.time_ns,
        thread: threads.get_index_of(&sample.thread).and_then(|thread| thread.try_into().ok()).unwrap_or(0),
        node: nodes.get(&sample.stack).copied().unwrap_or_default(),
        count: sample.count,
    });
    Timeline::of(placed, last_sample_ns.max(profile.header().duration_ns.saturating_sub(1)))
}

/// The threads, and the processes they are of.
fn owners<'a>(profile: &'a Profile, ids: &IndexSet<ThreadId>, texts: &mut Texts<'a>) -> (Processes, Threads) {
    let mut process_ids = IndexSet::<ProcessId>::new();
    let mut threads = Threads::default();
    for id in ids {
        let thread = profile.thread(*id);
        threads.process.push(process_ids.insert_full(thread.process).0);
        threads.tid.push(thread.tid);
        threads.comm.push(texts.number(profile.string(thread.comm)));
    }
    let mut processes = Processes::default();
    for id in process_ids {
        let process = profile.process(id);
        processes.pid.push(process.pid);
        processes.comm.push(texts.number(profile.string(process.comm)));
    }
    (processes, threads)
}

fn measured<'a>(profile: &'a Profile, timeline: Timeline, texts: &mut Texts<'a>) -> Measured {
    const NS_PER_MS: u64 = 1_000_000;
    let header = profile.header();
    Measured {
        target: texts.number(&*header.target),
        event: texts.number(&*header.event),
        frequency_hz: header.frequency_hz,
        cpus: header.cpus,
        duration_ns: header.duration_ns,
        started_unix_ms: header.started_unix_ns / NS_PER_MS,
        lost: profile.ledger().lost_total(),
        timeline,
        ledger: ledger::sections(profile.ledger()),
    }
}
