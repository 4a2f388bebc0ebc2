//! The JSON document of the page: the profile in columns, with interned strings, functions and call tree.
//!
//! The two profiles of a difference share strings, functions, tree and threads, and have their own samples, and so do the
//! events of a profile.

use std::{cmp::Reverse, collections::HashMap};

use serde::Serialize;

use super::{
    finding::{self, Line},
    function::{self, Functions, Sameness},
    lanes::{Lanes, Run},
    ledger::{self, Section},
    owner::{Owners, Processes, Threads},
    runtime_events::{self, RuntimeEvents},
    side::Side,
    text::Texts,
    timeline::{Placed, Timeline},
    tree::Tree,
};
use crate::{OutputOptions, title};
use profiler_profile::{
    CodeKind, EventId, Profile, RuntimeEvent, Sample, Sampling, StackId, ThreadState, difference::Difference,
};

#[derive(Serialize)]
pub(super) struct Document<'a> {
    /// The initial grouping between root and stacks: `comm`, `container`, `process` or `thread`.
    roots: &'static str,
    kinds: &'static [CodeKind],
    /// The options of the states, by their index.
    states: Vec<&'static str>,
    functions: function::Columns,
    tree: Tree,
    /// Whether the page begins with the frames in which threads wait, and not with their causes alone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    wait_frames: bool,
    processes: Processes,
    threads: Threads,
    /// For each event, one profile, or the earlier and the later one of a difference.
    events: Vec<Vec<Measurement>>,
    /// The index of the event that is shown first.
    initial_event: usize,
    /// For one profile whose samples have states.
    #[serde(skip_serializing_if = "Option::is_none")]
    lanes: Option<Lanes>,
    /// For one profile with runtime events.
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime_events: Option<RuntimeEvents>,
    strings: Texts<'a>,
}

/// One event of a profile: the header, its samples over time and its ledger.
#[derive(Serialize)]
struct Measurement {
    target: usize,
    /// The name, and the event in words: `cpu-clock at 99 Hz`.
    event: usize,
    event_text: usize,
    /// What its samples show: `On-CPU`.
    shown: String,
    /// Nanoseconds of a unit of the counts where these are times; 0 where they are samples.
    unit_ns: u64,
    cpus: u32,
    duration_ns: u64,
    started_unix_ms: u64,
    reported: u64,
    lost: u64,
    effective_samples: u64,
    /// The edits of the header, and why the profile is empty.
    edits: usize,
    why_empty: usize,
    /// The moment of the incident for which the profile was kept, nanoseconds since its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    incident_ns: Option<u64>,
    /// The first moment at which the condition of the incident held, nanoseconds since the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    incident_since_ns: Option<u64>,
    /// The incident and the findings of the profile, of all its events.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    findings: Vec<Line>,
    timeline: Timeline,
    ledger: Vec<Section>,
}

impl<'a> Document<'a> {
    pub(super) fn of(profile: &'a Profile, options: &OutputOptions) -> Self {
        Self::new(&[profile], Sameness::InOneRun, options)
    }

    /// The document of a difference of the first events, without times: the moments of two measurements do not correspond.
    pub(super) fn comparing(difference: &Difference<'a>, options: &OutputOptions) -> Self {
        Self::new(&[difference.before(), difference.after()], Sameness::AcrossBuilds, options)
    }

