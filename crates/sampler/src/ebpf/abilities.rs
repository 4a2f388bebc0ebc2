//! What sampling needs of the kernel, each tried on its own.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::Arc,
};

use rustix::event::{EventfdFlags, eventfd};

use super::{
    LoadedSource,
    btf::Btf,
    config::has_vma_search,
    cpus::online,
    events::DEFAULT_FREQUENCY_HZ,
    kernel_types::KernelTypes,
    loader::raise_locked_memory_limit,
    object::{Helper, has_helper},
};
use crate::{
    error::{Error, ErrorKind, Result},
    plan::{Filter, Plan},
    sys::{
        bpf::{self, MapShape, ProgramCode, ProgramType},
        bpf_link, perf,
    },
};

/// `enum bpf_map_type` of `include/uapi/linux/bpf.h`.
const MAP_TYPE_HASH: u32 = 1;
const MAP_TYPE_RING_BUFFER: u32 = 27;

/// `r0 = 0; exit`: a program without effect.
const NOTHING: [u8; 16] = [0xb7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];

/// Opens a timer event on a CPU.
///
/// # Errors
/// The error of `perf_event_open`.
pub fn open_timer() -> io::Result<()> {
    const PERIOD_NS: u64 = 10_000_000;
    perf::PerfEvent::open(first_cpu()?, perf::EventType::CPU_CLOCK, PERIOD_NS).map(drop)
}

/// Opens the sideband events of a CPU.
///
/// # Errors
/// The error of `perf_event_open`.
pub fn open_sideband() -> io::Result<()> {
    const WAKEUP_BYTES: u32 = 4096;
    perf::open_sideband(first_cpu()?, WAKEUP_BYTES).map(drop)
}

/// Creates a hash map.
///
/// # Errors
/// The error of bpf(2).
pub fn create_map() -> io::Result<()> {
    try_map(MAP_TYPE_HASH, 4, 8, 64)
}

/// Creates a ring buffer.
///
/// # Errors
/// The error of bpf(2).
pub fn create_ring_buffer() -> io::Result<()> {
    let page_bytes = u32::try_from(rustix::param::page_size()).map_err(io::Error::other)?;
    try_map(MAP_TYPE_RING_BUFFER, 0, 0, page_bytes)
}

/// Loads a program of perf events.
///
/// # Errors
/// The error of bpf(2).
pub fn load_program() -> io::Result<()> {
    load_nothing(ProgramType::PerfEvent).map(drop)
}

/// Loads a program of a raw tracepoint, and attaches it.
///
/// # Errors
/// The error of bpf(2).
pub fn open_raw_tracepoint() -> io::Result<()> {
    let program = load_nothing(ProgramType::RawTracepoint)?;
    bpf_link::open_raw_tracepoint(c"sched_process_fork", program.as_fd()).map(drop)
}

/// Loads the BPF programs for CPU samples of all processes, without attaching them.
///
/// # Errors
/// Those of [`LoadedSource::load`].
pub fn load_sampling_programs() -> Result<()> {
    raise_locked_memory_limit();
    let waker = eventfd(0, EventfdFlags::CLOEXEC)
        .map_err(|error| Error::with_source(ErrorKind::Io, "failed to create an eventfd", error))?;
    let plan = Plan::cpu_samples(Filter::Everything, DEFAULT_FREQUENCY_HZ);
    LoadedSource::load(plan, Arc::new(waker)).map(drop)
}

/// Checks whether the kernel has what wall-clock samples need.
///
/// # Errors
/// What it lacks.
pub fn check_wall_samples() -> Result<()> {
    KernelTypes::default().task_iterator().map(drop)
}

/// Checks whether the kernel has what the measurement of off-CPU time needs.
///
/// # Errors
/// What it lacks.
pub fn check_off_cpu_time() -> Result<()> {
    KernelTypes::default().tracepoint("sched_switch").map(drop)
}

/// Whether the kernel has the helper `bpf_loop`: without it the unwinder runs in tail calls.
#[must_use]
pub fn has_bpf_loop() -> bool {
    has_helper(Helper::Loop)
}

/// Whether the unwinder finds mappings among the VMAs of a process, before user space has read them.
#[must_use]
pub fn searches_vmas() -> bool {
    has_bpf_loop() && has_vma_search(&KernelTypes::default())
}

/// Whether the machine counts cycles, so that it has hardware events.
#[must_use]
pub fn has_cycle_counter() -> bool {
    perf::has_cycle_counter()
}

/// Whether the kernel describes its types (BTF).
#[must_use]
pub fn has_kernel_types() -> bool {
    Path::new(Btf::PATH).exists()
}

fn first_cpu() -> io::Result<u32> {
    online().map_err(io::Error::other)?.iter().next().ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn try_map(map_type: u32, key_bytes: u32, value_bytes: u32, max_entries: u32) -> io::Result<()> {
    let shape = MapShape { map_type, key_bytes, value_bytes, max_entries, flags: 0 };
    bpf::create_map("doctor", shape, None).map(drop)
}

fn load_nothing(program_type: ProgramType) -> io::Result<OwnedFd> {
    let code = ProgramCode { instructions: &NOTHING, license: c"GPL", functions: None };
    bpf::load_program_without_log("doctor", program_type, code)
}
