//! Installs the mappings of sampled processes, and the unwind tables of the mapped files, in BPF maps.

use std::{
    collections::{HashMap, VecDeque},
    io,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use profiler_addresses::RuntimeAddress;
use profiler_common::unwind::{MappingEntry, MappingFlags};
use profiler_processes::{
    AddressSpace, Backing, FileId, Mapping, ProcFs, SidebandEvent, SidebandEventKind, maps,
    root_directory::RootDirectory,
};

use super::table_cache::{TableCache, TableKey};
use crate::sampler::ebpf::{InstallError, InstalledMappings, UnwindMaps, monotonic_ns};

/// Bounds of the back-off between two reads of `/proc/PID/maps`. It doubles when the mappings are unchanged, or when
/// they exceed the capacity of the BPF maps.
const MAX_READ_INTERVAL: Duration = Duration::from_secs(10);
const MIN_READ_INTERVAL: Duration = Duration::from_millis(20);

/// The time after which finished tables are installed before the remaining ones are built, and after which new events
/// are processed: a program maps more files while it starts.
const INSTALL_INTERVAL: Duration = Duration::from_millis(20);

/// The mappings of a process without samples for this time make place for those of another, where the BPF maps are full.
const MIN_IDLE_TIME: Duration = Duration::from_secs(10);

/// The sampled processes, their mappings and the unwind tables of their files.
#[derive(Debug)]
pub(super) struct MappingInstaller {
    proc: Arc<ProcFs>,
    maps: UnwindMaps,
    tables: TableCache,
    processes: HashMap<u32, ProcessState>,
    /// Processes whose mappings may have to be installed, by their turn.
    queue: VecDeque<u32>,
    follows_forks: bool,
}

/// The state of a process.
#[derive(Clone, Debug)]
struct ProcessState {
    mappings: AddressSpace,
    /// The tables of the mapped files; `None` for a file without one.
    files: HashMap<FileId, Option<TableKey>>,
    installed: Option<Arc<InstalledProcess>>,
    /// Whether the installed mappings are incomplete or outdated.
    is_outdated: bool,
    /// Whether the process is in the queue.
    is_queued: bool,
    /// Whether its mappings exceeded the capacity of the BPF maps.
    exceeds_capacity: bool,
    read_at: Instant,
    read_interval: Duration,
    /// Whether its leader has exited, after which `/proc/PID/maps` is empty.
    leader_has_exited: bool,
}

/// Mappings to install.
#[derive(Debug, Default)]
struct Entries {
    entries: Vec<MappingEntry>,
    /// The tables that the entries refer to, with a reference each.
    tables: Vec<TableKey>,
    /// Whether the tables of all files have been built.
    is_complete: bool,
}

/// Installed mappings of a process, shared with forked children as long as theirs are equal.
#[derive(Debug)]
struct InstalledProcess {
    mappings: InstalledMappings,
    tables: Vec<TableKey>,
}

impl MappingInstaller {
    /// An installer without processes.
    pub(super) fn new(maps: UnwindMaps, follows_forks: bool) -> io::Result<Self> {
        let proc = Arc::new(ProcFs::live());
        let host = RootDirectory::open(Path::new("/"))?;
        let tables = TableCache::new(Arc::clone(&proc), host);
        // A child whose mappings the unwinder finds by itself needs none of its parent.
        let follows_forks = follows_forks && !maps.searches_vmas();
        Ok(Self { proc, maps, tables, processes: HashMap::new(), queue: VecDeque::new(), follows_forks })
    }

    /// Whether there are tables that no process maps.
    pub(super) fn has_unused_tables(&self) -> bool {
        self.tables.has_unused()
    }

    /// Reads the mappings of a process that will be sampled.
    pub(super) fn prefetch(&mut self, pid: u32) {
        if let Some(mappings) = self.read_mappings(pid) {
            self.processes.insert(pid, ProcessState::new(AddressSpace::from_snapshot(mappings)));
            self.enqueue(pid);
        }
    }

    /// Applies a sideband event.
    pub(super) fn apply(&mut self, event: SidebandEvent) {
        let SidebandEvent { time_ns, pid, tid, kind } = event;
        match kind {
            SidebandEventKind::Map(mapping) => self.map(pid, mapping, time_ns),
            SidebandEventKind::Execute(_) => self.execute(pid),
            SidebandEventKind::Fork { parent } if self.follows_forks => self.fork(pid, parent),
            SidebandEventKind::Exit => self.exit(pid, tid),
            _ => {}
        }
    }

    /// Reads the mappings of a process again, because the BPF unwinder met code without an unwind table in it.
    pub(super) fn handle_unknown_code(&mut self, pid: u32) {
        let Some(process) = self.processes.get(&pid) else { return self.prefetch(pid) };
        if process.leader_has_exited || process.read_at.elapsed() >= process.read_interval {
            self.reread(pid);
        }
    }

    /// Reads the mappings of all processes again, after lost events.
    pub(super) fn resync(&mut self) {
        // Children whose fork event was lost may refer to mappings that will be removed.
        for pid in self.maps.processes().unwrap_or_default() {
            if !self.processes.contains_key(&pid) {
                self.uninstall(pid);
            }
        }
        let known = self.processes.iter().filter(|(_, process)| !process.exceeds_capacity);
        let pids: Vec<u32> = known.map(|(pid, _)| *pid).collect();
        for pid in pids {
            self.reread(pid);
        }
    }

    /// Whether mappings may have to be installed.
    pub(super) fn is_outdated(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Installs outdated mappings, for [`INSTALL_INTERVAL`] or until `stop`.
    pub(super) fn install_outdated(&mut self, stop: impl Fn() -> bool) {
        let begin = Instant::now();
        while begin.elapsed() < INSTALL_INTERVAL && !stop() {
            let Some(pid) = self.next_outdated() else { break };
            let result = match self.install_process(pid, &stop) {
                Err(InstallError::CapacityExceeded) if self.evict_idle() => self.install_process(pid, &stop),
                result => result,
            };
            if let Err(error) = result {
                self.suspend(pid, &error);
            }
        }
    }

    /// Evicts the mappings of processes that had no samples for [`MIN_IDLE_TIME`]. Returns whether it evicted any. The next
    /// sample of such a process requests its mappings again.
    fn evict_idle(&mut self) -> bool {
        let idle_since_ns = monotonic_ns().saturating_sub(MIN_IDLE_TIME.as_nanos() as u64);
        let installed = self.processes.iter().filter(|(_, process)| process.installed.is_some());
        let used_ns = |pid| self.maps.process_used_ns(pid).unwrap_or(0);
        let idle: Vec<u32> =
            installed.map(|(pid, _)| *pid).filter(|pid| used_ns(*pid) < idle_since_ns).collect();
        for pid in &idle {
            self.remove(*pid);
        }
        !idle.is_empty()
    }

    /// Evicts tables that were not used for some time.
    pub(super) fn evict_unused_tables(&mut self) {
        self.tables.evict_unused(&mut self.maps, Instant::now());
    }

    /// The next outdated process, round-robin.
    fn next_outdated(&mut self) -> Option<u32> {
        loop {
            let pid = self.queue.pop_front()?;
            // It has ended otherwise.
            let Some(process) = self.processes.get_mut(&pid).filter(|process| process.is_queued) else {
                continue;
            };
            process.is_queued = process.needs_install();
            if process.is_queued {
                self.queue.push_back(pid);
                return Some(pid);
            }
        }
    }

    /// Gives a process a turn, if its mappings have to be installed.
    fn enqueue(&mut self, pid: u32) {
        if let Some(process) = self.processes.get_mut(&pid)
            && process.needs_install()
            && !process.is_queued
        {
            process.is_queued = true;
            self.queue.push_back(pid);
        }
    }

    fn map(&mut self, pid: u32, mapping: Mapping, time_ns: u64) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if let Backing::File { id, .. } = &mapping.backing {
            // The file may have been modified since its table was built.
            process.files.remove(id);
        }
        // A mapping beyond the limit is found when the mappings are read again.
        process.mappings.insert(mapping, time_ns);
        process.mappings.discard_replaced();
        process.is_outdated = true;
        if !process.exceeds_capacity {
            // More mappings will follow.
            process.read_interval = MIN_READ_INTERVAL;
        }
        self.enqueue(pid);
    }

    fn execute(&mut self, pid: u32) {
        if self.processes.contains_key(&pid) {
            self.remove(pid);
            // Otherwise the BPF program asks for the mappings when the process lasts.
            if !self.maps.searches_vmas() {
                self.prefetch(pid);
            }
        }
    }

    fn fork(&mut self, pid: u32, parent: u32) {
        let Some(process) = self.processes.get(&parent) else { return };
        let child = ProcessState {
            read_at: Instant::now(),
            read_interval: MIN_READ_INTERVAL,
            leader_has_exited: false,
            is_queued: false,
            ..process.clone()
        };
        self.remove(pid);
        let installed = child.installed.clone();
        self.processes.insert(pid, child);
        self.enqueue(pid);
        if let Some(installed) = installed
            && let Err(error) = self.maps.set_process(pid, &installed.mappings)
        {
            self.suspend(pid, &error);
        }
    }

    /// Suspends a process after a failed installation, until a sample needs its mappings and the back-off has passed.
    fn suspend(&mut self, pid: u32, error: &InstallError) {
        log::info!("the stacks of process {pid} are unwound by frame pointer: {error}");
        if let Some(process) = self.processes.get_mut(&pid) {
            process.exceeds_capacity = true;
        }
    }

    /// A process ends with its last thread, which need not be the leader.
    fn exit(&mut self, pid: u32, tid: u32) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.leader_has_exited |= pid == tid;
        // From Linux 6.16 on, the address space is torn down after the event. The BPF program reports the end.
        if process.leader_has_exited && has_ended(&self.proc, pid) {
            self.remove(pid);
        }
    }

    fn remove(&mut self, pid: u32) {
        let Some(process) = self.processes.remove(&pid) else { return };
        self.uninstall(pid);
        self.release(process.installed);
    }

    /// Makes `bpf_get_stack` unwind the stacks of a process.
    fn uninstall(&mut self, pid: u32) {
        if let Err(error) = self.maps.remove_process(pid) {
            log::warn!("cannot remove the mappings of process {pid}: {error}");
        }
    }

    fn reread(&mut self, pid: u32) {
        if self.processes.get(&pid).is_some_and(|process| process.leader_has_exited) {
            if has_ended(&self.proc, pid) {
                self.remove(pid);
            }
            return;
        }
        let Some(mappings) = self.read_mappings(pid) else { return self.remove(pid) };
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let is_unchanged = process.mappings.current().eq(mappings.iter());
        process.read_at = Instant::now();
        let backs_off = is_unchanged || process.exceeds_capacity;
        process.read_interval =
            if backs_off { (process.read_interval * 2).min(MAX_READ_INTERVAL) } else { MIN_READ_INTERVAL };
        if !is_unchanged {
            process.mappings = AddressSpace::from_snapshot(mappings);
        }
        process.is_outdated |= !is_unchanged || process.exceeds_capacity;
        process.exceeds_capacity = false;
        self.enqueue(pid);
    }

    /// The executable mappings of a process; `None` if they cannot be read, most often because it has ended.
    fn read_mappings(&self, pid: u32) -> Option<Vec<Mapping>> {
        let text = self.proc.read(pid, "maps");
        text.inspect_err(|error| log::debug!("cannot read the mappings of process {pid}: {error}"))
            .ok()
            .map(|text| maps::parse_executable(&text))
    }

    /// Installs the mappings of a process with the tables of their files: all, or as many as were built within
    /// [`INSTALL_INTERVAL`].
    fn install_process(&mut self, pid: u32, stop: &dyn Fn() -> bool) -> Result<(), InstallError> {
        let Entries { entries, tables, is_complete } = self.build_entries(pid, stop);
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        process.is_outdated = !is_complete;
        match install(&mut self.maps, pid, &entries) {
            Ok(mappings) => {
                if is_complete {
                    // `cargo xtask bench` reads this line.
                    log::debug!("unwind tables of process {pid} are in place: {} mappings", entries.len());
                }
                let previous = process.installed.replace(Arc::new(InstalledProcess { mappings, tables }));
                self.release(previous);
                Ok(())
            }
            Err(error) => {
                self.tables.release(&tables);
                Err(error)
            }
        }
    }

    /// The mappings of a process as the BPF program reads them, with a reference to each of their tables.
    fn build_entries(&mut self, pid: u32, stop: &dyn Fn() -> bool) -> Entries {
        let Some(process) = self.processes.get_mut(&pid) else { return Entries::default() };
        let tables = &mut self.tables;
        // Files that are no longer mapped are dropped.
        let known = std::mem::take(&mut process.files);
        let known: HashMap<_, _> =
            known.into_iter().filter(|(_, key)| key.is_none_or(|key| tables.contains(key))).collect();
        let mut entries = Vec::new();
        let mut keys = Vec::new();
        let (begin, mut built_tables, mut is_complete) = (Instant::now(), 0, true);
        for mapping in process.mappings.current().filter(|mapping| is_unwound(mapping)) {
            let key = match &mapping.backing {
                Backing::File { id, .. } => {
                    let cached = process.files.get(id).or_else(|| known.get(id)).copied();
                    let is_late = built_tables > 0 && begin.elapsed() >= INSTALL_INTERVAL;
                    is_complete &= cached.is_some() || !is_late;
                    let table = match cached {
                        None if is_late || stop() => None,
                        None => {
                            built_tables += 1;
                            Some(tables.table_for_mapping(&mut self.maps, pid, mapping, stop))
                        }
                        cached => cached,
                    };
                    table.and_then(|key| {
                        process.files.insert(*id, key);
                        key
                    })
                }
                Backing::Vdso => tables.vdso(&mut self.maps, stop),
                Backing::Jit | Backing::DotnetJit | Backing::Special(_) => None,
            };
            let entry = key.and_then(|key| tables.mapping_entry(key, mapping));
            if let (Some(key), Some(_)) = (key, entry) {
                tables.retain(key);
                keys.push(key);
            }
            push_merged(&mut entries, entry.unwrap_or_else(|| without_table(mapping)));
        }
        if keys.iter().any(|key| tables.is_managed(*key)) {
            // A process with precompiled .NET code has JIT code as well.
            let jit_code = entries.iter_mut().filter(|entry| entry.pages == 0);
            jit_code.for_each(|entry| entry.flags |= MappingFlags::SCAN_EPILOGUES);
        }
        Entries { entries, tables: keys, is_complete }
    }

    /// Removes installed mappings, unless another process shares them.
    fn release(&mut self, installed: Option<Arc<InstalledProcess>>) {
        if let Some(installed) = installed.and_then(Arc::into_inner) {
            self.maps.remove_mappings(installed.mappings);
            self.tables.release(&installed.tables);
        }
    }
}

