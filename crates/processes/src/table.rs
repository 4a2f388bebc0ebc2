//! The process table: finds the process of a sample by PID and time, and applies sideband events.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
};

use profiler_addresses::RuntimeAddress;

use crate::{
    AddressSpace, Backing, LookupError, Mapping, ProcFs, SidebandEvent, SidebandEventKind, Status, cgroup,
    maps, root_directory::RootDirectory, status,
};

/// Processes in the table. The limit bounds the profiler's memory when a target forks without end.
const MAX_PROCESSES: usize = 64 * 1024;

/// Identifies a [`Process`] in a [`ProcessTable`]. A process has another key after an exec, and so has a new process with
/// a reused PID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessKey(u32);

/// A process from its fork or exec to its exit or next exec.
#[derive(Debug)]
pub struct Process {
    /// Identifies it in the table.
    pub key: ProcessKey,
    /// Process id in the profiler's PID namespace.
    pub pid: u32,
    /// Name of the leader thread.
    pub comm: String,
    /// Attributes from `/proc`; `None` when the process ended before they were read.
    pub identity: Option<Arc<Identity>>,
    mappings: Mappings,
    parent: Option<u32>,
    /// Time of the fork or exec, `CLOCK_MONOTONIC`; 0 when the profiler did not see it.
    since_ns: u64,
    /// Time of the exit or next exec, `CLOCK_MONOTONIC`.
    until_ns: Option<u64>,
    is_sampled: bool,
}

/// Attributes of a process that are read from `/proc` once, at its first sample.
#[derive(Debug)]
pub struct Identity {
    /// From `/proc/PID/status`.
    pub status: Status,
    /// Start time, clock ticks since boot.
    pub start_ticks: u64,
    /// Start time, nanoseconds since 1970-01-01 UTC, with the resolution of a clock tick.
    pub started_unix_ns: u64,
    /// The initial environment (`NAME=VALUE`, each terminated by a zero byte); empty when it cannot be read.
    pub environment: Vec<u8>,
    /// Id of the container, when the path of the cgroup contains one.
    pub container: Option<String>,
    /// The root directory; `None` when it cannot be opened.
    pub root: Option<Arc<RootDirectory>>,
}

#[derive(Debug)]
enum Mappings {
    /// Not read yet.
    Unread,
    Known(AddressSpace),
    Unavailable(LookupError),
}

impl Process {
    /// Finds the mapping that contains an address at a time (`CLOCK_MONOTONIC`).
    ///
    /// # Errors
    /// When the process has no mapping there or its mappings could not be read.
    pub fn find_mapping(&self, address: RuntimeAddress, time_ns: u64) -> Result<&Arc<Mapping>, LookupError> {
        match &self.mappings {
            Mappings::Known(space) => space.find(address, time_ns).ok_or(LookupError::NoMapping),
            Mappings::Unavailable(error) => Err(*error),
            Mappings::Unread => Err(LookupError::NoMapping),
        }
    }

    /// The generation of the mappings at a time, as [`AddressSpace::generation`].
    pub fn mapping_generation(&self, time_ns: u64) -> usize {
        match &self.mappings {
            Mappings::Known(space) => space.generation(time_ns),
            _ => 0,
        }
    }

    /// Checks that the mappings were read.
    ///
    /// # Errors
    /// When the process ended before, or the profiler had no permission.
    pub fn check_readable(&self) -> Result<(), LookupError> {
        match &self.mappings {
            Mappings::Known(_) => Ok(()),
            Mappings::Unavailable(error) => Err(*error),
            Mappings::Unread => Err(LookupError::ProcessGone),
        }
    }

    /// The current executable mappings, by address.
    pub fn mappings(&self) -> impl Iterator<Item = &Mapping> {
        let space = if let Mappings::Known(space) = &self.mappings { Some(space) } else { None };
        space.into_iter().flat_map(AddressSpace::current)
    }

    /// The paths of the files that are mapped executable.
    pub fn mapped_files(&self) -> impl Iterator<Item = &str> {
        self.mappings().filter_map(|mapping| match &mapping.backing {
            Backing::File { path, .. } => Some(&**path),
            _ => None,
        })
    }

    /// Whether the process has exited or executed another program.
    pub fn has_ended(&self) -> bool {
        self.until_ns.is_some()
    }
}

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
}

/// All processes that sideband events or samples have referred to, including those that have ended, until they are
/// evicted.
#[derive(Debug)]
pub struct ProcessTable {
    proc: Arc<ProcFs>,
    filter: ProcessFilter,
    processes: HashMap<ProcessKey, Process>,
    /// The processes that had a PID, oldest first. Never empty.
    by_pid: HashMap<u32, Vec<ProcessKey>>,
    next_key: u32,
}

impl ProcessTable {
    /// An empty table of the processes that pass `filter`. Attributes and mappings are read from `proc`.
    pub fn new(proc: Arc<ProcFs>, filter: ProcessFilter) -> Self {
        Self { proc, filter, processes: HashMap::new(), by_pid: HashMap::new(), next_key: 0 }
    }

