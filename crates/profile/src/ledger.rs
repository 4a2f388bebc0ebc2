//! The ledger: accounts for every sample, stack and frame, and for the cost of the profiler.

use std::{collections::BTreeMap, fmt};

use crate::{EventId, EventSessionCause, FoundBy, Reason, StackEnd, SymbolSource, sum};

/// Why a tick that hit the target, or a wait, has no sample.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub enum Loss {
    /// The BPF ring buffer was full.
    RingBufferFull,
    /// The task has no id in the PID namespace of the profiler.
    NoThreadId,
    /// The stack of a sample, or the process of one that waited for symbols, had been evicted.
    MissingStack,
    /// The record could not be decoded.
    Undecodable,
    /// The tick was skipped because of the overhead limit, and sampling ended before the next sample, which adds skipped
    /// ticks to its weight.
    OverheadLimit,
    /// The thread ran while its stack was read.
    ThreadRan,
    /// More threads waited at a time than are remembered.
    TooManyThreads,
    /// The switch that ended a wait was not reported: the thread left a CPU again. Recordings of earlier versions alone have
    /// such losses: the run time of the thread says since when it has run.
    MissedSwitch,
    /// The event occurred while its program handled another occurrence on the CPU.
    Nested,
    /// The sample waited for symbolization while the profiler's own memory exceeded its limit.
    MemoryLimit,
}

impl Loss {
    /// Every cause, for tables and tests.
    pub const ALL: &'static [Self] = &[
        Self::RingBufferFull,
        Self::NoThreadId,
        Self::MissingStack,
        Self::Undecodable,
        Self::OverheadLimit,
        Self::ThreadRan,
        Self::TooManyThreads,
        Self::MissedSwitch,
        Self::Nested,
        Self::MemoryLimit,
    ];
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RingBufferFull => "ring buffer full: sample at a lower frequency",
            Self::NoThreadId => "task invisible in this pid namespace",
            Self::MissingStack => "stack or process no longer known",
            Self::Undecodable => "undecodable record",
            Self::OverheadLimit => "overhead limit at the end of sampling",
            Self::ThreadRan => "thread ran while its stack was read",
            Self::TooManyThreads => "too many waiting threads",
            Self::MissedSwitch => "end of a wait not reported by the kernel",
            Self::Nested => "event within the handling of another one",
            Self::MemoryLimit => "memory limit of the agent",
        })
    }
}

/// Why a tick of a sampling timer never reached the BPF program. What it would have hit is unknown.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MissedTick {
    /// The kernel suspended the timer, because it exceeded `kernel.perf_event_max_sample_rate`.
    Throttled,
    /// The CPU had come online, and its timers were not open yet.
    CpuOnline,
    /// The CPU took no interrupt for longer than a period, or the hypervisor did not run it.
    NoInterrupt,
    /// The CPU was idle, and the kernel or the hypervisor had stopped its timers. No task could have been hit.
    IdleCpu,
}

impl MissedTick {
    /// Every cause, for tables and tests.
    pub const ALL: &'static [Self] = &[Self::Throttled, Self::CpuOnline, Self::NoInterrupt, Self::IdleCpu];
}

impl fmt::Display for MissedTick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Throttled => {
                "throttled: sample at a lower frequency, or raise kernel.perf_event_max_sample_rate"
            }
            Self::CpuOnline => "a CPU came online",
            Self::NoInterrupt => "interrupts were off, or the hypervisor did not run the CPU",
            Self::IdleCpu => "the CPU was idle",
        })
    }
}

/// The ticks of the sampling timers of all CPUs, whatever ran there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimerTicks {
    /// Ticks due: the time for which the timers were enabled, times their frequencies.
    pub due: u64,
    /// Ticks at which the BPF program did not run, by cause.
    pub missed: BTreeMap<MissedTick, u64>,
}

impl TimerTicks {
    /// The sum of all missed ticks.
    #[must_use]
    pub fn missed_total(&self) -> u64 {
        sum::of(self.missed.values().copied())
    }
}

/// The resources that the profiler used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Run time of the BPF programs, nanoseconds.
    pub bpf_run_time_ns: u64,
    /// User CPU time of the profiler's process, nanoseconds.
    pub user_cpu_ns: u64,
    /// System CPU time of the profiler's process, nanoseconds.
    pub system_cpu_ns: u64,
    /// Peak resident memory of the profiler's process, bytes.
    pub peak_memory_bytes: u64,
}

