//! Links of BPF programs to what runs them: task iterators, tracepoints, places in the code of files.

use std::{
    ffi::CStr,
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use profiler_processes::{Pid, Tid};
use rustix::thread::{MembarrierCommand, membarrier};

use super::bpf::{ATTACH_TYPE_ITERATOR, ATTACH_TYPE_UPROBE_MULTI, Command, bpf_fd, raw};

/// Waits until programs whose links were closed have ended on all CPUs. Closing a link does not wait for them, and where the
/// hypervisor or the kernel (`PREEMPT_RCU`) displaces one, it can count an occurrence and send its sample much later.
///
/// The kernel runs these programs between `rcu_read_lock` and `rcu_read_unlock` (`__bpf_trace_run`, `kernel/trace/bpf_trace.c`), and
/// `MEMBARRIER_CMD_GLOBAL` is `synchronize_rcu` (`kernel/sched/membarrier.c`).
pub(crate) fn wait_for_closed() {
    if let Err(error) = membarrier(MembarrierCommand::Global) {
        log::debug!("a BPF program can run for a moment after its link was closed: {error}");
    }
}

/// `union bpf_attr`, the part for `BPF_LINK_CREATE` of an iterator.
#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    iterator_info: u64,
    iterator_info_bytes: u32,
    reserved: u32,
}

/// `union bpf_attr`, the part for `BPF_LINK_CREATE` of uprobes.
#[repr(C)]
#[derive(Default)]
struct UprobeLinkCreate {
    program_fd: u32,
    target_fd: u32,
    attach_type: u32,
    link_flags: u32,
    path: u64,
    offsets: u64,
    reference_counter_offsets: u64,
    cookies: u64,
    count: u32,
    flags: u32,
    pid: u32,
    reserved: u32,
}

/// `union bpf_iter_link_info`, the part for tasks.
#[repr(C)]
#[derive(Default)]
struct TaskIteratorInfo {
    tid: u32,
    pid: u32,
    pid_fd: u32,
    reserved: u32,
}

/// `union bpf_attr`, the part for `BPF_ITER_CREATE`.
#[repr(C)]
#[derive(Default)]
struct IteratorCreate {
    link_fd: u32,
    flags: u32,
}

/// `union bpf_attr`, the part for `BPF_RAW_TRACEPOINT_OPEN`.
#[repr(C)]
#[derive(Default)]
struct RawTracepointOpen {
    name: u64,
    program_fd: u32,
    reserved: u32,
}

/// Which tasks an iterator visits. Kernels before 6.1 visit all of them, and older ones know no selection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IteratedTasks {
    All,
    Process(Pid),
    Thread(Tid),
}

/// Attaches a program of type [`ProgramType::Iterator`](super::bpf::ProgramType) to the tasks that it visits.
pub(crate) fn attach_task_iterator(program: BorrowedFd<'_>, tasks: IteratedTasks) -> io::Result<OwnedFd> {
    let info = match tasks {
        IteratedTasks::All => None,
        IteratedTasks::Process(Pid(pid)) => Some(TaskIteratorInfo { pid, ..TaskIteratorInfo::default() }),
        IteratedTasks::Thread(Tid(tid)) => Some(TaskIteratorInfo { tid, ..TaskIteratorInfo::default() }),
    };
    let attributes = LinkCreate {
        program_fd: raw(program),
        attach_type: ATTACH_TYPE_ITERATOR,
        iterator_info: info.as_ref().map_or(0, |info| std::ptr::from_ref(info) as u64),
        iterator_info_bytes: if info.is_some() { size_of::<TaskIteratorInfo>() as u32 } else { 0 },
        ..LinkCreate::default()
    };
    // SAFETY: the address is of a live structure of the size given, or null.
    match unsafe { bpf_fd(Command::LinkCreate, &attributes) } {
        Err(error) if info.is_some() && error.raw_os_error() == Some(libc::E2BIG) => {
            attach_task_iterator(program, IteratedTasks::All)
        }
        link => link,
    }
}

/// Places in a file at which a program is to run.
#[derive(Debug)]
pub(crate) struct Uprobes<'a> {
    /// The file.
    pub(crate) path: &'a CStr,
    pub(crate) places: &'a [UprobePlace],
    /// Whether the program runs when the functions at these places return.
    pub(crate) is_return: bool,
}

/// A place in a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UprobePlace {
    /// The offset of the instruction.
    pub(crate) offset: u64,
    /// The offset of a 16-bit counter, which the kernel increments in each process while the program is attached; 0 is no
    /// counter.
    pub(crate) counter_offset: u64,
}

/// Attaches a program of type [`ProgramType::Uprobe`](super::bpf::ProgramType) to places in a file, for all processes; closing
/// the result detaches it.
pub(crate) fn attach_uprobes(program: BorrowedFd<'_>, uprobes: &Uprobes<'_>) -> io::Result<OwnedFd> {
    /// `BPF_F_UPROBE_MULTI_RETURN`.
    const RETURN: u32 = 1;
    let offsets: Vec<u64> = uprobes.places.iter().map(|place| place.offset).collect();
    let counters: Vec<u64> = uprobes.places.iter().map(|place| place.counter_offset).collect();
    let count = u32::try_from(offsets.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let attributes = UprobeLinkCreate {
        program_fd: raw(program),
        attach_type: ATTACH_TYPE_UPROBE_MULTI,
        path: uprobes.path.as_ptr() as u64,
        offsets: offsets.as_ptr() as u64,
        reference_counter_offsets: counters.as_ptr() as u64,
        count,
        flags: if uprobes.is_return { RETURN } else { 0 },
        ..UprobeLinkCreate::default()
    };
    // SAFETY: the addresses are of a live C string and of two live arrays of as many numbers as `count` states.
    unsafe { bpf_fd(Command::LinkCreate, &attributes) }
}

/// Opens an iterator for one pass: reading the result to its end runs the program for each task.
pub(crate) fn create_iterator(link: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let attributes = IteratorCreate { link_fd: raw(link), ..IteratorCreate::default() };
    // SAFETY: the attributes hold no address.
    unsafe { bpf_fd(Command::IteratorCreate, &attributes) }
}

/// Attaches a raw tracepoint program; closing the result detaches it.
pub(crate) fn open_raw_tracepoint(name: &CStr, program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let attributes = RawTracepointOpen {
        name: name.as_ptr() as u64,
        program_fd: raw(program),
        ..RawTracepointOpen::default()
    };
    // SAFETY: the name is a live C string.
    unsafe { bpf_fd(Command::RawTracepointOpen, &attributes) }
}

/// Attaches a program of type [`ProgramType::Tracepoint`](super::bpf::ProgramType) to the tracepoint that it was loaded for; closing the result
/// detaches it.
pub(crate) fn open_tracepoint(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let attributes = RawTracepointOpen { program_fd: raw(program), ..RawTracepointOpen::default() };
    // SAFETY: the attributes hold no address.
    unsafe { bpf_fd(Command::RawTracepointOpen, &attributes) }
}
