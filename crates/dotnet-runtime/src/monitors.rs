//! Reads the monitors that threads hold: the locks of C#'s `lock` statement.
//!
//! A monitor that a thread waits for is in a `SyncBlock`; the header of its object has the index of the block in the table of the
//! runtime. No contract of .NET 9 or 10 describes the content of a block, or the length of the table. So each monitor is checked
//! against what surrounds it: the object's header and the block have the index of the table's entry, and a managed thread has both
//! ids of the owner. All of this must be the same in two readings.
//!
//! Source: dotnet/runtime, `vm/syncblk.h` and `vm/syncblk.cpp`.

use profiler_addresses::RuntimeAddress;

use crate::{
    error::StateError,
    memory::{LimitedMemory, ReadError},
    thread_layout::{MonitorLayout, OwnerField},
    threads::{Listing, MAX_ATTEMPTS, RawThread, ThreadReader},
};

/// Entries of the table that are read. It has one for each object that was locked by two threads at a time, or both locked and
/// hashed, and is still in use.
const MAX_ENTRIES: u32 = 8 << 10;

/// Entries that are neither in use nor free, before the end of the table is assumed. One at a time is being made. The memory behind
/// the last entry that was ever used has any content.
const MAX_INVALID_ENTRIES: u32 = 16;

/// Monitors that are held at the same time.
const MAX_HELD: usize = 256;

/// The size of a `SyncTableEntry`.
const ENTRY_BYTES: u64 = 16;

/// A read does not cross the end of a page, behind which memory can be unreadable.
const PAGE_BYTES: u64 = 4 << 10;

/// The first address that no object has (x86-64 with four levels of page tables).
const USER_SPACE_END: u64 = 1 << 47;

/// A monitor that a thread holds.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldMonitor {
    /// The address of the runtime's lock, which is the `LockID` of its events. It stays while a thread holds the monitor or waits
    /// for it.
    pub lock: RuntimeAddress,
    /// The thread that holds it: the id of the operating system, in the PID namespace of the process.
    pub owner_os_id: u32,
    /// `Thread.ManagedThreadId` of the thread that holds it.
    pub owner_managed_id: u32,
    /// How often the thread has entered it.
    pub recursion: u32,
    /// The number of threads that wait to enter it.
    pub waiters: u32,
}

/// An entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    block: u64,
    object: u64,
}

/// A held monitor, and what identifies its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RawMonitor {
    entry: Entry,
    owner: u64,
    owner_os_id: u64,
    recursion: u32,
    waiters: u32,
}

/// Reads monitors.
pub(crate) struct MonitorReader<'a> {
    pub(crate) memory: &'a LimitedMemory,
    pub(crate) layout: &'a MonitorLayout,
    pub(crate) threads: ThreadReader<'a>,
}