/// The module and the reason that unsymbolized frames have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UnsymbolizedFrames {
    /// The path of the module; empty for code without a file.
    pub module: String,
    /// Why the frames have no symbol.
    pub reason: Reason,
}

/// The account of every sample, stack and frame, and of the session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// The samples of each event, in the order of the profile's events.
    pub events: Vec<EventLedger>,
    /// The ticks of the CPU sampling timers. Those that were missed hit the target or other tasks.
    pub timer: TimerTicks,
    /// Lost sideband records (mmap, comm, fork, exit).
    pub lost_process_events: u64,
    /// Sideband records that were read after later ones had been applied.
    pub late_process_events: u64,
    /// Forked children that were not followed, because the table of target processes was full.
    pub lost_children: u64,
    /// Malformed lines of perf maps, records of jitdumps and events of runtimes.
    pub malformed_jit_entries: u64,
    /// EventPipe events that .NET runtimes dropped, because their buffers were full, and runtime events that the profiler
    /// dropped, because its memory budget was exceeded.
    pub dropped_runtime_events: u64,
    /// The processes whose .NET runtimes were asked for the events of their methods, by cause. The names of other .NET processes are
    /// from their memory and files.
    pub event_sessions: BTreeMap<EventSessionCause, u64>,
    /// The resources that the profiler used.
    pub cost: Cost,
}

/// The account of the samples of one event, of their stacks and frames.
///
/// Every sample due is in the profile or exactly one counted loss: [`due`](Self::due) = [`reported`](Self::reported) + the
/// sum of [`lost`](Self::lost).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventLedger {
    /// Samples due, as the BPF program counted them: for an event at a frequency, the ticks that hit the target.
    pub due: u64,
    /// Samples in the profile; for an event at a frequency, their ticks.
    pub reported: u64,
    /// Of the reported samples, those of threads that waited for work.
    pub idle: u64,
    /// Lost samples by cause.
    pub lost: BTreeMap<Loss, u64>,
    /// Ticks skipped because of the overhead limit. The weight of the next sample of the CPU includes them, so that they are
    /// part of [`reported`](Self::reported).
    pub skipped_ticks: u64,
    /// Stacks that were cut below the unwinder's depth limit for the same reason.
    pub cut_stacks: u64,
    /// Waits that were shorter than the least length of a sample ([`Sampling::Durations`](crate::Sampling)).
    pub short_waits: u64,
    /// The sum of their lengths, nanoseconds.
    pub short_waits_ns: u64,
    /// Samples by the end of their stack.
    pub stacks: BTreeMap<StackEnd, u64>,
    /// Frames of all samples by how they were unwound.
    pub found_by: BTreeMap<FoundBy, u64>,
    /// Symbolized frames of all samples by the source of the symbol.
    pub symbolized: BTreeMap<SymbolSource, u64>,
    /// Unsymbolized frames of all samples by module and reason.
    pub unsymbolized: BTreeMap<UnsymbolizedFrames, u64>,
}

impl Ledger {
    /// Whether each event adds up.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        self.events.iter().all(EventLedger::adds_up)
    }

    /// Adds the ledger of a later interval of the same session, whose events have the ids `events` in this one.
    pub(super) fn add_interval(&mut self, later: &Self, events: &[EventId]) {
        for (event, later) in events.iter().zip(&later.events) {
            let missing = (event.index() + 1).saturating_sub(self.events.len());
            self.events.extend(std::iter::repeat_n(EventLedger::default(), missing));
            self.events[event.index()].add_interval(later);
        }
        self.lost_process_events += later.lost_process_events;
        self.late_process_events += later.late_process_events;
        self.lost_children += later.lost_children;
        // These counters and the CPU times are totals since the start of the session.
        self.malformed_jit_entries = self.malformed_jit_entries.max(later.malformed_jit_entries);
        self.dropped_runtime_events = self.dropped_runtime_events.max(later.dropped_runtime_events);
        for (cause, processes) in &later.event_sessions {
            let known = self.event_sessions.entry(*cause).or_default();
            *known = (*known).max(*processes);
        }
        let bpf_run_time_ns = self.cost.bpf_run_time_ns + later.cost.bpf_run_time_ns;
        self.cost = Cost { bpf_run_time_ns, ..later.cost };
        self.timer.due += later.timer.due;
        add_each(&mut self.timer.missed, &later.timer.missed);
    }
}

