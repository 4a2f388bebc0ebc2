//! Reads the data structures of the .NET runtime of a process.

mod memory_pages;
mod page_cache;
mod recording;

use std::{
    cmp::Reverse,
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use profiler_addresses::RuntimeAddress;
use profiler_binary_reader::{Image, ParseError, WorkBudget};
use profiler_blocking::Object;
use profiler_dotnet_runtime::{
    CodeKind, CodeWithFrames, DescriptorError, DotNetRuntime, HeldMonitor, Listing, LookupError,
    ManagedThread, Memory, ReadError, ReadLimits, RuntimeCode, RuntimeSymbols,
};
use profiler_dotnet_symbols::readytorun::AssemblyFiles;
use profiler_processes::{Pid, ProcFs, Process, monotonic_time, tenants::tenant_of};
use profiler_profile::GcMode;
use rustix::io::Errno;

use self::{
    memory_pages::MemoryPages,
    page_cache::{PAGE_BYTES, PageCache},
    recording::{MemoryRecorder, MemoryRecording},
};
use super::{
    found_methods::ReadMethod,
    function_frames::ManagedFunctionFrames,
    reading::{Found, ReadFailure, Reading, Unnamed},
};
use crate::{
    locks::{AwaitedLock, AwaitedLocks, ManagedOwner},
    modules::Modules,
};

/// Locks of one process in one reading: those for which most threads wait.
const MAX_LOCKS: usize = 16;

/// Bytes that describe the frames of methods, in one poll of a process: more than thousand methods have. The rest is read in the
/// next one.
const MAX_FRAME_BYTES: usize = 4 << 20;

/// Time for the replay of what was read of a process. A capture can come from a stranger.
const MAX_REPLAY_TIME: Duration = Duration::from_secs(10);

/// Reads the runtime of a process, and records what it reads for a capture.
#[derive(Debug, Default)]
pub(super) struct RuntimeReader {
    state: ReaderState,
    recorder: Option<SharedRecorder>,
}

type SharedRecorder = Arc<Mutex<MemoryRecorder>>;

/// A runtime whose description has been read, and its memory.
type RuntimeWithMemory = (Box<OpenedRuntime>, Arc<ProcessMemory>);

/// The runtime of a process.
#[derive(Debug, Default)]
enum ReaderState {
    /// Not found yet.
    #[default]
    Unknown,
    /// Found in a file of the process.
    Found(RuntimeSymbols, Arc<WorkBudget>),
    /// Its description has been read.
    Opened(Box<OpenedRuntime>, Arc<ProcessMemory>),
    /// Its data structures are unknown, or its memory cannot be read.
    Unusable,
}

/// A runtime whose description has been read.
#[derive(Debug)]
struct OpenedRuntime {
    runtime: DotNetRuntime,
    /// The address of its description.
    descriptor: u64,
    /// Whether the code that can be freed was listed.
    has_listed: bool,
    memory: Arc<dyn Memory>,
}

impl ReadFailure {
    /// Classifies an error of opening or reading the memory.
    fn of(error: &io::Error) -> Self {
        let has_ended = error.kind() == io::ErrorKind::NotFound
            || error.raw_os_error() == Some(Errno::SRCH.raw_os_error());
        if has_ended { Self::ProcessEnded } else { Self::NotReadable }
    }
}

/// The memory of a process. Its file is open during a reading.
#[derive(Debug)]
struct ProcessMemory {
    file: Mutex<Option<MemoryFile>>,
    recorder: Option<SharedRecorder>,
}

/// The file of the memory of a process.
#[derive(Debug)]
struct MemoryFile {
    file: File,
    /// What lookups have read of it; `None` where all is read anew.
    pages: Option<PageCache>,
}

impl MemoryFile {
    /// Reads memory up to its end or to the first address that cannot be read. Returns the number of bytes.
    fn read(&mut self, address: u64, into: &mut [u8]) -> usize {
        let file = &self.file;
        match &mut self.pages {
            Some(pages) if into.len() <= PAGE_BYTES => {
                pages.read(address, into, |address, page| readable_bytes(file, page, address) == page.len())
            }
            _ => readable_bytes(file, into, address),
        }
    }
}

impl ProcessMemory {
    fn set(&self, file: Option<MemoryFile>) {
        *lock(&self.file) = file;
    }

    fn read_by(
        &self,
        address: u64,
        into: &mut [u8],
        read: impl FnOnce(&mut MemoryFile, &mut [u8]) -> usize,
    ) -> Result<(), ReadError> {
        let mut file = lock(&self.file);
        let readable = read(file.as_mut().ok_or(ReadError::NotMapped)?, into);
        let is_read = readable == into.len();
        if let Some(recorder) = &self.recorder {
            match is_read {
                true => lock(recorder).add_bytes(address, into),
                // A block of fields can have its end behind that of the mapping.
                false => lock(recorder).add_unreadable(address + readable as u64, into.len() - readable),
            }
        }
        if is_read { Ok(()) } else { Err(ReadError::NotMapped) }
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        self.read_by(address, into, |file, into| file.read(address, into))
    }

    fn read_again(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        self.read_by(address, into, |file, into| readable_bytes(&file.file, into, address))
    }
}

/// Reads memory up to its end or to the first address that cannot be read. Returns the number of bytes.
fn readable_bytes(file: &File, into: &mut [u8], address: u64) -> usize {
    let mut filled = 0;
    while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, address + filled as u64) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    filled
}

