//! Lanes: what each thread did over time, as runs of one state and one stack.

use serde::Serialize;

use super::column;
use profiler_profile::EventId;

/// What a thread did for a while: thread index, state index and node of the call tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Run {
    pub(super) thread: u32,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    /// If the next run of the thread begins by this time, this run is extended to its start.
    pub(super) latest_end_ns: u64,
    pub(super) state: u32,
    pub(super) node: u32,
    /// The sum of the values of its samples: its length is no measure of them, because ticks are not evenly spaced.
    pub(super) value: u64,
}

/// Columns with an entry for each lane, `thread` and `runs`, and with an entry for each run, lane by lane.
#[derive(Serialize)]
pub(super) struct Lanes {
    /// The index of the event whose samples have the states.
    event: usize,
    unit_ns: u64,
    #[serde(serialize_with = "column::numbers")]
    thread: Vec<u32>,
    /// The number of runs of each lane.
    #[serde(serialize_with = "column::numbers")]
    runs: Vec<u32>,
    /// Units since the end of the previous run of the lane.
    #[serde(serialize_with = "column::numbers")]
    gap: Vec<u64>,
    #[serde(serialize_with = "column::numbers")]
    length: Vec<u64>,
    #[serde(serialize_with = "column::numbers")]
    state: Vec<u32>,
    /// The difference to the node of the previous run.
    #[serde(serialize_with = "column::signed")]
    node: Vec<i64>,
    #[serde(serialize_with = "column::numbers")]
    value: Vec<u64>,
}

/// The maximum number of runs, about 10 MB of the page before compression.
const MAX_RUNS: usize = 1_000_000;

/// The finest unit of time, nanoseconds.
const MIN_UNIT_NS: u64 = 1_000;

impl Lanes {
    /// The lanes of runs in any order. A run ends where the next one of its thread begins, unless that is later than its
    /// latest end.
    pub(super) fn of(event: EventId, mut runs: Vec<Run>) -> Self {
        runs.sort_unstable();
        for at in 1..runs.len() {
            if let [run, next] = &mut runs[at - 1..=at]
                && run.thread == next.thread
                && next.start_ns <= run.latest_end_ns
            {
                run.end_ns = next.start_ns;
            }
        }
        let (runs, unit_ns) = limited(runs, MAX_RUNS);
        Self::in_units(event, &runs, unit_ns)
    }

    fn in_units(event: EventId, runs: &[Run], unit_ns: u64) -> Self {
        let mut lanes = Self {
            event: event.index(),
            unit_ns,
            thread: Vec::new(),
            runs: Vec::new(),
            gap: Vec::new(),
            length: Vec::new(),
            state: Vec::new(),
            node: Vec::new(),
            value: Vec::new(),
        };
        let mut last_node = 0;
        for lane in runs.chunk_by(|run, next| run.thread == next.thread) {
            lanes.thread.push(lane[0].thread);
            lanes.runs.push(u32::try_from(lane.len()).unwrap_or(u32::MAX));
            let mut end_ns = 0;
            for run in lane {
                lanes.gap.push((run.start_ns - end_ns) / unit_ns);
                lanes.length.push((run.end_ns - run.start_ns) / unit_ns);
                lanes.state.push(run.state);
                lanes.node.push(i64::from(run.node) - last_node);
                lanes.value.push(run.value);
                end_ns = run.end_ns;
                last_node = i64::from(run.node);
            }
        }
        lanes
    }
}

/// Rounds the ends of runs to a unit of time, nanoseconds, that leaves at most this many of them. A run that is shorter
/// than a unit is kept with the probability of its share in the unit.
fn limited(mut runs: Vec<Run>, max_runs: usize) -> (Vec<Run>, u64) {
    let mut unit_ns = MIN_UNIT_NS;
    loop {
        runs = joined(runs, unit_ns);
        match unit_ns.checked_mul(10) {
            Some(longer_ns) if runs.len() > max_runs => unit_ns = longer_ns,
            _ => return (runs, unit_ns),
        }
    }
}

