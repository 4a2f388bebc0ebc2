//! Which process a sample belongs to: every process that was seen, over time.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
};

use super::{
    AddressSpace, Backing, Mapping, ProcFs, SidebandEvent, SidebandEventKind, Status, cgroup, maps,
    root_directory::RootDirectory, status,
};
use profiler_addresses::RuntimeAddress;
use profiler_profile::Reason;

/// How many processes are kept at once; a fork bomb must not cost the profiler its memory.
const MAX_PROCESSES: usize = 64 * 1024;

/// Names one run of one program by one process: a reused pid is another, and so is the same process after
/// an exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessKey(u32);

/// One run of one program by one process.
#[derive(Debug)]
pub struct Process {
    /// Names it.
    pub key: ProcessKey,
    /// Process id in the profiler's pid namespace.
    pub pid: u32,
    /// The name of its first thread.
    pub comm: String,
    /// Who it is; `None` when it was gone before it could be asked.
    pub identity: Option<Arc<Identity>>,
    memory: Memory,
    parent: Option<u32>,
    since_ns: u64,
    until_ns: Option<u64>,
    sampled: bool,
}

/// What a process is asked once.
#[derive(Debug)]
pub struct Identity {
    /// From `/proc/PID/status`.
    pub status: Status,
    /// When it started, clock ticks since boot.
    pub start_ticks: u64,
    /// When it started, nanoseconds since 1970-01-01 UTC, as exact as a clock tick.
    pub started_unix_ns: u64,
    /// Its environment as it was started with; empty when it cannot be read.
    pub environment: Vec<u8>,
    /// The id of the container it is in, as far as its cgroup says.
    pub container: Option<String>,
    /// Its root directory; `None` when it cannot be opened.
    pub root: Option<Arc<RootDirectory>>,
}

#[derive(Debug)]
enum Memory {
    /// Nobody asked yet.
    Unread,
    Known(AddressSpace),
    Unknown(Reason),
}

impl Process {
    /// The mapping at an address at a time, or why there is none.
    pub fn find(&self, address: RuntimeAddress, time_ns: u64) -> Result<&Arc<Mapping>, Reason> {
        match &self.memory {
            Memory::Known(space) => space.find(address, time_ns).ok_or(Reason::NoMapping),
            Memory::Unknown(reason) => Err(*reason),
            Memory::Unread => Err(Reason::NoMapping),
        }
    }

    /// As [`AddressSpace::arrangement`].
    pub fn arrangement(&self, time_ns: u64) -> usize {
        match &self.memory {
            Memory::Known(space) => space.arrangement(time_ns),
            _ => 0,
        }
    }

    /// Whether its mappings could be read, or why not.
    pub fn is_readable(&self) -> Result<(), Reason> {
        match &self.memory {
            Memory::Known(_) => Ok(()),
            Memory::Unknown(reason) => Err(*reason),
            Memory::Unread => Err(Reason::ProcessGone),
        }
    }

    /// What it has mapped to execute now.
    pub fn mappings(&self) -> impl Iterator<Item = &Mapping> {
        let space = if let Memory::Known(space) = &self.memory { Some(space) } else { None };
        space.into_iter().flat_map(AddressSpace::current)
    }

    /// The paths of the files that it has mapped to execute.
    pub fn mapped_files(&self) -> impl Iterator<Item = &str> {
        self.mappings().filter_map(|mapping| match &mapping.backing {
            Backing::File { path, .. } => Some(&**path),
            _ => None,
        })
    }

    /// Whether it has ended, or executes another program now.
    pub fn has_ended(&self) -> bool {
        self.until_ns.is_some()
    }
}

/// Whose events are worth keeping.
#[derive(Clone, Debug)]
pub enum ProcessFilter {
    /// Anybody can be sampled.
    All,
    /// These can, and their children where children are followed.
    Only {
        /// Process ids.
        pids: HashSet<u32>,
        /// Whether forked children join.
        children: bool,
    },
}

/// Every process that was seen.
#[derive(Debug)]
pub struct ProcessTable {
    proc: Arc<ProcFs>,
    interest: ProcessFilter,
    processes: HashMap<ProcessKey, Process>,
    /// The runs of a pid, oldest first. Never empty.
    by_pid: HashMap<u32, Vec<ProcessKey>>,
    next_key: u32,
}

impl ProcessTable {
    /// An empty table that asks `proc`.
    pub fn new(proc: Arc<ProcFs>, interest: ProcessFilter) -> Self {
        Self { proc, interest, processes: HashMap::new(), by_pid: HashMap::new(), next_key: 0 }
    }

