//! The process table: finds the process of a sample by PID and time, and applies sideband events.

mod mapping_watch;

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

pub(crate) use self::mapping_watch::Watch;
use profiler_addresses::MonotonicTime;

use self::mapping_watch::WatchQueue;
pub use self::mapping_watch::{Installation, MappingChange, MappingSnapshot};
use crate::{
    AddressSpace, Backing, LookupError, Pid, ProcFs, Process, ProcessFilter, ProcessKey, SidebandEvent,
    SidebandEventKind, Tid,
    process::{Completeness, PublishedName},
    process_filter::Targets,
    process_reader::{ProcessReader, Reading},
};

/// Processes in the table. The limit bounds the profiler's memory when a target forks without end.
const MAX_PROCESSES: usize = 64 * 1024;

/// A process that was read from `/proc` is evicted when it has had no sample in so many intervals; it is read again at its
/// next sample.
const MAX_IDLE_INTERVALS: u64 = 2;

/// The least time between two comparisons of all sampled processes with `/proc`.
const COMPARISON_INTERVAL: Duration = Duration::from_secs(1);

/// How long a process is kept after its last thread's exit: Linux 6.16 and later report the exit before the address space
/// is torn down, which is sampled too.
const TEARDOWN_TIME: Duration = Duration::from_secs(1);

/// All processes that sideband events or samples have referred to, until they are retired.
///
/// A process is known by its key from a fork or exec until the next exec, or until its last thread exits. What is read
/// from `/proc` takes its place among the events by its time: the reader is later than the events that it has, and `/proc`
/// can show another program or process by then.
#[derive(Debug)]
pub struct ProcessTable {
    reader: ProcessReader,
    targets: Targets,
    processes: HashMap<ProcessKey, Process>,
    /// The processes that had a PID, oldest first. Never empty.
    by_pid: HashMap<Pid, VecDeque<ProcessKey>>,
    /// The processes that have ended, with the time, oldest first.
    ended: VecDeque<(MonotonicTime, ProcessKey)>,
    /// Readings of `/proc` that are later than the events, oldest first.
    readings: VecDeque<Reading>,
    next_key: u64,
    watermark: MonotonicTime,
    /// The time of the newest event or reading that was applied.
    applied: MonotonicTime,
    watches: WatchQueue,
    /// The number of the current interval.
    interval: u64,
    /// How often processes had to be compared with `/proc` because sideband events were lost.
    losses: u64,
    /// Whether events were lost since then.
    has_lost_events: bool,
    next_comparison: MonotonicTime,
}

/// The process of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessOfSample {
    /// It is known.
    Known(ProcessKey),
    /// It is known once the watermark has passed the time at which it was read from `/proc`: ask again then.
    AfterWatermark,
    /// The PID or thread id belonged to a target before, and now to another process or thread.
    NotATarget,
}

/// A process that was evicted from the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetiredProcess {
    /// Its key in the table.
    pub key: ProcessKey,
    /// Its last name.
    pub comm: String,
}

impl ProcessTable {
    /// An empty table of the processes that pass `filter`. Attributes and mappings are read from `proc`.
    pub fn new(proc: Arc<ProcFs>, filter: ProcessFilter) -> Self {
        Self {
            reader: ProcessReader::new(proc),
            targets: Targets::new(filter),
            processes: HashMap::new(),
            by_pid: HashMap::new(),
            ended: VecDeque::new(),
            readings: VecDeque::new(),
            next_key: 0,
            watermark: MonotonicTime::MAX,
            applied: MonotonicTime::ZERO,
            watches: WatchQueue::default(),
            interval: 1,
            losses: 0,
            has_lost_events: false,
            next_comparison: MonotonicTime::ZERO,
        }
    }

    /// The process with a key, unless it was retired.
    pub fn get(&self, key: ProcessKey) -> Option<&Process> {
        self.processes.get(&key)
    }

    /// The processes that have not ended.
    pub fn living(&self) -> impl Iterator<Item = &Process> {
        self.processes.values().filter(|process| !process.has_ended())
    }

    /// Where processes are read.
    pub fn proc(&self) -> &ProcFs {
        self.reader.proc()
    }