/// The memory that a capture has of a process.
#[derive(Debug, Default)]
struct ReplayedMemory(Mutex<MemoryPages>);

impl Memory for ReplayedMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        lock(&self.0).read(address, into).then_some(()).ok_or(ReadError::NotMapped)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens no assembly: the methods of JIT code are in the metadata of their own modules.
struct NoFiles;

impl AssemblyFiles for NoFiles {
    fn open(&self, _: &Path) -> Option<Image> {
        None
    }
}

impl RuntimeReader {
    /// A reader that records what it reads.
    pub(super) fn with_recorder() -> Self {
        Self { recorder: Some(SharedRecorder::default()), ..Self::default() }
    }

    /// What was read, as a file of a capture, if it is recorded.
    pub(super) fn recording(&self, pid: Pid) -> Option<Vec<u8>> {
        lock(self.recorder.as_ref()?).recording(pid)
    }

    /// Finds the runtime in the files of its process.
    pub(super) fn find(&mut self, modules: &mut Modules, process: &Process) {
        if let Some(symbols) = modules.runtime_symbols(process) {
            self.state = ReaderState::Found(symbols, modules.budget_of(tenant_of(process)).part());
            if let Some(recorder) = &self.recorder {
                lock(recorder).set_symbols(symbols);
            }
        }
    }

