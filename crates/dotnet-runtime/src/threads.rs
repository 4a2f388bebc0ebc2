//! Reads the managed threads of a runtime: their ids, names, GC modes, and the types of their exceptions.
//!
//! Threads start and end meanwhile. A list is used when each of its links was the same before and after the thread behind it was
//! read, and a thread when it was the same before and after its name.
//!
//! Source: dotnet/runtime, `docs/design/datacontracts/Thread.md`, version 1.

use crate::{
    error::{LookupError, StateError},
    layout::TypeLayouts,
    memory::{LimitedMemory, ReadError},
    method_names::build_type_name,
    modules::Modules,
    thread_layout::ThreadLayout,
};

/// Threads of a runtime that are read. Thread pools end at 32,767, but a program with more than a thousand threads is sick.
const MAX_THREADS: usize = 3_000;

/// Readings of what changes meanwhile, before it is left out.
pub(crate) const MAX_ATTEMPTS: usize = 3;

/// The largest id of a thread on Linux (`PID_MAX_LIMIT`). A thread that has not started or that has ended has a larger one, or 0.
const MAX_OS_ID: u64 = 1 << 22;

/// The longest name of a thread, UTF-16 code units. Longer ones are cut off.
const MAX_NAME_UNITS: u32 = 256;

/// A list from a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing<T> {
    /// The entries that were the same in two readings.
    pub entries: Vec<T>,
    /// Whether none is missing: because there are too many, or because it changed in each reading.
    pub is_complete: bool,
}

/// A managed thread of a runtime.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedThread {
    /// The id of the operating system, in the PID namespace of the process.
    pub os_id: u32,
    /// `Thread.ManagedThreadId`.
    pub managed_id: u32,
    /// `Thread.Name`; `None` for a thread without a name.
    pub name: Option<String>,
    /// Whether a garbage collection waits for the thread.
    pub gc_mode: GcMode,
    /// The type of the exception that the thread throws, or handles in a `catch` or `finally`. The runtime forgets it afterwards.
    pub exception: Option<String>,
}

/// Whether a garbage collection waits for a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GcMode {
    /// It waits: the thread runs managed code, or code of the runtime that uses objects.
    Cooperative,
    /// It does not: the thread waits, or runs native code.
    Preemptive,
}

/// What the runtime has of a thread in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawThread {
    pub(crate) address: u64,
    pub(crate) os_id: u32,
    pub(crate) managed_id: u32,
    gc_mode: GcMode,
    exposed_object: u64,
    last_exception: u64,
    next: u64,
}

impl RawThread {
    /// The same but for its GC mode, which changes all the time, and its neighbour.
    fn is_same(&self, other: &Self) -> bool {
        let stable = |thread: &Self| Self { gc_mode: GcMode::Preemptive, next: 0, ..*thread };
        stable(self) == stable(other)
    }
}

/// Reads threads.
pub(crate) struct ThreadReader<'a> {
    pub(crate) memory: &'a LimitedMemory,
    pub(crate) layout: &'a ThreadLayout,
}

