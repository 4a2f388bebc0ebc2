//! Sums the samples of a window by resource, event, stack and attributes.

use std::collections::{HashMap, HashSet};

use profiler_profile::{EventId, Sample, StackId, StringId, ThreadState};

use super::OtlpOptions;
use crate::Window;

/// Samples with the same resource, event, stack and attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// An index into [`Window::resources`].
    pub(super) resource: usize,
    pub(super) event: EventId,
    pub(super) stack: StackId,
    pub(super) state: Option<ThreadState>,
    pub(super) thread_name: Option<StringId>,
    /// Their number, as [`profiler_profile::Event::sample_count`] gives it.
    pub(super) samples: u64,
    /// The sum of their values.
    pub(super) value: u64,
}

impl Row {
    fn key(&self) -> impl Ord + use<> {
        (self.resource, self.event, self.stack, self.state, self.thread_name)
    }
}

/// The rows of a window, ordered by resource, event and stack.
pub(super) fn of(window: &Window, options: &OtlpOptions) -> Vec<Row> {
    let mut thread_names = ThreadNames { max: options.max_thread_names, by_resource: HashMap::new() };
    let samples = window.profile().samples().iter();
    let mut rows: Vec<_> = samples.map(|sample| row(window, sample, options, &mut thread_names)).collect();
    rows.sort_unstable_by_key(Row::key);
    rows.dedup_by(|next, kept| {
        let is_same = next.key() == kept.key();
        if is_same {
            kept.samples = kept.samples.saturating_add(next.samples);
            kept.value = kept.value.saturating_add(next.value);
        }
        is_same
    });
    rows
}

fn row(window: &Window, sample: &Sample, options: &OtlpOptions, thread_names: &mut ThreadNames) -> Row {
    let profile = window.profile();
    let thread = profile.thread(sample.thread);
    let resource = window.resource_of(thread.process);
    Row {
        resource,
        event: sample.event,
        stack: sample.stack,
        state: sample.state.filter(|_| options.thread_states),
        thread_name: thread_names.sent(resource, thread.comm),
        samples: profile.event(sample.event).sample_count(sample.value),
        value: sample.value,
    }
}

/// The names of threads that are sent: the first ones of each resource. A process can give its threads any number of names.
struct ThreadNames {
    max: usize,
    by_resource: HashMap<usize, HashSet<StringId>>,
}

impl ThreadNames {
    fn sent(&mut self, resource: usize, name: StringId) -> Option<StringId> {
        if self.max == 0 {
            return None;
        }
        let names = self.by_resource.entry(resource).or_default();
        let is_sent = names.contains(&name) || (names.len() < self.max && names.insert(name));
        is_sent.then_some(name)
    }
}