    /// A process that was seen.
    pub fn get(&self, key: ProcessKey) -> Option<&Process> {
        self.processes.get(&key)
    }

    /// Whether an event tells of a process that can be sampled, as far as is known when it happens.
    pub fn concerns(&self, event: &SidebandEvent) -> bool {
        match (&event.kind, &self.interest) {
            (SidebandEventKind::Fork { parent }, ProcessFilter::Only { pids, children }) => {
                *children && pids.contains(parent)
            }
            _ => self.is_interesting(event.pid),
        }
    }

    /// Applies what the side band told. Events must come by time.
    pub fn apply(&mut self, event: SidebandEvent) {
        let SidebandEvent { time_ns, pid, tid, kind } = event;
        match kind {
            SidebandEventKind::Fork { parent } => self.fork(pid, parent, time_ns),
            _ if !self.is_interesting(pid) => {}
            SidebandEventKind::Map(mapping) => self.map(pid, mapping, time_ns),
            SidebandEventKind::Rename(comm) if pid == tid => self.rename(pid, comm),
            SidebandEventKind::Execute(comm) => self.execute(pid, &comm, time_ns),
            SidebandEventKind::Exit if pid == tid => self.exit(pid, time_ns),
            SidebandEventKind::Rename(_) | SidebandEventKind::StartThread | SidebandEventKind::Exit => {}
        }
    }

    /// The process that had this id at this time, asked for its mappings at first sight. `comm` names it
    /// when it cannot be asked any more.
    pub fn sampled(&mut self, pid: u32, time_ns: u64, comm: &str) -> ProcessKey {
        let key = self.run_at(pid, time_ns).unwrap_or_else(|| self.add(pid, comm, 0, None));
        self.look_at(key, comm);
        key
    }

    /// Asks the process now, before it is sampled, so that nothing has to be asked of it later.
    pub fn expect(&mut self, pid: u32) {
        let key = self.run_at(pid, u64::MAX).unwrap_or_else(|| self.add(pid, "", 0, None));
        self.look_at(key, "");
    }

    /// Forgets processes that ended before `time_ns` and were never sampled: nobody will ask for them.
    pub fn forget_unsampled(&mut self, time_ns: u64) {
        self.forget(|process| !process.sampled && process.until_ns.is_some_and(|until| until < time_ns));
    }

    /// Forgets processes that ended, and that the others were sampled.
    pub fn forget_ended(&mut self) {
        self.forget(Process::has_ended);
        for process in self.processes.values_mut() {
            process.sampled = false;
        }
    }

    fn forget(&mut self, gone: impl Fn(&Process) -> bool) {
        self.processes.retain(|_, process| !gone(process));
        let processes = &self.processes;
        self.by_pid.retain(|_, runs| {
            runs.retain(|key| processes.contains_key(key));
            !runs.is_empty()
        });
    }

    fn is_interesting(&self, pid: u32) -> bool {
        match &self.interest {
            ProcessFilter::All => true,
            ProcessFilter::Only { pids, .. } => pids.contains(&pid),
        }
    }

    fn fork(&mut self, pid: u32, parent: u32, time_ns: u64) {
        if let ProcessFilter::Only { pids, children } = &mut self.interest {
            if !*children || !pids.contains(&parent) || pids.len() >= MAX_PROCESSES {
                return;
            }
            pids.insert(pid);
        }
        let inherited = self.last_run(parent).map(|parent| {
            let memory = match &parent.memory {
                Memory::Known(space) => Memory::Known(space.clone()),
                _ => Memory::Unread,
            };
            (parent.comm.clone(), memory)
        });
        let (comm, memory) = inherited.unwrap_or((String::new(), Memory::Unread));
        self.end(pid, time_ns);
        let key = self.add(pid, &comm, time_ns, Some(parent));
        self.set_memory(key, memory);
    }

    fn map(&mut self, pid: u32, mapping: Mapping, time_ns: u64) {
        // What nobody asked for yet will be in the answer.
        if let Some(Process { memory: Memory::Known(space), .. }) = self.last_run_mut(pid) {
            space.insert(mapping, time_ns);
        }
    }

    fn rename(&mut self, pid: u32, comm: String) {
        if let Some(process) = self.last_run_mut(pid) {
            process.comm = comm;
        }
    }

    fn execute(&mut self, pid: u32, comm: &str, time_ns: u64) {
        self.end(pid, time_ns);
        let key = self.add(pid, comm, time_ns, None);
        self.set_memory(key, Memory::Known(AddressSpace::default()));
    }

