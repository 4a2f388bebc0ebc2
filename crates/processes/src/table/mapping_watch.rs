//! Reports the executable mappings of watched processes to a reader that keeps copies of them, such as unwind tables.

use std::time::Duration;

use profiler_addresses::MonotonicTime;

use super::ProcessTable;
use crate::{AddressSpace, Pid, ProcessKey};

/// Bounds of the back-off between two readings of `/proc/PID/maps` of a watched process. It doubles when the mappings are
/// unchanged.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(20);
const MAX_READ_INTERVAL: Duration = Duration::from_secs(10);

/// Watched processes that are compared with `/proc` at one time, after a loss of events. Each takes a fraction of a
/// millisecond.
const MAX_COMPARISONS: usize = 16;

/// The most installations of call frame information of JIT code that are kept of one process: those of half an hour. Beyond them, the
/// older half is forgotten, whose stacks are not marked.
const MAX_JIT_CODE_INSTALLATIONS: usize = 16 * 1024;

/// A change of the executable mappings of a watched process.
#[derive(Clone, Debug)]
pub enum MappingChange {
    /// A process has these mappings now.
    Current(MappingSnapshot),
    /// A process was forked from a watched one, with the same mappings. It is watched, too.
    Forked {
        /// The id of the child.
        pid: Pid,
        /// The child in the table.
        process: ProcessKey,
        /// The id of its parent.
        parent: Pid,
    },
    /// A process has ended or executed another program, and is not watched any more.
    Ended {
        /// Its id.
        pid: Pid,
    },
    /// Sideband events were lost: forks and ends may be missing.
    EventsLost,
}

/// The executable mappings of a process at a time.
#[derive(Clone, Debug)]
pub struct MappingSnapshot {
    /// The process id.
    pub pid: Pid,
    /// The process in the table.
    pub process: ProcessKey,
    /// The mappings.
    pub mappings: AddressSpace,
    /// The time of the newest event that had been applied.
    pub as_of: MonotonicTime,
}

/// The state of a watched process.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Whether a snapshot will be reported.
    is_reported: bool,
    /// Whether a snapshot was requested, which is reported even if the mappings are unchanged.
    is_requested: bool,
    last_reading: MonotonicTime,
    read_interval: Duration,
    /// The first installation of its mappings and the latest ones, oldest first.
    installed: Vec<Installation>,
    /// When call frame information of JIT code was in use, and its time ([`Installation::jit_code_as_of`]), oldest first.
    jit_code_installed: Vec<(MonotonicTime, MonotonicTime)>,
}

/// When a reader began to use a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Installation {
    /// [`MappingSnapshot::as_of`].
    pub as_of: MonotonicTime,
    /// The time of the newest JIT code that its call frame information takes into account; `None` without such
    /// information.
    pub jit_code_as_of: Option<MonotonicTime>,
    /// When it was in use.
    pub installed: MonotonicTime,
}

/// The pending changes of watched processes.
#[derive(Debug, Default)]
pub(super) struct WatchQueue {
    changes: Vec<QueuedChange>,
    /// Requests that are later than the events that are known: an exec may be among those to come.
    requests: Vec<(MonotonicTime, Pid)>,
    /// Processes that have to be compared with `/proc`.
    uncompared: Vec<Pid>,
    follows_forks: bool,
}

#[derive(Debug)]
enum QueuedChange {
    Current(Pid),
    Other(MappingChange),
}

impl ProcessTable {
    /// Watches the children of watched processes, too.
    pub fn watch_forks(&mut self) {
        self.watches.follows_forks = true;
    }

    /// Watches the process that has a PID now, and reports its mappings once all events up to now are applied. Those of a
    /// process that is already watched are compared with `/proc`, with a back-off.
    pub fn request_mappings(&mut self, pid: Pid) {
        if !self.targets.contains(pid) {
            return;
        }
        if self.latest(pid).is_none() {
            self.add_earliest(pid, "");
        }
        if self.latest(pid).is_some_and(|process| !process.has_mappings()) {
            self.read(pid);
        }
        let now = self.reader.now();
        if !self.watches.requests.iter().any(|(_, requested)| *requested == pid) {
            self.watches.requests.push((now, pid));
        }
        self.answer_requests();
    }

    /// The changes since the last call, in order.
    pub fn take_mapping_changes(&mut self) -> Vec<MappingChange> {
        let changes = std::mem::take(&mut self.watches.changes);
        changes.into_iter().filter_map(|change| self.change(change)).collect()
    }

    /// Reports the mappings of all watched processes: the reader has dropped its copies.
    pub fn report_all_mappings(&mut self) {
        self.watches.changes.clear();
        let watched = self.processes.values_mut().filter_map(|process| {
            process.watch.as_mut()?.is_reported = true;
            Some(QueuedChange::Current(process.pid))
        });
        self.watches.changes.extend(watched);
    }

    /// Notes that a reader uses a snapshot of a process from now on.
    pub fn note_installation(&mut self, process: ProcessKey, installation: Installation) {
        // Samples of the last batch can be older than the last installation.
        const MAX_INSTALLATIONS: usize = 8;
        let Some(watch) = self.processes.get_mut(&process).and_then(|process| process.watch.as_mut()) else {
            return;
        };
        if watch.installed.len() >= MAX_INSTALLATIONS {
            // Samples of its time are taken for those of the first: their tables are older than they are, which is marked.
            watch.installed.remove(1);
        }
        watch.installed.push(installation);
        watch.note_jit_code(installation);
    }

