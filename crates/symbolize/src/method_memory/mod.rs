//! Names the JIT code of .NET runtimes that report no methods, from the memory of their process (data contracts), and finds locks
//! there.
//!
//! The runtime does nothing for it: it needs no diagnostics socket. Addresses are noted when they are sampled, and looked up at
//! the next poll, a tenth of a second later. The runtime frees code of dynamic methods and of unloaded assemblies, and uses its
//! memory again: such code has a name only between two polls that found the same method.

mod found_methods;
#[cfg(feature = "dotnet-memory")]
mod runtime_reader;
#[cfg(not(feature = "dotnet-memory"))]
#[path = "no_runtime_reader.rs"]
mod runtime_reader;
mod symbolizer;

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    time::Duration,
};

use profiler_processes::monotonic_ns;
use profiler_processes::{ProcFs, Process};
use profiler_profile::Reason;

pub(crate) use self::found_methods::FoundMethod;
use self::{
    found_methods::{FoundMethods, ReadMethod},
    runtime_reader::RuntimeReader,
};
use crate::{
    attempts::Attempts,
    locks::{AwaitedLock, LockReadings},
    modules::Modules,
};

/// Addresses of one process that are looked up in one poll. Later samples note the others.
const MAX_NOTED: usize = 16 << 10;

/// Addresses of one process without a method that are kept.
const MAX_UNNAMED: usize = 16 << 10;

/// Time for the lookups of one process in one poll. The rest is looked up in the next one.
const MAX_READ_TIME: Duration = Duration::from_millis(50);

/// The methods of one process that were found in its memory.
#[derive(Debug, Default)]
pub(crate) struct MethodMemory {
    reader: RuntimeReader,
    /// The searches for the runtime among the mapped files.
    attempts: Attempts,
    /// Sampled addresses that the next poll looks up.
    noted: HashSet<u64>,
    methods: FoundMethods,
    /// Addresses without a method when they were last looked up.
    unnamed: HashMap<u64, Unnamed>,
    pub(crate) lock_readings: LockReadings,
}

/// The result of lookups.
#[derive(Debug, Default)]
struct Found {
    code: Vec<(u64, Result<ReadMethod, Unnamed>)>,
    /// The addresses for which there was no time.
    left: Vec<u64>,
}

/// Why an address has no method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "dotnet-memory"), expect(dead_code))]
enum Unnamed {
    /// It is in a stub, whose memory never becomes that of a method.
    Stub,
    /// The runtime does not list the memory as code: some stubs are in such memory.
    NotListed,
    /// Its method was gone, or its data structures changed while they were read.
    Freed,
    /// Its method is of a kind whose name cannot be read.
    NoName,
}

impl MethodMemory {
    /// Has the next poll look up the method at an address, unless it is known and stays there.
    pub(crate) fn note(&mut self, address: u64) {
        let address = match self.methods.current(address) {
            Some((_, can_be_freed)) if !can_be_freed => return,
            // Once for all addresses of the method.
            Some((start, _)) => start,
            None => address,
        };
        let is_stub = self.unnamed.get(&address) == Some(&Unnamed::Stub);
        if self.noted.len() < MAX_NOTED && !is_stub {
            self.noted.insert(address);
        }
    }

    /// Forgets the noted addresses: the runtime reports its methods.
    fn discard_noted(&mut self) {
        self.noted.clear();
    }

    /// Looks up the noted addresses, until the names take `max_bytes` of memory.
    fn read(&mut self, proc: &ProcFs, process: &Process, max_bytes: usize) {
        if self.memory_bytes() >= max_bytes {
            self.methods.is_truncated = true;
            return self.discard_noted();
        }
        let addresses: Vec<u64> = self.noted.drain().collect();
        let began_ns = monotonic_ns();
        let found = self.reader.find_all(proc, process, addresses, MAX_READ_TIME);
        let read_ns = began_ns..monotonic_ns();
        for (address, code) in found.code {
            self.add(address, code, &read_ns);
        }
        self.methods.end_read(&read_ns);
        self.noted.extend(found.left);
    }

    /// Adds what a read between two times found at an address.
    fn add(&mut self, address: u64, code: Result<ReadMethod, Unnamed>, read_ns: &Range<u64>) {
        let unnamed = match code {
            Ok(method) => {
                self.unnamed.remove(&address);
                return self.methods.add(address, method, read_ns);
            }
            Err(unnamed) => unnamed,
        };
        self.methods.close(address);
        if self.unnamed.len() < MAX_UNNAMED {
            self.unnamed.insert(address, unnamed);
        }
    }

    /// Finds the locks that threads wait for; `None` where the runtime cannot be read.
    pub(crate) fn find_locks(
        &mut self,
        modules: &mut Modules,
        proc: &ProcFs,
        process: &Process,
    ) -> Option<Vec<AwaitedLock>> {
        self.find_runtime(modules, process);
        self.reader.is_usable().then(|| self.reader.find_locks(proc, process))
    }

    /// The method whose code was at `address` at `time_ns`, or why it is not known. `None` where no method was found.
    pub(crate) fn lookup(&self, address: u64, time_ns: u64) -> Option<Result<&FoundMethod, Reason>> {
        let found = self.methods.lookup(address, time_ns);
        found.or_else(|| match self.unnamed.get(&address)? {
            Unnamed::Freed => Some(Err(Reason::JitCodeUnloaded)),
            Unnamed::NoName => Some(Err(Reason::NoJitEntry)),
            Unnamed::Stub | Unnamed::NotListed => None,
        })
    }

    /// Whether the runtime has a stub at an address.
    pub(crate) fn is_stub(&self, address: u64) -> bool {
        matches!(self.unnamed.get(&address), Some(Unnamed::Stub | Unnamed::NotListed))
    }

    /// Identifies a period in which each address has one name, as [`JitNames::epoch`](crate::jit::JitNames::epoch).
    pub(crate) fn epoch(&self, time_ns: u64) -> u32 {
        self.methods.epoch(time_ns)
    }

    /// Retires code that was freed before a time, `CLOCK_MONOTONIC`.
    pub(crate) fn retire_freed(&mut self, before_ns: u64) {
        self.methods.retire_freed(before_ns);
        self.unnamed.retain(|_, unnamed| *unnamed == Unnamed::Stub);
    }

    /// Whether names are missing because they would take too much memory.
    pub(crate) fn is_truncated(&self) -> bool {
        self.methods.is_truncated
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let noted = self.noted.capacity() * size_of::<u64>();
        let unnamed = self.unnamed.capacity() * size_of::<(u64, Unnamed)>();
        noted + unnamed + self.methods.memory_bytes() + self.reader.memory_bytes()
    }
}
