//! The scan before a pass over one process: finds the threads that have not run since the last pass, and lists the others
//! for the pass.
//!
//! The task iterator runs the program for the leader of the process alone, and the program follows the list of its threads. A
//! visit of each thread by the iterator takes several times as long. Most of the time goes into cache misses. A thread that
//! still waits costs three cache lines of its task and an entry of an array in the order of the list: it has waited at each
//! pass since the entry was made, and its ticks follow from that. The tasks of several entries are read before any of their
//! fields is used, so that the CPU waits for their cache lines together.

use core::{
    ffi::c_void,
    ptr::{read_volatile, write_volatile},
};

use aya_ebpf::{bindings::task_struct, helpers::generated as helpers};
use profiler_common::wall::{LINKED_WORDS, SCAN_GROUP, STATE_WORDS, ScannedThread, WallPass, WallScan};

use super::{
    config::get,
    kernel_memory::{read, read_words, task_at},
    maps::{SCANNED_THREADS, WALL_PASS, WALL_SCAN},
    waiting_task::{load, sleeping_state, switches, tid_at},
    wall::{is_known_stack, known_thread, send_wait},
};

/// Steps for as many threads as the map of waiting threads holds, and as many that have ended. A process with more threads is
/// not scanned to its end.
const MAX_STEPS: u32 = 1 << 16;

/// Scans the process of a leader. A pass that ends scans runs the program for any other task. The program is not sleepable: RCU
/// keeps the threads in the list.
#[inline(always)]
pub(crate) fn scan_process(leader: *mut task_struct) {
    let (Some(pass), Some(mut scan)) = (WALL_PASS.get(0), WALL_SCAN.get_ptr_mut(0)) else { return };
    let signal: u64 = load(leader, get!(task_signal));
    // SAFETY: scans run one after another.
    let result = unsafe { &mut *scan };
    result.pass = pass.number;
    result.threads = 0;
    result.changed = 0;
    result.visits = 0;
    result.next_entry = 0;
    result.kept = 0;
    result.singles = 0;
    result.next_record = if pass.passes_per_record == 0 { 0 } else { pass.number % pass.passes_per_record };
    result.head = signal + u64::from(get!(wall.signal_thread_head));
    result.is_complete = 0;
    if pass.ends_scans == 0 {
        result.link = read(result.head, 0).unwrap_or(result.head);
        run_steps(&raw mut scan);
    }
    if result.is_complete == 0 {
        // The entries that the scan has passed already are among them.
        result.next_entry = 0;
        result.link = result.head;
        run_steps(&raw mut scan);
        result.is_complete = 0;
        result.kept = 0;
    }
    result.entries = result.kept;
}

#[inline(always)]
fn run_steps(scan: *mut *mut WallScan) {
    // SAFETY: the callback has the type that the helper calls, and the pointer outlives the loop.
    unsafe { helpers::bpf_loop(MAX_STEPS, scan_next as *mut c_void, scan.cast(), 0) };
}

/// The callback of `bpf_loop`: scans the thread of a link, or removes the entry of a thread that is in the list no more; 1
/// ends the loop.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn scan_next(_step: u64, scan: *mut *mut WallScan) -> i64 {
    // SAFETY: the loop was given the address of a pointer to the map's value.
    let scan = unsafe { &mut **scan };
    let Some(pass) = WALL_PASS.get(0) else { return 1 };
    if scan.singles > 0 {
        scan.singles -= 1;
    } else if scan_group(scan, pass) {
        return 0;
    } else {
        scan.singles = SCAN_GROUP as u32 - 1;
    }
    let is_end = scan.link == scan.head;
    let task = scan.link.wrapping_sub(u64::from(get!(wall.task_thread_node)));
    let mut entry = ScannedThread { task, switches: 0, start_time: 0, state: 0, is_waiting: 0 };
    if scan.next_entry < scan.entries {
        let Some(known) = SCANNED_THREADS.get(scan.next_entry) else { return 1 };
        scan.next_entry += 1;
        if is_end || known.task != task {
            end_waiting(known, pass);
            return 0;
        }
        entry = *known;
    } else if is_end {
        scan.is_complete = 1;
        return 1;
    }
    if !scan_thread(&mut entry, scan, pass) {
        return 1;
    }
    let index = scan.kept;
    scan.kept += 1;
    let Some(kept) = SCANNED_THREADS.get_ptr_mut(index) else { return 1 };
    // SAFETY: scans run one after another.
    unsafe { *kept = entry };
    0
}

