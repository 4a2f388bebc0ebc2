//! Sizes of the ring buffer and the BPF maps whose need grows with the CPUs.

use std::collections::HashMap;

use profiler_common::names;

use super::programs::EventContext;
use crate::plan::{Filter, Plan};

/// Nodes that each CPU keeps for itself in an LRU map, live or free (`LOCAL_FREE_TARGET`, `kernel/bpf/bpf_lru_list.c`).
/// From Linux 6.16 on, it is at most half of the CPU's share of the map.
const LRU_NODES_PER_CPU: u32 = 128;

/// The least size of the ring buffer for off-CPU time and for events that are sampled at their occurrences: 60,000 waits, as many
/// as threads that wait for microseconds have in the second for which busy CPUs can delay the reader.
const UNBOUNDED_RATE_RING_BUFFER_BYTES: u32 = 8 << 20;

/// The CPUs that decide the sizes.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuCounts {
    /// The CPUs that are sampled from the start.
    pub(super) sampled: u32,
    /// The CPUs that can come online. The kernel has data of each of them.
    pub(super) possible: u32,
}

/// The sizes of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MapSizes {
    /// Bytes of the ring buffer, a power of two.
    pub(super) ring_buffer_bytes: u32,
    /// Stacks that are remembered as sent.
    pub(super) sent_stacks: u32,
    /// Processes whose last report of stale mappings is remembered.
    pub(super) stale_mappings: u32,
    /// Processes or threads that are targets.
    pub(super) targets: u32,
    /// Of the maps of events, by name.
    of_events: HashMap<&'static str, u32>,
}

impl MapSizes {
    /// The sizes for a plan.
    pub(super) fn new(plan: &Plan, cpus: CpuCounts, context: &EventContext<'_>) -> Self {
        /// At 99 Hz, the distinct stacks of some seconds of a CPU on which every sample has a new one. An evicted stack
        /// is sent again: it costs bytes, never a sample.
        const SENT_STACKS: LruNeed = LruNeed { min_entries: 16 << 10, per_cpu: 1024 };
        /// A report is limited for some ticks. An evicted process is reported early.
        const STALE_MAPPINGS: LruNeed = LruNeed { min_entries: 1024, per_cpu: 16 };
        let least_bytes = if plan.events.has_unbounded_rate() { UNBOUNDED_RATE_RING_BUFFER_BYTES } else { 0 };
        Self {
            ring_buffer_bytes: ring_buffer_bytes(plan.events.timer_hz, cpus.sampled).max(least_bytes),
            sent_stacks: SENT_STACKS.entries(cpus),
            stale_mappings: STALE_MAPPINGS.entries(cpus),
            targets: targets(plan, cpus.possible),
            of_events: plan.events.kinds.iter().flat_map(|kind| kind.map_entries(context)).collect(),
        }
    }

    /// The entries of a map by its name; bytes of the ring buffer. `None` for a map whose definition has its size.
    pub(super) fn max_entries(&self, map: &str) -> Option<u32> {
        match map {
            names::MAP_RECORDS => Some(self.ring_buffer_bytes),
            names::MAP_SENT_STACKS => Some(self.sent_stacks),
            names::MAP_STALE_MAPPINGS => Some(self.stale_mappings),
            names::MAP_TARGETS => Some(self.targets),
            _ => self.of_events.get(map).copied(),
        }
    }

    /// The used bytes of the ring buffer at which the reader is woken: a quarter.
    pub(super) fn wakeup_bytes(&self) -> u64 {
        u64::from(self.ring_buffer_bytes / 4)
    }
}

/// Enough for all samples of two seconds on every CPU, and as much again for stacks: among a hundred busy threads
/// for each CPU, a reader that is woken runs only after half a second or more.
fn ring_buffer_bytes(frequency_hz: u64, cpus: u32) -> u32 {
    const MIN_BYTES: u64 = 512 << 10;
    /// At high frequencies the buffer holds less than two seconds, at 9,999 Hz of more than 26 CPUs.
    const MAX_BYTES: u64 = 64 << 20;
    const MAX_BYTES_PER_CPU: u64 = 512 << 10;
    /// A power of two below the most bytes of a ring buffer (`RINGBUF_MAX_DATA_SZ`, `kernel/bpf/ringbuf.c`).
    const MAX_BYTES_OF_ANY: u64 = 1 << 30;
    const SAMPLE_AND_STACK_BYTES: u64 = 128;
    const SECONDS: u64 = 2;
    let cpus = u64::from(cpus);
    let max_bytes = MAX_BYTES.max(MAX_BYTES_PER_CPU * cpus).min(MAX_BYTES_OF_ANY);
    let samples = frequency_hz.saturating_mul(SECONDS).saturating_mul(cpus);
    let bytes = samples.saturating_mul(SAMPLE_AND_STACK_BYTES).clamp(MIN_BYTES, max_bytes);
    u32::try_from(bytes.next_power_of_two()).unwrap_or(1 << 30)
}

