//! The ticks of CPUs that count for the wall clock as well.

use std::collections::HashMap;

use profiler_profile::ThreadId;

/// The ticks of CPUs that count for the wall clock, by the ratio of the frequencies.
#[derive(Debug)]
pub struct WallShare {
    wall_hz: u64,
    timer_hz: u64,
    /// For each thread, the part of a wall-clock tick for which it ran and has no sample, in ticks divided by the frequency
    /// of the timers.
    remainders: HashMap<ThreadId, u64>,
    ticks: u64,
}

impl WallShare {
    /// The share of ticks that wall-clock samples at a frequency, hertz, have.
    pub(super) fn new(wall_hz: u64, timer_hz: u64) -> Self {
        Self { wall_hz, timer_hz: timer_hz.max(1), remainders: HashMap::new(), ticks: 0 }
    }

    /// The wall-clock ticks of a thread that ran for these ticks of the timers.
    pub fn of_ticks(&mut self, thread: ThreadId, timer_ticks: u64) -> u64 {
        // A thread starts with half a tick, so that short runs are neither all counted nor all left out.
        let remainder = self.remainders.entry(thread).or_insert(self.timer_hz / 2);
        let sum = remainder.saturating_add(timer_ticks.saturating_mul(self.wall_hz));
        *remainder = sum % self.timer_hz;
        let ticks = sum / self.timer_hz;
        self.ticks = self.ticks.saturating_add(ticks);
        ticks
    }

    /// The wall-clock ticks of all threads.
    pub fn ticks(&self) -> u64 {
        self.ticks
    }
}
