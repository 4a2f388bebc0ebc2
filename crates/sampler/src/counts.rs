//! The counters of the BPF programs.

use profiler_profile::{EventLedger, Loss};

/// The counters of the BPF programs since the start, summed over all CPUs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelCounts {
    /// Processes that a target process forked and that could not become targets: the map of targets was full.
    pub lost_children: u64,
    /// The run time of the BPF programs, nanoseconds.
    pub run_time_ns: u64,
    /// The ticks of the timers.
    pub timer: TimerCounts,
    /// What is due and lost of each event of the plan, by index, as the BPF programs count it.
    pub events: Vec<EventLedger>,
}

#[cfg(any(test, feature = "testing"))]
impl KernelCounts {
    /// The counters of a session whose first event has these ticks.
    pub fn of_ticks(due: u64) -> Self {
        Self { events: vec![EventLedger { due, ..EventLedger::default() }], ..Self::default() }
    }
}

/// The ticks of the timers since the start, summed over all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "capture", derive(serde::Serialize, serde::Deserialize))]
pub struct TimerCounts {
    /// The time for which the timers were enabled, times their frequencies.
    pub due: u64,
    /// Ticks at which the BPF program ran.
    pub delivered: u64,
    /// Those of `due` for which the CPU was idle.
    #[cfg_attr(feature = "capture", serde(default))]
    pub idle_due: u64,
    /// Those of `delivered` that hit no task.
    #[cfg_attr(feature = "capture", serde(default))]
    pub idle_delivered: u64,
    /// Whether the kernel now suspends timers at this frequency.
    pub is_throttled: bool,
    /// Ticks due on CPUs that had come online, before their timers were open. They are not among those due.
    pub cpu_online: u64,
}

/// Adds a loss that is not 0.
pub fn add_loss(ledger: &mut EventLedger, loss: Loss, count: u64) {
    if count > 0 {
        let sum = ledger.lost.entry(loss).or_default();
        *sum = sum.saturating_add(count);
    }
}