/// How many entries an LRU map needs.
struct LruNeed {
    min_entries: u32,
    /// Entries that samples of one CPU use at a time.
    per_cpu: u32,
}

impl LruNeed {
    /// Each CPU can keep entries from the others, so that these come on top.
    fn entries(&self, cpus: CpuCounts) -> u32 {
        let used = self.per_cpu.saturating_mul(cpus.sampled);
        let kept = LRU_NODES_PER_CPU.saturating_mul(cpus.possible);
        self.min_entries.max(used.saturating_add(kept))
    }
}

/// Capacity for the forked children of targets, for as many as the kernel has process ids by default
/// (`PIDS_PER_CPU_DEFAULT`, `include/linux/threads.h`). Where no child is added, for the targets of the plan.
fn targets(plan: &Plan, possible_cpus: u32) -> u32 {
    const MIN_ENTRIES: u32 = 64 << 10;
    const PER_CPU: u32 = 1024;
    match &plan.filter {
        Filter::Processes(_) | Filter::Threads(_) if plan.children => {
            MIN_ENTRIES.max(PER_CPU.saturating_mul(possible_cpus))
        }
        filter => u32::try_from(filter.ids().len()).unwrap_or(u32::MAX).max(1),
    }
}

#[cfg(test)]
mod tests {
    use profiler_processes::{Pid, Tid};

    use super::*;
    use crate::ebpf::KernelTypes;

    fn plan(filter: Filter, frequency_hz: u64, children: bool) -> Plan {
        Plan { children, ..Plan::cpu_samples(filter, frequency_hz) }
    }

    fn of_plan(plan: &Plan, sampled: u32, possible: u32) -> MapSizes {
        let types = KernelTypes::default();
        let context = EventContext { types: &types, possible_cpus: possible, uses_unwinder: true };
        MapSizes::new(plan, CpuCounts { sampled, possible }, &context)
    }

    fn sizes(frequency_hz: u64, sampled: u32, possible: u32) -> MapSizes {
        of_plan(&plan(Filter::Everything, frequency_hz, false), sampled, possible)
    }

    #[test]
    fn the_ring_buffer_grows_with_frequency_and_cpus_within_bounds() {
        let bytes = |frequency_hz, cpus| ring_buffer_bytes(frequency_hz, cpus);
        assert_eq!(bytes(99, 2), 512 << 10);
        assert_eq!(bytes(99, 128), 4 << 20);
        assert!(bytes(1_999, 2) >= 2 * 1_999 * 2 * 128);
        assert!(bytes(999, 512) >= 2 * 999 * 512 * 128, "two seconds at ten times the default frequency");
        assert_eq!(bytes(u64::MAX, 64), 64 << 20);
        assert_eq!(bytes(u64::MAX, 8192), 1 << 30);
    }

    #[test]
    fn what_cpus_keep_of_an_lru_map_comes_on_top_of_what_their_samples_need() {
        assert_eq!(sizes(99, 2, 2).sent_stacks, 16 << 10);
        assert_eq!(sizes(99, 2, 2).stale_mappings, 1024);
        for (sampled, possible) in [(8, 8), (16, 128), (128, 128), (1, 512), (512, 512)] {
            let sizes = sizes(99, sampled, possible);
            let kept = LRU_NODES_PER_CPU * possible;
            assert!(sizes.sent_stacks >= kept + 1024 * sampled, "{sizes:?}");
            assert!(sizes.stale_mappings >= kept + 16 * sampled, "{sizes:?}");
        }
        let largest = sizes(u64::MAX, u32::MAX, u32::MAX);
        assert_eq!((largest.sent_stacks, largest.stale_mappings), (u32::MAX, u32::MAX));
    }

    #[test]
    fn only_targets_whose_children_are_followed_need_more_entries() {
        let entries = |filter, children, possible| of_plan(&plan(filter, 99, children), 2, possible).targets;
        assert_eq!(entries(Filter::Processes(vec![Pid(7)]), true, 2), 64 << 10);
        assert_eq!(entries(Filter::Processes(vec![Pid(7)]), true, 128), 128 << 10);
        assert_eq!(entries(Filter::Threads([7, 8, 9].map(Tid).to_vec()), false, 128), 3);
        assert_eq!(entries(Filter::Processes(Vec::new()), false, 128), 1, "an empty map cannot be created");
        assert_eq!(entries(Filter::Everything, true, 128), 1);
    }
}
