//! The mappings of the processes that are sampled, and what of them is in the kernel.

use std::{
    collections::HashMap,
    io,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use profiler_common::unwind::{MappingEntry, MappingFlags};

use super::files::{FileKey, Files};
use crate::sampler::ebpf::{InstallError, InstalledMappings, UnwindMaps};
use profiler_addresses::RuntimeAddress;
use profiler_processes::{
    AddressSpace, Backing, FileId, Mapping, ProcFs, SidebandEvent, SidebandEventKind, maps,
    root_directory::RootDirectory,
};

/// A process whose mappings are as they were when it was asked again, or have no room in the kernel, is asked half as
/// often from then on, up to this.
const MAX_LOOK_INTERVAL: Duration = Duration::from_secs(10);
const MIN_LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// After so long of making tables, those that there are go into the kernel before the rest is made, and what happened
/// meanwhile is heard of: programs that start map more.
const PLACING_INTERVAL: Duration = Duration::from_millis(20);

/// The processes, their mappings, and the tables of the files behind them.
#[derive(Debug)]
pub(super) struct Spaces {
    proc: Arc<ProcFs>,
    maps: UnwindMaps,
    files: Files,
    spaces: HashMap<u32, Space>,
    /// Processes that are behind and have not had their turn in this round.
    round: Vec<u32>,
    follows_forks: bool,
}

/// One process.
#[derive(Clone, Debug)]
struct Space {
    mappings: AddressSpace,
    /// The tables of the files that it maps; `None` for one that has none.
    files: HashMap<FileId, Option<FileKey>>,
    placed: Option<Arc<Placed>>,
    /// Not all of its mappings are in the kernel.
    is_behind: bool,
    /// There was no room for them.
    is_refused: bool,
    looked: Instant,
    look_interval: Duration,
    /// Its first thread has ended, and took what `/proc` tells of the mappings with it.
    is_headless: bool,
}

/// Mappings to be put into the kernel.
#[derive(Debug, Default)]
struct Entries {
    entries: Vec<MappingEntry>,
    /// Whose tables they lead to: these are kept.
    files: Vec<FileKey>,
    /// Whether no table is left to be made.
    are_all: bool,
}

/// Mappings in the kernel, of one process and of its children as long as theirs are the same.
#[derive(Debug)]
struct Placed {
    mappings: InstalledMappings,
    files: Vec<FileKey>,
}

impl Spaces {
    /// No process.
    pub(super) fn new(maps: UnwindMaps, follows_forks: bool) -> io::Result<Self> {
        let proc = Arc::new(ProcFs::live());
        let host = RootDirectory::open(Path::new("/"))?;
        let files = Files::new(Arc::clone(&proc), host);
        Ok(Self { proc, maps, files, spaces: HashMap::new(), round: Vec::new(), follows_forks })
    }

    /// Whether there are tables that no process maps.
    pub(super) fn have_unused_files(&self) -> bool {
        self.files.have_unused()
    }

    /// A process will be sampled.
    pub(super) fn expect(&mut self, pid: u32) {
        if let Some(mappings) = self.read(pid) {
            self.spaces.insert(pid, Space::new(AddressSpace::from_snapshot(mappings)));
        }
    }

    /// Follows what happened to a process.
    pub(super) fn happened(&mut self, event: SidebandEvent) {
        let SidebandEvent { time_ns, pid, tid, kind } = event;
        match kind {
            SidebandEventKind::Map(mapping) => self.map(pid, mapping, time_ns),
            SidebandEventKind::Execute(_) => self.execute(pid),
            SidebandEventKind::Fork { parent } if self.follows_forks => self.fork(pid, parent),
            SidebandEventKind::Exit => self.exit(pid, tid),
            _ => {}
        }
    }

    /// A walk in a process met code that it has no table for.
    pub(super) fn unknown_code(&mut self, pid: u32) {
        let Some(space) = self.spaces.get(&pid) else { return self.expect(pid) };
        if space.looked.elapsed() < space.look_interval {
            return;
        }
        self.look_at(pid);
    }

    /// Reads the mappings of all processes again: something was not told.
    pub(super) fn look_again(&mut self) {
        // Children that were not told of have mappings that may be given back.
        for pid in self.maps.processes().unwrap_or_default() {
            if !self.spaces.contains_key(&pid) {
                self.leave(pid);
            }
        }
        let known = self.spaces.iter().filter(|(_, space)| !space.is_refused);
        let pids: Vec<u32> = known.map(|(pid, _)| *pid).collect();
        for pid in pids {
            self.look_at(pid);
        }
    }

    /// Whether the kernel lacks mappings that it has room for.
    pub(super) fn are_behind(&self) -> bool {
        self.spaces.values().any(Space::waits)
    }

    /// Brings the kernel nearer to how things are, for a [while](PLACING_INTERVAL) or until told to stop.
    pub(super) fn settle(&mut self, stop: impl Fn() -> bool) {
        let begin = Instant::now();
        while begin.elapsed() < PLACING_INTERVAL && !stop() {
            let Some(pid) = self.next_behind() else { break };
            if let Err(refusal) = self.place(pid, &stop) {
                self.refuse(pid, &refusal);
            }
        }
        self.files.free_unused(&mut self.maps, Instant::now());
    }

    /// Each has its turn before one has its next.
    fn next_behind(&mut self) -> Option<u32> {
        loop {
            match self.round.pop() {
                Some(pid) if self.spaces.get(&pid).is_some_and(Space::waits) => return Some(pid),
                Some(_) => {}
                None => {
                    let behind = self.spaces.iter().filter(|(_, space)| space.waits());
                    self.round = behind.map(|(pid, _)| *pid).collect();
                    if self.round.is_empty() {
                        return None;
                    }
                }
            }
        }
    }

    fn map(&mut self, pid: u32, mapping: Mapping, time_ns: u64) {
        let Some(space) = self.spaces.get_mut(&pid) else { return };
        if let Backing::File { id, .. } = &mapping.backing {
            // The file may have been written since it was looked at.
            space.files.remove(id);
        }
        // What does not fit is found when the mappings are read again.
        space.mappings.insert(mapping, time_ns);
        space.mappings.discard_replaced();
        space.is_behind = true;
        if !space.is_refused {
            // It has more to tell.
            space.look_interval = MIN_LOOK_INTERVAL;
        }
    }

    fn execute(&mut self, pid: u32) {
        if self.spaces.contains_key(&pid) {
            self.forget(pid);
            self.expect(pid);
        }
    }

    fn fork(&mut self, pid: u32, parent: u32) {
        let Some(space) = self.spaces.get(&parent) else { return };
        let child = Space {
            looked: Instant::now(),
            look_interval: MIN_LOOK_INTERVAL,
            is_headless: false,
            ..space.clone()
        };
        self.forget(pid);
        let placed = child.placed.clone();
        self.spaces.insert(pid, child);
        if let Some(placed) = placed
            && let Err(refusal) = self.maps.set_process(pid, &placed.mappings)
        {
            self.refuse(pid, &refusal);
        }
    }

    /// Waits with a process until a sample needs it again, and not too soon.
    fn refuse(&mut self, pid: u32, refusal: &InstallError) {
        log::info!("the stacks of process {pid} are walked by frame pointer: {refusal}");
        if let Some(space) = self.spaces.get_mut(&pid) {
            space.is_refused = true;
        }
    }

    /// A process ends with its last thread, which need not be the first one.
    fn exit(&mut self, pid: u32, tid: u32) {
        let Some(space) = self.spaces.get_mut(&pid) else { return };
        space.is_headless |= pid == tid;
        if space.is_headless && !has_other_threads(&self.proc, pid) {
            self.forget(pid);
        }
    }

    fn forget(&mut self, pid: u32) {
        let Some(space) = self.spaces.remove(&pid) else { return };
        self.leave(pid);
        self.release(space.placed);
    }

    /// Leaves the stacks of a process to the kernel's own walk.
    fn leave(&mut self, pid: u32) {
        if let Err(refusal) = self.maps.remove_process(pid) {
            log::warn!("process {pid} has ended, but {refusal}");
        }
    }

    fn look_at(&mut self, pid: u32) {
        if self.spaces.get(&pid).is_some_and(|space| space.is_headless) {
            if !has_other_threads(&self.proc, pid) {
                self.forget(pid);
            }
            return;
        }
        let Some(mappings) = self.read(pid) else { return self.forget(pid) };
        let Some(space) = self.spaces.get_mut(&pid) else { return };
        let is_same = space.mappings.current().eq(mappings.iter());
        space.looked = Instant::now();
        let is_vain = is_same || space.is_refused;
        space.look_interval =
            if is_vain { (space.look_interval * 2).min(MAX_LOOK_INTERVAL) } else { MIN_LOOK_INTERVAL };
        if !is_same {
            space.mappings = AddressSpace::from_snapshot(mappings);
        }
        space.is_behind |= !is_same || space.is_refused;
        space.is_refused = false;
    }

    /// The executable mappings of a process; `None` when they cannot be read, most often because it is gone.
    fn read(&self, pid: u32) -> Option<Vec<Mapping>> {
        let text = self.proc.read(pid, "maps");
        text.inspect_err(|error| log::debug!("no mappings of process {pid}: {error}"))
            .ok()
            .map(|text| maps::parse_executable(&text))
    }

    /// Puts the mappings of a process into the kernel, with the tables of their files: all, or as many as were made
    /// within a while.
    fn place(&mut self, pid: u32, stop: &dyn Fn() -> bool) -> Result<(), InstallError> {
        let Entries { entries, files, are_all } = self.entries(pid, stop);
        let Some(space) = self.spaces.get_mut(&pid) else { return Ok(()) };
        space.is_behind = !are_all;
        match install(&mut self.maps, pid, &entries) {
            Ok(mappings) => {
                if are_all {
                    // `cargo xtask bench` reads this line.
                    log::debug!("unwind tables of process {pid} are in place: {} mappings", entries.len());
                }
                let before = space.placed.replace(Arc::new(Placed { mappings, files }));
                self.release(before);
                Ok(())
            }
            Err(refusal) => {
                self.files.release(&files);
                Err(refusal)
            }
        }
    }

    /// The mappings of a process as the kernel side reads them, and the tables that they lead to, which are kept.
    fn entries(&mut self, pid: u32, stop: &dyn Fn() -> bool) -> Entries {
        let Some(space) = self.spaces.get_mut(&pid) else { return Entries::default() };
        let files = &mut self.files;
        // Those of files that are mapped no more are forgotten.
        let known = std::mem::take(&mut space.files);
        let known: HashMap<_, _> =
            known.into_iter().filter(|(_, key)| key.is_none_or(|key| files.has(key))).collect();
        let mut entries = Vec::new();
        let mut keys = Vec::new();
        let (begin, mut made, mut are_all) = (Instant::now(), 0, true);
        for mapping in space.mappings.current().filter(|mapping| is_walked(mapping)) {
            let key = match &mapping.backing {
                Backing::File { id, .. } => {
                    let seen = space.files.get(id).or_else(|| known.get(id)).copied();
                    let is_late = made > 0 && begin.elapsed() >= PLACING_INTERVAL;
                    are_all &= seen.is_some() || !is_late;
                    let looked_at = match seen {
                        None if is_late || stop() => None,
                        None => {
                            made += 1;
                            Some(files.of_mapping(&mut self.maps, pid, mapping, stop))
                        }
                        seen => seen,
                    };
                    looked_at.and_then(|key| {
                        space.files.insert(*id, key);
                        key
                    })
                }
                Backing::Vdso => files.vdso(&mut self.maps, stop),
                Backing::Jit | Backing::DotnetJit | Backing::Special(_) => None,
            };
            let entry = key.and_then(|key| files.entry(key, mapping));
            if let (Some(key), Some(_)) = (key, entry) {
                files.keep(key);
                keys.push(key);
            }
            push(&mut entries, entry.unwrap_or_else(|| without_table(mapping)));
        }
        if keys.iter().any(|key| files.is_managed(*key)) {
            // Who runs precompiled .NET code compiles some itself.
            let compiled = entries.iter_mut().filter(|entry| entry.pages == 0);
            compiled.for_each(|entry| entry.flags |= MappingFlags::SCAN_EPILOGUES);
        }
        Entries { entries, files: keys, are_all }
    }

    /// Gives back what was in the kernel, when nobody else's is the same.
    fn release(&mut self, placed: Option<Arc<Placed>>) {
        if let Some(placed) = placed.and_then(Arc::into_inner) {
            self.maps.remove_mappings(placed.mappings);
            self.files.release(&placed.files);
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
        Err(refusal) => {
            maps.remove_mappings(mappings);
            Err(refusal)
        }
    }
}

impl Space {
    fn new(mappings: AddressSpace) -> Self {
        Self {
            mappings,
            files: HashMap::new(),
            placed: None,
            is_behind: true,
            is_refused: false,
            looked: Instant::now(),
            look_interval: MIN_LOOK_INTERVAL,
            is_headless: false,
        }
    }

    /// Whether its mappings are to be put into the kernel.
    fn waits(&self) -> bool {
        self.is_behind && !self.is_refused
    }
}

/// Whether a process whose first thread has ended goes on.
fn has_other_threads(proc: &ProcFs, pid: u32) -> bool {
    let status = proc.read(pid, "status").unwrap_or_default();
    let mut lines = status.split(|byte| *byte == b'\n');
    let threads = lines.find_map(|line| line.strip_prefix(b"Threads:"));
    threads.is_some_and(|threads| threads.trim_ascii() != b"1")
}

/// The page of `[vsyscall]` lies in the kernel's half, where no walk goes.
fn is_walked(mapping: &Mapping) -> bool {
    mapping.start < RuntimeAddress::KERNEL_START
}

fn without_table(mapping: &Mapping) -> MappingEntry {
    MappingEntry { start: mapping.start.0, end: mapping.end.0, ..MappingEntry::default() }
}

/// Adds an entry; neighbours without a table are one. Runtimes map their code piece by piece.
fn push(entries: &mut Vec<MappingEntry>, entry: MappingEntry) {
    match entries.last_mut() {
        Some(last) if last.end == entry.start && last.pages == 0 && entry.pages == 0 => last.end = entry.end,
        _ => entries.push(entry),
    }
}

#[cfg(test)]
mod tests;
