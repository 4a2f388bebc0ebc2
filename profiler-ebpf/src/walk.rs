//! The walk of a user stack by tables: state in a map value, one frame a step.
//!
//! VERIFIER: the state is in a map value and never in registers or on the stack. What is loaded from a map
//! value has no history, so that each step looks to the verifier like the one before and is verified once.

use core::ptr::read_volatile;

use aya_ebpf::{bindings::BPF_RB_FORCE_WAKEUP, helpers::generated as helpers, programs::PerfEventContext};
use decide::{
    hash_finish, hash_step,
    step::{self, Found, Registers, Step},
};
use profiler_common::{
    Counter, FrameMarks, MAX_FRAMES, RecordKind, StackFlags, StackId, UnknownCodeRecord,
    unwind::{MappingFlags, ProcessEntry, WalkEnd},
};

use crate::{
    ahead,
    config::get,
    maps::{ASKED, PROCESSES, send},
    registers,
    stack::{self, Scratch},
    tables::{self, Mappings},
};

/// How long a process's unknown code is not told again.
const ASK_INTERVAL_NS: u64 = 20_000_000;

/// The walk has not ended.
const RUNNING: u32 = 0;

/// Where a walk is.
#[repr(C)]
pub(crate) struct Walk {
    registers: Registers,
    /// Of the frames so far.
    hash: u64,
    /// The process's mappings.
    process: ProcessEntry,
    /// The index of the one that the instruction pointer is in.
    mapping: u32,
    /// Frames so far.
    depth: u32,
    /// What to take off the instruction pointer to be in the instruction that runs: 1 behind a call.
    back: u32,
    /// A [`WalkEnd`], or [`RUNNING`].
    end: u32,
}

/// Words of the stack that are read at once: the frames of one function after the other are near each other, and a
/// read costs more by its call than by its length.
const WINDOW_WORDS: usize = 32;
const WINDOW_BYTES: u64 = (WINDOW_WORDS * size_of::<u64>()) as u64;

/// The part of the task's stack that was read last.
#[repr(C)]
pub(crate) struct Window {
    start: u64,
    /// How much of it was read.
    bytes: u64,
    words: [u64; WINDOW_WORDS],
}

/// The task's user memory.
pub(crate) struct UserStack(*mut Window);

impl UserStack {
    /// The place in the window of `bytes` bytes, which it is moved to when they are not in it. [`NO_PLACE`] where they
    /// cannot be read.
    #[inline(always)]
    fn place(&self, address: u64, bytes: u64) -> usize {
        // SAFETY: the window is part of a live map value that this CPU owns.
        let window = unsafe { &mut *self.0 };
        let offset = address.wrapping_sub(window.start);
        let is_read = bytes <= window.bytes && offset <= window.bytes - bytes;
        if is_read && offset.is_multiple_of(size_of::<u64>() as u64) {
            return offset as usize / size_of::<u64>();
        }
        // At the end of the stack there are fewer.
        if fill(window, address, WINDOW_BYTES) || fill(window, address, bytes) { 0 } else { NO_PLACE }
    }

    #[inline(always)]
    fn at(&self, place: usize) -> u64 {
        // SAFETY: as above.
        let words = unsafe { &raw const (*self.0).words }.cast::<u64>();
        // SAFETY: the mask keeps the index within the array.
        unsafe { *words.add(place & (WINDOW_WORDS - 1)) }
    }
}

const NO_PLACE: usize = usize::MAX;

#[inline(always)]
fn fill(window: &mut Window, address: u64, bytes: u64) -> bool {
    let is_read = read_user((&raw mut window.words).cast(), bytes as u32, address);
    window.start = address;
    window.bytes = if is_read { bytes } else { 0 };
    is_read
}

/// Reads as much of the task's memory, which has room at the destination.
#[inline(always)]
pub(crate) fn read_user(destination: *mut core::ffi::c_void, bytes: u32, address: u64) -> bool {
    // SAFETY: callers give a destination of that size; the helper checks the source.
    let result =
        unsafe { helpers::bpf_probe_read_user(destination, bytes, address as *const core::ffi::c_void) };
    result == 0
}

