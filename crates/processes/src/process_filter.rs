//! Selects the processes and threads that can be sampled, and notices when their ids are reused.

use std::collections::{HashMap, HashSet};

use crate::{SidebandEvent, SidebandEventKind};

/// Target processes at most. The limit bounds the profiler's memory when a target forks without end.
const MAX_TARGETS: usize = 64 * 1024;

/// Selects the processes that can be sampled.
#[derive(Clone, Debug)]
pub enum ProcessFilter {
    /// All processes.
    All,
    /// Processes by id, with or without their children.
    Only {
        /// Process ids.
        pids: HashSet<u32>,
        /// Whether children that they fork are added.
        children: bool,
    },
    /// Threads by id.
    Threads {
        /// The ids of their processes.
        pids: HashSet<u32>,
        /// The thread ids.
        tids: HashSet<u32>,
    },
}

/// The targets of a [`ProcessFilter`] over time. An id belongs to a target until the kernel gives it to another process
/// or thread.
#[derive(Debug)]
pub(crate) struct Targets {
    filter: ProcessFilter,
    /// When ids were given to others, `CLOCK_MONOTONIC`.
    reused_ns: HashMap<u32, u64>,
}

impl Targets {
    pub(crate) fn new(filter: ProcessFilter) -> Self {
        Self { filter, reused_ns: HashMap::new() }
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
    pub(crate) fn contains(&self, pid: u32) -> bool {
        match &self.filter {
            ProcessFilter::All => true,
            ProcessFilter::Only { pids, .. } | ProcessFilter::Threads { pids, .. } => pids.contains(&pid),
        }
    }

    /// Whether a thread was a target at a time.
    pub(crate) fn contained(&self, pid: u32, tid: u32, time_ns: u64) -> bool {
        let is_reused = |id| self.reused_ns.get(&id).is_some_and(|reused_ns| *reused_ns <= time_ns);
        match &self.filter {
            ProcessFilter::All => true,
            ProcessFilter::Only { pids, .. } => pids.contains(&pid) && !is_reused(pid),
            ProcessFilter::Threads { tids, .. } => tids.contains(&tid) && !is_reused(tid),
        }
    }

    /// Notices a process or thread that was started. Returns whether its process can be sampled.
    pub(crate) fn start(&mut self, pid: u32, tid: u32, parent: Option<u32>, time_ns: u64) -> bool {
        match &mut self.filter {
            ProcessFilter::All => true,
            ProcessFilter::Threads { tids, pids } => {
                if tids.contains(&tid) {
                    self.reused_ns.entry(tid).or_insert(time_ns);
                }
                parent.is_none() && pids.contains(&pid)
            }
            ProcessFilter::Only { pids, children } => {
                let Some(parent) = parent else { return pids.contains(&pid) };
                if *children && pids.contains(&parent) {
                    self.reused_ns.remove(&pid);
                    return pids.contains(&pid) || (pids.len() < MAX_TARGETS && pids.insert(pid));
                }
                if pids.contains(&pid) {
                    self.reused_ns.entry(pid).or_insert(time_ns);
                }
                false
            }
        }
    }

    /// Forgets a process that has ended.
    pub(crate) fn remove(&mut self, pid: u32) {
        if let ProcessFilter::Only { pids, children: true } = &mut self.filter {
            pids.remove(&pid);
            self.reused_ns.remove(&pid);
        }
    }
}
