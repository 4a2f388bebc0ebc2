//! Condenses a profile into bounded memory: one sample for each thread and stack.

use std::collections::HashMap;

use crate::{Profile, ProfileCopy, Sample, StackId, ThreadId};

impl Profile {
    /// A copy with one sample for each stack of each thread, at the time of the first one, with their summed count.
    ///
    /// Only the `max_samples` samples with the highest counts are kept; the header then has an edit that says so. The
    /// ledger stays that of the measurement.
    #[must_use]
    pub fn condensed(&self, max_samples: usize) -> Self {
        let mut merged = HashMap::<(ThreadId, StackId), Sample>::new();
        for sample in self.samples() {
            let first = merged.entry((sample.thread, sample.stack));
            let first = first.or_insert(Sample { count: 0, ..*sample });
            first.count = first.count.saturating_add(sample.count);
        }
        let mut kept: Vec<_> = merged.into_values().collect();
        kept.sort_unstable_by(|a, b| {
            b.count
                .cmp(&a.count)
                .then_with(|| (a.time_ns, a.thread, a.stack).cmp(&(b.time_ns, b.thread, b.stack)))
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
            assert_eq!(condensed.sample_count(), profile.sample_count());
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
            let distinct = profile.samples().iter().map(|sample| (sample.thread, sample.stack));
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
        assert_eq!((condensed.sample_count(), condensed.ledger().reported), (5, 8));
        assert_eq!(condensed.header().edits, ["rare stacks of long ago dropped"]);
        assert_eq!(profile.condensed(0).sample_count(), 0);
    }
}