    /// Watches the processes whose mappings were requested before the watermark, and compares some with `/proc` after a loss.
    pub(super) fn answer_requests(&mut self) {
        let watermark = self.watermark;
        let requests = self.watches.requests.extract_if(.., |(time, _)| *time <= watermark);
        for (_, pid) in requests.collect::<Vec<_>>() {
            self.answer_request(pid);
        }
        for _ in 0..MAX_COMPARISONS {
            let Some(pid) = self.watches.uncompared.pop() else { break };
            if self.latest(pid).is_some_and(|process| process.watch.is_some()) {
                self.read(pid);
            }
        }
    }

    fn answer_request(&mut self, pid: Pid) {
        let now = self.reader.now();
        let Some(process) = self.latest_mut(pid) else { return };
        let has_mappings = process.has_mappings();
        // Other processes that map the same files may follow one that has ended.
        if process.has_ended() && !has_mappings {
            return;
        }
        let is_new = process.watch.is_none();
        let watch = process.watch.get_or_insert_default();
        if is_new && has_mappings {
            watch.last_reading = now;
            return self.report_mappings(pid);
        }
        if !is_new && now.saturating_since(watch.last_reading) < watch.read_interval {
            return;
        }
        watch.is_requested = true;
        self.read(pid);
    }

    /// Compares all watched processes with `/proc`, some with each batch.
    pub(super) fn compare_watched(&mut self) {
        let watched = self.processes.values().filter(|process| process.watch.is_some());
        self.watches.uncompared = watched.map(|process| process.pid).collect();
        self.watches.changes.push(QueuedChange::Other(MappingChange::EventsLost));
    }

    /// Notes that the mappings of a process have changed, if it is watched.
    pub(super) fn report_mappings(&mut self, pid: Pid) {
        let Some(watch) = self.latest_mut(pid).and_then(|process| process.watch.as_mut()) else { return };
        // More mappings will follow.
        watch.read_interval = MIN_READ_INTERVAL;
        if !std::mem::replace(&mut watch.is_reported, true) {
            self.watches.changes.push(QueuedChange::Current(pid));
        }
    }

    /// Notes that a watched process was compared with `/proc`.
    pub(super) fn report_reading(&mut self, pid: Pid, is_unchanged: bool) {
        let now = self.reader.now();
        let Some(watch) = self.latest_mut(pid).and_then(|process| process.watch.as_mut()) else { return };
        let interval = (watch.read_interval * 2).clamp(MIN_READ_INTERVAL, MAX_READ_INTERVAL);
        let is_requested = std::mem::take(&mut watch.is_requested);
        watch.last_reading = now;
        if is_requested || !is_unchanged {
            self.report_mappings(pid);
        }
        if is_unchanged && let Some(watch) = self.latest_mut(pid).and_then(|process| process.watch.as_mut()) {
            watch.read_interval = interval;
        }
    }

    /// Watches the child of a watched process, if children are watched.
    pub(super) fn watch_child(&mut self, pid: Pid, parent: ProcessKey) {
        let parent = self.processes.get(&parent).filter(|parent| parent.watch.is_some());
        let Some(parent) = parent.map(|parent| parent.pid).filter(|_| self.watches.follows_forks) else {
            return;
        };
        if let Some(child) = self.latest_mut(pid) {
            child.watch = Some(Watch { read_interval: MIN_READ_INTERVAL, ..Watch::default() });
            let forked = MappingChange::Forked { pid, process: child.key, parent };
            self.watches.changes.push(QueuedChange::Other(forked));
        }
    }

    /// Ends the watch of a process.
    pub(super) fn end_watch(&mut self, key: ProcessKey) {
        let Some(process) = self.processes.get_mut(&key) else { return };
        if process.watch.take().is_some() {
            let ended = MappingChange::Ended { pid: process.pid };
            self.watches.changes.push(QueuedChange::Other(ended));
        }
    }

    fn change(&mut self, change: QueuedChange) -> Option<MappingChange> {
        let pid = match change {
            QueuedChange::Current(pid) => pid,
            QueuedChange::Other(change) => return Some(change),
        };
        let as_of = self.applied;
        let process = self.latest_mut(pid)?;
        process.watch.as_mut()?.is_reported = false;
        let (process, mappings) = (process.key, process.space.clone());
        Some(MappingChange::Current(MappingSnapshot { pid, process, mappings, as_of }))
    }
}

impl Watch {
    /// Stacks with JIT code are looked up at the end of an interval, so that all installations of an interval are kept.
    fn note_jit_code(&mut self, installation: Installation) {
        let Installation { jit_code_as_of: Some(as_of), installed, .. } = installation else {
            return;
        };
        if self.jit_code_installed.last().is_some_and(|(_, last)| *last == as_of) {
            return;
        }
        if self.jit_code_installed.len() >= MAX_JIT_CODE_INSTALLATIONS {
            self.jit_code_installed.drain(..MAX_JIT_CODE_INSTALLATIONS / 2);
        }
        self.jit_code_installed.push((installed, as_of));
    }

    /// The time of the call frame information of JIT code that was in use at a time.
    pub(crate) fn jit_code_as_of(&self, time: MonotonicTime) -> Option<MonotonicTime> {
        let later = self.jit_code_installed.partition_point(|(installed, _)| *installed <= time);
        Some(self.jit_code_installed.get(later.checked_sub(1)?)?.1)
    }

    /// Drops the installations of JIT code that were replaced by a time.
    pub(crate) fn retire_jit_code(&mut self, until: MonotonicTime) {
        let later = self.jit_code_installed.partition_point(|(installed, _)| *installed <= until);
        self.jit_code_installed.drain(..later.saturating_sub(1));
    }

    /// The installation that was in use at a time.
    pub(crate) fn installation_at(&self, time: MonotonicTime) -> Option<Installation> {
        self.installed.iter().rev().find(|installation| installation.installed <= time).copied()
    }
}

#[cfg(test)]
mod tests;
