//! Reads the data structures of the .NET runtime of a process.

use std::{
    cmp::Reverse,
    collections::HashSet,
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use profiler_addresses::RuntimeAddress;
use profiler_binary_reader::{Image, WorkBudget};
use profiler_blocking::Object;
use profiler_dotnet_runtime::{
    CodeKind, DescriptorError, DotNetRuntime, HeldMonitor, Listing, LookupError, Memory, ReadError,
    ReadLimits, RuntimeCode, RuntimeSymbols,
};
use profiler_dotnet_symbols::readytorun::AssemblyFiles;
use profiler_processes::{ProcFs, Process};
use rustix::io::Errno;

use super::{Found, ManagedFunctionFrames, Unnamed, found_methods::ReadMethod};
use crate::{
    locks::AwaitedLock,
    modules::{Modules, tenants::tenant_of},
};

/// Locks of one process in one reading: those for which most threads wait.
const MAX_LOCKS: usize = 16;

/// Bytes that describe the frames of methods, in one poll of a process: more than thousand methods have. The rest is read in the
/// next one.
const MAX_FRAME_BYTES: usize = 4 << 20;

/// The runtime of a process.
#[derive(Debug, Default)]
pub(super) enum RuntimeReader {
    /// Not found yet.
    #[default]
    Unknown,
    /// Found in a file of the process.
    Found(RuntimeSymbols, Arc<WorkBudget>),
    /// Its description has been read.
    Opened(Box<OpenedRuntime>),
    /// Its data structures are unknown, or its memory cannot be read.
    Unusable,
}

/// A runtime whose description has been read.
#[derive(Debug)]
pub(super) struct OpenedRuntime {
    runtime: DotNetRuntime,
    /// The address of its description.
    descriptor: u64,
    /// Whether the code that can be freed was listed.
    has_listed: bool,
    memory: Arc<ProcessMemory>,
}

/// Why no address was looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadFailure {
    /// The process has ended.
    ProcessEnded,
    /// The memory cannot be read.
    NotReadable,
    /// The data structures are unknown.
    NotDescribed,
}

impl ReadFailure {
    /// Classifies an error of opening or reading the memory.
    fn of(error: &io::Error) -> Self {
        let has_ended = error.kind() == io::ErrorKind::NotFound
            || error.raw_os_error() == Some(Errno::SRCH.raw_os_error());
        if has_ended { Self::ProcessEnded } else { Self::NotReadable }
    }
}

/// The memory of a process. Its file is open during the lookups of a poll.
#[derive(Debug, Default)]
struct ProcessMemory(Mutex<Option<File>>);

impl ProcessMemory {
    fn set(&self, file: Option<File>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = file;
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let file = file.as_ref().ok_or(ReadError::NotMapped)?;
        file.read_exact_at(into, address).map_err(|_| ReadError::NotMapped)
    }
}

/// Opens no assembly: the methods of JIT code are in the metadata of their own modules.
struct NoFiles;

impl AssemblyFiles for NoFiles {
    fn open(&self, _: &Path) -> Option<Image> {
        None
    }
}

impl RuntimeReader {
    /// Finds the runtime in the files of its process.
    pub(super) fn find(&mut self, modules: &mut Modules, process: &Process) {
        if let Some(symbols) = modules.runtime_symbols(process) {
            *self = Self::Found(symbols, modules.budget_of(tenant_of(process)).part());
        }
    }

    /// Whether the runtime has not been found yet.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }

    /// Whether its memory has methods, as far as is known.
    pub(super) fn is_usable(&self) -> bool {
        matches!(self, Self::Found(..) | Self::Opened(_))
    }

    /// Finds the methods at addresses, and what describes their frames if `reads_frames`.
    pub(super) fn find_all(
        &mut self,
        proc: &ProcFs,
        process: &Process,
        addresses: Vec<u64>,
        max_time: Duration,
        reads_frames: bool,
    ) -> Result<Found, ReadFailure> {
        let deadline = Instant::now() + max_time;
        self.read(proc, process, move |opened| opened.find_all(addresses, deadline, reads_frames))
    }

    /// Finds the locks that threads wait for.
    pub(super) fn find_locks(&mut self, proc: &ProcFs, process: &Process) -> Vec<AwaitedLock> {
        self.read(proc, process, |opened| Ok(opened.find_locks())).unwrap_or_default()
    }