    fn new(profiles: &[&'a Profile], sameness: Sameness, options: &OutputOptions) -> Self {
        let sides: Vec<_> =
            profiles.iter().enumerate().map(|(number, profile)| Side { number, profile }).collect();
        let mut texts = Texts::new();
        let mut functions = Functions::by(sameness);
        let shown_events = match profiles {
            [profile] => runtime_events::shown(profile),
            _ => Vec::new(),
        };
        let stacks = sides.iter().flat_map(|side| stacks(*side, &shown_events, &mut functions));
        let (tree, nodes) = Tree::of(stacks.collect());
        let nodes = nodes.into_iter().collect();
        let mut owners = Owners::default();
        let mut measured = |event: EventId| {
            let measure_side = |side: &Side<'a>| {
                let timeline = timeline(*side, event, &nodes, &mut owners, sameness);
                measured(side.profile, event, timeline, &mut texts)
            };
            sides.iter().map(measure_side).collect()
        };
        let events = match profiles {
            [profile] => profile.event_ids().map(&mut measured).collect(),
            _ => vec![measured(EventId::FIRST)],
        };
        let lanes = match &*sides {
            [side] => lanes(*side, &nodes, &mut owners),
            _ => None,
        };
        let functions = functions.columns(&mut texts);
        let runtime_events = match &*sides {
            [side] => RuntimeEvents::of(*side, &shown_events, &nodes, &mut owners, &mut texts),
            _ => None,
        };
        let (processes, threads) = owners.columns(&mut texts);
        Self {
            roots: roots(options),
            kinds: CodeKind::ALL,
            states: ThreadState::ALL.iter().map(|state| state.option()).collect(),
            functions,
            tree,
            wait_frames: options.wait_frames,
            processes,
            threads,
            initial_event: if events.len() > 1 { initial_event(profiles[0], options).index() } else { 0 },
            events,
            lanes,
            runtime_events,
            strings: texts,
        }
    }
}

/// The event that was requested, else that of the first finding, else the one whose samples take most time.
fn initial_event(profile: &Profile, options: &OutputOptions) -> EventId {
    let with_time = profile.event_ids().filter_map(|event| {
        let unit_ns = profile.event(event).unit_ns()?;
        let values = profile.samples_of(event).map(|sample| sample.value).sum::<u64>();
        Some((values.saturating_mul(unit_ns), event)).filter(|(time_ns, _)| *time_ns > 0)
    });
    let of_finding = profile.findings().iter().find_map(|finding| finding.event);
    let most = || with_time.max_by_key(|(time_ns, event)| (*time_ns, Reverse(event.index())));
    options
        .event
        .or(of_finding)
        .or_else(|| most().map(|(_, event)| event))
        .unwrap_or_else(|| profile.default_event())
}

fn roots(options: &OutputOptions) -> &'static str {
    match options {
        OutputOptions { per_thread: true, .. } => "thread",
        OutputOptions { per_process: true, .. } => "process",
        OutputOptions { per_container: true, .. } => "container",
        _ => "comm",
    }
}

/// A stack and the index of its profile.
type StackOfSide = (usize, StackId);

/// The stacks of samples and events as functions, root first.
fn stacks<'a>(
    side: Side<'a>,
    events: &[&RuntimeEvent],
    functions: &mut Functions<'a>,
) -> Vec<(StackOfSide, Vec<u32>)> {
    let mut samples_of = HashMap::<StackId, u64>::new();
    for sample in side.profile.samples() {
        let samples = samples_of.entry(sample.stack).or_default();
        *samples = samples.saturating_add(sample.value);
    }
    for stack in events.iter().filter_map(|event| event.stack) {
        samples_of.entry(stack).or_default();
    }
    // Hash map order must not decide indices: equal profiles give equal pages.
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
    event: EventId,
    nodes: &HashMap<StackOfSide, u32>,
    owners: &mut Owners<'a>,
    sameness: Sameness,
) -> Timeline {
    let placed = side.profile.samples_of(event).map(|sample| Placed {
        time_ns: sample.time_ns,
        thread: owners.number(side, sample.thread),
        state: state(sample),
        node: nodes.get(&(side.number, sample.stack)).copied().unwrap_or_default(),
        count: sample.value,
    });
    match sameness {
        Sameness::AcrossBuilds => Timeline::timeless(placed),
        Sameness::InOneRun => {
            let last_sample_ns = side.profile.samples().last().map_or(0, |sample| sample.time_ns);
            let last_ns = side.profile.header().duration_ns.saturating_sub(1);
            Timeline::of(placed, last_sample_ns.max(last_ns))
        }
    }
}

