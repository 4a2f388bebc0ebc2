//! The mappings of the processes that are sampled, and what of them is in the kernel.

use std::{
    collections::HashMap,
    io,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use profiler_common::unwind::MappingEntry;

use super::files::{FileKey, Files};
use crate::{
    address::RuntimeAddress,
    process::{
        AddressSpace, Backing, FileId, Mapping, Proc, ProcessEvent, ProcessEventKind, maps, root::Root,
    },
    sampler::ebpf::{InstalledMappings, Refusal, UnwindMaps},
};

/// A process whose mappings are as they were when it was asked again is asked half as often from then on, up to this.
const MAX_LOOK_INTERVAL: Duration = Duration::from_secs(10);
const MIN_LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The processes, their mappings, and the tables of the files behind them.
#[derive(Debug)]
pub(super) struct Spaces {
    proc: Arc<Proc>,
    maps: UnwindMaps,
    files: Files,
    spaces: HashMap<u32, Space>,
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
    looked: Instant,
    look_interval: Duration,
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
        let proc = Arc::new(Proc::live());
        let host = Root::open(Path::new("/"))?;
        let files = Files::new(Arc::clone(&proc), host);
        Ok(Self { proc, maps, files, spaces: HashMap::new(), follows_forks })
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
    pub(super) fn happened(&mut self, event: ProcessEvent) {
        let ProcessEvent { time_ns, pid, tid, kind } = event;
        match kind {
            ProcessEventKind::Map(mapping) => self.map(pid, mapping, time_ns),
            ProcessEventKind::Execute(_) => self.execute(pid),
            ProcessEventKind::Fork { parent } if self.follows_forks => self.fork(pid, parent),
            ProcessEventKind::Exit if pid == tid => self.forget(pid),
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

    /// Reads the mappings of all processes again.
    pub(super) fn look_again(&mut self) {
        let pids: Vec<u32> = self.spaces.keys().copied().collect();
        for pid in pids {
            self.look_at(pid);
        }
    }

    /// Brings the kernel up to date, unless told to stop in between.
    pub(super) fn settle(&mut self, stop: impl Fn() -> bool) {
        let behind: Vec<u32> =
            self.spaces.iter().filter(|(_, space)| space.is_behind).map(|(pid, _)| *pid).collect();
        for pid in behind {
            if stop() {
                return;
            }
            if let Err(refusal) = self.place(pid, &stop) {
                log::info!("the stacks of process {pid} are walked by frame pointer: {refusal}");
            }
        }
        self.files.free_unused(&mut self.maps);
    }

    fn map(&mut self, pid: u32, mapping: Mapping, time_ns: u64) {
        let Some(space) = self.spaces.get_mut(&pid) else { return };
        if let Backing::File { id, .. } = &mapping.backing {
            // The file may have been written since it was looked at.
            space.files.remove(id);
        }
        space.mappings.insert(mapping, time_ns);
        space.is_behind = true;
    }

    fn execute(&mut self, pid: u32) {
        if self.spaces.contains_key(&pid) {
            self.forget(pid);
            self.expect(pid);
        }
    }

    fn fork(&mut self, pid: u32, parent: u32) {
        let Some(space) = self.spaces.get(&parent) else { return };
        let child = Space { looked: Instant::now(), look_interval: MIN_LOOK_INTERVAL, ..space.clone() };
        if let Some(placed) = &child.placed
            && let Err(refusal) = self.maps.set_process(pid, &placed.mappings)
        {
            log::info!("the stacks of process {pid} are walked by frame pointer: {refusal}");
            return;
        }
        self.forget(pid);
        self.spaces.insert(pid, child);
    }

    fn forget(&mut self, pid: u32) {
        let Some(space) = self.spaces.remove(&pid) else { return };
        if let Err(refusal) = self.maps.remove_process(pid) {
            log::warn!("process {pid} has ended, but {refusal}");
        }
        self.release(space.placed);
    }

    fn look_at(&mut self, pid: u32) {
        let Some(mappings) = self.read(pid) else { return self.forget(pid) };
        let Some(space) = self.spaces.get_mut(&pid) else { return };
        let is_same = space.mappings.current().eq(mappings.iter());
        space.looked = Instant::now();
        space.look_interval =
            if is_same { (space.look_interval * 2).min(MAX_LOOK_INTERVAL) } else { MIN_LOOK_INTERVAL };
        if !is_same {
            space.mappings = AddressSpace::from_snapshot(mappings);
            space.is_behind = true;
        }
    }

    /// The executable mappings of a process; `None` when they cannot be read, most often because it is gone.
    fn read(&self, pid: u32) -> Option<Vec<Mapping>> {
        let text = self.proc.read(pid, "maps");
        text.inspect_err(|error| log::debug!("no mappings of process {pid}: {error}"))
            .ok()
            .map(|text| maps::parse_executable(&text))
    }

    /// Puts the mappings of a process into the kernel, with the tables of their files.
    fn place(&mut self, pid: u32, stop: &impl Fn() -> bool) -> Result<(), Refusal> {
        let Some(space) = self.spaces.get_mut(&pid) else { return Ok(()) };
        let files = &self.files;
        space.files.retain(|_, key| key.is_none_or(|key| files.has(key)));
        let mut entries = Vec::new();
        let mut keys = Vec::new();
        for mapping in space.mappings.current().filter(|mapping| is_walked(mapping)) {
            let key = match &mapping.backing {
                Backing::File { id, .. } => *space.files.entry(*id).or_insert_with(|| {
                    if stop() { None } else { self.files.of_mapping(&mut self.maps, pid, mapping) }
                }),
                Backing::Vdso => self.files.vdso(&mut self.maps),
                Backing::Jit | Backing::Special(_) => None,
            };
            let entry = key.and_then(|key| {
                keys.push(key);
                self.files.entry(key, mapping)
            });
            push(&mut entries, entry.unwrap_or_else(|| without_table(mapping)));
        }
        space.is_behind = false;
        let mappings = self.maps.add_mappings(&entries)?;
        if let Err(refusal) = self.maps.set_process(pid, &mappings) {
            self.maps.remove_mappings(mappings);
            return Err(refusal);
        }
        self.files.keep(&keys);
        // `cargo xtask bench` reads this line.
        log::debug!("unwind tables of process {pid} are in place: {} mappings", entries.len());
        let before = space.placed.replace(Arc::new(Placed { mappings, files: keys }));
        self.release(before);
        Ok(())
    }

    /// Gives back what was in the kernel, when nobody else's is the same.
    fn release(&mut self, placed: Option<Arc<Placed>>) {
        if let Some(placed) = placed.and_then(Arc::into_inner) {
            self.maps.remove_mappings(placed.mappings);
            self.files.release(&placed.files);
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
            looked: Instant::now(),
            look_interval: MIN_LOOK_INTERVAL,
        }
    }
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
mod tests {
    use super::*;

    fn entry(start: u64, end: u64, pages: u32) -> MappingEntry {
        MappingEntry { start, end, pages, ..MappingEntry::default() }
    }

    #[test]
    fn neighbours_without_a_table_are_one_entry() {
        let mut entries = Vec::new();
        for piece in [
            entry(0x1000, 0x2000, 0),
            entry(0x2000, 0x3000, 0),
            entry(0x3000, 0x4000, 1),
            entry(0x4000, 0x5000, 0),
            entry(0x6000, 0x7000, 0),
        ] {
            push(&mut entries, piece);
        }
        let expected = [
            entry(0x1000, 0x3000, 0),
            entry(0x3000, 0x4000, 1),
            entry(0x4000, 0x5000, 0),
            entry(0x6000, 0x7000, 0),
        ];
        assert_eq!(entries, expected);
    }
}