    fn exit(&mut self, pid: u32, time_ns: u64) {
        self.end(pid, time_ns);
        if let ProcessFilter::Only { pids, children: true } = &mut self.interest {
            pids.remove(&pid);
        }
    }

    fn end(&mut self, pid: u32, time_ns: u64) {
        if let Some(process) = self.last_run_mut(pid) {
            process.until_ns.get_or_insert(time_ns);
        }
    }

    fn run_at(&self, pid: u32, time_ns: u64) -> Option<ProcessKey> {
        let runs = self.by_pid.get(&pid)?;
        let at =
            runs.iter().rev().find(|key| self.processes.get(key).is_some_and(|run| run.since_ns <= time_ns));
        at.or(runs.first()).copied()
    }

    fn last_run(&self, pid: u32) -> Option<&Process> {
        self.processes.get(self.by_pid.get(&pid)?.last()?)
    }

    fn last_run_mut(&mut self, pid: u32) -> Option<&mut Process> {
        self.processes.get_mut(self.by_pid.get(&pid)?.last()?)
    }

    fn add(&mut self, pid: u32, comm: &str, since_ns: u64, parent: Option<u32>) -> ProcessKey {
        if self.processes.len() >= MAX_PROCESSES {
            self.forget(|process| process.until_ns.is_some() && !process.sampled);
        }
        let key = ProcessKey(self.next_key);
        self.next_key = self.next_key.wrapping_add(1);
        let process = Process {
            key,
            pid,
            comm: comm.to_owned(),
            identity: None,
            memory: Memory::Unread,
            parent,
            since_ns,
            until_ns: None,
            sampled: false,
        };
        self.processes.insert(key, process);
        self.by_pid.entry(pid).or_default().push(key);
        key
    }

    fn set_memory(&mut self, key: ProcessKey, memory: Memory) {
        if let Some(process) = self.processes.get_mut(&key) {
            process.memory = memory;
        }
    }

    /// Asks what is not known yet.
    fn look_at(&mut self, key: ProcessKey, comm: &str) {
        let Some(process) = self.processes.get_mut(&key) else { return };
        if process.sampled {
            return;
        }
        process.sampled = true;
        let (pid, parent) = (process.pid, process.parent);
        let unread = matches!(process.memory, Memory::Unread);
        // A process that ended may have left its id to another one by now.
        let ended = process.has_ended();
        let identity = if ended || process.identity.is_some() { None } else { self.identify(pid) };
        let memory = match (unread, ended) {
            (false, _) => None,
            (true, true) => Some(self.memory_of_parent(parent)),
            (true, false) => Some(self.read_memory(pid).unwrap_or_else(|reason| match reason {
                Reason::ProcessGone => self.memory_of_parent(parent),
                _ => Memory::Unknown(reason),
            })),
        };
        let name = if ended { None } else { self.read_comm(pid) };
        let Some(process) = self.processes.get_mut(&key) else { return };
        if let Some(identity) = identity {
            process.identity = Some(Arc::new(identity));
        }
        if let Some(memory) = memory {
            process.memory = memory;
        }
        match name {
            Some(name) => process.comm = name,
            None if process.comm.is_empty() => comm.clone_into(&mut process.comm),
            None => {}
        }
    }

    fn identify(&self, pid: u32) -> Option<Identity> {
        let text = |entry| Some(String::from_utf8_lossy(&self.proc.read(pid, entry).ok()?).into_owned());
        let start_ticks = status::start_ticks(&text("stat")?)?;
        Some(Identity {
            status: Status::parse(&text("status")?)?,
            start_ticks,
            started_unix_ns: status::unix_ns(start_ticks),
            environment: self.proc.read(pid, "environ").unwrap_or_default(),
            container: self.proc.read(pid, "cgroup").ok().and_then(|text| cgroup::container_of(&text)),
            root: self.proc.root(pid).ok().map(Arc::new),
        })
    }

    fn read_comm(&self, pid: u32) -> Option<String> {
        let bytes = self.proc.read(pid, "comm").ok()?;
        Some(String::from_utf8_lossy(bytes.strip_suffix(b"\n").unwrap_or(&bytes)).into_owned())
    }

