//! The threads and processes of the page.

use indexmap::{IndexMap, IndexSet};
use serde::Serialize;

use super::{side::Side, text::Texts};
use profiler_profile::{ProcessId, ThreadId};

/// Assigns indices to threads in order of appearance.
#[derive(Default)]
pub(super) struct Owners<'a> {
    threads: IndexMap<(usize, ThreadId), Side<'a>>,
}

#[derive(Default, Serialize)]
pub(super) struct Processes {
    pid: Vec<u32>,
    comm: Vec<usize>,
    /// Empty outside of a container.
    container: Vec<usize>,
}

#[derive(Default, Serialize)]
pub(super) struct Threads {
    process: Vec<usize>,
    tid: Vec<u32>,
    comm: Vec<usize>,
}

impl<'a> Owners<'a> {
    /// The index of a thread of one of the profiles.
    pub(super) fn number(&mut self, side: Side<'a>, id: ThreadId) -> u32 {
        let (number, _) = self.threads.insert_full((side.number, id), side);
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// The columns of processes and threads.
    pub(super) fn columns(self, texts: &mut Texts<'a>) -> (Processes, Threads) {
        let mut numbers = IndexSet::<(usize, ProcessId)>::new();
        let (mut processes, mut threads) = (Processes::default(), Threads::default());
        for ((number, id), Side { profile, .. }) in self.threads {
            let thread = profile.thread(id);
            let (process, is_new) = numbers.insert_full((number, thread.process));
            threads.process.push(process);
            threads.tid.push(thread.tid);
            threads.comm.push(texts.number(profile.string(thread.comm)));
            if is_new {
                let process = profile.process(thread.process);
                processes.pid.push(process.pid);
                processes.comm.push(texts.number(profile.string(process.comm)));
                let container = process.container.map_or("", |id| profile.string(id));
                processes.container.push(texts.number(container));
            }
        }
        (processes, threads)
    }
}