    /// The process with a key, unless it was evicted.
    pub fn get(&self, key: ProcessKey) -> Option<&Process> {
        self.processes.get(&key)
    }

    /// Whether an event refers to a process that passes the filter.
    pub fn is_relevant(&self, event: &SidebandEvent) -> bool {
        match (&event.kind, &self.filter) {
            (SidebandEventKind::Fork { parent }, ProcessFilter::Only { pids, children }) => {
                *children && pids.contains(parent)
            }
            _ => self.passes_filter(event.pid),
        }
    }

    /// Applies a sideband event. Events must be in time order.
    pub fn apply(&mut self, event: SidebandEvent) {
        let SidebandEvent { time_ns, pid, tid, kind } = event;
        match kind {
            SidebandEventKind::Fork { parent } => self.fork(pid, parent, time_ns),
            _ if !self.passes_filter(pid) => {}
            SidebandEventKind::Map(mapping) => self.map(pid, mapping, time_ns),
            SidebandEventKind::Rename(comm) if pid == tid => self.rename(pid, comm),
            SidebandEventKind::Execute(comm) => self.execute(pid, &comm, time_ns),
            SidebandEventKind::Exit if pid == tid => self.exit(pid, time_ns),
            SidebandEventKind::Rename(_) | SidebandEventKind::StartThread | SidebandEventKind::Exit => {}
        }
    }

    /// The process that had this PID at the time of a sample. At the first sample of a process, its attributes and
    /// mappings are read from `/proc`. `comm` is its name if `/proc` does not show one any more.
    pub fn process_of_sample(&mut self, pid: u32, time_ns: u64, comm: &str) -> ProcessKey {
        let key = self.find_at(pid, time_ns).unwrap_or_else(|| self.add(pid, comm, 0, None));
        self.read_once(key, comm);
        key
    }

    /// Reads the attributes and mappings of a process before its first sample.
    pub fn prefetch(&mut self, pid: u32) {
        let key = self.find_at(pid, u64::MAX).unwrap_or_else(|| self.add(pid, "", 0, None));
        self.read_once(key, "");
    }

    /// Evicts processes that ended before `time_ns` and were not sampled.
    pub fn evict_unsampled(&mut self, time_ns: u64) {
        self.evict(|process| !process.is_sampled && process.until_ns.is_some_and(|until| until < time_ns));
    }

    /// Evicts processes that have ended, and marks the others as not sampled.
    pub fn evict_ended(&mut self) {
        self.evict(Process::has_ended);
        for process in self.processes.values_mut() {
            process.is_sampled = false;
        }
    }

    fn evict(&mut self, is_evicted: impl Fn(&Process) -> bool) {
        self.processes.retain(|_, process| !is_evicted(process));
        let processes = &self.processes;
        self.by_pid.retain(|_, keys| {
            keys.retain(|key| processes.contains_key(key));
            !keys.is_empty()
        });
    }

    fn passes_filter(&self, pid: u32) -> bool {
        match &self.filter {
            ProcessFilter::All => true,
            ProcessFilter::Only { pids, .. } => pids.contains(&pid),
        }
    }

    fn fork(&mut self, pid: u32, parent: u32, time_ns: u64) {
        if let ProcessFilter::Only { pids, children } = &mut self.filter {
            if !*children || !pids.contains(&parent) || pids.len() >= MAX_PROCESSES {
                return;
            }
            pids.insert(pid);
        }
        let inherited = self.latest(parent).map(|parent| {
            let mappings = match &parent.mappings {
                Mappings::Known(space) => Mappings::Known(space.clone()),
                _ => Mappings::Unread,
            };
            (parent.comm.clone(), mappings)
        });
        let (comm, mappings) = inherited.unwrap_or((String::new(), Mappings::Unread));
        self.end(pid, time_ns);
        let key = self.add(pid, &comm, time_ns, Some(parent));
        self.set_mappings(key, mappings);
    }

    fn map(&mut self, pid: u32, mapping: Mapping, time_ns: u64) {
        // Mappings that were not read yet will include this one.
        if let Some(Process { mappings: Mappings::Known(space), .. }) = self.latest_mut(pid) {
            space.insert(mapping, time_ns);
        }
    }

    fn rename(&mut self, pid: u32, comm: String) {
        if let Some(process) = self.latest_mut(pid) {
            process.comm = comm;
        }
    }

    fn execute(&mut self, pid: u32, comm: &str, time_ns: u64) {
        self.end(pid, time_ns);
        let key = self.add(pid, comm, time_ns, None);
        self.set_mappings(key, Mappings::Known(AddressSpace::default()));
    }

    fn exit(&mut self, pid: u32, time_ns: u64) {
        self.end(pid, time_ns);
        if let ProcessFilter::Only { pids, children: true } = &mut self.filter {
            pids.remove(&pid);
        }
    }