    /// Whether an event refers to a process that passes the filter.
    pub fn is_relevant(&self, event: &SidebandEvent) -> bool {
        self.targets.concerns(event)
    }

    /// Applies a sideband event. Events must be in time order.
    pub fn apply(&mut self, event: SidebandEvent) {
        let SidebandEvent { time, pid, tid, kind } = event;
        self.apply_readings(time);
        self.applied = self.applied.max(time);
        match kind {
            SidebandEventKind::Fork { parent } => self.fork(pid, parent, time),
            SidebandEventKind::StartThread => self.start_thread(pid, tid, time),
            _ if !self.targets.contained_process(pid, time) => {}
            SidebandEventKind::Map(mapping) => {
                if let Some(process) = self.latest_mut(pid) {
                    let may_be_copied =
                        process.space.has_file_at(&mapping) && mapping.backing == Backing::Jit;
                    process.space.insert(mapping, time);
                    self.report_mappings(pid);
                    // The event does not have the mappings around it, which tell copied text from JIT code.
                    if may_be_copied {
                        self.request_mappings(pid);
                    }
                }
            }
            SidebandEventKind::Rename(comm) if tid.is_leader_of(pid) => {
                if let Some(process) = self.latest_mut(pid) {
                    process.comm = comm;
                }
            }
            SidebandEventKind::Rename(_) => {}
            SidebandEventKind::Execute(comm) => self.execute(pid, &comm, time),
            SidebandEventKind::Exit => self.exit(pid, tid, time),
        }
    }

    /// Sets the time up to which all events have been applied. A new table takes none for missing.
    pub fn advance(&mut self, watermark: MonotonicTime) {
        self.watermark = watermark;
        self.apply_readings(watermark);
        if self.has_lost_events && watermark >= self.next_comparison && watermark < MonotonicTime::MAX {
            self.has_lost_events = false;
            self.next_comparison = watermark.saturating_add(COMPARISON_INTERVAL);
            self.losses += 1;
            self.compare_watched();
        }
        self.answer_requests();
    }

    /// Notes that sideband events were lost. After the next [`advance`](Self::advance), processes are compared with `/proc` at
    /// their next sample, once a second at most.
    pub fn lose_events(&mut self) {
        self.has_lost_events = true;
    }

    /// The process that had this PID at the time of a sample. At the first sample of a process, its attributes and
    /// mappings are read from `/proc`. `comm` is its name if `/proc` does not show one any more.
    pub fn process_of_sample(
        &mut self,
        pid: Pid,
        tid: Tid,
        time: MonotonicTime,
        comm: &str,
    ) -> ProcessOfSample {
        if !self.targets.contained(pid, tid, time) {
            return ProcessOfSample::NotATarget;
        }
        let complete = self.process_at(pid, time).filter(|process| self.is_complete(process));
        let complete = complete.map(|process| process.key);
        let Some(key) = complete.or_else(|| self.complete(pid, time, comm)) else {
            return ProcessOfSample::AfterWatermark;
        };
        let Some(process) = self.processes.get_mut(&key) else { return ProcessOfSample::NotATarget };
        let is_first_of_interval = std::mem::replace(&mut process.sampled_in, self.interval) != self.interval;
        if is_first_of_interval && process.published.begin_interval() {
            process.published.name = self.reader.published_service_name(process);
        }
        if process.comm.is_empty() {
            comm.clone_into(&mut process.comm);
        }
        ProcessOfSample::Known(key)
    }

    /// Reads what is not known of the process of a sample; `None` while that is later than the events.
    fn complete(&mut self, pid: Pid, time: MonotonicTime, comm: &str) -> Option<ProcessKey> {
        let mut key = self.find_at(pid, time).unwrap_or_else(|| self.add_earliest(pid, comm));
        if self.is_unread(key) {
            self.read(pid);
            // A reading can show that another program runs.
            key = self.find_at(pid, time).unwrap_or(key);
        }
        (!self.is_unread(key) && self.inherit_mappings(key)).then_some(key)
    }

    /// Reads the attributes and mappings of a process before its first sample.
    pub fn prefetch(&mut self, pid: Pid) -> ProcessKey {
        let key = self.find_at(pid, MonotonicTime::MAX).unwrap_or_else(|| self.add_earliest(pid, ""));
        if self.is_unread(key) {
            self.read(pid);
        }
        key
    }