impl step::Stack for UserStack {
    #[inline(always)]
    fn pair(&self, address: u64, words: &mut [u64; 2]) -> bool {
        let place = self.place(address, size_of::<[u64; 2]>() as u64);
        if place != NO_PLACE {
            *words = [self.at(place), self.at(place + 1)];
        }
        place != NO_PLACE
    }

    #[inline(always)]
    fn word(&self, address: u64, word: &mut u64) -> bool {
        let place = self.place(address, size_of::<u64>() as u64);
        if place != NO_PLACE {
            *word = self.at(place);
        }
        place != NO_PLACE
    }
}

/// Begins a walk at the tick's registers. False when there are no tables for it: then the kernel's own walk
/// has to do.
#[inline(always)]
pub(crate) fn begin(context: &PerfEventContext, scratch: &mut Scratch) -> bool {
    let Some(registers) = registers::of_user(context) else { return false };
    // SAFETY: user space replaces entries, which the kernel frees after a grace period.
    let Some(process) = (unsafe { PROCESSES.get(&scratch.sample.pid) }) else {
        ask_again(scratch, 0);
        return false;
    };
    let process = *process;
    let address = registers.instruction_pointer;
    let Some(mappings) = Mappings::get() else { return false };
    let Some(mapping) = mappings.find(process.first_mapping, process.mappings, address) else {
        ask_again(scratch, address);
        return false;
    };
    scratch.window.bytes = 0;
    scratch.walk =
        Walk { registers, hash: get!(hash_seed), process, mapping, depth: 0, back: 0, end: RUNNING };
    push(scratch, 0);
    true
}

/// Goes to the caller, which the code ahead may have to show. False at the end.
#[inline(always)]
pub(crate) fn advance<const LOOKS_AHEAD: bool>(scratch: &mut Scratch) -> bool {
    match try_advance::<LOOKS_AHEAD>(scratch) {
        Ok(()) => true,
        Err(end) => {
            scratch.walk.end = end as u32;
            false
        }
    }
}

#[inline(always)]
fn try_advance<const LOOKS_AHEAD: bool>(scratch: &mut Scratch) -> Result<(), WalkEnd> {
    if scratch.walk.depth >= MAX_FRAMES as u32 {
        return Err(WalkEnd::TooDeep);
    }
    let mappings = Mappings::get().ok_or(WalkEnd::NoMapping)?;
    let window = &raw mut scratch.window;
    let walk = &scratch.walk;
    let at = walk.registers.instruction_pointer.wrapping_sub(u64::from(walk.back));
    let mapping = mappings.at(walk.mapping);
    let rule = tables::rule(mapping, at);
    // SAFETY: `at` stays within the value.
    let is_generated = unsafe { (*mapping).flags } & MappingFlags::SOME_FRAMELESS != 0;
    let (registers, runs) = (walk.registers, walk.back == 0);
    let by_code = if LOOKS_AHEAD && is_generated {
        ahead::step(&mut scratch.code, registers, runs, &UserStack(window))
    } else {
        None
    };
    let step = match by_code {
        Some(step) => step,
        None => step::step(rule, registers, &UserStack(window)),
    };
    let Step { caller, found, end } = step;
    let walk = &mut scratch.walk;
    if let Some(end) = end {
        // SAFETY: `at` stays within the value.
        let is_of_rules = unsafe { (*mapping).pages } > 0;
        return Err(if end == WalkEnd::NoCaller && is_of_rules { WalkEnd::Root } else { end });
    }
    if matches!(found, Found::ByFramePointer | Found::ByCode) && get!(tables_only) != 0 {
        return Err(WalkEnd::UnsupportedRule);
    }
    let back = if found == Found::Interrupted { 0 } else { 1 };
    let address = caller.instruction_pointer.wrapping_sub(u64::from(back));
    let is_known = mappings.holds(walk.mapping, address)
        || match mappings.find(walk.process.first_mapping, walk.process.mappings, address) {
            Some(mapping) => {
                walk.mapping = mapping;
                true
            }
            None => false,
        };
    if !is_known && found == Found::ByFramePointer {
        // What does not lead to code was no frame.
        return Err(WalkEnd::BrokenFramePointer);
    }
    walk.registers = caller;
    walk.back = back;
    let mark = match found {
        Found::ByRule => 0,
        Found::ByFramePointer => FrameMarks::BY_FRAME_POINTER,
        Found::ByCode => FrameMarks::BY_CODE,
        Found::Interrupted => FrameMarks::INTERRUPTED,
    };
    push(scratch, mark);
    if is_known { Ok(()) } else { Err(WalkEnd::NoMapping) }
}

