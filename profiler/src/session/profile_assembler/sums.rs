//! Adds the sums of counted events to a profile without stacks.

use profiler_profile::{EventId, Sample, StackEnd};
use profiler_sampler::Origin;

use super::ProfileAssembler;

impl ProfileAssembler {
    /// Adds a sample of each counted event, by index, with its sum. Their process has the id 0 and no name.
    pub(in crate::session) fn add_sums(&mut self, sums: &[u64]) {
        if sums.iter().all(|sum| *sum == 0) {
            return;
        }
        let process = self.builder.process(0, "");
        let thread = self.builder.thread(process, 0, "");
        let stack = self.builder.stack(Vec::new(), StackEnd::Empty);
        for (index, value) in (0_u16..).zip(sums.iter().copied()) {
            let sample =
                Sample { time_ns: 0, cpu: 0, thread, stack, event: EventId::FIRST, state: None, value };
            self.events.add(&mut self.builder, Origin { event: index, ..Origin::default() }, sample);
        }
    }
}