/// Rounds runs to units of time, and joins adjacent runs of one state and one stack.
fn joined(runs: Vec<Run>, unit_ns: u64) -> Vec<Run> {
    let round = |time_ns: u64| time_ns.saturating_add(unit_ns / 2) / unit_ns * unit_ns;
    let mut joined = Vec::<Run>::with_capacity(runs.len());
    for run in runs {
        let run = Run { start_ns: round(run.start_ns), end_ns: round(run.end_ns), ..run };
        if run.start_ns == run.end_ns {
            continue;
        }
        match joined.last_mut() {
            Some(last) if is_continued(last, &run) => {
                last.end_ns = run.end_ns;
                last.value = last.value.saturating_add(run.value);
            }
            _ => joined.push(run),
        }
    }
    joined
}

fn is_continued(run: &Run, next: &Run) -> bool {
    run.end_ns == next.start_ns && (run.thread, run.state, run.node) == (next.thread, next.state, next.node)
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    fn run(thread: u32, start_us: u64, end_us: u64, state: u32, node: u32) -> Run {
        let end_ns = end_us * US;
        let value = end_us - start_us;
        Run { thread, start_ns: start_us * US, end_ns, latest_end_ns: end_ns + US / 2, state, node, value }
    }

    #[test]
    fn a_lane_has_the_runs_of_a_thread_in_time_order() {
        let lanes =
            Lanes::of(EventId::FIRST, vec![run(1, 5, 9, 2, 7), run(0, 1, 2, 0, 3), run(1, 1, 3, 0, 4)]);
        assert_eq!((lanes.unit_ns, lanes.thread, lanes.runs), (US, vec![0, 1], vec![1, 2]));
        assert_eq!((lanes.gap, lanes.length), (vec![1, 1, 2], vec![1, 2, 4]));
        assert_eq!((lanes.state, lanes.node), (vec![0, 0, 2], vec![3, 1, 3]));
    }

    #[test]
    fn equal_runs_without_a_gap_are_one_and_a_run_ends_where_the_next_begins() {
        let runs = vec![run(0, 0, 5, 2, 7), run(0, 4, 6, 2, 7), run(0, 6, 9, 1, 7), run(0, 10, 11, 1, 7)];
        let lanes = Lanes::of(EventId::FIRST, runs);
        assert_eq!((lanes.gap, lanes.length, lanes.state), (vec![0, 0, 1], vec![6, 3, 1], vec![2, 1, 1]));
        assert_eq!(lanes.value, [7, 3, 1], "of all samples");
    }

    #[test]
    fn a_small_gap_belongs_to_the_run_before_it() {
        let with_tolerance = Run { latest_end_ns: 7 * US, ..run(0, 0, 5, 2, 7) };
        let next = |start_us| Lanes::of(EventId::FIRST, vec![with_tolerance, run(0, start_us, 9, 1, 7)]);
        assert_eq!((next(7).length, next(7).gap), (vec![7, 2], vec![0, 0]));
        assert_eq!((next(8).length, next(8).gap), (vec![5, 1], vec![0, 3]));
    }

    #[test]
    fn the_number_of_runs_is_limited() {
        let runs: Vec<_> = (0..10_000).map(|at| run(0, at, at + 1, (at % 2) as u32, 1)).collect();
        for max_runs in [1, 100, 2_000] {
            let (left, unit_ns) = limited(runs.clone(), max_runs);
            assert!(left.len() <= max_runs && unit_ns > US, "{} runs", left.len());
        }
        assert_eq!(limited(runs, 10_000).0.len(), 10_000);
        let end = u64::MAX;
        let last = Run { start_ns: end - 1, end_ns: end, latest_end_ns: end, ..run(0, 0, 1, 0, 0) };
        assert!(Lanes::of(EventId::FIRST, vec![last]).length.is_empty());
    }
}