    /// Whether the runtime has not been found yet.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.state, ReaderState::Unknown)
    }

    /// Whether its memory has methods, as far as is known.
    pub(super) fn is_usable(&self) -> bool {
        matches!(self.state, ReaderState::Found(..) | ReaderState::Opened(..))
    }

    /// Finds the methods at addresses in ascending order, and what describes their frames if `reads_frames`.
    pub(super) fn find_all(
        &mut self,
        proc: &ProcFs,
        process: &Process,
        addresses: Vec<u64>,
        max_time: Duration,
        reads_frames: bool,
    ) -> Reading {
        let (deadline, began) = (Instant::now() + max_time, monotonic_time());
        let looked_up = addresses.clone();
        let pages = Some(PageCache::default());
        let found =
            self.read(proc, process, pages, move |opened| opened.find_all(looked_up, deadline, reads_frames));
        let reading = Reading { addresses, found, read_during: began..monotonic_time() };
        if let Some(recorder) = &self.recorder {
            lock(recorder).end_reading(&reading);
        }
        reading
    }

    /// Finds the locks that threads wait for, and their owners.
    pub(super) fn find_locks(&mut self, proc: &ProcFs, process: &Process) -> AwaitedLocks {
        self.read(proc, process, None, |opened| Ok(opened.find_locks())).unwrap_or_default()
    }

    /// Reads the memory of the process, which can make a read block: then no more is read. What is read is kept in `pages`.
    fn read<T: Send + 'static>(
        &mut self,
        proc: &ProcFs,
        process: &Process,
        pages: Option<PageCache>,
        read: impl FnOnce(&mut OpenedRuntime) -> Result<T, ReadFailure> + Send + 'static,
    ) -> Result<T, ReadFailure> {
        let file = proc.open_memory(process).map_err(|error| {
            log::debug!("the memory of process {} cannot be read: {error}", process.pid);
            ReadFailure::of(&error)
        })?;
        let state = std::mem::replace(&mut self.state, ReaderState::Unusable);
        let recorder = self.recorder.clone();
        let open_and_read = move || {
            let file = MemoryFile { file, pages };
            let Some((mut opened, memory)) = state.open(file, recorder).map_err(io::Error::other)? else {
                return Ok((ReaderState::Unusable, Err(ReadFailure::NotDescribed)));
            };
            let found = read(&mut opened);
            memory.set(None);
            Ok((ReaderState::Opened(opened, memory), found))
        };
        match profiler_blocking::run(Object::process(process.pid.0), open_and_read) {
            Ok((state, found)) => {
                self.state = state;
                found
            }
            Err(error) => {
                log::info!("the runtime of process {} is not read from memory: {error}", process.pid);
                Err(ReadFailure::NotDescribed)
            }
        }
    }

    /// The metadata that is kept.
    pub(super) fn memory_bytes(&self) -> usize {
        let cached = match &self.state {
            ReaderState::Opened(opened, _) => opened.runtime.cached_bytes(),
            _ => 0,
        };
        cached + self.recorder.as_ref().map_or(0, |recorder| lock(recorder).memory_bytes())
    }
}

impl ReaderState {
    /// The runtime with its memory, in which nothing is read before `file` is set.
    fn open(
        self,
        file: MemoryFile,
        recorder: Option<SharedRecorder>,
    ) -> Result<Option<RuntimeWithMemory>, DescriptorError> {
        match self {
            Self::Found(symbols, budget) => {
                let memory = Arc::new(ProcessMemory { file: Mutex::new(Some(file)), recorder });
                let opened = OpenedRuntime::open(Arc::clone(&memory) as Arc<dyn Memory>, symbols, &budget)?;
                Ok(Some((Box::new(opened), memory)))
            }
            Self::Opened(opened, memory) => {
                memory.set(Some(file));
                Ok(Some((opened, memory)))
            }
            Self::Unknown | Self::Unusable => Ok(None),
        }
    }
}

/// Makes the lookups of a recorded session again, and passes each reading to `add`. A recording that is malformed has its first
/// readings.
pub(super) fn replay(recording: &[u8], budget: &Arc<WorkBudget>, mut add: impl FnMut(Reading)) {
    let deadline = Instant::now() + MAX_REPLAY_TIME;
    let memory = Arc::new(ReplayedMemory::default());
    let mut opened = None;
    let mut replay_all = || -> Result<(), ParseError> {
        let mut recording = MemoryRecording::parse(recording)?;
        while Instant::now() < deadline {
            // The lookups take the lock again.
            let recorded = recording.next_reading(&mut lock(&memory.0))?;
            let Some(recorded) = recorded else { break };
            let mut find_all = |addresses: Vec<u64>| {
                if opened.is_none() {
                    let memory = Arc::clone(&memory) as Arc<dyn Memory>;
                    opened = OpenedRuntime::open(memory, recording.symbols, budget).ok();
                }
                let opened = opened.as_mut().ok_or(ReadFailure::NotDescribed)?;
                opened.find_all(addresses, deadline, false)
            };
            let found = recorded.failure.map_or_else(|| find_all(recorded.addresses.clone()), Err);
            add(Reading { addresses: recorded.addresses, found, read_during: recorded.read_during });
        }
        Ok(())
    };
    if let Err(error) = replay_all() {
        log::warn!("the memory of a runtime in the capture is read up to a malformed record: {error}");
    }
}

