//! Installs the mappings of sampled processes, and the unwind tables of the mapped files, in BPF maps.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use profiler_addresses::MonotonicTime;
use profiler_common::unwind::{MAX_MAPPINGS, MAX_PROCESSES, MappingEntry};
use profiler_processes::monotonic_time;
use profiler_processes::{
    AddressSpace, Installation, MappedFiles, MappingChange, MappingSnapshot, Pid, ProcFs, ProcessKey,
    root_directory::RootDirectory,
};
use profiler_sampler::{InstallError, InstalledMappings, UnwindMaps};
use profiler_symbolize::{JitCallFrames, ManagedFunctionFrames, debug_file::DebugDirectories};

use super::{
    back_off::BackOff,
    cached_table::TableKey,
    installations::Installations,
    managed_functions::ManagedFunctions,
    mapping_entries::{Entries, FileTables, INSTALL_INTERVAL},
    table_cache::{TableCache, TableOwner},
    tenant::{SharedCapacity, Tenant, TurnQueue},
};
use crate::sys::usage::thread_cpu_time;

/// The mappings of a process without samples for this time make place for those of another, where the BPF maps are full.
const MIN_IDLE_TIME: Duration = Duration::from_secs(10);

/// The processes that are not known yet and whose call frame information of JIT code is kept. Beyond them, all are forgotten.
const MAX_KEPT_PROCESSES: usize = 64;

/// The processes whose mappings are installed, and the unwind tables of their files.
#[derive(Debug)]
pub(super) struct MappingInstaller {
    proc: ProcFs,
    host: RootDirectory,
    maps: UnwindMaps,
    tables: TableCache,
    processes: HashMap<Pid, InstalledState>,
    /// Those of processes that are evicted as well: the symbolizer reports each method once.
    managed: ManagedFunctions,
    /// The call frame information of JIT code of processes that are not known yet.
    kept_frames: HashMap<ProcessKey, JitCallFrames>,
    /// Processes whose mappings have to be installed.
    queue: TurnQueue,
    /// Processes with failed tables, by the time at which the tables are built again. An entry with another time than
    /// [`InstalledState::retry`] is outdated.
    retries: BTreeSet<(Instant, Pid)>,
    mapping_capacity: SharedCapacity,
    process_capacity: SharedCapacity,
    installations: Arc<Installations>,
}

/// What is installed of a process, and what will be.
#[derive(Clone, Debug)]
struct InstalledState {
    process: ProcessKey,
    tenant: Tenant,
    root: Option<Arc<RootDirectory>>,
    /// The version of the mappings that are installed completely.
    version: Option<u64>,
    installed: Option<Arc<InstalledProcess>>,
    /// Whether the BPF map of processes has an entry for it, which counts for its tenant.
    has_entry: bool,
    files: FileTables,
    /// Mappings that are not installed yet, or not with all tables.
    pending: Option<PendingMappings>,
    /// Whether the process is in the queue.
    is_queued: bool,
    /// The back-off after its mappings exceeded the capacity of the BPF maps; `None` when they were installed.
    back_off: Option<BackOff>,
    /// Whether its mappings are not installed until they are reported again after the back-off.
    is_suspended: bool,
    /// When the tables that failed are built again.
    retry: Option<TableRetry>,
    /// The mappings that were reported last, and their time.
    reported: Option<(AddressSpace, MonotonicTime)>,
}

#[derive(Clone, Debug)]
struct PendingMappings {
    mappings: AddressSpace,
    as_of: MonotonicTime,
    /// When they were enqueued.
    enqueued: Instant,
}

/// Installed mappings, without the tables of some files.
#[derive(Clone, Debug)]
struct TableRetry {
    at: Instant,
    mappings: AddressSpace,
    as_of: MonotonicTime,
}

/// Installed mappings of a process, shared with forked children as long as theirs are equal.
#[derive(Debug)]
struct InstalledProcess {
    mappings: InstalledMappings,
    tables: Vec<TableKey>,
    tenant: Tenant,
    count: usize,
}

impl MappingInstaller {
    /// An installer without processes, which reports what it has installed.
    pub(super) fn new(
        maps: UnwindMaps,
        files: Arc<MappedFiles>,
        debug_directories: Arc<DebugDirectories>,
        installations: Arc<Installations>,
    ) -> io::Result<Self> {
        Ok(Self {
            proc: ProcFs::live(),
            host: RootDirectory::open(Path::new("/"))?,
            maps,
            tables: TableCache::new(files, debug_directories),
            processes: HashMap::new(),
            managed: ManagedFunctions::default(),
            kept_frames: HashMap::new(),
            queue: TurnQueue::default(),
            retries: BTreeSet::new(),
            mapping_capacity: SharedCapacity::new(MAX_MAPPINGS as usize),
            process_capacity: SharedCapacity::new(MAX_PROCESSES as usize),
            installations,
        })
    }

