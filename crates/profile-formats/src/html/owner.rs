//! The threads and processes of the page.

use indexmap::IndexMap;
use serde::Serialize;

use super::{side::Side, text::Texts};
use crate::label;
use profiler_profile::{ProcessId, ThreadId};

/// Assigns indices to threads and processes in order of appearance.
#[derive(Default)]
pub(super) struct Owners<'a> {
    threads: IndexMap<(usize, ThreadId), Side<'a>>,
    processes: IndexMap<(usize, ProcessId), Side<'a>>,
}

#[derive(Default, Serialize)]
pub(super) struct Processes {
    pid: Vec<u32>,
    comm: Vec<usize>,
    /// Empty outside of a container.
    container: Vec<usize>,
    /// Namespace, pod and container in Kubernetes; empty where they are unknown.
    pod: Vec<usize>,
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
        let (number, is_known) = self.threads.insert_full((side.number, id), side);
        if is_known.is_none() {
            self.process(side, side.profile.thread_view(id).process().id());
        }
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// The index of a process of one of the profiles.
    pub(super) fn process(&mut self, side: Side<'a>, id: ProcessId) -> u32 {
        let (number, _) = self.processes.insert_full((side.number, id), side);
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// The columns of processes and threads.
    pub(super) fn columns(self, texts: &mut Texts<'a>) -> (Processes, Threads) {
        let (mut processes, mut threads) = (Processes::default(), Threads::default());
        for ((number, id), Side { profile, .. }) in self.threads {
            let thread = profile.thread_view(id);
            let process = self.processes.get_index_of(&(number, thread.process().id()));
            threads.process.push(process.unwrap_or_default());
            threads.tid.push(thread.tid());
            threads.comm.push(texts.number(thread.name()));
        }
        for ((_, id), Side { profile, .. }) in self.processes {
            let process = profile.process_view(id);
            processes.pid.push(process.pid());
            processes.comm.push(texts.number(process.name()));
            processes.container.push(texts.number(process.container().unwrap_or_default()));
            let pod = profile.process(id).kubernetes.map(|names| label::kubernetes_path(profile, names));
            processes.pod.push(texts.number(pod.unwrap_or_default()));
        }
        (processes, threads)
    }
}