/// Adds the frame at hand.
#[inline(always)]
fn push(scratch: &mut Scratch, mark: u64) {
    let walk = &mut scratch.walk;
    let address = walk.registers.instruction_pointer & !FrameMarks::ALL | mark;
    // VERIFIER: read anew, or the compiler knows of the check before and drops the mask, which the verifier of 5.10
    // needs: it forgets what it knew of a number that was on the stack in between.
    // SAFETY: the field is in bounds of a live map value that this CPU owns.
    let depth = unsafe { read_volatile(&raw const walk.depth) } as usize & (MAX_FRAMES - 1);
    let frames = (&raw mut scratch.stack.frames).cast::<u64>();
    // SAFETY: the mask keeps the index within the array.
    unsafe { *frames.add(depth) = address };
    walk.hash = hash_step(walk.hash, address);
    walk.depth += 1;
}

/// Ends a walk, and sends its stack when that is new.
///
/// # Errors
/// The counter of the loss when it does not fit into the ring buffer.
#[inline(always)]
pub(crate) fn finish(scratch: &mut Scratch) -> Result<StackId, Counter> {
    if scratch.walk.end == RUNNING {
        scratch.walk.end = WalkEnd::TooDeep as u32;
    }
    let end = scratch.walk.end;
    // .NET's code has frame pointers: one that leads to nothing known leads to code that was made since.
    if end == WalkEnd::NoMapping as u32
        || end == WalkEnd::BrokenFramePointer as u32 && is_in_generated_code(scratch)
    {
        ask_again(scratch, scratch.walk.registers.instruction_pointer);
    }
    let depth = scratch.walk.depth;
    let id = hash_finish(scratch.walk.hash, u64::from(depth) | u64::from(end) << 32);
    scratch.stack.header.frames = depth as u16;
    stack::deliver(scratch, id, StackFlags::WALKED, end as u8)
}

#[inline(always)]
fn is_in_generated_code(scratch: &Scratch) -> bool {
    let Some(mappings) = Mappings::get() else { return false };
    // SAFETY: `at` stays within the value.
    unsafe { (*mappings.at(scratch.walk.mapping)).flags & MappingFlags::SOME_FRAMELESS != 0 }
}

/// Tells user space of code that it made no tables for: of a process not more often than worth looking at.
#[inline(always)]
fn ask_again(scratch: &Scratch, address: u64) {
    let now_ns = scratch.sample.time_ns;
    let pid = scratch.sample.pid;
    if let Some(asked_ns) = ASKED.get_ptr(&pid) {
        // SAFETY: a live map value; torn or stale, it asks once more or less.
        if now_ns.wrapping_sub(unsafe { *asked_ns }) < ASK_INTERVAL_NS {
            return;
        }
    }
    if ask(pid, address) {
        let _ = ASKED.insert(&pid, &now_ns, 0);
    }
}

/// Asks user space for the tables of a process. What does not fit is asked again by a sample: neither the sample nor
/// the target needs it.
#[inline(always)]
pub(crate) fn ask(pid: u32, address: u64) -> bool {
    let record = UnknownCodeRecord { kind: RecordKind::UnknownCode as u32, pid, address };
    let bytes = size_of::<UnknownCodeRecord>() as u64;
    send((&raw const record).cast(), bytes, u64::from(BPF_RB_FORCE_WAKEUP))
}