/// Finds what the memory of each reading of a recording has: methods with what describes their frames, locks and their owners.
#[cfg(fuzzing)]
pub(super) fn examine(recording: &[u8]) {
    const MAX_TIME: Duration = Duration::from_secs(1);
    let deadline = Instant::now() + MAX_TIME;
    let memory = Arc::new(ReplayedMemory::default());
    let Ok(mut recording) = MemoryRecording::parse(recording) else { return };
    let mut opened = None;
    while Instant::now() < deadline {
        // The lookups take the lock again.
        let recorded = recording.next_reading(&mut lock(&memory.0));
        let Ok(Some(recorded)) = recorded else { break };
        if opened.is_none() {
            let memory = Arc::clone(&memory) as Arc<dyn Memory>;
            opened = OpenedRuntime::open(memory, recording.symbols, &Arc::default()).ok();
        }
        let Some(opened) = &mut opened else { continue };
        if let Ok(found) = opened.find_all(recorded.addresses, deadline, true) {
            for function in found.frames {
                assert_eq!(function.instructions.len() as u64, function.code.end.0 - function.code.start.0);
            }
        }
        let AwaitedLocks { locks, owners } = opened.find_locks();
        assert!(locks.len() <= MAX_LOCKS);
        let is_owner = |owner: &ManagedOwner| locks.iter().any(|lock| lock.owner_id == owner.os_id);
        assert!(owners.iter().all(is_owner), "{owners:?}");
    }
}

impl OpenedRuntime {
    /// Reads the description of a runtime.
    fn open(
        memory: Arc<dyn Memory>,
        symbols: RuntimeSymbols,
        budget: &Arc<WorkBudget>,
    ) -> Result<Self, DescriptorError> {
        let runtime = DotNetRuntime::open(Arc::clone(&memory), symbols, ReadLimits::default(), budget)?;
        Ok(Self { runtime, descriptor: symbols.descriptor.0, has_listed: false, memory })
    }

    fn find_all(
        &mut self,
        addresses: Vec<u64>,
        deadline: Instant,
        reads_frames: bool,
    ) -> Result<Found, ReadFailure> {
        let mut found = Found::default();
        let mut frame_bytes = 0;
        if !std::mem::replace(&mut self.has_listed, true) {
            found.freeable = Some(self.list_freeable());
        }
        // The method that was found last, if its code stays: the addresses are in ascending order.
        let mut last: Option<ReadMethod> = None;
        let mut addresses = addresses.into_iter();
        for address in addresses.by_ref() {
            let known = last.as_ref().filter(|method| (method.start..method.end).contains(&address));
            if let Some(method) = known {
                found.code.push((address, Ok(method.clone())));
                continue;
            }
            let (code, frames) = self.find(address, reads_frames);
            last = code.as_ref().ok().filter(|method| !method.can_be_freed).cloned();
            frame_bytes += frames.iter().map(ManagedFunctionFrames::memory_bytes).sum::<usize>();
            found.frames.extend(frames);
            found.code.push((address, code));
            if Instant::now() >= deadline || frame_bytes >= MAX_FRAME_BYTES {
                break;
            }
        }
        found.left = addresses.collect();
        // The memory of a process that has ended meanwhile is empty, as that of code which was freed.
        let may_have_ended = found.code.iter().any(|(_, code)| matches!(code, Err(Unnamed::Freed)));
        if may_have_ended && self.memory.read_again(self.descriptor, &mut [0]).is_err() {
            return Err(ReadFailure::ProcessEnded);
        }
        Ok(found)
    }

