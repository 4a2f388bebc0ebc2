//! What the page's script reads: the profile in columns, everything that repeats once.
//!
//! Several profiles can share strings, functions, tree and threads, each with its own samples over time.

use std::collections::HashMap;

use serde::Serialize;

use super::{
    function::{self, Functions, Sameness},
    ledger::{self, Section},
    owner::{Owners, Processes, Threads},
    side::Side,
    text::Texts,
    timeline::{Placed, Timeline},
    tree::Tree,
};
use crate::OutputOptions;
use profiler_profile::{CodeKind, Profile, StackId, difference::Difference};

#[derive(Serialize)]
pub(super) struct Document<'a> {
    /// What stands between the root and the stacks at first: `comm`, `container`, `process` or `thread`.
    roots: &'static str,
    kinds: &'static [CodeKind],
    functions: function::Columns,
    tree: Tree,
    processes: Processes,
    threads: Threads,
    /// One, or one from before and one from after.
    profiles: Vec<Measured>,
    strings: Texts<'a>,
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
    reported: u64,
    lost: u64,
    /// What was done to the profile since, and why there is nothing in it.
    edits: usize,
    why_empty: usize,
    timeline: Timeline,
    ledger: Vec<Section>,
}

impl<'a> Document<'a> {
    pub(super) fn of(profile: &'a Profile, options: &OutputOptions) -> Self {
        Self::new(&[profile], Sameness::InOneRun, options)
    }

    /// Of two profiles. What happened at a moment of one says nothing of the other: they have no times.
    pub(super) fn comparing(difference: &Difference<'a>, options: &OutputOptions) -> Self {
        Self::new(&[difference.before(), difference.after()], Sameness::AcrossBuilds, options)
    }

    fn new(profiles: &[&'a Profile], sameness: Sameness, options: &OutputOptions) -> Self {
        let sides: Vec<_> =
            profiles.iter().enumerate().map(|(number, profile)| Side { number, profile }).collect();
        let mut texts = Texts::new();
        let mut functions = Functions::by(sameness);
        let (tree, nodes) = Tree::of(sides.iter().flat_map(|side| stacks(*side, &mut functions)).collect());
        let nodes = nodes.into_iter().collect();
        let mut owners = Owners::default();
        let mut measured = |side: &Side<'a>| {
            let timeline = timeline(*side, &nodes, &mut owners, sameness);
            measured(side.profile, timeline, &mut texts)
        };
        let measured = sides.iter().map(&mut measured).collect();
        let functions = functions.columns(&mut texts);
        let (processes, threads) = owners.columns(&mut texts);
        Self {
            roots: roots(options),
            kinds: CodeKind::ALL,
            functions,
            tree,
            processes,
            threads,
            profiles: measured,
            strings: texts,
        }
    }
}

fn roots(options: &OutputOptions) -> &'static str {
    match options {
        OutputOptions { per_thread: true, .. } => "thread",
        OutputOptions { per_process: true, .. } => "process",
        OutputOptions { per_container: true, .. } => "container",
        _ => "comm",
    }
}

/// A stack of one of the profiles.
type StackOfSide = (usize, StackId);

/// The stacks that were sampled, as functions, root first.
fn stacks<'a>(side: Side<'a>, functions: &mut Functions<'a>) -> Vec<(StackOfSide, Vec<u32>)> {
    let mut samples_of = HashMap::<StackId, u64>::new();
    for sample in side.profile.samples() {
        let samples = samples_of.entry(sample.stack).or_default();
        *samples = samples.saturating_add(sample.count);
    }
    // Numbers that depend on the order of a hash map would make another page of the same profile.
    let mut stacks: Vec<(StackId, u64)> = samples_of.into_iter().collect();
    stacks.sort_unstable();
    let mut path = |(id, samples)| {
        let frames = side.profile.stack(id).frames.iter().rev();
        ((side.number, id), frames.map(|frame| functions.number(side, *frame, samples)).collect())
    };
    stacks.into_iter().map(&mut path).collect()
}

fn timeline<'a>(
    side: Side<'a>,
    nodes: &HashMap<StackOfSide, u32>,
    owners: &mut Owners<'a>,
    sameness: Sameness,
) -> Timeline {
    let samples = side.profile.samples();
    let placed = samples.iter().map(|sample| Placed {
        time_ns: sample.time_ns,
        thread: owners.number(side, sample.thread),
        node: nodes.get(&(side.number, sample.stack)).copied().unwrap_or_default(),
        count: sample.count,
    });
    match sameness {
        Sameness::AcrossBuilds => Timeline::timeless(placed),
        Sameness::InOneRun => {
            let last_sample_ns = samples.last().map_or(0, |sample| sample.time_ns);
            let last_ns = side.profile.header().duration_ns.saturating_sub(1);
            Timeline::of(placed, last_sample_ns.max(last_ns))
        }
    }
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
        reported: profile.ledger().reported,
        lost: profile.ledger().lost_total(),
        edits: texts.number(header.edits.join(", ")),
        why_empty: texts.number(profile.ledger().why_empty().unwrap_or_default()),
        timeline,
        ledger: ledger::sections(profile.ledger()),
    }
}
