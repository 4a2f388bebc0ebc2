//! Condenses a profile into bounded memory: one sample for each event, thread, stack and state.

use std::collections::HashMap;

use crate::{EventId, Profile, ProfileCopy, Sample, StackId, ThreadId, ThreadState};

impl Profile {
    /// A copy with one sample for each event, thread, stack and state, at the time of the first one, with their summed value.
    ///
    /// Only the `max_samples` samples that represent the most time are kept; the header then has an edit that says so. The
    /// ledger stays that of the measurement.
    #[must_use]
    pub fn condensed(&self, max_samples: usize) -> Self {
        let mut merged = HashMap::<(EventId, ThreadId, StackId, Option<ThreadState>), Sample>::new();
        for sample in self.samples() {
            let first = merged.entry((sample.event, sample.thread, sample.stack, sample.state));
            let first = first.or_insert(Sample { value: 0, ..*sample });
            first.value = first.value.saturating_add(sample.value);
        }
        let time_ns =
            |sample: &Sample| sample.value.saturating_mul(self.event(sample.event).unit_ns().unwrap_or(1));
        let mut kept: Vec<_> = merged.into_values().collect();
        kept.sort_unstable_by(|a, b| {
            time_ns(b).cmp(&time_ns(a)).then_with(|| {
                (a.time_ns, a.event, a.thread, a.stack, a.state)
                    .cmp(&(b.time_ns, b.event, b.thread, b.stack, b.state))
            })
        });
        let is_too_large = kept.len() > max_samples;
        kept.truncate(max_samples);
        let mut copy = ProfileCopy::of(self);
        let mut stacks = HashMap::new();
        for sample in &kept {
            let stack = *stacks.entry(sample.stack).or_insert_with(|| copy.stack(self.stack(sample.stack)));
            copy.sample(sample, stack);
        }
        let mut header = self.header().clone();
        let dropped = "rare stacks of long ago dropped".to_owned();
        if is_too_large && !header.edits.contains(&dropped) {
            header.edits.push(dropped);
        }
        copy.finish(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_profile;

    #[test]
    fn every_count_is_kept_below_the_limit() {
        for seed in 0..20 {
            let profile = test_profile::random(seed);
            let condensed = profile.condensed(usize::MAX);
            assert_eq!(condensed.total_value(), profile.total_value());
            assert_eq!(condensed.ledger(), profile.ledger());
            assert_eq!(condensed.header(), profile.header());
            let functions = |profile: &Profile| -> Vec<String> {
                let functions = profile.functions();
                let name = |count: &crate::FunctionCount| {
                    let module = profile.module_name(count.module).to_owned();
                    (profile.string(count.name).to_owned(), module, count.self_count, count.total_count)
                };
                let mut named: Vec<_> = functions.iter().map(|count| format!("{:?}", name(count))).collect();
                named.sort_unstable();
                named
            };
            assert_eq!(functions(&condensed), functions(&profile));
            let distinct = profile.samples().iter();
            let distinct = distinct.map(|sample| (sample.event, sample.thread, sample.stack, sample.state));
            let distinct: std::collections::HashSet<_> = distinct.collect();
            assert_eq!(condensed.samples().len(), distinct.len());
        }
    }

    #[test]
    fn rare_stacks_are_dropped_above_the_limit_and_the_header_says_so() {
        let profile = test_profile::folded(&[("p;main;rare", 1), ("p;main;work", 5), ("p;main;idle", 2)]);
        let condensed = profile.condensed(2).condensed(1);
        let names: Vec<_> = condensed.frames().map(|frame| condensed.string(frame.name)).collect();
        assert_eq!(names, ["work", "main"]);
        assert_eq!((condensed.total_value(), condensed.first_ledger().reported), (5, 8));
        assert_eq!(condensed.header().edits, ["rare stacks of long ago dropped"]);
        assert_eq!(profile.condensed(0).total_value(), 0);
    }
}