    /// Whether there are tables that no process maps.
    pub(super) fn has_unused_tables(&self) -> bool {
        self.tables.has_unused()
    }

    /// Applies a change of the mappings of a process.
    pub(super) fn apply(&mut self, change: MappingChange) {
        match change {
            MappingChange::Current(snapshot) => self.set_pending(snapshot),
            MappingChange::Forked { pid, process, parent } => self.fork(pid, process, parent),
            MappingChange::Ended { pid } => self.end(pid),
            MappingChange::EventsLost => self.remove_unknown(),
        }
    }

    /// Removes all processes.
    pub(super) fn clear(&mut self) {
        for pid in self.processes.keys().copied().collect::<Vec<_>>() {
            self.remove(pid);
        }
        self.remove_unknown();
    }

    /// Removes children whose fork event was lost: they may refer to mappings that will be removed.
    fn remove_unknown(&mut self) {
        for pid in self.maps.processes().unwrap_or_default() {
            if !self.processes.contains_key(&pid) {
                self.uninstall(pid);
            }
        }
    }

    /// Installs the mappings of a process again, with the call frame information of its JIT code.
    pub(super) fn set_jit_call_frames(&mut self, key: ProcessKey, frames: JitCallFrames) {
        let Some((pid, process)) = self.process_mut(key) else {
            // Its mappings are not reported yet, and a jitdump that does not grow is not reported again.
            if self.kept_frames.len() >= MAX_KEPT_PROCESSES {
                self.kept_frames.clear();
            }
            self.kept_frames.insert(key, frames);
            return;
        };
        process.files.set_jit_call_frames(frames);
        self.install_again(pid);
    }

    /// Installs the mappings of a process again, with these further functions of JIT code of .NET.
    pub(super) fn add_managed_functions(&mut self, key: ProcessKey, functions: Vec<ManagedFunctionFrames>) {
        let Some((pid, process)) = self.process_mut(key) else {
            // Its mappings are not reported yet.
            return self.managed.keep(key, functions);
        };
        process.files.forget_jit_tables(functions.iter().map(|function| function.code.start));
        let tenant = process.tenant;
        self.managed.add(key, tenant, functions);
        self.install_again(pid);
    }

    fn process_mut(&mut self, key: ProcessKey) -> Option<(Pid, &mut InstalledState)> {
        let process = self.processes.iter_mut().find(|(_, process)| process.process == key);
        process.map(|(pid, process)| (*pid, process))
    }