/// Scans the threads of the next entries together. `false` where one of them does not wait as before, and where the entries are
/// not in place: then each is scanned alone.
#[inline(always)]
fn scan_group(scan: &mut WallScan, pass: &WallPass) -> bool {
    let task_type = get!(wall.task_type);
    let first = scan.next_entry;
    let is_in_place = first == scan.kept && first + SCAN_GROUP as u32 <= scan.entries;
    if task_type == 0 || !is_in_place || pass.passes_per_record < SCAN_GROUP as u32 {
        return false;
    }
    let mut link = scan.link;
    // VERIFIER: without a branch for each thread, which would double the paths.
    let mut difference = 0;
    for index in 0..SCAN_GROUP {
        let Some(entry) = SCANNED_THREADS.get(first + index as u32) else { return false };
        let task = task_at(entry.task, task_type);
        difference |= link ^ (entry.task + u64::from(get!(wall.task_thread_node)));
        difference |= entry.switches ^ switches(task);
        difference |= entry.start_time ^ load::<u64>(task, get!(wall.task_start_time));
        difference |= u64::from(entry.state ^ load::<u32>(task, get!(wall.task_state)));
        difference |= u64::from(load::<u8>(task, get!(wall.task_on_cpu))) | u64::from(entry.is_waiting ^ 1);
        // VERIFIER: a pointer that is read back from a map is a number.
        let next_link: u64 = load(task, get!(wall.task_thread_node));
        let kept = &raw mut scan.group_links[index];
        // SAFETY: the field of a live map value.
        unsafe { write_volatile(kept, next_link) };
        // SAFETY: as above.
        link = unsafe { read_volatile(kept) };
    }
    if difference != 0 {
        return false;
    }
    if scan.next_record < scan.threads + SCAN_GROUP as u32 {
        let Some(entry) = SCANNED_THREADS.get(first + (scan.next_record - scan.threads)) else {
            return false;
        };
        record_waiting(entry, pass);
        scan.next_record += pass.passes_per_record;
    }
    scan.link = link;
    scan.threads += SCAN_GROUP as u32;
    scan.next_entry += SCAN_GROUP as u32;
    scan.kept += SCAN_GROUP as u32;
    true
}

/// Sends the ticks of a thread that still waits.
#[inline(always)]
fn record_waiting(entry: &ScannedThread, pass: &WallPass) {
    if let Some(known) = known_thread(entry.task)
        && known.start_time == entry.start_time
    {
        known.found_ticks = pass.ticks_after();
        send_wait(known, pass);
    }
}

/// Scans the thread of an entry. `false` where its fields cannot be read.
#[inline(always)]
fn scan_thread(entry: &mut ScannedThread, scan: &mut WallScan, pass: &WallPass) -> bool {
    let (voluntary, start_time) = (get!(wall.task_switches), get!(wall.task_start_time));
    let involuntary = voluntary + size_of::<u64>() as u32;
    let linked_end = if start_time > voluntary { start_time } else { involuntary } + size_of::<u64>() as u32;
    let link = entry.task + u64::from(get!(wall.task_thread_node));
    if !read_words(&mut scan.linked, linked_end - get!(wall.task_thread_node), link) {
        return false;
    }
    let state_bytes = (get!(wall.task_on_cpu) - get!(wall.task_state)) / 8 * 8 + 8;
    if !read_words(&mut scan.states, state_bytes, entry.task + u64::from(get!(wall.task_state))) {
        return false;
    }
    // The first word of a link is the address of the next one.
    scan.link = scan.linked[0];
    let has_record = scan.threads == scan.next_record && pass.passes_per_record != 0;
    if has_record {
        scan.next_record += pass.passes_per_record;
    }
    scan.threads += 1;
    let switches = linked_field(scan, voluntary).wrapping_add(linked_field(scan, involuntary));
    let start_time = linked_field(scan, start_time);
    let state = scan.states[0] as u32;
    let sleeps = on_cpu(&scan.states) == 0;
    let is_same = sleeps
        && entry.is_waiting != 0
        && entry.switches == switches
        && entry.start_time == start_time
        && entry.state == state;
    if is_same && !has_record {
        return true;
    }
    if !is_same {
        end_waiting(entry, pass);
    }
    *entry = ScannedThread { task: entry.task, switches, start_time, state, is_waiting: 0 };
    if sleeps && keep_waiting(entry, has_record, pass).is_some() {
        return true;
    }
    list_changed(entry.task, scan);
    true
}

/// Counts the ticks of a thread that sleeps as it did at the last pass; `None` where it does not.
#[inline(always)]
fn keep_waiting(entry: &mut ScannedThread, has_record: bool, pass: &WallPass) -> Option<()> {
    let known = known_thread(entry.task)?;
    // A thread that runs now has not been counted as switched yet.
    if !is_known_stack(known, entry.switches, entry.start_time, pass)
        || known.state != sleeping_state(entry.state)? as u32
    {
        return None;
    }
    known.found_ticks = pass.ticks_after();
    if has_record {
        send_wait(known, pass);
    }
    // A cut stack may have to be captured again.
    entry.is_waiting = u32::from(known.is_cut == 0);
    Some(())
}

/// Ends the wait of an entry at the last pass.
#[inline(always)]
fn end_waiting(entry: &ScannedThread, pass: &WallPass) {
    if entry.is_waiting == 0 {
        return;
    }
    if let Some(known) = known_thread(entry.task)
        && known.start_time == entry.start_time
    {
        known.count_until(pass.ticks_before);
    }
}

/// Lists a thread for the pass, which visits all threads where the list is too short.
#[inline(always)]
fn list_changed(task: u64, scan: &mut WallScan) {
    let Some(tid) = tid_at(task) else { return };
    if let Some(changed) = scan.changed_tids.get_mut(scan.changed as usize) {
        *changed = tid;
    }
    scan.changed += 1;
}

/// The word at an offset of the task.
#[inline(always)]
fn linked_field(scan: &WallScan, offset: u32) -> u64 {
    let word = (offset - get!(wall.task_thread_node)) as usize / size_of::<u64>();
    scan.linked[word % LINKED_WORDS]
}

/// Not 0 where the task is on a CPU: the byte at the offset of `on_cpu`.
#[inline(always)]
fn on_cpu(states: &[u64; STATE_WORDS]) -> u64 {
    let byte = (get!(wall.task_on_cpu) - get!(wall.task_state)) as usize;
    states[byte / size_of::<u64>() % STATE_WORDS] >> (8 * (byte % size_of::<u64>())) & 0xff
}
