//! Names the JIT code of .NET runtimes from the memory of their process (data contracts), and finds locks there.
//!
//! The runtime does nothing for it: it needs no diagnostics socket. Addresses are noted when they are sampled, and looked up at
//! the next poll, a tenth of a second later, and at the end of a profile. The runtime frees code of dynamic methods and of
//! unloaded assemblies, and uses its memory again: such code has a name only between two polls that found the same method. It is
//! looked up again each second, and at the end of a profile. The first poll looks up all such code, sampled or not: dynamic methods
//! that stay have their names from then on.
//!
//! What describes the frames of a method is read with its name, unless its code can be freed.
//!
//! What the memory lacks ([`EventSessionCause`]) is a reason to request the events of the runtime.

mod found_methods;
mod function_frames;
mod reading;
#[cfg(feature = "dotnet-memory")]
mod runtime_reader;
#[cfg(not(feature = "dotnet-memory"))]
#[path = "no_runtime_reader.rs"]
mod runtime_reader;
mod symbolizer;

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use profiler_addresses::MonotonicTime;
use profiler_binary_reader::WorkBudget;
use profiler_processes::{Pid, ProcFs, Process};
use profiler_profile::{EventSessionCause, Reason};

pub(crate) use self::found_methods::FoundMethod;
pub use self::function_frames::ManagedFunctionFrames;
use self::{
    found_methods::{FoundMethods, ReadMethod},
    reading::{Found, ReadFailure, Reading, Unnamed},
    runtime_reader::{RuntimeReader, replay},
};
use crate::{
    attempts::Attempts,
    locks::{AwaitedLocks, LockReadings},
    modules::Modules,
};

/// The file of a capture with what was read of the memory of a process.
pub(crate) const RECORDING_FILE: &str = "runtime-memory";

/// Addresses of one process that are looked up in one poll. Later samples note the others.
const MAX_NOTED: usize = 16 << 10;

/// Addresses of one process without a method that are kept.
const MAX_UNNAMED: usize = 16 << 10;

/// Time for the lookups of one process in one poll. The rest is looked up in the next one.
const MAX_READ_TIME: Duration = Duration::from_millis(50);

/// Methods whose code can be freed that are looked up in the first polls. Web servers have a hundred.
const MAX_LISTED: usize = 1 << 10;

/// Code that can be freed is looked up again after this time.
const MAX_UNVERIFIED: Duration = Duration::from_secs(1);

/// The methods of one process that were found in its memory.
#[derive(Debug, Default)]
pub(crate) struct MethodMemory {
    pid: Pid,
    reader: RuntimeReader,
    /// The searches for the runtime among the mapped files.
    attempts: Attempts,
    /// Sampled addresses that the next poll looks up.
    noted: HashSet<u64>,
    methods: FoundMethods,
    /// Whether what describes the frames of methods is read.
    reads_frames: bool,
    /// That of methods that were found since it was taken.
    frames: Vec<ManagedFunctionFrames>,
    /// The starts of the code that could be freed at the first poll.
    listed: HashSet<u64>,
    /// Addresses without a method when they were last looked up.
    unnamed: HashMap<u64, Unnamed>,
    /// Addresses in memory that the runtime does not list as code, which may be stubs.
    unlisted: Vec<u64>,
    /// What the memory lacks.
    lack: Option<EventSessionCause>,
    /// Whether the process had ended before the noted addresses were looked up.
    has_ended: bool,
    pub(crate) lock_readings: LockReadings,
}

impl MethodMemory {
    /// No methods yet of the process with this id. `reads_frames`: what describes their frames is read as well.
    pub(crate) fn new(pid: Pid, reads_frames: bool) -> Self {
        Self { pid, reads_frames, ..Self::default() }
    }

    /// The methods of a process whose memory may be read. Those of a process in a capture are those that its session found;
    /// `budget` limits their lookup.
    pub(crate) fn of_process(
        proc: &ProcFs,
        process: &Process,
        reads_frames: bool,
        budget: &Arc<WorkBudget>,
    ) -> Option<Self> {
        let memory = Self::new(process.pid, reads_frames);
        if proc.records_capture() {
            return Some(Self { reader: RuntimeReader::with_recorder(), ..memory });
        }
        if proc.is_live() {
            return Some(memory);
        }
        let recording = proc.read(process.pid, RECORDING_FILE).ok()?;
        Some(memory.replay(&recording, budget))
    }