    fn end(&mut self, pid: u32, time_ns: u64) {
        if let Some(process) = self.latest_mut(pid) {
            process.until_ns.get_or_insert(time_ns);
        }
    }

    fn find_at(&self, pid: u32, time_ns: u64) -> Option<ProcessKey> {
        let keys = self.by_pid.get(&pid)?;
        let at = keys
            .iter()
            .rev()
            .find(|key| self.processes.get(key).is_some_and(|process| process.since_ns <= time_ns));
        at.or(keys.first()).copied()
    }

    fn latest(&self, pid: u32) -> Option<&Process> {
        self.processes.get(self.by_pid.get(&pid)?.last()?)
    }

    fn latest_mut(&mut self, pid: u32) -> Option<&mut Process> {
        self.processes.get_mut(self.by_pid.get(&pid)?.last()?)
    }

    fn add(&mut self, pid: u32, comm: &str, since_ns: u64, parent: Option<u32>) -> ProcessKey {
        if self.processes.len() >= MAX_PROCESSES {
            self.evict(|process| process.until_ns.is_some() && !process.is_sampled);
        }
        let key = ProcessKey(self.next_key);
        self.next_key = self.next_key.wrapping_add(1);
        let process = Process {
            key,
            pid,
            comm: comm.to_owned(),
            identity: None,
            mappings: Mappings::Unread,
            parent,
            since_ns,
            until_ns: None,
            is_sampled: false,
        };
        self.processes.insert(key, process);
        self.by_pid.entry(pid).or_default().push(key);
        key
    }

    fn set_mappings(&mut self, key: ProcessKey, mappings: Mappings) {
        if let Some(process) = self.processes.get_mut(&key) {
            process.mappings = mappings;
        }
    }

    /// Reads the attributes and mappings of a process at its first sample.
    fn read_once(&mut self, key: ProcessKey, comm: &str) {
        let Some(process) = self.processes.get_mut(&key) else { return };
        if process.is_sampled {
            return;
        }
        process.is_sampled = true;
        let (pid, parent) = (process.pid, process.parent);
        let unread = matches!(process.mappings, Mappings::Unread);
        // The PID of a process that has ended may belong to another process.
        let ended = process.has_ended();
        let identity = if ended || process.identity.is_some() { None } else { self.read_identity(pid) };
        let mappings = match (unread, ended) {
            (false, _) => None,
            (true, true) => Some(self.mappings_of_parent(parent)),
            (true, false) => Some(self.read_mappings(pid).unwrap_or_else(|error| match error {
                LookupError::ProcessGone => self.mappings_of_parent(parent),
                _ => Mappings::Unavailable(error),
            })),
        };
        let name = if ended { None } else { self.read_comm(pid) };
        let Some(process) = self.processes.get_mut(&key) else { return };
        if let Some(identity) = identity {
            process.identity = Some(Arc::new(identity));
        }
        if let Some(mappings) = mappings {
            process.mappings = mappings;
        }
        match name {
            Some(name) => process.comm = name,
            None if process.comm.is_empty() => comm.clone_into(&mut process.comm),
            None => {}
        }
    }

    fn read_identity(&self, pid: u32) -> Option<Identity> {
        let text = |entry| Some(String::from_utf8_lossy(&self.proc.read(pid, entry).ok()?).into_owned());
        let start_ticks = status::parse_start_ticks(&text("stat")?)?;
        Some(Identity {
            status: Status::parse(&text("status")?)?,
            start_ticks,
            started_unix_ns: status::ticks_to_unix_ns(start_ticks),
            environment: self.proc.read(pid, "environ").unwrap_or_default(),
            container: self.proc.read(pid, "cgroup").ok().and_then(|text| cgroup::container_id_of(&text)),
            root: self.proc.root(pid).ok().map(Arc::new),
        })
    }

    fn read_comm(&self, pid: u32) -> Option<String> {
        let bytes = self.proc.read(pid, "comm").ok()?;
        Some(String::from_utf8_lossy(bytes.strip_suffix(b"\n").unwrap_or(&bytes)).into_owned())
    }

    fn read_mappings(&self, pid: u32) -> Result<Mappings, LookupError> {
        let text = self.proc.read(pid, "maps").map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => LookupError::NotReadable,
            _ => LookupError::ProcessGone,
        })?;
        Ok(Mappings::Known(AddressSpace::from_snapshot(maps::parse_executable(&text))))
    }

    /// A child that ended before its mappings were read had those of its parent. After an exec, its mappings are known
    /// from sideband events.
    fn mappings_of_parent(&self, parent: Option<u32>) -> Mappings {
        let known = parent.and_then(|parent| self.latest(parent)).and_then(|parent| match &parent.mappings {
            Mappings::Known(space) => Some(space.clone()),
            _ => None,
        });
        let space = known.map(Mappings::Known).or_else(|| self.read_mappings(parent?).ok());
        space.unwrap_or(Mappings::Unavailable(LookupError::ProcessGone))
    }
}

#[cfg(test)]
mod tests;