    /// The method at an address, and what describes its frames if `reads_frames`. Without it, they are unwound by frame pointer or
    /// epilogue scan.
    fn find(
        &mut self,
        address: u64,
        reads_frames: bool,
    ) -> (Result<ReadMethod, Unnamed>, Vec<ManagedFunctionFrames>) {
        let looked_up = RuntimeAddress(address);
        if !reads_frames {
            let code = self.runtime.find(looked_up, &NoFiles);
            return (code.map_err(unnamed).and_then(method), Vec::new());
        }
        match self.runtime.find_with_frames(looked_up, &NoFiles) {
            Ok(CodeWithFrames { code, frames }) => {
                let frames = frames.unwrap_or_else(|error| {
                    log::debug!("the frames of the code at {address:x} are not read: {error}");
                    Vec::new()
                });
                (method(code), frames.into_iter().map(ManagedFunctionFrames::from).collect())
            }
            Err(error) => (Err(unnamed(error)), Vec::new()),
        }
    }

    /// The code that can be freed; `None` if it is not all.
    fn list_freeable(&mut self) -> Option<Vec<u64>> {
        let listed = self.runtime.freeable_code();
        let listed =
            listed.inspect_err(|error| log::debug!("dynamic methods are not listed: {error}")).ok()?;
        log::debug!("listed {} dynamic methods with {:?}", listed.entries.len(), self.runtime.last_cost());
        listed.is_complete.then(|| listed.entries.into_iter().map(|start| start.0).collect())
    }

    fn find_locks(&mut self) -> AwaitedLocks {
        let held = self.runtime.monitors().unwrap_or_else(|error| {
            log::debug!("the owners of locks are not read: {error}");
            Listing { entries: Vec::new(), is_complete: false }
        });
        let mut awaited = held.entries;
        awaited.retain(|monitor| monitor.waiters > 0);
        awaited.sort_by_key(|monitor| Reverse(monitor.waiters));
        awaited.truncate(MAX_LOCKS);
        let owners = self.runtime.owners(&awaited).unwrap_or_else(|error| {
            log::debug!("the threads that own locks are not read: {error}");
            Listing { entries: Vec::new(), is_complete: false }
        });
        AwaitedLocks {
            locks: awaited.into_iter().map(AwaitedLock::from).collect(),
            owners: owners.entries.into_iter().map(ManagedOwner::from).collect(),
        }
    }
}

impl From<ManagedThread> for ManagedOwner {
    fn from(thread: ManagedThread) -> Self {
        Self {
            os_id: thread.os_id,
            managed_id: thread.managed_id,
            name: thread.name,
            exception: thread.exception,
            gc_mode: match thread.gc_mode {
                profiler_dotnet_runtime::GcMode::Cooperative => GcMode::Cooperative,
                profiler_dotnet_runtime::GcMode::Preemptive => GcMode::Preemptive,
            },
        }
    }
}

impl From<HeldMonitor> for AwaitedLock {
    fn from(monitor: HeldMonitor) -> Self {
        Self {
            lock: monitor.lock.0,
            owner_id: monitor.owner_os_id,
            managed_thread_id: monitor.owner_managed_id,
            waiters: monitor.waiters,
        }
    }
}

/// A method; a stub has none.
fn method(code: RuntimeCode) -> Result<ReadMethod, Unnamed> {
    if code.kind == CodeKind::Stub {
        return Err(Unnamed::Stub);
    }
    Ok(ReadMethod {
        start: code.start.0,
        end: code.start.0.saturating_add(code.size_bytes),
        name: code.name.into(),
        is_precompiled: code.kind == CodeKind::Precompiled,
        can_be_freed: code.can_be_freed,
    })
}

fn unnamed(error: LookupError) -> Unnamed {
    match error {
        LookupError::UnknownStub | LookupError::NoCode => Unnamed::NotListed,
        LookupError::NoMethod
        | LookupError::CodeChanged
        | LookupError::Malformed(_)
        | LookupError::Read(_) => Unnamed::Freed,
        _ => Unnamed::NoName,
    }
}
