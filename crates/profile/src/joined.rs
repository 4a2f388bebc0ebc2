//! Profiles of consecutive intervals as one.

use std::collections::{HashMap, hash_map::Entry};

use super::{Header, Ledger, ProcessId, Profile, ProfileBuilder, ProfileCopy, StringId};

impl Profile {
    /// The profile of all intervals together: what [`Session::take_profile`](crate::Session::take_profile) gave one
    /// after the other, in this order. A process that has the same id and name in two of them is taken to be the same.
    ///
    /// ```
    /// use profiler::{Profile, profile::{Header, ProfileBuilder}};
    ///
    /// let second = || ProfileBuilder::default().finish(Header { duration_ns: 1_000_000_000, ..Header::default() });
    /// assert_eq!(Profile::joined(&[second(), second()]).sample_count(), 0);
    /// ```
    #[must_use]
    pub fn joined<'a>(intervals: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut joining = Joining::default();
        for interval in intervals {
            joining.add(interval);
        }
        joining.builder.finish_with(joining.header, joining.ledger)
    }
}

/// The intervals so far.
#[derive(Default)]
struct Joining {
    builder: ProfileBuilder,
    header: Header,
    ledger: Ledger,
    processes: HashMap<(u32, StringId), ProcessId>,
    is_begun: bool,
}

impl Joining {
    fn add(&mut self, interval: &Profile) {
        let later_ns = self.add_header(interval.header());
        self.ledger.append(interval.ledger());
        let mut copy = ProfileCopy::onto(std::mem::take(&mut self.builder), interval);
        for (index, process) in interval.processes().iter().enumerate() {
            let comm = copy.string(process.comm);
            let id = ProcessId::from_index(index);
            match self.processes.entry((process.pid, comm)) {
                Entry::Occupied(known) => copy.set_process(id, *known.get()),
                Entry::Vacant(new) => {
                    new.insert(copy.process(id));
                }
            }
        }
        let stacks: Vec<_> = interval.stacks().map(|stack| copy.stack(stack)).collect();
        for sample in interval.samples() {
            let mut later = *sample;
            later.time_ns = later.time_ns.saturating_add(later_ns);
            copy.sample(&later, stacks[sample.stack.index()]);
        }
        self.builder = copy.into_builder();
    }

    /// How much later than the first interval this one began.
    fn add_header(&mut self, header: &Header) -> u64 {
        if !self.is_begun {
            self.is_begun = true;
            self.header = header.clone();
            return 0;
        }
        let later_ns = header.started_monotonic_ns.saturating_sub(self.header.started_monotonic_ns);
        self.header.duration_ns = self.header.duration_ns.max(later_ns.saturating_add(header.duration_ns));
        for edit in &header.edits {
            if !self.header.edits.contains(edit) {
                self.header.edits.push(edit.clone());
            }
        }
        later_ns
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
    fn times_go_on_and_counts_add_up() {
        let joined = Profile::joined(&[interval(5_000, "a", "f"), interval(6_000, "a", "g")]);
        let times: Vec<_> = joined.samples().iter().map(|sample| sample.time_ns).collect();
        assert_eq!(times, [100, 1_100]);
        assert_eq!((joined.header().started_monotonic_ns, joined.header().duration_ns), (5_000, 2_000));
        assert_eq!((joined.ledger().reported, joined.sample_count()), (4, 4));
        assert!(joined.ledger().adds_up());
    }

    #[test]
    fn a_process_is_the_same_until_it_is_called_otherwise() {
        let joined = Profile::joined(&[interval(0, "a", "f"), interval(1, "a", "f"), interval(2, "b", "f")]);
        assert_eq!((joined.processes().len(), joined.threads().len()), (2, 2));
        assert_eq!((joined.stack_count(), joined.frames().len()), (1, 1));
        let containers = joined.processes().iter().filter_map(|process| process.container);
        assert_eq!(containers.map(|id| joined.string(id)).collect::<Vec<_>>(), ["4f1c3a99", "4f1c3a99"]);
    }

    #[test]
    fn joining_in_two_steps_is_joining_at_once() {
        let all = [interval(0, "a", "f"), interval(1_000, "b", "g"), interval(2_000, "a", "f")];
        let step = Profile::joined(&[Profile::joined(&all[..2]), all[2].clone()]);
        let at_once = Profile::joined(&all);
        assert_eq!((step.samples(), step.header()), (at_once.samples(), at_once.header()));
        assert_eq!(step.ledger(), at_once.ledger());
        let none: [Profile; 0] = [];
        assert_eq!(Profile::joined(&none).sample_count(), 0);
    }
}
