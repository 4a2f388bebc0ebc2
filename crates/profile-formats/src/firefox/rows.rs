//! The rows of the output: the samples of each event of a thread, and its runtime events.

use std::collections::{BTreeMap, HashMap};

use profiler_profile::{EventId, ProcessId, Profile, RuntimeEvent, Sample, ThreadId};

/// The thread of a row, or a process whose main thread has no samples.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    Thread(ThreadId),
    Process(ProcessId),
}

/// The samples of one event of a thread. The first row of a thread has its runtime events.
#[derive(Default)]
pub(super) struct Row<'a> {
    pub(super) samples: Vec<&'a Sample>,
    pub(super) runtime_events: Vec<&'a RuntimeEvent>,
}

/// The rows of a profile in the order of the output: by thread, then by event.
pub(super) fn rows(profile: &Profile) -> BTreeMap<(Owner, EventId), Row<'_>> {
    let mut rows = BTreeMap::<_, Row<'_>>::new();
    for sample in profile.samples() {
        let owner = Owner::Thread(sample.thread);
        rows.entry((owner, sample.event)).or_default().samples.push(sample);
    }
    let main_threads = main_threads(profile);
    for event in profile.runtime_events() {
        let thread = event.thread.or_else(|| main_threads.get(&event.process).copied());
        let owner = thread.map_or(Owner::Process(event.process), Owner::Thread);
        let first = rows.range((owner, EventId::FIRST)..).next().map(|(key, _)| *key);
        let key = first.filter(|(of, _)| *of == owner).unwrap_or((owner, EventId::FIRST));
        rows.entry(key).or_default().runtime_events.push(event);
    }
    rows
}

fn main_threads(profile: &Profile) -> HashMap<ProcessId, ThreadId> {
    let mut main_threads = HashMap::new();
    for thread in profile.thread_views() {
        if thread.tid() == thread.process().pid() {
            main_threads.entry(thread.process().id()).or_insert(thread.id());
        }
    }
    main_threads
}
