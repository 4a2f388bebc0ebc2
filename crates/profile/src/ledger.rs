//! The ledger: what became of every tick, stack and frame, and what the profiler itself cost.

use std::{collections::BTreeMap, fmt};

use super::{FoundBy, Reason, StackEnd, SymbolSource, sum};

/// Why a tick that hit the target gave no sample.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Loss {
    /// The ring buffer between kernel and user space was full.
    RingBufferFull,
    /// The task has no id in the profiler's pid namespace.
    NoThreadId,
    /// The table of distinct stacks in user space was full.
    StackTableFull,
    /// The record could not be decoded.
    Undecodable,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RingBufferFull => "ring buffer full: sample at a lower frequency",
            Self::NoThreadId => "task invisible in this pid namespace",
            Self::StackTableFull => "too many distinct stacks",
            Self::Undecodable => "undecodable record",
        })
    }
}

/// What the profiler itself used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Time spent in the kernel side's program, nanoseconds.
    pub bpf_run_time_ns: u64,
    /// User CPU time of the profiler's process, nanoseconds.
    pub user_cpu_ns: u64,
    /// System CPU time of the profiler's process, nanoseconds.
    pub system_cpu_ns: u64,
    /// Peak resident memory of the profiler's process, bytes.
    pub peak_memory_bytes: u64,
}

/// Frames without a name that share module and reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UnsymbolizedFrames {
    /// The module's path, empty for code of no file.
    pub module: String,
    /// Why.
    pub reason: Reason,
}

/// What became of every tick, stack and frame.
///
/// Every tick that hit the target is either reported or lost for one named reason:
/// [`target_ticks`](Self::target_ticks) = [`reported`](Self::reported) + the sum of [`lost`](Self::lost).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// Ticks that hit the target, as the kernel side counted them.
    pub target_ticks: u64,
    /// Samples in the profile.
    pub reported: u64,
    /// Samples that are not, by loss.
    pub lost: BTreeMap<Loss, u64>,
    /// Side-band records (mappings, names, forks) that the kernel could not hand over.
    pub lost_process_events: u64,
    /// Children that could not be followed because too many processes were targets already.
    pub lost_children: u64,
    /// Lines and records of perf maps and jitdumps, and events of runtimes, that were no entries.
    pub malformed_jit_entries: u64,
    /// Events that .NET runtimes had to tell of their code and had no room for.
    pub dropped_runtime_events: u64,
    /// Samples by the end of their stack.
    pub stacks: BTreeMap<StackEnd, u64>,
    /// Frames of all samples, by how they were found.
    pub found_by: BTreeMap<FoundBy, u64>,
    /// Frames of all samples that found a name, by its source.
    pub named: BTreeMap<SymbolSource, u64>,
    /// Frames of all samples that did not, by module and reason.
    pub unnamed: BTreeMap<UnsymbolizedFrames, u64>,
    /// What the profiler used.
    pub cost: Cost,
}

impl Ledger {
    /// All losses together.
    #[must_use]
    pub fn lost_total(&self) -> u64 {
        sum::of(self.lost.values().copied())
    }

    /// Whether every tick is accounted for.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        self.target_ticks == self.reported.saturating_add(self.lost_total())
    }

    /// Frames with a name, of all samples.
    #[must_use]
    pub fn named_total(&self) -> u64 {
        sum::of(self.named.values().copied())
    }

    /// Frames without a name, of all samples.
    #[must_use]
    pub fn unnamed_total(&self) -> u64 {
        sum::of(self.unnamed.values().copied())
    }

    /// Accounts for a later interval of the same session, too.
    pub(super) fn append(&mut self, later: &Self) {
        self.target_ticks += later.target_ticks;
        self.reported += later.reported;
        self.lost_process_events += later.lost_process_events;
        self.lost_children += later.lost_children;
        // The targets' runtimes are counted from the beginning, as is what the profiler used.
        self.malformed_jit_entries = self.malformed_jit_entries.max(later.malformed_jit_entries);
        self.dropped_runtime_events = self.dropped_runtime_events.max(later.dropped_runtime_events);
        let bpf_run_time_ns = self.cost.bpf_run_time_ns + later.cost.bpf_run_time_ns;
        self.cost = Cost { bpf_run_time_ns, ..later.cost };
        add_each(&mut self.lost, &later.lost);
        add_each(&mut self.stacks, &later.stacks);
        add_each(&mut self.found_by, &later.found_by);
        add_each(&mut self.named, &later.named);
        add_each(&mut self.unnamed, &later.unnamed);
    }

    /// The module and reason that cost the most names.
    #[must_use]
    pub fn worst_unnamed(&self) -> Option<(&UnsymbolizedFrames, u64)> {
        self.unnamed.iter().map(|(unnamed, count)| (unnamed, *count)).max_by_key(|(_, count)| *count)
    }
}

fn add_each<K: Clone + Ord>(counts: &mut BTreeMap<K, u64>, later: &BTreeMap<K, u64>) {
    for (key, count) in later {
        *counts.entry(key.clone()).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_reported_or_lost_by_name() {
        let mut ledger = Ledger { target_ticks: 10, reported: 7, ..Ledger::default() };
        assert!(!ledger.adds_up());
        ledger.lost.insert(Loss::RingBufferFull, 2);
        ledger.lost.insert(Loss::NoThreadId, 1);
        assert!(ledger.adds_up());
    }

    #[test]
    fn intervals_add_up_and_what_is_counted_from_the_beginning_does_not() {
        let ledger = |malformed_jit_entries, user_cpu_ns| {
            let cost = Cost { user_cpu_ns, bpf_run_time_ns: 5, ..Cost::default() };
            let mut ledger =
                Ledger { target_ticks: 10, reported: 8, malformed_jit_entries, cost, ..Ledger::default() };
            ledger.lost.insert(Loss::RingBufferFull, 2);
            ledger
        };
        let mut both = ledger(3, 100);
        both.append(&ledger(4, 150));
        assert!(both.adds_up());
        assert_eq!((both.reported, both.lost_total(), both.malformed_jit_entries), (16, 4, 4));
        assert_eq!((both.cost.user_cpu_ns, both.cost.bpf_run_time_ns), (150, 10));
    }

    #[test]
    fn the_worst_gap_is_the_one_with_most_frames() {
        let gap = |module: &str, reason| UnsymbolizedFrames { module: module.to_owned(), reason };
        let mut ledger = Ledger::default();
        ledger.unnamed.insert(gap("/a", Reason::NoSymbols), 5);
        ledger.unnamed.insert(gap("/b", Reason::FileMissing), 9);
        assert_eq!(ledger.worst_unnamed(), Some((&gap("/b", Reason::FileMissing), 9)));
        assert_eq!(ledger.unnamed_total(), 14);
    }
}
