//! The interval at which the reader polls the kernel's ring buffers; it doubles while no new stack arrives.
//!
//! Wake-ups are most of what an idle profiler costs.

use std::time::Duration;

use profiler_processes::ProcessFilter;
use profiler_sampler::Batch;

/// The interval while new stacks arrive: short-lived processes and files have to be read before they are gone.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// The interval while every stack is known: nothing has to be symbolized, and a filling ring buffer wakes the reader.
const MAX_INTERVAL: Duration = Duration::from_millis(500);

/// The interval after a process has reported stale mappings: they are installed when the events up to then are known.
const STALE_MAPPINGS_INTERVAL: Duration = Duration::from_millis(5);

/// The time that samples may stay in the ring buffer when there are too few to wake the reader.
#[derive(Debug)]
pub(super) struct PollingInterval {
    current: Duration,
    has_stale_mappings: bool,
    max: Duration,
}

impl PollingInterval {
    /// The interval for a set of processes. It stays short if processes can start during the session: they can also
    /// end within one interval.
    pub(super) fn new(filter: &ProcessFilter) -> Self {
        let is_fixed =
            matches!(filter, ProcessFilter::Only { children: false, .. } | ProcessFilter::Threads { .. });
        let max = if is_fixed { MAX_INTERVAL } else { MIN_INTERVAL };
        Self { current: MIN_INTERVAL, has_stale_mappings: false, max }
    }

    /// The time to wait for the next batch.
    pub(super) fn get(&self) -> Duration {
        if self.has_stale_mappings { STALE_MAPPINGS_INTERVAL } else { self.current }
    }

    /// Adapts the interval to the batch that was read last.
    pub(super) fn update(&mut self, batch: &Batch) {
        self.has_stale_mappings = !batch.stale_mappings.is_empty();
        let has_new_stacks = !batch.stacks.is_empty();
        self.current = if has_new_stacks { MIN_INTERVAL } else { self.max.min(self.current * 2) };
    }
}

#[cfg(test)]
mod tests {
    use profiler_processes::Pid;
    use profiler_sampler::RawStack;

    use super::*;

    fn batch(stacks: usize) -> Batch {
        let stack = RawStack::default();
        Batch { stacks: vec![stack; stacks], ..Batch::default() }
    }

    fn filter(children: bool) -> ProcessFilter {
        ProcessFilter::Only { pids: [Pid(7)].into(), children }
    }

    #[test]
    fn the_interval_grows_while_stacks_are_known_and_shrinks_on_a_new_one() {
        let mut interval = PollingInterval::new(&filter(false));
        assert_eq!(interval.get(), MIN_INTERVAL);
        interval.update(&batch(0));
        assert!(interval.get() > MIN_INTERVAL);
        for _ in 0..100 {
            interval.update(&batch(0));
        }
        assert_eq!(interval.get(), MAX_INTERVAL);
        interval.update(&batch(1));
        assert_eq!(interval.get(), MIN_INTERVAL);
    }

    #[test]
    fn the_interval_stays_short_if_processes_can_start() {
        for filter in [filter(true), ProcessFilter::All] {
            let mut interval = PollingInterval::new(&filter);
            interval.update(&batch(0));
            assert_eq!(interval.get(), MIN_INTERVAL);
        }
    }
}