    /// Reads the memory of the process, which can make a read block: then no more is read.
    fn read<T: Send + 'static>(
        &mut self,
        proc: &ProcFs,
        process: &Process,
        read: impl FnOnce(&mut OpenedRuntime) -> Result<T, ReadFailure> + Send + 'static,
    ) -> Result<T, ReadFailure> {
        let file = proc.open_memory(process).map_err(|error| {
            log::debug!("the memory of process {} cannot be read: {error}", process.pid);
            ReadFailure::of(&error)
        })?;
        let reader = std::mem::replace(self, Self::Unusable);
        let open_and_read = move || {
            let mut opened = reader.open(file).map_err(io::Error::other)?;
            let found = opened.as_mut().map(|opened| {
                let found = read(opened);
                opened.memory.set(None);
                found
            });
            Ok((opened, found))
        };
        match profiler_blocking::run(Object::process(process.pid), open_and_read) {
            Ok((opened, found)) => {
                *self = opened.map_or(Self::Unusable, Self::Opened);
                found.unwrap_or(Err(ReadFailure::NotDescribed))
            }
            Err(error) => {
                log::info!("the runtime of process {} is not read from memory: {error}", process.pid);
                Err(ReadFailure::NotDescribed)
            }
        }
    }

    fn open(self, file: File) -> Result<Option<Box<OpenedRuntime>>, DescriptorError> {
        match self {
            Self::Found(symbols, budget) => {
                let memory = Arc::new(ProcessMemory::default());
                memory.set(Some(file));
                let shared = Arc::clone(&memory) as Arc<dyn Memory>;
                let runtime = DotNetRuntime::open(shared, symbols, ReadLimits::default(), &budget)?;
                let descriptor = symbols.descriptor.0;
                Ok(Some(Box::new(OpenedRuntime { runtime, descriptor, has_listed: false, memory })))
            }
            Self::Opened(opened) => {
                opened.memory.set(Some(file));
                Ok(Some(opened))
            }
            Self::Unknown | Self::Unusable => Ok(None),
        }
    }

    /// The metadata that is kept.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Opened(opened) => opened.runtime.cached_bytes(),
            _ => 0,
        }
    }
}

impl OpenedRuntime {
    fn find_all(
        &mut self,
        addresses: Vec<u64>,
        deadline: Instant,
        reads_frames: bool,
    ) -> Result<Found, ReadFailure> {
        let mut found = Found::default();
        let (mut described, mut frame_bytes) = (HashSet::new(), 0);
        if !std::mem::replace(&mut self.has_listed, true) {
            found.freeable = Some(self.list_freeable());
        }
        let mut addresses = addresses.into_iter();
        for address in addresses.by_ref() {
            let code = self.runtime.find(RuntimeAddress(address), &NoFiles);
            let code = code.map_err(unnamed).and_then(method);
            if let Ok(method) = &code
                && reads_frames
                && !method.can_be_freed
                && !method.is_precompiled
                && described.insert(method.start)
            {
                let frames = self.read_frames(method.start);
                frame_bytes += frames.iter().map(ManagedFunctionFrames::memory_bytes).sum::<usize>();
                found.frames.extend(frames);
            }
            found.code.push((address, code));
            if Instant::now() >= deadline || frame_bytes >= MAX_FRAME_BYTES {
                break;
            }
        }
        found.left = addresses.collect();
        // The memory of a process that has ended meanwhile is empty, as that of code which was freed.
        let may_have_ended = found.code.iter().any(|(_, code)| matches!(code, Err(Unnamed::Freed)));
        if may_have_ended && self.memory.read(self.descriptor, &mut [0]).is_err() {
            return Err(ReadFailure::ProcessEnded);
        }
        Ok(found)
    }

    /// What describes the frames of the method that starts at an address. Without it, they are unwound by frame pointer or epilogue
    /// scan.
    fn read_frames(&mut self, start: u64) -> Vec<ManagedFunctionFrames> {
        match self.runtime.function_frames(RuntimeAddress(start)) {
            Ok(functions) => functions.into_iter().map(ManagedFunctionFrames::from).collect(),
            Err(error) => {
                log::debug!("the frames of the method at {start:x} are not read: {error}");
                Vec::new()
            }
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

    fn find_locks(&mut self) -> Vec<AwaitedLock> {
        let held = self.runtime.monitors().unwrap_or_else(|error| {
            log::debug!("the owners of locks are not read: {error}");
            Listing { entries: Vec::new(), is_complete: false }
        });
        let awaited = held.entries.into_iter().filter(|monitor| monitor.waiters > 0);
        let mut locks: Vec<_> = awaited.map(AwaitedLock::from).collect();
        locks.sort_by_key(|lock| Reverse(lock.waiters));
        locks.truncate(MAX_LOCKS);
        locks
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
