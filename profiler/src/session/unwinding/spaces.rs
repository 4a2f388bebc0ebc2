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
use crate::{
    address::RuntimeAddress,
    process::{
        AddressSpace, Backing, FileId, Mapping, Proc, ProcessEvent, ProcessEventKind, maps, root::Root,
    },
    sampler::ebpf::{InstalledMappings, Refusal, UnwindMaps},
};

/// A process whose mappings are as they were when it was asked again, or have no room in the kernel, is asked half as
/// often from then on, up to this.
const MAX_LOOK_INTERVAL: Duration = Duration::from_secs(10);
const MIN_LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// After so long of making tables for a process, those that there are go into the kernel before the rest is made.
const PLACING_INTERVAL: Duration = Duration::from_millis(20);

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
            ProcessEventKind::Exit => self.exit(pid, tid),
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

    /// Brings the kernel up to date, unless told to stop in between.
    pub(super) fn settle(&mut self, stop: impl Fn() -> bool) {
        loop {
            let behind = self.spaces.iter().filter(|(_, space)| space.is_behind && !space.is_refused);
            let behind: Vec<u32> = behind.map(|(pid, _)| *pid).collect();
            if behind.is_empty() {
                break;
            }
            for pid in behind {
                if stop() {
                    return;
                }
                if let Err(refusal) = self.place(pid, &stop) {
                    self.refuse(pid, &refusal);
                }
            }
        }
        self.files.free_unused(&mut self.maps, Instant::now());
    }

    fn map(&mut self, pid: u32, mapping: Mapping, time_ns: u64) {
        let Some(space) = self.spaces.get_mut(&pid) else { return };
        if let Backing::File { id, .. } = &mapping.backing {
            // The file may have been written since it was looked at.
            space.files.remove(id);
        }
        // What does not fit is found when the mappings are read again.
        space.mappings.insert(mapping, time_ns);
        space.mappings.forget_replaced();
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
    fn refuse(&mut self, pid: u32, refusal: &Refusal) {
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
    fn place(&mut self, pid: u32, stop: &dyn Fn() -> bool) -> Result<(), Refusal> {
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
            compiled.for_each(|entry| entry.flags |= MappingFlags::SOME_FRAMELESS);
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

fn install(maps: &mut UnwindMaps, pid: u32, entries: &[MappingEntry]) -> Result<InstalledMappings, Refusal> {
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
}

/// Whether a process whose first thread has ended goes on.
fn has_other_threads(proc: &Proc, pid: u32) -> bool {
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
mod tests {
    use std::{iter, sync::mpsc};

    use profiler_common::unwind::{CfaRule, MAX_PROCESS_MAPPINGS, Rule};

    use super::*;
    use crate::{address::FileOffset, sampler::ebpf::test_maps::unwind_maps};

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

    /// Processes that are not there: a kernel counts no further than 2^22.
    const CHILD: u32 = 1 << 23;
    const GRANDCHILD: u32 = CHILD + 1;

    fn spaces() -> Option<Spaces> {
        let mut spaces = Spaces::new(unwind_maps()?, true).unwrap();
        spaces.expect(own());
        spaces.settle(|| false);
        assert!(spaces.maps.process(own()).is_some());
        Some(spaces)
    }

    fn own() -> u32 {
        std::process::id()
    }

    fn happens(spaces: &mut Spaces, pid: u32, kind: ProcessEventKind) {
        spaces.happened(ProcessEvent { time_ns: 1, pid, tid: pid, kind });
        spaces.settle(|| false);
    }

    fn jit(start: u64) -> ProcessEventKind {
        let (start, end) = (RuntimeAddress(start), RuntimeAddress(start + 0x1000));
        ProcessEventKind::Map(Mapping { start, end, offset: FileOffset(0), backing: Backing::Jit })
    }

    #[test]
    fn the_code_that_runs_here_has_a_rule() {
        let Some(spaces) = spaces() else { return };
        let contents = spaces.maps.contents();
        let process = spaces.maps.process(own()).unwrap();
        let address = the_code_that_runs_here_has_a_rule as fn() as usize as u64;
        let mapping = contents
            .mappings(process)
            .iter()
            .find(|mapping| mapping.start <= address && address < mapping.end);
        let at_entry = Rule {
            cfa: CfaRule::StackPointer as u8,
            cfa_offset: 8,
            return_address_offset: -8,
            ..Rule::default()
        };
        assert_eq!(contents.rule(mapping.unwrap(), address), at_entry);
    }

    #[test]
    fn a_child_shares_its_parent_s_mappings_until_one_of_them_changes() {
        let Some(mut spaces) = spaces() else { return };
        happens(&mut spaces, CHILD, ProcessEventKind::Fork { parent: own() });
        let before = spaces.maps.process(own());
        assert_eq!(spaces.maps.process(CHILD), before);
        happens(&mut spaces, own(), jit(0x1000));
        let after = spaces.maps.process(own()).unwrap();
        assert_eq!(after.mappings, before.unwrap().mappings + 1);
        assert_eq!(spaces.maps.process(CHILD), before);
        happens(&mut spaces, GRANDCHILD, ProcessEventKind::Fork { parent: CHILD });
        happens(&mut spaces, CHILD, ProcessEventKind::Exit);
        assert_eq!((spaces.maps.process(CHILD), spaces.maps.process(GRANDCHILD)), (None, before));
    }

    #[test]
    fn a_process_goes_on_when_its_first_thread_ends_before_another() {
        let Some(mut spaces) = spaces() else { return };
        let before = spaces.maps.process(own());
        let (end, ends) = mpsc::channel::<()>();
        let other = std::thread::spawn(move || ends.recv());
        happens(&mut spaces, own(), ProcessEventKind::Exit);
        assert_eq!(spaces.maps.process(own()), before);
        drop(end);
        assert!(other.join().unwrap().is_err());
        happens(&mut spaces, CHILD, ProcessEventKind::Fork { parent: own() });
        let other_thread =
            ProcessEvent { time_ns: 1, pid: CHILD, tid: CHILD + 1, kind: ProcessEventKind::Exit };
        spaces.happened(other_thread);
        assert_eq!(spaces.maps.process(CHILD), before, "its first thread goes on");
        happens(&mut spaces, CHILD, ProcessEventKind::Exit);
        assert_eq!(spaces.maps.process(CHILD), None);
    }

    #[test]
    fn a_child_that_was_there_before_it_was_told_of_is_found_all_the_same() {
        let Some(mut spaces) = spaces() else { return };
        for _ in 0..2 {
            happens(&mut spaces, CHILD, ProcessEventKind::Fork { parent: own() });
            assert_eq!(spaces.maps.process(CHILD), spaces.maps.process(own()));
        }
    }

    #[test]
    fn another_program_has_its_own_mappings() {
        let Some(mut spaces) = spaces() else { return };
        happens(&mut spaces, own(), jit(0x1000));
        let before = spaces.maps.process(own()).unwrap();
        happens(&mut spaces, own(), ProcessEventKind::Execute("other".to_owned()));
        let after = spaces.maps.process(own()).unwrap();
        assert_eq!(after.mappings, before.mappings - 1, "what was made up is in no program");
        happens(&mut spaces, CHILD, ProcessEventKind::Fork { parent: own() });
        happens(&mut spaces, CHILD, ProcessEventKind::Execute("gone".to_owned()));
        assert_eq!(spaces.maps.process(CHILD), None);
    }

    #[test]
    fn when_all_have_ended_nothing_is_left() {
        let Some(mut spaces) = spaces() else { return };
        happens(&mut spaces, CHILD, ProcessEventKind::Fork { parent: own() });
        happens(&mut spaces, own(), jit(0x1000));
        happens(&mut spaces, CHILD, ProcessEventKind::Exit);
        spaces.forget(own());
        assert!(spaces.have_unused_files() && spaces.maps.processes().unwrap().is_empty());
        spaces.files.free_unused(&mut spaces.maps, Instant::now() + Duration::from_secs(3600));
        assert!(!spaces.have_unused_files());
        assert!(spaces.maps.are_empty());
    }

    #[test]
    fn what_was_not_told_is_found_when_all_is_read_again() {
        let Some(mut spaces) = spaces() else { return };
        let before = spaces.maps.process(own()).unwrap();
        happens(&mut spaces, own(), jit(0x1000));
        // As the kernel side does, and then the event is lost.
        let own_mappings = spaces.spaces[&own()].placed.clone().unwrap();
        spaces.maps.set_process(CHILD, &own_mappings.mappings).unwrap();
        drop(own_mappings);
        spaces.look_again();
        spaces.settle(|| false);
        assert_eq!(spaces.maps.process(CHILD), None);
        assert_eq!(spaces.maps.process(own()).unwrap().mappings, before.mappings);
    }

    /// As if so long had passed since the process was looked at.
    fn pass(spaces: &mut Spaces, time: Duration) {
        let space = spaces.spaces.get_mut(&own()).unwrap();
        space.looked = space.looked.checked_sub(time).unwrap();
    }

    #[test]
    fn a_process_that_has_no_room_is_tried_ever_more_rarely() {
        let Some(mut spaces) = spaces() else { return };
        let many = vec![MappingEntry::default(); MAX_PROCESS_MAPPINGS as usize];
        let mut taken: Vec<_> = iter::from_fn(|| spaces.maps.add_mappings(&many).ok()).collect();
        let few = &many[..100];
        taken.extend(iter::from_fn(|| spaces.maps.add_mappings(few).ok()));
        let one = &many[..1];
        taken.extend(iter::from_fn(|| spaces.maps.add_mappings(one).ok()));

        happens(&mut spaces, own(), jit(0x1000));
        let interval = |spaces: &Spaces| spaces.spaces[&own()].look_interval;
        for _ in 0..20 {
            let before = interval(&spaces);
            pass(&mut spaces, before);
            spaces.unknown_code(own());
            spaces.settle(|| false);
            assert!(interval(&spaces) == (2 * before).min(MAX_LOOK_INTERVAL));
            happens(&mut spaces, own(), jit(0x1000));
            spaces.unknown_code(own());
            assert!(spaces.spaces[&own()].is_refused, "nothing is tried before its time");
        }
        taken.into_iter().for_each(|mappings| spaces.maps.remove_mappings(mappings));
        pass(&mut spaces, MAX_LOOK_INTERVAL);
        let before = spaces.maps.process(own());
        spaces.unknown_code(own());
        spaces.settle(|| false);
        assert!(!spaces.spaces[&own()].is_refused && spaces.maps.process(own()) != before);
    }

    #[test]
    fn files_that_are_mapped_no_more_are_forgotten() {
        let Some(mut spaces) = spaces() else { return };
        let known = spaces.spaces[&own()].files.len();
        for inode in 0..100 {
            let id = FileId { major: 0, minor: 0, inode: 1 << 40 | inode };
            let (start, end) = (RuntimeAddress(0x1000), RuntimeAddress(0x2000));
            let backing = Backing::File { id, path: "/nowhere".into() };
            let mapping = Mapping { start, end, offset: FileOffset(0), backing };
            happens(&mut spaces, own(), ProcessEventKind::Map(mapping));
        }
        assert_eq!(spaces.spaces[&own()].files.len(), known + 1);
    }
}