    /// Reads the attributes and mappings of a process as they are now, where no events say what has changed. A process id that was
    /// reused is another process.
    pub fn read_again(&mut self, pid: Pid) -> ProcessKey {
        self.losses += 1;
        let key = self.prefetch(pid);
        self.find_at(pid, MonotonicTime::MAX).unwrap_or(key)
    }

    /// Retires the processes that ended some time before the watermark, unless they are still needed: no more samples of them
    /// will follow.
    pub fn retire_ended(&mut self, is_needed: impl Fn(ProcessKey) -> bool) -> Vec<RetiredProcess> {
        let complete_before = self.watermark.saturating_sub(TEARDOWN_TIME);
        let count = self.ended.partition_point(|(until, _)| *until < complete_before);
        let ended: Vec<_> = self.ended.drain(..count).map(|(_, key)| key).collect();
        let keys = ended.into_iter().filter(|key| !is_needed(*key));
        keys.filter_map(|key| self.remove(key)).collect()
    }

    /// Ends an interval: only times from `from` on are looked up from now on. Retires the processes that have ended,
    /// those without samples for some intervals, and mappings that were replaced before.
    pub fn end_interval(&mut self, from: MonotonicTime) {
        self.interval += 1;
        self.processes.values_mut().for_each(|process| process.retire_replaced(from));
        let oldest = self.interval.saturating_sub(MAX_IDLE_INTERVALS);
        let losses = self.losses;
        // What was forked and never sampled is known from events alone: after a loss, its end may be among them.
        self.remove_if(|process| {
            let is_idle = process.sampled_in < oldest && process.watch.is_none();
            process.has_ended() || is_idle && (process.is_read || process.losses_seen < losses)
        });
        let processes = &self.processes;
        self.ended.retain(|(_, key)| processes.contains_key(key));
    }

    fn fork(&mut self, pid: Pid, parent: Pid, time: MonotonicTime) {
        if !self.targets.start(pid, Tid::leader_of(pid), Some(parent), time) {
            self.end(pid, time);
            return;
        }
        if self.latest(parent).is_none() {
            self.add_earliest(parent, "");
        }
        let Some(parent) = self.latest(parent) else { return };
        let (parent, comm, forks) = (parent.key, parent.comm.clone(), parent.forks_of_child(time));
        let key = self.begin(pid, &comm, time);
        if let Some(process) = self.processes.get_mut(&key) {
            process.parent = Some(parent);
            process.forks = forks;
        }
        self.copy_mappings(parent, key);
        self.watch_child(pid, parent);
    }

    fn start_thread(&mut self, pid: Pid, tid: Tid, time: MonotonicTime) {
        if !self.targets.start(pid, tid, None, time) {
            return;
        }
        if let Some(process) = self.latest_mut(pid) {
            process.threads = process.threads.map(|threads| threads.saturating_add(1));
        }
    }

    fn execute(&mut self, pid: Pid, comm: &str, time: MonotonicTime) {
        let key = self.begin(pid, comm, time);
        if let Some(process) = self.processes.get_mut(&key) {
            process.completeness = Completeness::All;
        }
    }

    /// A process ends with its last thread, which need not be the leader.
    fn exit(&mut self, pid: Pid, tid: Tid, time: MonotonicTime) {
        let Some(process) = self.latest_mut(pid) else { return };
        process.threads = process.threads.map(|threads| threads.saturating_sub(1));
        if process.threads.map_or(tid.is_leader_of(pid), |threads| threads == 0) {
            self.end(pid, time);
        }
    }

    /// Begins a process with one thread at its fork or exec, and ends the one that had the PID before.
    fn begin(&mut self, pid: Pid, comm: &str, time: MonotonicTime) -> ProcessKey {
        self.end(pid, time);
        if let Some(previous) = self.latest(pid).map(|process| process.key) {
            self.end_watch(previous);
        }
        let key = self.add(pid, comm, time);
        if let Some(process) = self.processes.get_mut(&key) {
            process.threads = Some(1);
        }
        key
    }