impl MonitorReader<'_> {
    pub(crate) fn read_all(&self) -> Result<Listing<HeldMonitor>, StateError> {
        let held = self.find_held()?;
        let mut monitors = Listing { entries: Vec::new(), is_complete: held.is_complete };
        if held.entries.is_empty() {
            return Ok(monitors);
        }
        // After the monitors: an owner that started meanwhile is among them.
        let threads = self.threads.read_all()?;
        for index in held.entries {
            match self.read_twice(index)? {
                Some(None) => {}
                Some(Some(monitor)) => match self.with_owner(&monitor, &threads.entries) {
                    Some(monitor) => monitors.entries.push(monitor),
                    None => monitors.is_complete = false,
                },
                None => monitors.is_complete = false,
            }
        }
        Ok(monitors)
    }

    /// The indexes of entries whose monitors are held.
    fn find_held(&self) -> Result<Listing<u32>, ReadError> {
        let table = self.memory.u64(self.layout.table)?;
        let mut held = Listing { entries: Vec::new(), is_complete: true };
        let mut invalid_entries = 0;
        let mut index = 1;
        while index < MAX_ENTRIES {
            let address = table.wrapping_add(u64::from(index) * ENTRY_BYTES);
            let page_left = PAGE_BYTES - address % PAGE_BYTES;
            // An entry can cross the end of a page: tables are aligned to 16 bytes where they are not hostile.
            let bytes = page_left.next_multiple_of(ENTRY_BYTES);
            let entries = match self.memory.bytes(address, bytes as usize) {
                Err(ReadError::NotMapped) => return Ok(held),
                read => read?,
            };
            for entry in entries.as_chunks::<{ ENTRY_BYTES as usize }>().0 {
                match Entry::parse(entry) {
                    None => invalid_entries += 1,
                    Some(entry) if entry.block != 0 && self.read_block(entry, index)?.is_some() => {
                        held.entries.push(index);
                    }
                    Some(_) => {}
                }
                if invalid_entries > MAX_INVALID_ENTRIES {
                    return Ok(held);
                }
                if held.entries.len() >= MAX_HELD {
                    return Ok(Listing { is_complete: false, ..held });
                }
                index += 1;
            }
        }
        Ok(Listing { is_complete: false, ..held })
    }

    /// Reads a monitor twice. `None` when it changed each time, `Some(None)` when it is not held.
    #[expect(clippy::option_option, reason = "an unknown monitor is not one that is free")]
    fn read_twice(&self, index: u32) -> Result<Option<Option<RawMonitor>>, ReadError> {
        for _ in 0..MAX_ATTEMPTS {
            let first = self.read(index)?;
            if first == self.read(index)? {
                return Ok(Some(first));
            }
        }
        Ok(None)
    }

    /// Reads a monitor; `None` when it is not held, or the entry is of none.
    fn read(&self, index: u32) -> Result<Option<RawMonitor>, ReadError> {
        let table = self.memory.u64(self.layout.table)?;
        let entry = unless_unmapped(self.memory.array(table.wrapping_add(u64::from(index) * ENTRY_BYTES)))?;
        let Some(entry) = entry.and_then(|entry| Entry::parse(&entry)).filter(|entry| entry.block != 0)
        else {
            return Ok(None);
        };
        let monitor = self.read_block(entry, index)?;
        Ok(if self.is_of_object(entry, index)? { monitor } else { None })
    }

    /// Reads the monitor of a block with this index; `None` when it is not held.
    fn read_block(&self, entry: Entry, index: u32) -> Result<Option<RawMonitor>, ReadError> {
        /// `AwareLock`: the state, the recursion, the owner, its id, another word, and the index with a bit.
        const BLOCK_BYTES: usize = 32;
        const IS_LOCKED: u32 = 1;
        const WAITERS_SHIFT: u32 = 6;
        const INDEX: u32 = 0x7fff_ffff;
        let Some(block) = unless_unmapped(self.memory.array::<BLOCK_BYTES>(entry.block))? else {
            return Ok(None);
        };
        let words: [u32; BLOCK_BYTES / 4] = std::array::from_fn(|at| {
            let bytes = block.get(4 * at..).and_then(<[u8]>::first_chunk);
            bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
        });
        let [state, recursion, owner, owner_high, os_id, os_id_high, _, own_index] = words;
        if state & IS_LOCKED == 0 || own_index & INDEX != index || recursion == 0 {
            return Ok(None);
        }
        Ok(Some(RawMonitor {
            entry,
            owner: match self.layout.owner {
                OwnerField::Address => u64::from(owner) | u64::from(owner_high) << 32,
                OwnerField::ManagedId => owner.into(),
            },
            owner_os_id: u64::from(os_id) | u64::from(os_id_high) << 32,
            recursion,
            waiters: state >> WAITERS_SHIFT,
        }))
    }

    /// Whether the header of an object has the index of a sync block.
    fn is_of_object(&self, entry: Entry, index: u32) -> Result<bool, ReadError> {
        const IS_HASH_OR_INDEX: u32 = 0x0800_0000;
        const IS_HASH: u32 = 0x0400_0000;
        const INDEX: u32 = 0x03ff_ffff;
        let header = self.memory.array(entry.object.wrapping_sub(self.layout.header_before_object));
        let header = unless_unmapped(header)?.map(u32::from_le_bytes);
        Ok(header.is_some_and(|header| {
            header & (IS_HASH_OR_INDEX | IS_HASH) == IS_HASH_OR_INDEX && header & INDEX == index
        }))
    }

    /// The monitor with its owner; `None` when no thread has both of its ids.
    fn with_owner(&self, monitor: &RawMonitor, threads: &[RawThread]) -> Option<HeldMonitor> {
        let thread = threads.iter().find(|thread| u64::from(thread.os_id) == monitor.owner_os_id)?;
        let owner = match self.layout.owner {
            OwnerField::Address => thread.address,
            OwnerField::ManagedId => thread.managed_id.into(),
        };
        (owner == monitor.owner).then_some(HeldMonitor {
            lock: RuntimeAddress(monitor.entry.block),
            owner_os_id: thread.os_id,
            owner_managed_id: thread.managed_id,
            recursion: monitor.recursion,
            waiters: monitor.waiters,
        })
    }
}

impl Entry {
    /// An entry that is in use or free; `None` for another content. A free entry has no block, and an odd number in place of an
    /// object.
    fn parse(bytes: &[u8; ENTRY_BYTES as usize]) -> Option<Self> {
        const ALIGNMENT: u64 = 8;
        const IS_FREE: u64 = 1;
        let (block, object) = bytes.split_first_chunk()?;
        let (block, object) = (u64::from_le_bytes(*block), u64::from_le_bytes(*object.first_chunk()?));
        let is_address = |address: u64| address < USER_SPACE_END && address.is_multiple_of(ALIGNMENT);
        let is_used = object != 0 && is_address(object) && is_address(block);
        let is_free = object & IS_FREE != 0 && block == 0;
        (is_used || is_free).then_some(Self { block, object })
    }
}

/// Memory that is not there has no monitor. Limits end the whole list.
fn unless_unmapped<T>(read: Result<T, ReadError>) -> Result<Option<T>, ReadError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(ReadError::NotMapped) => Ok(None),
        Err(error) => Err(error),
    }
}
