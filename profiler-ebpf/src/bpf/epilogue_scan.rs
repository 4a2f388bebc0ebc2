//! Epilogue scan: unwinds a function without a frame by the code of its epilogue, read from the target's memory.

use core::ffi::c_void;

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, generated as helpers};
use profiler_common::EPILOGUE_CACHE_CAPACITY;
use profiler_ebpf::{
    epilogue::{CALL_BYTES, CODE_BYTES, Epilogue, ScanState, ends_in_call},
    epilogue_cache::{CachedEpilogue, EpilogueKey},
    unwind_step::{Registers, StackMemory, Step, step_by_epilogue},
};

use super::{config::get, maps::EPILOGUES, scratch::EpilogueScan, user_memory::read_user};

/// The step to the caller, where an epilogue is found and the return address that it leads to follows a call
/// instruction. `is_leaf`: the instruction pointer is no return address.
#[inline(always)]
pub(crate) fn unwind_step(
    scan: &mut EpilogueScan,
    registers: Registers,
    is_leaf: bool,
    stack: &impl StackMemory,
) -> Option<Step> {
    let epilogue = cached_epilogue(scan, registers.instruction_pointer, is_leaf)?;
    let step = step_by_epilogue(epilogue, registers, stack)?;
    if follows_call(step.caller.instruction_pointer) { Some(step) } else { None }
}

/// Whether the instruction before an address of the running task is a call.
#[inline(always)]
pub(crate) fn follows_call(address: u64) -> bool {
    let mut code = 0_u64;
    let call = address.wrapping_sub(CALL_BYTES as u64);
    read_user((&raw mut code).cast(), CALL_BYTES as u32, call) && ends_in_call(code)
}

/// The epilogue behind an instruction, from the cache or by a scan.
#[inline(always)]
fn cached_epilogue(scan: &mut EpilogueScan, address: u64, is_leaf: bool) -> Option<Epilogue> {
    let pid = (bpf_get_current_pid_tgid() >> 32) as u32;
    let key = EpilogueKey::new(get!(hash_seed), pid, address, is_leaf);
    let cached = EPILOGUES.get_ptr_mut(key.index(EPILOGUE_CACHE_CAPACITY))?;
    // SAFETY: a live map value. Another CPU may write it at the same time, but never half of it.
    if let Some(epilogue) = unsafe { *cached }.lookup(key) {
        return epilogue;
    }
    let epilogue = scan_code(scan, address, is_leaf);
    // SAFETY: as above.
    unsafe { *cached = CachedEpilogue::new(key, epilogue) };
    epilogue
}

#[inline(always)]
fn scan_code(scan: &mut EpilogueScan, address: u64, is_leaf: bool) -> Option<Epilogue> {
    if !read_user((&raw mut scan.code).cast(), CODE_BYTES as u32, address) {
        return None;
    }
    scan.state = ScanState::default();
    scan.is_leaf = u32::from(is_leaf);
    let mut state: *mut EpilogueScan = scan;
    // SAFETY: the callback has the type that the helper calls, and the state outlives the loop.
    unsafe {
        helpers::bpf_loop(CODE_BYTES as u32, scan_byte as *mut c_void, (&raw mut state).cast(), 0);
    }
    scan.state.epilogue()
}

/// The callback of `bpf_loop`: scans the next byte; 1 ends the loop. A mangled name would depend on where the crate is
/// built.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn scan_byte(iteration: u64, state: *mut *mut EpilogueScan) -> i64 {
    // SAFETY: the loop was given the address of a pointer to this CPU's scan.
    let scan = unsafe { &mut **state };
    let bytes = (&raw const scan.code).cast::<u8>();
    // SAFETY: the mask keeps the index within the array.
    let byte = unsafe { *bytes.add(iteration as usize & (CODE_BYTES - 1)) };
    scan.state = scan.state.next(byte, scan.is_leaf != 0);
    i64::from(scan.state.is_decided())
}
