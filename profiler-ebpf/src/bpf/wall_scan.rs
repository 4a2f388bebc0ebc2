//! The scan before a pass over one process: counts the ticks of threads that have not run since the last pass, and lists the
//! others for the pass.
//!
//! The task iterator runs the program for the leader of the process alone, and the program follows the list of its threads. A
//! visit of each thread by the iterator takes several times as long. Fields that are close together are read at once: a read
//! costs more than its bytes.

use core::ffi::c_void;

use aya_ebpf::{bindings::task_struct, helpers::generated as helpers};
use profiler_common::{
    Counter,
    wall::{LINKED_WORDS, MAX_CHANGED_THREADS, STATE_WORDS, WallPass, WallScan},
};

use super::{
    config::get,
    counters::add,
    kernel_memory::{read, read_words},
    maps::{WALL_PASS, WALL_SCAN},
    waiting_task::{load, sleeping_state, tid_at},
    wall::{add_ticks, is_known_stack, known_thread},
};

/// As many as the map of waiting threads holds. A process with more threads is not scanned to its end.
const MAX_THREADS: u32 = 1 << 15;

/// Scans the process of a leader. The program is not sleepable: RCU keeps the threads in the list.
#[inline(always)]
pub(crate) fn scan_process(leader: *mut task_struct) {
    let (Some(pass), Some(mut scan)) = (WALL_PASS.get(0), WALL_SCAN.get_ptr_mut(0)) else { return };
    let signal: u64 = load(leader, get!(task_signal));
    // SAFETY: scans run one after another.
    let result = unsafe { &mut *scan };
    result.pass = pass.number;
    result.is_complete = 0;
    result.threads = 0;
    result.waiting = 0;
    result.changed = 0;
    result.visits = 0;
    result.head = signal + u64::from(get!(wall.signal_thread_head));
    result.link = read(result.head, 0).unwrap_or(result.head);
    // SAFETY: the callback has the type that the helper calls, and the pointer outlives the loop.
    unsafe { helpers::bpf_loop(MAX_THREADS, scan_next as *mut c_void, (&raw mut scan).cast(), 0) };
    // SAFETY: as above.
    let waiting = unsafe { (*scan).waiting };
    add(Counter::WallTicks, u64::from(waiting) * u64::from(pass.ticks));
}

/// The callback of `bpf_loop`: scans the thread of a link; 1 ends the loop.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn scan_next(_iteration: u64, scan: *mut *mut WallScan) -> i64 {
    // SAFETY: the loop was given the address of a pointer to the map's value.
    let scan = unsafe { &mut **scan };
    if scan.link == scan.head {
        scan.is_complete = 1;
        return 1;
    }
    let Some(pass) = WALL_PASS.get(0) else { return 1 };
    if !read_words(&mut scan.linked, scan.link) {
        return 1;
    }
    let task = scan.link.wrapping_sub(u64::from(get!(wall.task_thread_node)));
    // The first word of a link is the address of the next one.
    scan.link = scan.linked[0];
    scan.threads += 1;
    if count_waiting(task, scan, *pass).is_some() {
        scan.waiting += 1;
        return 0;
    }
    let Some(tid) = tid_at(task) else { return 0 };
    if let Some(changed) = scan.changed_tids.get_mut(scan.changed as usize) {
        *changed = tid;
    }
    scan.changed += 1;
    // The pass visits all threads where the list is too short.
    i64::from(scan.changed as usize > MAX_CHANGED_THREADS)
}

/// Counts the ticks of a thread that sleeps as it did at the last pass; `None` where it does not.
#[inline(always)]
fn count_waiting(task: u64, scan: &mut WallScan, pass: WallPass) -> Option<()> {
    let known = known_thread(task)?;
    let voluntary = get!(wall.task_switches);
    let involuntary = voluntary + size_of::<u64>() as u32;
    let switches = linked_field(scan, voluntary).wrapping_add(linked_field(scan, involuntary));
    if !is_known_stack(known, switches, linked_field(scan, get!(wall.task_start_time)), pass) {
        return None;
    }
    if !read_words(&mut scan.states, task + u64::from(get!(wall.task_state))) {
        return None;
    }
    // A thread that runs now has not been counted as switched yet.
    if is_on_cpu(&scan.states) || known.state != sleeping_state(scan.states[0] as u32)? as u32 {
        return None;
    }
    add_ticks(known, pass);
    Some(())
}

/// The word at an offset of the task.
#[inline(always)]
fn linked_field(scan: &WallScan, offset: u32) -> u64 {
    let word = (offset - get!(wall.task_thread_node)) as usize / size_of::<u64>();
    scan.linked[word % LINKED_WORDS]
}

/// Whether the task is on a CPU: the byte at the offset of `on_cpu`.
#[inline(always)]
fn is_on_cpu(states: &[u64; STATE_WORDS]) -> bool {
    let byte = (get!(wall.task_on_cpu) - get!(wall.task_state)) as usize;
    states[byte / size_of::<u64>() % STATE_WORDS] >> (8 * (byte % size_of::<u64>())) & 0xff != 0
}
