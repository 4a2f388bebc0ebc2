//! How often the kernel's buffers are looked at: waking up is most of what a profiler costs.

use std::time::Duration;

use crate::sampler::Batch;
use profiler_processes::ProcessFilter;

/// While there is something new: processes and files have to be asked before they are gone.
const SHORTEST: Duration = Duration::from_millis(100);

/// While every stack was seen before: nobody waits for names, and what fills the buffer wakes the reader.
const LONGEST: Duration = Duration::from_millis(500);

/// How long samples may wait in the kernel when there are too few to wake the reader.
#[derive(Debug)]
pub(super) struct Pace {
    wait: Duration,
    longest: Duration,
}

impl Pace {
    /// The pace for these processes. One that can begin at any time can end soon after.
    pub(super) fn new(interest: &ProcessFilter) -> Self {
        let is_fixed = matches!(interest, ProcessFilter::Only { children: false, .. });
        Self { wait: SHORTEST, longest: if is_fixed { LONGEST } else { SHORTEST } }
    }

    /// How long to wait for the next batch.
    pub(super) fn wait(&self) -> Duration {
        self.wait
    }

    /// Takes note of what came.
    pub(super) fn follow(&mut self, batch: &Batch) {
        let is_new = !batch.stacks.is_empty();
        self.wait = if is_new { SHORTEST } else { self.longest.min(self.wait * 2) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::RawStack;

    fn batch(stacks: usize) -> Batch {
        let stack = RawStack::default();
        Batch { stacks: vec![stack; stacks], ..Batch::default() }
    }

    fn interest(children: bool) -> ProcessFilter {
        ProcessFilter::Only { pids: [7].into(), children }
    }

    #[test]
    fn what_is_known_waits_longer_and_what_is_new_does_not() {
        let mut pace = Pace::new(&interest(false));
        assert_eq!(pace.wait(), SHORTEST);
        pace.follow(&batch(0));
        assert!(pace.wait() > SHORTEST);
        for _ in 0..100 {
            pace.follow(&batch(0));
        }
        assert_eq!(pace.wait(), LONGEST);
        pace.follow(&batch(1));
        assert_eq!(pace.wait(), SHORTEST);
    }

    #[test]
    fn processes_that_can_begin_at_any_time_are_not_kept_waiting() {
        for interest in [interest(true), ProcessFilter::All] {
            let mut pace = Pace::new(&interest);
            pace.follow(&batch(0));
            assert_eq!(pace.wait(), SHORTEST);
        }
    }
}