    fn read_memory(&self, pid: u32) -> Result<Memory, Reason> {
        let text = self.proc.read(pid, "maps").map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Reason::ProcessNotReadable,
            _ => Reason::ProcessGone,
        })?;
        Ok(Memory::Known(AddressSpace::from_snapshot(maps::parse_executable(&text))))
    }

    /// A child that ended before it could be asked ran its parent's code, unless it executed something: then
    /// its mappings are known from the side band.
    fn memory_of_parent(&self, parent: Option<u32>) -> Memory {
        let known = parent.and_then(|parent| self.last_run(parent)).and_then(|parent| match &parent.memory {
            Memory::Known(space) => Some(space.clone()),
            _ => None,
        });
        let space = known.map(Memory::Known).or_else(|| self.read_memory(parent?).ok());
        space.unwrap_or(Memory::Unknown(Reason::ProcessGone))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::FileId;
    use profiler_addresses::FileOffset;

    const STATUS: &str = "State:\tR\nTgid:\t7\nUid:\t0\t0\t0\t0\nNStgid:\t7\t1\nVmSize:\t1 kB\n";

    fn mapping(inode: u64) -> Mapping {
        let id = FileId { major: 0, minor: 1, inode };
        let backing = Backing::File { id, path: format!("/bin/{inode}").into() };
        Mapping { start: RuntimeAddress(0x1000), end: RuntimeAddress(0x2000), offset: FileOffset(0), backing }
    }

    fn write_process(directory: &Path, pid: u32, comm: &str, inode: u64) {
        let directory = directory.join(pid.to_string());
        fs::create_dir_all(directory.join("root")).unwrap();
        fs::write(directory.join("status"), STATUS).unwrap();
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        fs::write(directory.join("stat"), format!("7 (x) R {}", fields.join(" "))).unwrap();
        fs::write(directory.join("comm"), format!("{comm}\n")).unwrap();
        fs::write(directory.join("maps"), format!("1000-2000 r-xp 0 00:01 {inode} /bin/{inode}\n")).unwrap();
    }

    fn table(directory: &Path, interest: ProcessFilter) -> ProcessTable {
        ProcessTable::new(Arc::new(ProcFs::of_capture(directory.to_owned())), interest)
    }

    fn event(time_ns: u64, pid: u32, kind: SidebandEventKind) -> SidebandEvent {
        SidebandEvent { time_ns, pid, tid: pid, kind }
    }

    fn inode(table: &ProcessTable, key: ProcessKey, time_ns: u64) -> Result<u64, Reason> {
        match &table.get(key).unwrap().find(RuntimeAddress(0x1800), time_ns)?.backing {
            Backing::File { id, .. } => Ok(id.inode),
            _ => Ok(0),
        }
    }

    #[test]
    fn events_concern_targets_and_the_children_that_are_followed() {
        let directory = tempfile::tempdir().unwrap();
        for children in [false, true] {
            let interest = ProcessFilter::Only { pids: HashSet::from([7]), children };
            let mut table = table(directory.path(), interest);
            assert!(table.concerns(&event(1, 7, SidebandEventKind::Exit)));
            assert!(!table.concerns(&event(1, 9, SidebandEventKind::Fork { parent: 8 })));
            let fork = event(1, 8, SidebandEventKind::Fork { parent: 7 });
            assert_eq!(table.concerns(&fork), children);
            table.apply(fork);
            assert_eq!(table.concerns(&event(2, 8, SidebandEventKind::Exit)), children);
        }
        assert!(table(directory.path(), ProcessFilter::All).concerns(&event(1, 8, SidebandEventKind::Exit)));
    }

    #[test]
    fn a_process_is_asked_at_its_first_sample() {
        let directory = tempfile::tempdir().unwrap();
        write_process(directory.path(), 7, "app", 5);
        let mut table = table(directory.path(), ProcessFilter::All);
        let key = table.sampled(7, 100, "thread");
        assert_eq!(inode(&table, key, 100), Ok(5));
        let process = table.get(key).unwrap();
        assert_eq!(process.comm, "app");
        assert_eq!(process.identity.as_ref().unwrap().status.innermost_pid, 1);
        assert_eq!(table.sampled(7, 200, "thread"), key);
    }

    #[test]
    fn a_process_that_is_gone_keeps_the_name_of_its_sample() {
        let directory = tempfile::tempdir().unwrap();
        let mut table = table(directory.path(), ProcessFilter::All);
        let key = table.sampled(9, 100, "gone");
        assert_eq!(table.get(key).unwrap().comm, "gone");
        assert_eq!(inode(&table, key, 100), Err(Reason::ProcessGone));
    }

    #[test]
    fn an_exec_begins_another_run_whose_mappings_come_from_the_side_band() {
        let directory = tempfile::tempdir().unwrap();
        write_process(directory.path(), 7, "sh", 5);
        let mut table = table(directory.path(), ProcessFilter::All);
        let shell = table.sampled(7, 10, "sh");
        table.apply(event(50, 7, SidebandEventKind::Execute("ls".to_owned())));
        table.apply(event(51, 7, SidebandEventKind::Map(mapping(6))));
        fs::remove_dir_all(directory.path().join("7")).unwrap();
        let ls = table.sampled(7, 60, "ls");
        assert_ne!(shell, ls);
        assert_eq!(table.get(ls).unwrap().comm, "ls");
        assert_eq!(inode(&table, ls, 60), Ok(6));
        assert_eq!(table.sampled(7, 40, "sh"), shell);
        assert_eq!(inode(&table, shell, 40), Ok(5));
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let directory = tempfile::tempdir().unwrap();
        write_process(directory.path(), 7, "old", 5);
        let mut table = table(directory.path(), ProcessFilter::All);
        let old = table.sampled(7, 10, "old");
        table.apply(event(20, 7, SidebandEventKind::Exit));
        table.apply(event(30, 7, SidebandEventKind::Fork { parent: 3 }));
        let new = table.sampled(7, 40, "new");
        assert_ne!(old, new);
        assert_eq!(table.sampled(7, 15, "old"), old);
    }

    #[test]
    fn a_forked_child_that_is_gone_has_its_parents_mappings() {
        let directory = tempfile::tempdir().unwrap();
        write_process(directory.path(), 7, "app", 5);
        let mut table = table(directory.path(), ProcessFilter::All);
        table.sampled(7, 10, "app");
        table.apply(event(20, 8, SidebandEventKind::Fork { parent: 7 }));
        table.apply(event(21, 7, SidebandEventKind::Map(mapping(6))));
        table.apply(event(25, 8, SidebandEventKind::Exit));
        let child = table.sampled(8, 22, "app");
        assert_eq!(inode(&table, child, 22), Ok(5));
        assert_eq!(table.get(child).unwrap().comm, "app");
    }

    #[test]
    fn a_child_of_a_parent_that_nobody_asked_is_answered_by_the_parent() {
        let directory = tempfile::tempdir().unwrap();
        write_process(directory.path(), 7, "app", 5);
        let mut table = table(directory.path(), ProcessFilter::All);
        table.apply(event(20, 8, SidebandEventKind::Fork { parent: 7 }));
        table.apply(event(25, 8, SidebandEventKind::Exit));
        let child = table.sampled(8, 22, "app");
        assert_eq!(inode(&table, child, 22), Ok(5));
    }

    #[test]
    fn only_the_target_and_its_followed_children_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        write_process(directory.path(), 7, "app", 5);
        let pids = HashSet::from([7]);
        for (children, kept) in [(true, 2), (false, 1)] {
            let interest = ProcessFilter::Only { pids: pids.clone(), children };
            let mut table = table(directory.path(), interest);
            table.expect(7);
            table.apply(event(20, 8, SidebandEventKind::Fork { parent: 7 }));
            table.apply(event(20, 9, SidebandEventKind::Fork { parent: 3 }));
            table.apply(event(21, 9, SidebandEventKind::Execute("other".to_owned())));
            assert_eq!(table.processes.len(), kept);
        }
    }

    #[test]
    fn processes_that_nobody_sampled_are_forgotten_when_they_end() {
        let directory = tempfile::tempdir().unwrap();
        let mut table = table(directory.path(), ProcessFilter::All);
        for pid in 100..200 {
            table.apply(event(10, pid, SidebandEventKind::Fork { parent: 1 }));
            table.apply(event(20, pid, SidebandEventKind::Exit));
        }
        table.sampled(150, 15, "x");
        table.forget_unsampled(30);
        assert_eq!(table.processes.len(), 1);
        table.forget_ended();
        assert_eq!((table.processes.len(), table.by_pid.len()), (0, 0));
    }

    #[test]
    fn threads_neither_end_nor_rename_their_process() {
        let directory = tempfile::tempdir().unwrap();
        write_process(directory.path(), 7, "app", 5);
        let mut table = table(directory.path(), ProcessFilter::All);
        let key = table.sampled(7, 10, "app");
        let thread = |kind| SidebandEvent { time_ns: 20, pid: 7, tid: 8, kind };
        table.apply(thread(SidebandEventKind::Rename("worker".to_owned())));
        table.apply(thread(SidebandEventKind::Exit));
        let process = table.get(key).unwrap();
        assert_eq!(process.comm, "app");
        assert!(!process.has_ended());
    }
}