    /// Adds what a session found.
    fn replay(mut self, recording: &[u8], budget: &Arc<WorkBudget>) -> Self {
        replay(recording, budget, |reading| self.add_reading(reading));
        self.discard_noted();
        self.unlisted.clear();
        self
    }

    /// What was read for a capture, as a file in it. It can be replayed.
    pub(crate) fn recording(&self) -> Option<Vec<u8>> {
        self.reader.recording(self.pid)
    }

    /// Has the next poll look up the method at an address, unless it is known and stays there.
    pub(crate) fn note(&mut self, address: u64) {
        let address = match self.methods.current(address) {
            Some((_, can_be_freed)) if !can_be_freed => return,
            // Once for all addresses of the method.
            Some((start, _)) => {
                self.methods.mark_sampled(start);
                start
            }
            None => address,
        };
        let is_stub = self.unnamed.get(&address) == Some(&Unnamed::Stub);
        if self.noted.len() < MAX_NOTED && !is_stub {
            self.noted.insert(address);
        }
    }

    /// Whether what describes the frames of methods is read.
    pub(crate) fn reads_frames(&self) -> bool {
        self.reads_frames
    }

    /// Forgets the noted addresses: the runtime reports its methods, or cannot be read.
    fn discard_noted(&mut self) {
        self.noted.clear();
    }

    /// Has the next poll look up again what can be freed and was not looked up since a time.
    fn note_found_before(&mut self, time: MonotonicTime) {
        let left = MAX_NOTED.saturating_sub(self.noted.len());
        self.noted.extend(self.methods.found_before(time).take(left));
    }

    /// Whether the next poll looks up an address.
    pub(crate) fn has_noted(&self) -> bool {
        !self.noted.is_empty() && !self.has_ended
    }

    /// What the memory lacks, so that names need the events of the runtime.
    pub(crate) fn lack(&self) -> Option<EventSessionCause> {
        self.lack
    }

    fn set_lack(&mut self, lack: EventSessionCause) {
        if self.lack.is_none() {
            log::info!("names of process {} need the events of its runtime: {lack}", self.pid);
            self.lack = Some(lack);
        }
    }

    /// Looks up the noted addresses, until the names take `max_bytes` of memory.
    fn read(&mut self, proc: &ProcFs, process: &Process, max_bytes: usize) {
        if self.memory_bytes() >= max_bytes {
            self.methods.is_truncated = true;
            return self.discard_noted();
        }
        let mut addresses: Vec<u64> = self.noted.drain().collect();
        // Addresses of one method follow each other, and neighbouring methods share pages.
        addresses.sort_unstable();
        let reading = self.reader.find_all(proc, process, addresses, MAX_READ_TIME, self.reads_frames);
        self.add_reading(reading);
    }

    fn add_reading(&mut self, reading: Reading) {
        match reading.found {
            Ok(found) => self.add_all(found, &reading.read_during),
            Err(ReadFailure::ProcessEnded) => {
                self.has_ended = true;
                self.noted.extend(reading.addresses);
            }
            Err(ReadFailure::NotReadable) => self.set_lack(EventSessionCause::MemoryNotReadable),
            Err(ReadFailure::NotDescribed) => self.set_lack(EventSessionCause::NotDescribed),
        }
    }

    /// Adds what a read between two times found.
    fn add_all(&mut self, found: Found, read_during: &Range<MonotonicTime>) {
        match found.freeable {
            Some(Some(listed)) if listed.len() <= MAX_LISTED => {
                self.noted.extend(&listed);
                self.listed = listed.into_iter().collect();
            }
            Some(_) => self.set_lack(EventSessionCause::DynamicMethods),
            None => {}
        }
        self.frames.extend(found.frames);
        for (address, code) in found.code {
            self.add(address, code, read_during);
        }
        self.methods.end_read();
        if self.methods.has_freed {
            self.set_lack(EventSessionCause::FreedCode);
        }
        self.noted.extend(found.left);
    }

