//! The way out of a function, read from the task's code.

use core::ffi::c_void;

use aya_ebpf::helpers::generated as helpers;
use decide::{
    hash_step,
    step::{self, Registers, Step},
    way_out::{self, CALL_BYTES, CODE_BYTES, Remembered, Seen, WayOut},
};
use profiler_common::WAYS_OUT_CAPACITY;

use crate::{
    maps::WAYS_OUT,
    walk::{UserStack, read_user},
};

/// The code ahead of an instruction.
#[repr(C)]
pub(crate) struct Code {
    bytes: [u8; CODE_BYTES],
    seen: Seen,
    /// Whether the instruction is the one that runs: else a call stands before it.
    runs: u32,
}

/// The step out of a function whose frame pointer is not its own, when its code and the stack agree on where the return
/// address is.
#[inline(always)]
pub(crate) fn step(code: &mut Code, at: Registers, runs: bool, stack: &UserStack) -> Option<Step> {
    let step = step::by_way_out(way_out_at(code, at.instruction_pointer, runs)?, at, stack)?;
    let mut before = 0_u64;
    let call = step.caller.instruction_pointer.wrapping_sub(CALL_BYTES as u64);
    let is_call =
        read_user((&raw mut before).cast(), CALL_BYTES as u32, call) && way_out::ends_in_call(before);
    if is_call { Some(step) } else { None }
}

/// The way out from an instruction, as it is remembered or read.
#[inline(always)]
fn way_out_at(code: &mut Code, address: u64, runs: bool) -> Option<WayOut> {
    let place = (hash_step(0, address) >> 32) as u32 % WAYS_OUT_CAPACITY;
    let remembered = WAYS_OUT.get_ptr_mut(place)?;
    // SAFETY: a live map value. Another CPU may write it at the same time, but never half of it.
    if let Some(way_out) = unsafe { *remembered }.at(address, runs) {
        return way_out;
    }
    let way_out = look_ahead(code, address, runs);
    // SAFETY: as above.
    unsafe { *remembered = Remembered::new(address, runs, way_out) };
    way_out
}

#[inline(always)]
fn look_ahead(code: &mut Code, address: u64, runs: bool) -> Option<WayOut> {
    if !read_user((&raw mut code.bytes).cast(), CODE_BYTES as u32, address) {
        return None;
    }
    code.seen = Seen::default();
    code.runs = u32::from(runs);
    let mut state: *mut Code = code;
    // SAFETY: the callback has the type that the helper calls, and the state outlives the loop.
    unsafe {
        helpers::bpf_loop(CODE_BYTES as u32, look as *mut c_void, (&raw mut state).cast(), 0);
    }
    code.seen.way_out()
}

/// One turn of the loop, over the next byte; 1 ends it. A mangled name would depend on where the crate is built.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn look(turn: u64, state: *mut *mut Code) -> i64 {
    // SAFETY: the loop was given the address of a pointer to this CPU's code.
    let code = unsafe { &mut **state };
    let bytes = (&raw const code.bytes).cast::<u8>();
    // SAFETY: the mask keeps the index within the array.
    let byte = unsafe { *bytes.add(turn as usize & (CODE_BYTES - 1)) };
    code.seen = code.seen.and(byte, code.runs != 0);
    i64::from(code.seen.is_decided())
}