    fn end(&mut self, pid: Pid, time: MonotonicTime) {
        if let Some(process) = self.latest_mut(pid)
            && process.until.is_none()
        {
            process.until = Some(time);
            let key = process.key;
            self.ended.push_back((time, key));
        }
    }

    fn find_at(&self, pid: Pid, time: MonotonicTime) -> Option<ProcessKey> {
        self.process_at(pid, time).map(|process| process.key)
    }

    fn process_at(&self, pid: Pid, time: MonotonicTime) -> Option<&Process> {
        let keys = self.by_pid.get(&pid)?.iter().rev();
        let mut processes = keys.filter_map(|key| self.processes.get(key));
        processes.find(|process| process.since <= time)
    }

    fn latest(&self, pid: Pid) -> Option<&Process> {
        self.processes.get(self.by_pid.get(&pid)?.back()?)
    }

    fn latest_mut(&mut self, pid: Pid) -> Option<&mut Process> {
        self.processes.get_mut(self.by_pid.get(&pid)?.back()?)
    }

    fn add(&mut self, pid: Pid, comm: &str, since: MonotonicTime) -> ProcessKey {
        if self.processes.len() >= MAX_PROCESSES {
            self.make_room();
        }
        let key = ProcessKey(self.next_key);
        self.next_key += 1;
        let process = Process {
            key,
            pid,
            comm: comm.to_owned(),
            identity: None,
            space: AddressSpace::default(),
            completeness: Completeness::Unread,
            parent: None,
            forks: Vec::new(),
            since,
            until: None,
            threads: None,
            is_read: false,
            sampled_in: 0,
            published: PublishedName::default(),
            losses_seen: self.losses,
            watch: None,
        };
        self.processes.insert(key, process);
        self.by_pid.entry(pid).or_default().push_back(key);
        key
    }

    /// Adds the process that had a PID before all others that are known.
    fn add_earliest(&mut self, pid: Pid, comm: &str) -> ProcessKey {
        let key = self.add(pid, comm, MonotonicTime::ZERO);
        let next = self.by_pid.get_mut(&pid).and_then(|keys| {
            keys.rotate_right(1);
            keys.get(1)
        });
        let until = next.and_then(|next| self.processes.get(next)).map(|next| next.since);
        if let Some(until) = until
            && let Some(process) = self.processes.get_mut(&key)
        {
            process.until = Some(until);
            // It is retired with the next one that ends.
            self.ended.push_front((until, key));
        }
        key
    }

    fn remove(&mut self, key: ProcessKey) -> Option<RetiredProcess> {
        self.end_watch(key);
        let Process { pid, comm, .. } = self.processes.remove(&key)?;
        let keys = self.by_pid.get_mut(&pid)?;
        keys.retain(|other| *other != key);
        if keys.is_empty() {
            self.by_pid.remove(&pid);
            self.targets.remove(pid);
        }
        Some(RetiredProcess { key, comm })
    }

    fn remove_if(&mut self, is_removed: impl Fn(&Process) -> bool) {
        let removed: Vec<_> = self.processes.values().filter(|process| is_removed(process)).collect();
        let keys: Vec<_> = removed.iter().map(|process| process.key).collect();
        for key in keys {
            self.remove(key);
        }
    }

    /// Evicts the processes without samples in this interval, or the older half of all.
    fn make_room(&mut self) {
        let interval = self.interval;
        self.remove_if(|process| process.sampled_in < interval);
        if self.processes.len() >= MAX_PROCESSES / 2 {
            let middle = ProcessKey(self.next_key.saturating_sub(MAX_PROCESSES as u64 / 2));
            self.remove_if(|process| process.key < middle);
        }
        let processes = &self.processes;
        self.ended.retain(|(_, key)| processes.contains_key(key));
    }

    /// Whether a process has to be read, for the first time or after a loss of events. That of a process that has ended
    /// may show another one with its PID.
    fn is_unread(&self, key: ProcessKey) -> bool {
        self.processes.get(&key).is_some_and(|process| self.must_be_read(process))
    }

    fn must_be_read(&self, process: &Process) -> bool {
        !process.has_ended() && (!process.is_read || process.losses_seen < self.losses)
    }