    /// Adds what a read between two times found at an address.
    fn add(&mut self, address: u64, code: Result<ReadMethod, Unnamed>, read_during: &Range<MonotonicTime>) {
        let unnamed = match code {
            Ok(method) => {
                self.unnamed.remove(&address);
                if method.can_be_freed && !self.listed.contains(&method.start) {
                    self.set_lack(EventSessionCause::DynamicMethods);
                }
                return self.methods.add(address, method, read_during);
            }
            Err(unnamed) => unnamed,
        };
        self.methods.close(address);
        let is_new = self.unnamed.get(&address) != Some(&unnamed);
        match unnamed {
            Unnamed::Freed => self.set_lack(EventSessionCause::FreedCode),
            Unnamed::NoName => self.set_lack(EventSessionCause::NoMethodName),
            Unnamed::NotListed if is_new && self.unlisted.len() < MAX_UNNAMED => self.unlisted.push(address),
            Unnamed::NotListed | Unnamed::Stub => {}
        }
        if self.unnamed.len() < MAX_UNNAMED {
            self.unnamed.insert(address, unnamed);
        }
    }

    /// What describes the frames of the methods that were found since the last call.
    pub(crate) fn take_frames(&mut self) -> Vec<ManagedFunctionFrames> {
        std::mem::take(&mut self.frames)
    }

    /// Finds the locks that threads wait for, and their owners; `None` where the runtime cannot be read.
    pub(crate) fn find_locks(
        &mut self,
        modules: &mut Modules,
        proc: &ProcFs,
        process: &Process,
    ) -> Option<AwaitedLocks> {
        self.find_runtime(modules, process);
        self.reader.is_usable().then(|| self.reader.find_locks(proc, process))
    }

    /// The method whose code was at `address` at `time`, or why it is not known. `None` where no method was found.
    pub(crate) fn lookup(&self, address: u64, time: MonotonicTime) -> Option<Result<&FoundMethod, Reason>> {
        let found = self.methods.lookup(address, time);
        found.or_else(|| match self.unnamed.get(&address) {
            Some(Unnamed::Freed) => Some(Err(Reason::JitCodeUnloaded)),
            Some(Unnamed::NotListed) if self.may_free_code() => Some(Err(Reason::JitCodeUnloaded)),
            Some(Unnamed::NoName) => Some(Err(Reason::NoJitEntry)),
            Some(Unnamed::Stub | Unnamed::NotListed) => None,
            None => (self.has_ended && self.noted.contains(&address)).then_some(Err(Reason::ProcessGone)),
        })
    }

    /// Whether two addresses are in two codes of one method that stay.
    pub(crate) fn has_two_codes(&self, one: u64, other: u64, time: MonotonicTime) -> bool {
        let current = |address| self.methods.current(address).filter(|(_, can_be_freed)| !can_be_freed);
        let name = |address| Some(&self.methods.lookup(address, time)?.ok()?.name);
        match (current(one), current(other)) {
            (Some((one_start, _)), Some((other_start, _))) => {
                one_start != other_start && name(one) == name(other)
            }
            _ => false,
        }
    }

    /// Whether the runtime has freed code, or has code that it frees sooner or later.
    fn may_free_code(&self) -> bool {
        matches!(self.lack, Some(EventSessionCause::FreedCode | EventSessionCause::DynamicMethods))
    }

    /// Whether the runtime may have a stub at an address.
    pub(crate) fn is_stub(&self, address: u64) -> bool {
        matches!(self.unnamed.get(&address), Some(Unnamed::Stub | Unnamed::NotListed))
    }

    /// Identifies a period in which each address has one name, as [`JitNames::epoch`](crate::jit::JitNames::epoch).
    pub(crate) fn epoch(&self, time: MonotonicTime) -> u32 {
        self.methods.epoch(time)
    }

    /// Retires code that was freed before a time.
    pub(crate) fn retire_freed(&mut self, before: MonotonicTime) {
        self.methods.retire_freed(before);
        self.unnamed.retain(|_, unnamed| *unnamed == Unnamed::Stub);
    }

