//! Joins the profiles of consecutive intervals.

use std::collections::{HashMap, hash_map::Entry};

use crate::{
    Header, Ledger, LockOwner, ManagedThread, OmittedEvents, PollReading, ProcessId, Profile, ProfileBuilder,
    ProfileCopy, RuntimeEvent, StringId,
};

impl Profile {
    /// Joins the profiles of consecutive intervals of one session, given in time order. A process that has the same id
    /// and name in two intervals counts as one process. The joined profile has no findings: those of an interval do not hold for the whole.
    ///
    /// ```
    /// use profiler_profile::{Header, Profile, ProfileBuilder};
    ///
    /// let second = || ProfileBuilder::default().finish(Header { duration_ns: 1_000_000_000, ..Header::default() });
    /// assert_eq!(Profile::joined(&[second(), second()]).total_value(), 0);
    /// ```
    #[must_use]
    pub fn joined<'a>(intervals: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut joiner = Joiner::default();
        for interval in intervals {
            joiner.add(interval);
        }
        joiner.builder.finish_with(joiner.header, joiner.ledger)
    }
}

/// The intervals that were joined so far.
#[derive(Default)]
struct Joiner {
    builder: ProfileBuilder,
    header: Header,
    ledger: Ledger,
    processes: HashMap<(u32, StringId), ProcessId>,
    has_intervals: bool,
}

impl Joiner {
    fn add(&mut self, interval: &Profile) {
        let offset_ns = self.merge_header(interval.header());
        let mut copy = ProfileCopy::onto(std::mem::take(&mut self.builder), interval);
        self.ledger.add_interval(interval.ledger(), copy.events());
        for (index, process) in interval.processes().iter().enumerate() {
            let comm = copy.string(process.comm);
            let id = ProcessId::from_index(index);
            match self.processes.entry((process.pid, comm)) {
                Entry::Occupied(known) => copy.map_process(id, *known.get()),
                Entry::Vacant(new) => {
                    new.insert(copy.process(id));
                }
            }
        }
        let stacks: Vec<_> = interval.stacks().map(|stack| copy.stack(stack)).collect();
        for sample in interval.samples() {
            let mut later = *sample;
            later.time_ns = later.time_ns.saturating_add(offset_ns);
            copy.sample(&later, stacks[sample.stack.index()]);
        }
        for event in interval.runtime_events() {
            let time_ns = event.time_ns.saturating_add(offset_ns);
            copy.runtime_event(&RuntimeEvent { time_ns, ..event.clone() });
        }
        for omitted in interval.omitted_events() {
            let time_ns = omitted.time_ns.saturating_add(offset_ns);
            copy.omitted_events(&OmittedEvents { time_ns, ..*omitted });
        }
        for lock in interval.lock_owners() {
            let time_ns = lock.time_ns.saturating_add(offset_ns);
            copy.lock_owner(&LockOwner { time_ns, ..*lock });
        }
        for thread in interval.managed_threads() {
            let time_ns = thread.time_ns.saturating_add(offset_ns);
            copy.managed_thread(&ManagedThread { time_ns, ..*thread });
        }
        for reading in interval.poll_readings() {
            let time_ns = reading.time_ns.saturating_add(offset_ns);
            copy.poll_reading(&PollReading { time_ns, ..*reading });
        }
        self.builder = copy.into_builder();
    }

    /// Merges the header; the start of the interval after that of the first one, nanoseconds.
    fn merge_header(&mut self, header: &Header) -> u64 {
        if !self.has_intervals {
            self.has_intervals = true;
            self.header = header.clone();
            return 0;
        }
        let offset_ns = header.started_monotonic_ns.saturating_sub(self.header.started_monotonic_ns);
        self.header.duration_ns = self.header.duration_ns.max(offset_ns.saturating_add(header.duration_ns));
        for edit in &header.edits {
            if !self.header.edits.contains(edit) {
                self.header.edits.push(edit.clone());
            }
        }
        offset_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{StackEnd, test_profile};

    /// A sample of `function` in process 7 at 100 ns of an interval.
    fn interval(started_monotonic_ns: u64, comm: &str, function: &str) -> Profile {
        let mut builder = ProfileBuilder::default();
        let frame = test_profile::function(&mut builder, function, 1);
        let stack = builder.stack(vec![frame], StackEnd::Root);
        let process = builder.process(7, comm);
        builder.set_container(process, "4f1c3a99");
        let thread = builder.thread(process, 7, comm);
        builder.sample(100, 0, thread, stack, 2);
        builder.finish(Header { started_monotonic_ns, duration_ns: 1_000, ..Header::default() })
    }

    #[test]
    fn times_continue_and_counts_add_up() {
        let joined = Profile::joined(&[interval(5_000, "a", "f"), interval(6_000, "a", "g")]);
        let times: Vec<_> = joined.samples().iter().map(|sample| sample.time_ns).collect();
        assert_eq!(times, [100, 1_100]);
        assert_eq!((joined.header().started_monotonic_ns, joined.header().duration_ns), (5_000, 2_000));
        assert_eq!((joined.first_ledger().reported, joined.total_value()), (4, 4));
        assert!(joined.ledger().adds_up());
    }

    #[test]
    fn processes_with_equal_pid_and_name_are_one() {
        let joined = Profile::joined(&[interval(0, "a", "f"), interval(1, "a", "f"), interval(2, "b", "f")]);
        assert_eq!((joined.processes().len(), joined.threads().len()), (2, 2));
        assert_eq!((joined.stack_count(), joined.frames().len()), (1, 1));
        let containers = joined.processes().iter().filter_map(|process| process.container);
        assert_eq!(containers.map(|id| joined.string(id)).collect::<Vec<_>>(), ["4f1c3a99", "4f1c3a99"]);
    }

    #[test]
    fn joining_in_two_steps_equals_joining_at_once() {
        let all = [interval(0, "a", "f"), interval(1_000, "b", "g"), interval(2_000, "a", "f")];
        let step = Profile::joined(&[Profile::joined(&all[..2]), all[2].clone()]);
        let at_once = Profile::joined(&all);
        assert_eq!((step.samples(), step.header()), (at_once.samples(), at_once.header()));
        assert_eq!(step.ledger(), at_once.ledger());
        let none: [Profile; 0] = [];
        assert_eq!(Profile::joined(&none).total_value(), 0);
    }
}