/// The index of what a thread did; a sample without a state is of a thread on a CPU.
fn state(sample: &Sample) -> u32 {
    let state = sample.state.unwrap_or(ThreadState::OnCpu);
    u32::try_from(state.index()).unwrap_or_default()
}

/// The lanes of a profile whose samples have states: exact waits with the ticks between them, else the samples with a
/// state.
fn lanes<'a>(side: Side<'a>, nodes: &HashMap<StackOfSide, u32>, owners: &mut Owners<'a>) -> Option<Lanes> {
    let Side { number, profile } = side;
    let has_durations =
        |event: &EventId| matches!(profile.event(*event).sampling, Sampling::Durations { .. });
    let with_state = profile.samples().iter().find(|sample| sample.state.is_some())?.event;
    let durations = profile.event_ids().find(has_durations);
    let event = durations.unwrap_or(with_state);
    // Without a frequency, the length of a run is unknown.
    profile.event(event).unit_ns().filter(|unit_ns| *unit_ns > 0)?;
    let is_shown =
        |sample: &&Sample| sample.event == event || (durations.is_some() && sample.state.is_none());
    // A thread that changed its name has a lane with the last one.
    let key = |sample: &Sample| {
        let thread = profile.thread(sample.thread);
        (thread.process, thread.tid)
    };
    let shown = || profile.samples().iter().filter(is_shown);
    let last_names: HashMap<_, _> = shown().map(|sample| (key(sample), sample.thread)).collect();
    let run = |sample: &Sample| {
        let event = profile.event(sample.event);
        let unit_ns = event.unit_ns().unwrap_or_default();
        // Two passes are less than two periods apart.
        let tolerance_ns = event.frequency_hz().map_or(0, |_| unit_ns);
        let end_ns = sample.time_ns.saturating_add(sample.value.saturating_mul(unit_ns));
        Run {
            thread: owners.number(side, last_names[&key(sample)]),
            start_ns: sample.time_ns,
            end_ns,
            latest_end_ns: end_ns.saturating_add(tolerance_ns),
            state: state(sample),
            node: nodes.get(&(number, sample.stack)).copied().unwrap_or_default(),
            value: sample.value,
        }
    };
    Some(Lanes::of(event, shown().map(run).collect()))
}

fn measured<'a>(
    profile: &'a Profile,
    event_id: EventId,
    timeline: Timeline,
    texts: &mut Texts<'a>,
) -> Measurement {
    const NS_PER_MS: u64 = 1_000_000;
    let (header, ledger) = (profile.header(), &profile.ledger().events[event_id.index()]);
    let event = profile.event(event_id);
    Measurement {
        target: texts.number(&*header.target),
        event: texts.number(&*event.name),
        shown: title::shown(event).to_owned(),
        event_text: texts.number(title::event_text(event)),
        unit_ns: u64::from(matches!(event.sampling, Sampling::Durations { .. } | Sampling::Times { .. })),
        cpus: header.cpus,
        duration_ns: header.duration_ns,
        started_unix_ms: header.started_unix_ns / NS_PER_MS,
        reported: ledger.reported,
        effective_samples: profile.effective_samples(event_id),
        lost: ledger.lost_total(),
        edits: texts.number(header.edits.join(", ")),
        why_empty: texts.number(ledger.why_empty(event).unwrap_or_default()),
        incident_ns: header.incident.as_ref().map(|incident| incident.time_ns),
        incident_since_ns: header.incident.as_ref().map(|incident| incident.since_ns),
        findings: finding::lines(profile),
        timeline,
        ledger: ledger::sections(
            ledger,
            profile.ledger(),
            !profile.events().any(|event| event.sampling.has_sums()),
        ),
    }
}