    /// Has the mappings that were reported last installed again.
    fn install_again(&mut self, pid: Pid) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if let Some((mappings, as_of)) = process.reported.clone().filter(|_| process.pending.is_none()) {
            process.version = None;
            process.pending = Some(PendingMappings { mappings, as_of, enqueued: Instant::now() });
        }
        self.enqueue(pid);
    }

    /// Whether mappings have to be installed.
    pub(super) fn is_outdated(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Installs outdated mappings, for [`INSTALL_INTERVAL`] or until `stop`.
    pub(super) fn install_outdated(&mut self, stop: impl Fn() -> bool) {
        let begin = Instant::now();
        self.enqueue_retries(begin);
        while begin.elapsed() < INSTALL_INTERVAL && !stop() {
            let Some((tenant, pid)) = self.next_outdated() else { break };
            let used_before = thread_cpu_time();
            let result = match self.install_process(pid, &stop) {
                Err(InstallError::CapacityExceeded) if self.evict_idle() => self.install_process(pid, &stop),
                result => result,
            };
            if let Err(error) = result {
                self.suspend(pid, &error);
            }
            self.queue.spend(tenant, thread_cpu_time().saturating_sub(used_before));
        }
    }

    /// When tables that failed are built again.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.retries.first().map(|(at, _)| *at)
    }

    /// Enqueues the processes whose failed tables have to be built again.
    fn enqueue_retries(&mut self, now: Instant) {
        while let Some((at, pid)) = self.retries.first().copied().filter(|(at, _)| *at <= now) {
            self.retries.pop_first();
            let Some(process) = self.processes.get_mut(&pid) else { continue };
            let Some(retry) = process.retry.take_if(|retry| retry.at == at) else { continue };
            // Pending mappings are installed with all tables.
            if process.pending.is_none() {
                let TableRetry { mappings, as_of, .. } = retry;
                process.version = None;
                process.pending = Some(PendingMappings { mappings, as_of, enqueued: now });
                self.enqueue(pid);
            }
        }
    }

    /// Evicts the mappings of processes that had no samples for [`MIN_IDLE_TIME`]. Returns whether it evicted any. The next
    /// sample of such a process requests its mappings again.
    fn evict_idle(&mut self) -> bool {
        let idle_since = monotonic_time().saturating_sub(MIN_IDLE_TIME);
        let installed = self.processes.iter().filter(|(_, process)| process.installed.is_some());
        let last_use = |pid| self.maps.process_last_use(pid).unwrap_or(MonotonicTime::ZERO);
        let idle: Vec<Pid> =
            installed.map(|(pid, _)| *pid).filter(|pid| last_use(*pid) < idle_since).collect();
        for pid in &idle {
            self.remove(*pid);
        }
        !idle.is_empty()
    }

    /// Evicts tables that were not used for some time.
    pub(super) fn evict_unused_tables(&mut self) {
        self.tables.evict_unused(&mut self.maps, Instant::now());
    }

    /// The next outdated process and its tenant.
    fn next_outdated(&mut self) -> Option<(Tenant, Pid)> {
        loop {
            let pid = self.queue.pop()?;
            // It has ended otherwise.
            let Some(process) = self.processes.get_mut(&pid).filter(|process| process.is_queued) else {
                continue;
            };
            process.is_queued = process.needs_install();
            if process.is_queued {
                self.queue.push(process.tenant, pid);
                return Some((process.tenant, pid));
            }
        }
    }

    /// Gives a process a turn, if its mappings have to be installed.
    fn enqueue(&mut self, pid: Pid) {
        if let Some(process) = self.processes.get_mut(&pid)
            && process.needs_install()
            && !process.is_queued
        {
            process.is_queued = true;
            self.queue.push(process.tenant, pid);
        }
    }

    fn set_pending(&mut self, snapshot: MappingSnapshot) {
        let MappingSnapshot { pid, process: key, mappings, as_of } = snapshot;
        if self.processes.get(&pid).is_some_and(|process| process.process != key) {
            self.end(pid);
        }
        if !self.processes.contains_key(&pid) {
            let root = self.proc.root(pid).ok().map(Arc::new);
            let tenant = self.tenant(root.as_deref());
            self.managed.add_kept(key, tenant);
            let mut process = InstalledState::new(key, tenant, root);
            if let Some(frames) = self.kept_frames.remove(&key) {
                process.files.set_jit_call_frames(frames);
            }
            self.processes.insert(pid, process);
        }
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if process.version == Some(mappings.version()) {
            return;
        }
        process.files.forget_changed(&mappings, as_of);
        process.reported = Some((mappings.clone(), as_of));
        let now = Instant::now();
        process.pending = Some(PendingMappings { mappings, as_of, enqueued: now });
        if process.back_off.is_none_or(|back_off| back_off.has_passed(now)) {
            process.is_suspended = false;
        }
        self.enqueue(pid);
    }

    fn tenant(&self, root: Option<&RootDirectory>) -> Tenant {
        match root.and_then(RootDirectory::id) {
            None => Tenant::Unknown,
            id if id == self.host.id() => Tenant::Host,
            Some(id) => Tenant::Container(id),
        }
    }

    fn fork(&mut self, pid: Pid, process: ProcessKey, parent: Pid) {
        let Some(parent) = self.processes.get(&parent) else { return };
        let child = InstalledState { process, is_queued: false, has_entry: false, ..parent.clone() };
        self.remove(pid);
        let installed = child.installed.clone();
        self.retries.extend(child.retry.as_ref().map(|retry| (retry.at, pid)));
        self.processes.insert(pid, child);
        self.enqueue(pid);
        if let Some(installed) = installed
            && let Err(error) = self.set_process(pid, &installed.mappings)
        {
            // The BPF program may have added it.
            self.uninstall(pid);
            self.suspend(pid, &error);
        }
    }

    /// Makes the unwinder use installed mappings for a process.
    fn set_process(&mut self, pid: Pid, mappings: &InstalledMappings) -> Result<(), InstallError> {
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        if !process.has_entry && !self.process_capacity.take(process.tenant, 1) {
            return Err(InstallError::CapacityExceeded);
        }
        process.has_entry = true;
        self.maps.set_process(pid, mappings)
    }

    /// Suspends a process whose mappings could not be installed, until they are reported again after the back-off.
    fn suspend(&mut self, pid: Pid, error: &InstallError) {
        log::info!("the stacks of process {pid} are unwound by frame pointer: {error}");
        if let Some(process) = self.processes.get_mut(&pid) {
            process.back_off = Some(BackOff::after_failure(process.back_off, Instant::now()));
            process.is_suspended = true;
        }
    }

    /// Forgets a process that has ended or executes another program.
    fn end(&mut self, pid: Pid) {
        if let Some(process) = self.processes.get(&pid) {
            self.managed.remove(process.process);
        }
        self.remove(pid);
    }

    fn remove(&mut self, pid: Pid) {
        let Some(process) = self.processes.remove(&pid) else { return };
        self.uninstall(pid);
        if process.has_entry {
            self.process_capacity.give_back(process.tenant, 1);
        }
        self.release(process.installed);
    }

    /// Makes `bpf_get_stack` unwind the stacks of a process.
    fn uninstall(&mut self, pid: Pid) {
        if let Err(error) = self.maps.remove_process(pid) {
            log::warn!("cannot remove the mappings of process {pid}: {error}");
        }
    }

    /// Installs the mappings of a process with the tables of their files: all, or as many as were built within
    /// [`INSTALL_INTERVAL`].
    fn install_process(&mut self, pid: Pid, stop: &dyn Fn() -> bool) -> Result<(), InstallError> {
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        let Some(PendingMappings { mappings, as_of, enqueued }) = process.pending.clone() else {
            return Ok(());
        };
        let managed = self.managed.of_process(process.process);
        let owner = TableOwner { pid, root: process.root.as_deref(), tenant: process.tenant, managed };
        let Entries { entries, tables, is_complete, retry_at } =
            process.files.entries(&mut self.tables, &mut self.maps, owner, &mappings, enqueued, stop);
        let tenant = process.tenant;
        let installed = match self.install(pid, tenant, &entries) {
            Ok(mappings) => InstalledProcess { mappings, tables, tenant, count: entries.len() },
            Err(error) => {
                self.tables.release(&mut self.maps, &tables);
                return Err(error);
            }
        };
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        let jit_code_as_of = process.files.jit_code_as_of();
        let installation = Installation { as_of, jit_code_as_of, installed: monotonic_time() };
        self.installations.add(process.process, installation);
        process.back_off = None;
        if is_complete {
            process.version = Some(mappings.version());
            process.pending = None;
            process.retry = retry_at.map(|at| TableRetry { at, mappings, as_of });
            self.retries.extend(retry_at.map(|at| (at, pid)));
            // `cargo xtask bench` reads this line.
            log::debug!("unwind tables of process {pid} are in place: {} mappings", entries.len());
        }
        let previous = process.installed.replace(Arc::new(installed));
        self.release(previous);
        Ok(())
    }

    fn install(
        &mut self,
        pid: Pid,
        tenant: Tenant,
        entries: &[MappingEntry],
    ) -> Result<InstalledMappings, InstallError> {
        if !self.mapping_capacity.take(tenant, entries.len()) {
            return Err(InstallError::CapacityExceeded);
        }
        let installed =
            self.maps.add_mappings(entries).and_then(|mappings| match self.set_process(pid, &mappings) {
                Ok(()) => Ok(mappings),
                Err(error) => {
                    self.maps.remove_mappings(mappings);
                    Err(error)
                }
            });
        if installed.is_err() {
            self.mapping_capacity.give_back(tenant, entries.len());
        }
        installed
    }

    /// Removes installed mappings, unless another process shares them.
    fn release(&mut self, installed: Option<Arc<InstalledProcess>>) {
        if let Some(installed) = installed.and_then(Arc::into_inner) {
            self.maps.remove_mappings(installed.mappings);
            self.mapping_capacity.give_back(installed.tenant, installed.count);
            self.tables.release(&mut self.maps, &installed.tables);
        }
    }
}

impl InstalledState {
    fn new(process: ProcessKey, tenant: Tenant, root: Option<Arc<RootDirectory>>) -> Self {
        Self {
            process,
            tenant,
            root,
            version: None,
            installed: None,
            has_entry: false,
            files: FileTables::default(),
            pending: None,
            is_queued: false,
            back_off: None,
            is_suspended: false,
            retry: None,
            reported: None,
        }
    }

    /// Whether its mappings have to be installed.
    fn needs_install(&self) -> bool {
        self.pending.is_some() && !self.is_suspended
    }
}

#[cfg(test)]
mod tests;