impl ThreadReader<'_> {
    /// The threads that have started and have not ended.
    pub(crate) fn read_all(&self) -> Result<Listing<RawThread>, StateError> {
        for _ in 0..MAX_ATTEMPTS {
            if let Some(threads) = self.try_read_all()? {
                return Ok(threads);
            }
        }
        Err(StateError::ThreadsChanged)
    }

    /// `None` when the list changed.
    fn try_read_all(&self) -> Result<Option<Listing<RawThread>>, StateError> {
        let store = self.memory.u64(self.layout.store)?;
        let mut link_address = store.wrapping_add(self.layout.first_link);
        let mut link = self.memory.u64(link_address)?;
        let mut entries = Vec::new();
        for _ in 0..MAX_THREADS {
            if link == 0 {
                return Ok(Some(Listing { entries, is_complete: true }));
            }
            let thread = self.read(link.wrapping_sub(self.layout.link));
            if self.memory.u64(link_address)? != link {
                return Ok(None);
            }
            let thread = thread?;
            if thread.os_id != 0 && thread.managed_id != 0 {
                entries.push(thread);
            }
            (link_address, link) = (link, thread.next);
        }
        Ok(Some(Listing { entries, is_complete: link == 0 }))
    }

    fn read(&self, address: u64) -> Result<RawThread, ReadError> {
        let bytes = self.memory.bytes(address, self.layout.thread_bytes)?;
        let word = |offset: u64| bytes.get(offset as usize..).and_then(<[u8]>::first_chunk);
        let u32_at = |offset| word(offset).map_or(0, |word| u32::from_le_bytes(*word));
        let u64_at =
            |offset: u64| u64::from(u32_at(offset)) | u64::from(u32_at(offset.saturating_add(4))) << 32;
        let os_id = u64_at(self.layout.os_id);
        Ok(RawThread {
            address,
            os_id: if os_id <= MAX_OS_ID { os_id as u32 } else { 0 },
            managed_id: u32_at(self.layout.id),
            gc_mode: match u32_at(self.layout.is_cooperative) {
                0 => GcMode::Preemptive,
                _ => GcMode::Cooperative,
            },
            exposed_object: u64_at(self.layout.exposed_object),
            last_exception: u64_at(self.layout.last_exception),
            next: u64_at(self.layout.link),
        })
    }

    /// Adds name and exception to a thread; `None` when it ended, or changed in each reading.
    pub(crate) fn describe(
        &self,
        types: &TypeLayouts,
        modules: &mut Modules,
        thread: &RawThread,
    ) -> Result<Option<ManagedThread>, ReadError> {
        for _ in 0..MAX_ATTEMPTS {
            let before = self.read(thread.address)?;
            if (before.os_id, before.managed_id) != (thread.os_id, thread.managed_id) {
                return Ok(None);
            }
            let name = unless_limited(self.read_name(&before))?;
            let exception = unless_limited(self.read_exception(types, modules, &before))?;
            if self.read(thread.address)?.is_same(&before) {
                return Ok(Some(ManagedThread {
                    os_id: before.os_id,
                    managed_id: before.managed_id,
                    name,
                    gc_mode: before.gc_mode,
                    exception,
                }));
            }
        }
        Ok(None)
    }

    /// Reads `Thread._name` of a `System.Threading.Thread`, whose fields no contract describes: the object must refer to the
    /// thread of the runtime, and have its id.
    fn read_name(&self, thread: &RawThread) -> Result<Option<String>, ReadError> {
        const NAME: u64 = 24;
        const RUNTIME_THREAD: u64 = 40;
        const ID: u64 = 52;
        let Some(object) = self.object_of(thread.exposed_object)? else { return Ok(None) };
        let name_address = object.wrapping_add(NAME);
        let string = self.memory.u64(name_address)?;
        if string == 0 || self.method_table(string)? != self.memory.u64(self.layout.string_method_table)? {
            return Ok(None);
        }
        let units = self.memory.u32(string.wrapping_add(self.layout.string_length))?.min(MAX_NAME_UNITS);
        let characters = string.wrapping_add(self.layout.string_characters);
        let name = self.memory.utf16_string(characters, 2 * units as usize)?;
        // The garbage collector moves objects.
        let is_unchanged = self.object_of(thread.exposed_object)? == Some(object)
            && self.memory.u64(object.wrapping_add(RUNTIME_THREAD))? == thread.address
            && self.memory.u32(object.wrapping_add(ID))? == thread.managed_id
            && self.memory.u64(name_address)? == string;
        Ok(Some(name).filter(|name| is_unchanged && !name.is_empty()))
    }

    fn read_exception(
        &self,
        types: &TypeLayouts,
        modules: &mut Modules,
        thread: &RawThread,
    ) -> Result<Option<String>, LookupError> {
        let method_table = || {
            let object = self.object_of(thread.last_exception)?;
            object.map(|object| self.method_table(object)).transpose()
        };
        let Some(before) = method_table()? else { return Ok(None) };
        let name = build_type_name(self.memory, types, modules, before)?;
        Ok(Some(name).filter(|_| method_table() == Ok(Some(before))))
    }

    /// The object of a handle.
    fn object_of(&self, handle: u64) -> Result<Option<u64>, ReadError> {
        if handle == 0 {
            return Ok(None);
        }
        Ok(Some(self.memory.u64(handle)?).filter(|object| *object != 0))
    }

    fn method_table(&self, object: u64) -> Result<u64, ReadError> {
        let method_table = self.memory.u64(object.wrapping_add(self.layout.method_table))?;
        Ok(method_table & !self.layout.method_table_marks)
    }
}

/// What cannot be read is absent. Limits end the whole list.
fn unless_limited<T>(read: Result<Option<T>, impl Into<LookupError>>) -> Result<Option<T>, ReadError> {
    match read.map_err(Into::into) {
        Ok(value) => Ok(value),
        Err(LookupError::Read(error @ (ReadError::LimitExceeded | ReadError::TimedOut))) => Err(error),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests;