impl EventLedger {
    /// The sum of all losses.
    #[must_use]
    pub fn lost_total(&self) -> u64 {
        sum::of(self.lost.values().copied())
    }

    /// Whether samples due equal samples plus losses.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        self.due == self.reported.saturating_add(self.lost_total())
    }

    /// The number of symbolized frames in all samples.
    #[must_use]
    pub fn symbolized_total(&self) -> u64 {
        sum::of(self.symbolized.values().copied())
    }

    /// The number of unsymbolized frames in all samples.
    #[must_use]
    pub fn unsymbolized_total(&self) -> u64 {
        sum::of(self.unsymbolized.values().copied())
    }

    /// The module and reason with the most unsymbolized frames, and their number.
    #[must_use]
    pub fn worst_unnamed(&self) -> Option<(&UnsymbolizedFrames, u64)> {
        self.unsymbolized.iter().map(|(frames, count)| (frames, *count)).max_by_key(|(_, count)| *count)
    }

    fn add_interval(&mut self, later: &Self) {
        self.due += later.due;
        self.reported += later.reported;
        self.idle += later.idle;
        self.skipped_ticks += later.skipped_ticks;
        self.cut_stacks += later.cut_stacks;
        self.short_waits += later.short_waits;
        self.short_waits_ns += later.short_waits_ns;
        add_each(&mut self.lost, &later.lost);
        add_each(&mut self.stacks, &later.stacks);
        add_each(&mut self.found_by, &later.found_by);
        add_each(&mut self.symbolized, &later.symbolized);
        add_each(&mut self.unsymbolized, &later.unsymbolized);
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
    fn ticks_are_samples_or_counted_losses() {
        let mut ledger = EventLedger { due: 10, reported: 7, ..EventLedger::default() };
        assert!(!ledger.adds_up());
        ledger.lost.insert(Loss::RingBufferFull, 2);
        ledger.lost.insert(Loss::NoThreadId, 1);
        assert!(ledger.adds_up());
        let both = Ledger {
            events: vec![ledger, EventLedger { due: 1, ..EventLedger::default() }],
            ..Ledger::default()
        };
        assert!(!both.adds_up());
    }

    #[test]
    fn intervals_add_up_and_session_totals_do_not() {
        let ledger = |malformed_jit_entries, user_cpu_ns| {
            let cost = Cost { user_cpu_ns, bpf_run_time_ns: 5, ..Cost::default() };
            let mut event = EventLedger { due: 10, reported: 8, ..EventLedger::default() };
            event.lost.insert(Loss::RingBufferFull, 2);
            let event_sessions = [(EventSessionCause::FreedCode, malformed_jit_entries)].into();
            Ledger { events: vec![event], malformed_jit_entries, event_sessions, cost, ..Ledger::default() }
        };
        let mut both = ledger(3, 100);
        both.add_interval(&ledger(4, 150), &[EventId::FIRST]);
        assert!(both.adds_up());
        let event = &both.events[0];
        assert_eq!((event.reported, event.lost_total(), both.malformed_jit_entries), (16, 4, 4));
        assert_eq!(both.event_sessions, [(EventSessionCause::FreedCode, 4)].into());
        assert_eq!((both.cost.user_cpu_ns, both.cost.bpf_run_time_ns), (150, 10));
        both.add_interval(&ledger(4, 150), &[EventId::from_index(1)]);
        assert_eq!(both.events.iter().map(|event| event.reported).collect::<Vec<_>>(), [16, 8]);
    }

    #[test]
    fn the_worst_module_and_reason_have_the_most_frames() {
        let frames = |module: &str, reason| UnsymbolizedFrames { module: module.to_owned(), reason };
        let mut ledger = EventLedger::default();
        ledger.unsymbolized.insert(frames("/a", Reason::NoSymbols), 5);
        ledger.unsymbolized.insert(frames("/b", Reason::FileMissing), 9);
        assert_eq!(ledger.worst_unnamed(), Some((&frames("/b", Reason::FileMissing), 9)));
        assert_eq!(ledger.unsymbolized_total(), 14);
    }
}
