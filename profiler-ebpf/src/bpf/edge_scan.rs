//! Scans code without CFI, read from the target's memory, for the edge of a function, and unwinds the function by it: exactly where
//! the instruction is in a prologue or an epilogue, else by an epilogue further on, where such functions have no frame.

use core::{ffi::c_void, ptr::read_volatile};

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, generated as helpers};
use profiler_common::{
    EDGE_CACHE_CAPACITY,
    function_edge::{EdgeScan, FunctionEdge, INSTRUCTION_BYTES, MAX_INSTRUCTIONS},
};
use profiler_ebpf::{
    edge_cache::{CachedEdge, ScanMode, edge_key},
    epilogue::{CALL_BYTES, CODE_BYTES, ScanState, ends_in_call},
    unwind_step::{Registers, StackMemory, Step, step_by_edge},
};

use super::{config::get, maps::FUNCTION_EDGES, scratch::CodeScan, user_memory::read_user};

/// The step to the caller, where an edge is found and the return address that it leads to follows a call instruction.
#[inline(always)]
pub(crate) fn unwind_step(
    scan: &mut CodeScan,
    registers: Registers,
    mode: ScanMode,
    stack: &impl StackMemory,
) -> Option<Step> {
    let edge = cached_edge(scan, registers.instruction_pointer, mode)?;
    let step = step_by_edge(edge, registers, stack)?;
    if follows_call(step.caller.instruction_pointer) { Some(step) } else { None }
}

/// Whether the instruction before an address of the running task is a call.
#[inline(always)]
pub(crate) fn follows_call(address: u64) -> bool {
    let mut code = 0_u64;
    let call = address.wrapping_sub(CALL_BYTES as u64);
    read_user((&raw mut code).cast(), CALL_BYTES as u32, call) && ends_in_call(code)
}

/// The edge near an instruction, from the cache or by a scan.
#[inline(always)]
fn cached_edge(scan: &mut CodeScan, address: u64, mode: ScanMode) -> Option<FunctionEdge> {
    let pid = (bpf_get_current_pid_tgid() >> 32) as u32;
    let key = edge_key(get!(hash_seed), pid, address, mode);
    let cached = FUNCTION_EDGES.get_ptr_mut(key.index(EDGE_CACHE_CAPACITY))?;
    // SAFETY: a live map value. Another CPU may write it at the same time, but never half of it.
    if unsafe { *cached }.lookup(key).is_none() {
        let edge = scan_code(scan, address, mode);
        // SAFETY: as above.
        unsafe { *cached = CachedEdge::new(key, edge) };
    }
    // VERIFIER: read anew, so that what follows is verified once for an edge of the cache and one of a scan.
    // SAFETY: as above.
    unsafe { read_volatile(cached) }.lookup(key).flatten()
}

#[inline(always)]
fn scan_code(scan: &mut CodeScan, address: u64, mode: ScanMode) -> Option<FunctionEdge> {
    if !read_user((&raw mut scan.code).cast(), CODE_BYTES as u32, address) {
        return None;
    }
    scan.runs = u32::from(mode.runs);
    scan.edge = EdgeScan::default();
    run_loop(MAX_INSTRUCTIONS, scan_instruction as *mut c_void, scan);
    let edge = scan.edge.edge();
    if edge.is_some() || !mode.searches {
        return edge;
    }
    scan.state = ScanState::default();
    run_loop(CODE_BYTES as u32, scan_byte as *mut c_void, scan);
    scan.state.epilogue()
}

#[inline(always)]
fn run_loop(iterations: u32, callback: *mut c_void, scan: &mut CodeScan) {
    let mut scan: *mut CodeScan = scan;
    // SAFETY: the callback has the type that the helper calls, and the scan outlives the loop.
    unsafe { helpers::bpf_loop(iterations, callback, (&raw mut scan).cast(), 0) };
}

/// The callback of `bpf_loop`: scans the next instruction; 1 ends the loop. A mangled name would depend on where the crate is
/// built.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn scan_instruction(_iteration: u64, scan: *mut *mut CodeScan) -> i64 {
    // SAFETY: the loop was given the address of a pointer to this CPU's scan.
    let scan = unsafe { &mut **scan };
    let bytes = (&raw const scan.code).cast::<u8>();
    // VERIFIER: read anew: a bound that was checked before is forgotten where the number was spilled.
    // SAFETY: a field of a live map value.
    let first = unsafe { read_volatile(&raw const scan.edge.scanned) } as usize & (CODE_BYTES / 2 - 1);
    let mut code = 0;
    for index in 0..INSTRUCTION_BYTES {
        // SAFETY: the mask keeps the index within the first half of the array, and the instruction within the array.
        code |= u64::from(unsafe { *bytes.add(first + index) }) << (8 * index);
    }
    scan.edge.scan(code, scan.runs != 0);
    i64::from(scan.edge.is_decided())
}

/// As [`scan_instruction`], for the next byte.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn scan_byte(iteration: u64, scan: *mut *mut CodeScan) -> i64 {
    // SAFETY: as above.
    let scan = unsafe { &mut **scan };
    let bytes = (&raw const scan.code).cast::<u8>();
    // SAFETY: the mask keeps the index within the array.
    let byte = unsafe { *bytes.add(iteration as usize & (CODE_BYTES - 1)) };
    scan.state = scan.state.next(byte, scan.runs != 0);
    i64::from(scan.state.is_decided())
}
