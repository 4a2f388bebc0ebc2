//! Selects the processes and threads that can be sampled, and notices when their ids are reused.

use std::collections::{HashMap, HashSet};

use profiler_addresses::MonotonicTime;

use crate::{Pid, SidebandEvent, SidebandEventKind, Tid};

/// Target processes at most. The limit bounds the profiler's memory when a target forks without end.
const MAX_TARGETS: usize = 64 * 1024;

/// Selects the processes that can be sampled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ProcessFilter {
    /// All processes.
    #[default]
    All,
    /// Processes by id, with or without their children.
    Only {
        /// Process ids.
        pids: HashSet<Pid>,
        /// Whether children that they fork are added.
        children: bool,
    },
    /// Threads by id.
    Threads {
        /// The ids of their processes.
        pids: HashSet<Pid>,
        /// The thread ids.
        tids: HashSet<Tid>,
    },
}

/// The targets of a [`ProcessFilter`] over time. An id belongs to a target until the kernel gives it to another process
/// or thread.
#[derive(Debug)]
pub(crate) struct Targets {
    filter: ProcessFilter,
    /// When the ids of threads, and of processes as those of their leaders, were given to others.
    reuse_times: HashMap<Tid, MonotonicTime>,
}

impl Targets {
    pub(crate) fn new(filter: ProcessFilter) -> Self {
        Self { filter, reuse_times: HashMap::new() }
    }

    /// Whether an event refers to a target.
    pub(crate) fn concerns(&self, event: &SidebandEvent) -> bool {
        match (&event.kind, &self.filter) {
            (SidebandEventKind::Fork { parent }, ProcessFilter::Only { pids, children: true }) => {
                pids.contains(parent) || pids.contains(&event.pid)
            }
            _ => self.contains(event.pid),
        }
    }

    /// Whether a process can be sampled.
    pub(crate) fn contains(&self, pid: Pid) -> bool {
        match &self.filter {
            ProcessFilter::All => true,
            ProcessFilter::Only { pids, .. } | ProcessFilter::Threads { pids, .. } => pids.contains(&pid),
        }
    }

    /// Whether a process with this id at a time can be sampled.
    pub(crate) fn contained_process(&self, pid: Pid, time: MonotonicTime) -> bool {
        // The ids of the filter's threads are what is reused where it selects threads.
        let selects_threads = matches!(self.filter, ProcessFilter::Threads { .. });
        self.contains(pid) && (selects_threads || !self.is_reused(Tid::leader_of(pid), time))
    }

    /// Whether a thread was a target at a time.
    pub(crate) fn contained(&self, pid: Pid, tid: Tid, time: MonotonicTime) -> bool {
        match &self.filter {
            ProcessFilter::Threads { tids, .. } => tids.contains(&tid) && !self.is_reused(tid, time),
            _ => self.contained_process(pid, time),
        }
    }

    /// Whether the kernel had given an id to another process or thread by a time.
    fn is_reused(&self, tid: Tid, time: MonotonicTime) -> bool {
        self.reuse_times.get(&tid).is_some_and(|reused| *reused <= time)
    }

    /// Notices a process or thread that was started. Returns whether its process can be sampled.
    pub(crate) fn start(&mut self, pid: Pid, tid: Tid, parent: Option<Pid>, time: MonotonicTime) -> bool {
        let is_child = parent.is_some_and(|parent| self.contained_process(parent, time));
        match &mut self.filter {
            ProcessFilter::All => true,
            ProcessFilter::Threads { tids, pids } => {
                if tids.contains(&tid) {
                    self.reuse_times.entry(tid).or_insert(time);
                }
                parent.is_none() && pids.contains(&pid)
            }
            ProcessFilter::Only { pids, children } => {
                if parent.is_none() {
                    return pids.contains(&pid);
                }
                if *children && is_child {
                    self.reuse_times.remove(&Tid::leader_of(pid));
                    return pids.contains(&pid) || (pids.len() < MAX_TARGETS && pids.insert(pid));
                }
                if pids.contains(&pid) {
                    self.reuse_times.entry(Tid::leader_of(pid)).or_insert(time);
                }
                false
            }
        }
    }

    /// Forgets a process that has ended.
    pub(crate) fn remove(&mut self, pid: Pid) {
        if let ProcessFilter::Only { pids, children: true } = &mut self.filter {
            pids.remove(&pid);
            self.reuse_times.remove(&Tid::leader_of(pid));
        }
    }
}