fn install(
    maps: &mut UnwindMaps,
    pid: u32,
    entries: &[MappingEntry],
) -> Result<InstalledMappings, InstallError> {
    let mappings = maps.add_mappings(entries)?;
    match maps.set_process(pid, &mappings) {
        Ok(()) => Ok(mappings),
        Err(error) => {
            maps.remove_mappings(mappings);
            Err(error)
        }
    }
}

impl ProcessState {
    fn new(mappings: AddressSpace) -> Self {
        Self {
            mappings,
            files: HashMap::new(),
            installed: None,
            is_outdated: true,
            is_queued: false,
            exceeds_capacity: false,
            read_at: Instant::now(),
            read_interval: MIN_READ_INTERVAL,
            leader_has_exited: false,
        }
    }

    /// Whether its mappings have to be installed.
    fn needs_install(&self) -> bool {
        self.is_outdated && !self.exceeds_capacity
    }
}

/// Whether a process whose leader has exited has no other threads, and no code that runs for it in the kernel: it is
/// gone, or a zombie (proc_pid_status(5)).
fn has_ended(proc: &ProcFs, pid: u32) -> bool {
    let Ok(status) = proc.read(pid, "status") else { return true };
    let field = |name: &[u8]| {
        let value = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name));
        value.map(<[u8]>::trim_ascii).unwrap_or_default()
    };
    matches!(field(b"State:").first(), Some(b'Z' | b'X')) && field(b"Threads:") == b"1"
}

/// Whether the BPF unwinder unwinds a mapping; `[vsyscall]` is in the kernel's half of the address space.
fn is_unwound(mapping: &Mapping) -> bool {
    mapping.start < RuntimeAddress::KERNEL_START
}

fn without_table(mapping: &Mapping) -> MappingEntry {
    MappingEntry { start: mapping.start.0, end: mapping.end.0, ..MappingEntry::default() }
}

/// Adds an entry. Adjacent entries without a table are merged, because runtimes map JIT code in many small pieces.
fn push_merged(entries: &mut Vec<MappingEntry>, entry: MappingEntry) {
    match entries.last_mut() {
        Some(last) if last.end == entry.start && last.pages == 0 && entry.pages == 0 => last.end = entry.end,
        _ => entries.push(entry),
    }
}

#[cfg(test)]
mod tests;