    /// Whether names are missing because they would take too much memory.
    pub(crate) fn is_truncated(&self) -> bool {
        self.methods.is_truncated
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let noted = self.noted.capacity() * size_of::<u64>();
        let unnamed = self.unnamed.capacity() * size_of::<(u64, Unnamed)>();
        let unlisted = self.unlisted.capacity() * size_of::<u64>();
        let listed = self.listed.capacity() * size_of::<u64>();
        let frames = self.frames.iter().map(ManagedFunctionFrames::memory_bytes).sum::<usize>();
        noted
            + unnamed
            + unlisted
            + listed
            + frames
            + self.methods.memory_bytes()
            + self.reader.memory_bytes()
    }
}

/// Makes the lookups of a recording again.
#[cfg(all(fuzzing, feature = "capture"))]
pub fn replay_memory(recording: &[u8]) {
    let _ = MethodMemory::new(Pid(1), false).replay(recording, &Arc::default()).memory_bytes();
}

/// Makes the lookups of a recording again, and finds frames and locks in its memory.
#[cfg(all(fuzzing, feature = "dotnet-memory"))]
pub fn examine_memory(recording: &[u8]) {
    runtime_reader::examine(recording);
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ_DURING: Range<MonotonicTime> = MonotonicTime(100)..MonotonicTime(110);

    fn method(start: u64, can_be_freed: bool) -> ReadMethod {
        ReadMethod { start, end: start + 0x100, name: "A.B()".into(), is_precompiled: false, can_be_freed }
    }

    /// What is lacking after reads that found this at one address, one after the other.
    fn lack_after(reads: impl IntoIterator<Item = Result<ReadMethod, Unnamed>>) -> Option<EventSessionCause> {
        let mut memory = MethodMemory::default();
        for (read, code) in (0..).zip(reads) {
            let began_ns = 100 * read + 100;
            let read_during = MonotonicTime(began_ns)..MonotonicTime(began_ns + 10);
            let freeable = (read == 0).then(|| Some(vec![0x1000]));
            memory.add_all(Found { code: vec![(0x1000, code)], freeable, ..Found::default() }, &read_during);
        }
        memory.lack()
    }

    #[test]
    fn memory_lacks_the_methods_that_are_compiled_later_and_can_be_freed() {
        let lack = |listed: Option<Vec<u64>>| {
            let mut memory = MethodMemory::default();
            let code = vec![(0x1010, Ok(method(0x1000, true)))];
            memory.add_all(Found { code, freeable: Some(listed), ..Found::default() }, &READ_DURING);
            memory.lack()
        };
        assert_eq!(lack(Some(vec![0x1000, 0x2000])), None);
        let lacking = Some(EventSessionCause::DynamicMethods);
        assert_eq!(lack(Some(vec![0x2000])), lacking);
        assert_eq!(lack(None), lacking, "the list is incomplete");
        assert_eq!(lack(Some((0..=MAX_LISTED as u64).collect())), lacking, "too many");
    }

    #[test]
    fn a_method_that_was_listed_has_its_name_from_its_first_sample_on() {
        let mut memory = MethodMemory::default();
        let start = || Ok(method(0x1000, true));
        let found =
            Found { code: vec![(0x1000, start())], freeable: Some(Some(vec![0x1000])), ..Found::default() };
        memory.add_all(found, &READ_DURING);
        memory.noted.clear();
        memory.note_found_before(MonotonicTime::MAX);
        assert!(!memory.has_noted(), "it has not been sampled");
        memory.note(0x1010);
        assert_eq!(memory.noted, [0x1000].into());
        memory.add_all(
            Found { code: vec![(0x1000, start())], ..Found::default() },
            &(MonotonicTime(900)..MonotonicTime(910)),
        );
        let found = memory.lookup(0x1010, MonotonicTime(500)).and_then(Result::ok);
        assert_eq!(found.map(|method| &*method.name), Some("A.B()"));
    }

    #[test]
    fn memory_lacks_code_that_was_freed() {
        let freeable = || Ok(method(0x1000, true));
        let other = || Ok(ReadMethod { name: "other".into(), ..method(0x1000, true) });
        assert_eq!(lack_after([Ok(method(0x1000, false)), Ok(method(0x1000, false))]), None);
        assert_eq!(lack_after([freeable(), freeable(), freeable()]), None, "it stays");
        for freed in [other(), Err(Unnamed::Freed), Err(Unnamed::Stub)] {
            assert_eq!(
                lack_after([freeable(), freed.clone()]),
                Some(EventSessionCause::FreedCode),
                "{freed:?}"
            );
        }
        assert_eq!(lack_after([Err(Unnamed::Freed)]), Some(EventSessionCause::FreedCode));
        assert_eq!(lack_after([Err(Unnamed::NoName)]), Some(EventSessionCause::NoMethodName));
        assert_eq!(lack_after([Err(Unnamed::Stub), Err(Unnamed::NotListed)]), None);
    }

    #[test]
    fn code_that_is_not_listed_may_have_been_freed_where_the_runtime_frees_code() {
        let mut memory = MethodMemory::default();
        for (address, unnamed) in [(0x1000, Unnamed::Stub), (0x2000, Unnamed::NotListed)] {
            memory.add(address, Err(unnamed), &READ_DURING);
        }
        assert_eq!([0x1000, 0x2000].map(|address| memory.lookup(address, MonotonicTime(7))), [None, None]);
        memory.add(0x3000, Err(Unnamed::Freed), &READ_DURING);
        let freed = Some(Err(Reason::JitCodeUnloaded));
        assert_eq!([0x1000, 0x2000].map(|address| memory.lookup(address, MonotonicTime(7))), [None, freed]);
        assert!(memory.is_stub(0x2000), "it may be one");
    }

    #[test]
    fn code_that_is_not_listed_is_checked_once() {
        let mut memory = MethodMemory::default();
        for _ in 0..3 {
            memory.add(0x1000, Err(Unnamed::NotListed), &READ_DURING);
        }
        assert_eq!(memory.unlisted, [0x1000]);
    }

    #[test]
    fn code_that_can_be_freed_is_looked_up_again() {
        let mut memory = MethodMemory::default();
        memory.add(0x1010, Ok(method(0x1000, true)), &READ_DURING);
        memory.add(0x2010, Ok(method(0x2000, false)), &READ_DURING);
        memory.note_found_before(READ_DURING.end);
        assert!(!memory.has_noted());
        memory.note_found_before(READ_DURING.end.saturating_add(Duration::from_nanos(1)));
        assert_eq!(memory.noted, [0x1000].into());
    }

    /// The recording is a seed of the fuzz target.
    #[cfg(feature = "dotnet-memory")]
    #[test]
    fn a_recording_has_the_methods_of_its_readings() {
        const RECORDING: &[u8] = include_bytes!("../../../../tests/fuzz/seeds/runtime_memory/methods10");
        const IN_RUN: u64 = 0x7f00_1000_014d;
        let memory = MethodMemory::default().replay(RECORDING, &Arc::default());
        let found = memory.lookup(IN_RUN, MonotonicTime(150)).and_then(Result::ok);
        let name = found.map(|method| &*method.name).unwrap_or_default();
        assert!(name.contains("N.Outer.Run("), "{name}");
    }

    #[test]
    fn an_address_of_a_process_that_has_ended_has_the_reason() {
        let mut memory = MethodMemory::default();
        memory.note(0x1000);
        assert_eq!((memory.has_noted(), memory.lookup(0x1000, MonotonicTime(7))), (true, None));
        memory.has_ended = true;
        assert_eq!(memory.lookup(0x1000, MonotonicTime(7)), Some(Err(Reason::ProcessGone)));
        assert_eq!((memory.has_noted(), memory.lookup(0x2000, MonotonicTime(7))), (false, None));
    }

    #[test]
    fn a_method_has_two_codes_where_both_have_its_name() {
        let mut memory = MethodMemory::default();
        let other = ReadMethod { name: "C.D()".into(), ..method(0x3000, false) };
        for method in [method(0x1000, false), method(0x2000, false), other, method(0x4000, true)] {
            memory.add(method.start, Ok(method), &READ_DURING);
        }
        assert!(memory.has_two_codes(0x1010, 0x2010, MonotonicTime(7)));
        for other in [0x1020, 0x3010, 0x4010, 0x5000] {
            assert!(!memory.has_two_codes(0x1010, other, MonotonicTime(7)), "{other:#x}");
        }
    }
}
