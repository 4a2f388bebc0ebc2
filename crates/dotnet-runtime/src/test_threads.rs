//! Builds the threads and monitors of a runtime, for tests and for the fuzz target.

use crate::{
    test_image::{OUTER, Version, type_of},
    test_memory::TestMemory,
};

/// Global variables: pointers to the list of threads, to the table of monitors and to the type of strings.
pub(crate) const THREAD_STORE: u64 = 0x40_0000;
pub(crate) const MONITOR_TABLE: u64 = 0x40_0008;
pub(crate) const STRING_TYPE: u64 = 0x40_0010;

const STORE: u64 = 0x40_1000;
const STRING_METHOD_TABLE: u64 = 0x40_2000;
/// Its first page ends after the entry 7.
pub(crate) const TABLE: u64 = 0x60_4f80;

/// Threads of the image: one that waits and has thrown an exception, one that holds a monitor, and one that has ended.
pub(crate) const MAIN: u64 = 0;
pub(crate) const WORKER: u64 = 1;
const ENDED: u64 = 2;

/// Entries of the table: a monitor that [`WORKER`] holds, a free entry, a monitor that no thread holds, an object without a monitor,
/// and one that [`MAIN`] holds, on the next page.
pub(crate) const HELD: u64 = 1;
const FREE: u64 = 2;
const RELEASED: u64 = 3;
const HASHED: u64 = 4;
pub(crate) const HELD_TOO: u64 = 8;

pub(crate) fn thread(index: u64) -> u64 {
    0x41_0000 + index * 0x400
}

pub(crate) fn os_id(index: u64) -> u32 {
    100 + index as u32
}

pub(crate) fn managed_id(index: u64) -> u32 {
    [1, 4, 9][index as usize]
}

/// The handle of the object of a thread, and that of its exception.
pub(crate) fn handle(index: u64) -> u64 {
    0x42_0000 + index * 0x10
}

pub(crate) fn thread_object(index: u64) -> u64 {
    0x43_0000 + index * 0x100
}

/// The field of [`MAIN`] with the handle of its exception.
pub(crate) const LAST_EXCEPTION: u64 = 0x41_0000 + 336;

pub(crate) const NAME: u64 = 0x44_0000;
pub(crate) const EXCEPTION: u64 = 0x44_1000;

pub(crate) fn block(entry: u64) -> u64 {
    0x45_0000 + entry * 0x60
}

pub(crate) fn locked_object(entry: u64) -> u64 {
    0x46_0000 + entry * 0x20
}

pub(crate) fn first_link_field(version: Version) -> u64 {
    STORE + if version == Version::Net9 { 160 } else { 88 }
}

/// The address of a thread's link to the next one.
pub(crate) fn link(index: u64) -> u64 {
    thread(index) + 112
}

pub(crate) fn write(memory: &mut TestMemory, version: Version) {
    memory.write_u64(THREAD_STORE, STORE);
    memory.write_u64(MONITOR_TABLE, TABLE);
    memory.write_u64(STRING_TYPE, STRING_METHOD_TABLE);
    memory.write_u64(first_link_field(version), link(MAIN));
    for index in [MAIN, WORKER, ENDED] {
        write_thread(memory, index);
    }
    memory.write_u64(link(ENDED), 0);
    memory.write_u64(thread(ENDED) + 296, 0xbaad_f00d);
    memory.write_u32(thread(WORKER) + 4, 1);
    write_name(memory, "worker");
    memory.write_u64(LAST_EXCEPTION, handle(MAIN) + 8);
    memory.write_u64(handle(MAIN) + 8, EXCEPTION);
    // A bit of the garbage collector.
    memory.write_u64(EXCEPTION, type_of(OUTER) | 1);
    write_monitors(memory, version);
}

fn write_thread(memory: &mut TestMemory, index: u64) {
    let address = thread(index);
    memory.write_u32(address + 16, managed_id(index));
    memory.write_u64(address + 296, os_id(index).into());
    memory.write_u64(address + 304, handle(index));
    memory.write_u64(link(index), link(index + 1));
    let object = thread_object(index);
    memory.write_u64(handle(index), object);
    memory.write_u64(object + 40, address);
    memory.write_u32(object + 52, managed_id(index));
}

pub(crate) fn write_name(memory: &mut TestMemory, name: &str) {
    memory.write_u64(thread_object(WORKER) + 24, NAME);
    memory.write_u64(NAME, STRING_METHOD_TABLE);
    let units: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    memory.write_u32(NAME + 8, units.len() as u32 / 2);
    memory.write(NAME + 12, &units);
}

fn write_monitors(memory: &mut TestMemory, version: Version) {
    for entry in [HELD, RELEASED, HELD_TOO] {
        let object = locked_object(entry);
        memory.write_u64(TABLE + entry * 16, block(entry));
        memory.write_u64(TABLE + entry * 16 + 8, object);
        memory.write_u32(object - 4, 0x0800_0000 | entry as u32);
        memory.write_u32(block(entry) + 28, 0x8000_0000 | entry as u32);
    }
    memory.write_u64(TABLE + FREE * 16 + 8, 6 << 1 | 1);
    for entry in [HASHED, 5, 6, 7] {
        memory.write_u64(TABLE + entry * 16 + 8, locked_object(entry));
    }
    // Two spinning threads, and no thread in the monitor.
    memory.write_u32(block(RELEASED), 2 << 2);
    write_owner(memory, version, HELD, WORKER);
    memory.write_u32(block(HELD), 3 << 6 | 1 << 5 | 1 << 2 | 1);
    memory.write_u32(block(HELD) + 4, 2);
    write_owner(memory, version, HELD_TOO, MAIN);
}

/// Makes a thread the owner of a monitor without waiters.
pub(crate) fn write_owner(memory: &mut TestMemory, version: Version, entry: u64, owner: u64) {
    memory.write_u32(block(entry), 1);
    memory.write_u32(block(entry) + 4, 1);
    match version {
        Version::Net9 => memory.write_u64(block(entry) + 8, thread(owner)),
        Version::Net10 => memory.write_u32(block(entry) + 8, managed_id(owner)),
    }
    memory.write_u64(block(entry) + 16, os_id(owner).into());
}
