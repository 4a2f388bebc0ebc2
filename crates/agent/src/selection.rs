//! Selects the samples of a window that are sent.

use std::collections::{HashMap, HashSet};

use profiler_profile::{ProcessId, Profile, ProfileCopy, Sample};

use crate::{Resource, Window};

/// A copy with the samples of the resources that `is_selected` selects. The ledger stays that of the measurement.
#[must_use]
pub fn selected(window: &Window, is_selected: impl Fn(&Resource) -> bool) -> Window {
    let profile = window.profile();
    let is_selected: Vec<_> = window.resources().iter().map(is_selected).collect();
    let mut copy = ProfileCopy::of(profile);
    let mut stacks = HashMap::new();
    let mut processes = ProcessOrder::default();
    for sample in profile.samples() {
        let process = profile.thread(sample.thread).process;
        if !is_selected[window.resource_of(process)] {
            continue;
        }
        processes.add(process);
        let stack = *stacks
            .entry(sample.stack)
            .or_insert_with(|| copy.stack_with(profile.stack(sample.stack), |_| true));
        copy.sample(sample, stack);
    }
    let copied = copy.finish(profile.header().clone());
    let original = |id: ProcessId| window.resource_of(processes.copied[id.index()]);
    Window::new(copied, |_, id| window.resources()[original(id)].clone())
}

/// The samples of all events, as the ledger of a profile counts them.
#[must_use]
pub fn sample_count(profile: &Profile) -> u64 {
    let count = |sample: &Sample| profile.event(sample.event).sample_count(sample.value);
    profile.samples().iter().map(count).fold(0, u64::saturating_add)
}

/// The processes in the order in which a copy gets them: that of their first samples.
#[derive(Debug, Default)]
struct ProcessOrder {
    copied: Vec<ProcessId>,
    known: HashSet<ProcessId>,
}

impl ProcessOrder {
    fn add(&mut self, process: ProcessId) {
        if self.known.insert(process) {
            self.copied.push(process);
        }
    }
}

#[cfg(test)]
mod tests {
    use profiler_profile::test_profile;

    use super::*;

    /// A window whose resources are the names of processes.
    fn window(profile: Profile) -> Window {
        Window::new(profile, |profile, id| {
            let name = profile.string(profile.process(id).comm).to_owned();
            Resource { attributes: [("service.name".to_owned(), name)].into() }
        })
    }

    /// The resource and the value of each sample.
    fn samples(window: &Window) -> Vec<(String, u64)> {
        let profile = window.profile();
        let samples = profile.samples().iter().map(|sample| {
            let resource = window.resource_of(profile.thread(sample.thread).process);
            (window.resources()[resource].attributes["service.name"].clone(), sample.value)
        });
        samples.collect()
    }

    #[test]
    fn selected_samples_have_their_weight_and_others_are_left_out() {
        let stacks = [("a;main;work", 2), ("b;main;idle", 3), ("c;main", 4), ("b;main", 5)];
        let all = window(test_profile::folded(&stacks));
        let sent = selected(&all, |resource| resource.attributes["service.name"] != "a");
        let first = sent.profile().samples().as_ptr();
        let sent = sent.weighted(5);
        assert_eq!(sent.profile().samples().as_ptr(), first, "a second copy");
        let expected = [("b", 15), ("c", 20), ("b", 25)].map(|(name, value)| (name.to_owned(), value));
        assert_eq!(samples(&sent), expected);
        assert_eq!(sample_count(sent.profile()), 60);
        assert_eq!((sent.resources().len(), all.resources().len()), (2, 3));
        assert_eq!(sent.profile().ledger(), all.profile().ledger());
    }

    #[test]
    fn a_whole_selection_has_the_samples_of_the_ledger() {
        for seed in 0..20 {
            let all = window(test_profile::random(seed));
            let events = &all.profile().ledger().events;
            let reported: u64 = events.iter().map(|event| event.reported).sum();
            assert_eq!(sample_count(all.profile()), reported);
            let copied = selected(&all, |_| true);
            assert_eq!(samples(&copied), samples(&all));
        }
    }
}