    /// Whether all is known of a process that its samples need.
    fn is_complete(&self, process: &Process) -> bool {
        !self.must_be_read(process) && process.completeness != Completeness::Unread
    }

    /// Reads a process from `/proc`. The reading is applied when the events up to then are.
    fn read(&mut self, pid: Pid) {
        if self.readings.iter().any(|reading| reading.pid == pid) {
            return;
        }
        let reading = self.reader.read(pid);
        self.readings.push_back(reading);
        self.apply_readings(self.watermark);
    }

    /// Applies the readings from before a time.
    fn apply_readings(&mut self, time: MonotonicTime) {
        let count = self.readings.partition_point(|reading| reading.ended <= time);
        for reading in self.readings.drain(..count).collect::<Vec<_>>() {
            self.apply_reading(reading);
        }
    }

    fn apply_reading(&mut self, reading: Reading) {
        let Reading { pid, began, ended, identity, comm, space } = reading;
        self.applied = self.applied.max(ended);
        let losses = self.losses;
        let Some(process) = self.latest_mut(pid) else { return };
        // An exec or exit during the reading leaves some of both. The next sample reads again.
        if process.since > began && process.since <= ended {
            return;
        }
        process.is_read = true;
        if process.has_ended() {
            return;
        }
        let is_gone = matches!(identity, Err(LookupError::ProcessGone));
        if is_gone && process.watch.is_some() {
            return self.end(pid, ended);
        }
        let identity = identity.ok();
        let known = process.identity.as_deref();
        let is_other_process =
            known.zip(identity.as_ref()).is_some_and(|(known, identity)| !known.is_same_program(identity));
        // A process keeps some of its mappings, unless it executes another program.
        let is_other_program = process.losses_seen < losses
            && process.mappings().next().is_some()
            && space.as_ref().is_ok_and(|space| !process.space.shares_mapping(space));
        let process = if is_other_process || is_other_program {
            let key = self.begin(pid, "", began);
            self.processes.get_mut(&key)
        } else {
            self.latest_mut(pid)
        };
        let Some(process) = process else { return };
        let known_mappings = (process.key, process.space.version());
        process.is_read = true;
        process.losses_seen = losses;
        if let Some(identity) = identity {
            process.threads = Some(identity.status.living_threads());
            process.identity = Some(Arc::new(identity));
        }
        process.comm = comm.unwrap_or(std::mem::take(&mut process.comm));
        match space {
            Ok(space) => {
                process.space.reconcile(&space, began..ended);
                process.completeness = Completeness::All;
            }
            Err(LookupError::ProcessGone) => {}
            // The mappings from before and from sideband events stay in use.
            Err(_) if process.has_mappings() => {}
            Err(error) => process.completeness = Completeness::Unavailable(error),
        }
        let is_unchanged = known_mappings == (process.key, process.space.version());
        self.report_reading(pid, is_unchanged);
    }

    /// Gives the mappings of its parent to a process that ended before its own were read: it has not executed another
    /// program since the fork. Returns false while those are being read.
    fn inherit_mappings(&mut self, key: ProcessKey) -> bool {
        let Some(process) = self.processes.get(&key) else { return true };
        if process.completeness != Completeness::Unread {
            return true;
        }
        if let Some(parent) = process.parent.and_then(|parent| self.processes.get(&parent)) {
            let (parent, pid) = (parent.key, parent.pid);
            if self.is_unread(parent) {
                self.read(pid);
            }
            if self.is_unread(parent) {
                return false;
            }
            self.copy_mappings(parent, key);
        }
        if let Some(process) = self.processes.get_mut(&key)
            && process.completeness == Completeness::Unread
        {
            process.completeness = Completeness::Unavailable(LookupError::ProcessGone);
        }
        true
    }

    /// Gives the mappings of a parent to its child, when they are known.
    fn copy_mappings(&mut self, parent: ProcessKey, child: ProcessKey) {
        let Some(parent) = self.processes.get(&parent) else { return };
        if parent.completeness != Completeness::All {
            return;
        }
        let space = parent.space.clone();
        if let Some(child) = self.processes.get_mut(&child) {
            child.space = space;
            child.completeness = Completeness::All;
        }
    }
}

#[cfg(test)]
mod tests;
