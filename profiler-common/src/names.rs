//! Names of the programs, maps and globals in the BPF object, as the loader looks them up.

/// perf_event program: user stacks by `bpf_get_stack`, which follows frame pointers.
pub const PROGRAM_SAMPLE_FP: &str = "sample_fp";
/// perf_event program: user stacks by the unwinder, in one `bpf_loop`.
pub const PROGRAM_SAMPLE_LOOP: &str = "sample_loop";
/// perf_event program: user stacks by the unwinder, through tail calls, for kernels without `bpf_loop`.
pub const PROGRAM_SAMPLE_TAILCALL: &str = "sample_tailcall";
/// perf_event program that [`PROGRAM_SAMPLE_TAILCALL`] and it itself tail-call for further frames.
pub const PROGRAM_UNWIND_TAILCALL: &str = "unwind_tailcall";
/// Raw tracepoint program that gives a forked child its parent's mappings and target entry.
pub const PROGRAM_FORK: &str = "process_fork";
/// Raw tracepoint program that removes the mappings of a process that executes another program.
pub const PROGRAM_EXEC: &str = "process_exec";
/// Raw tracepoint program that remembers the id of a process that exits for [`PROGRAM_FREE`].
pub const PROGRAM_EXIT: &str = "process_exit";
/// Raw tracepoint program that removes the mappings and the target entry of a process that was reaped.
pub const PROGRAM_FREE: &str = "process_free";
/// Task iterator program: a pass of wall-clock samples.
pub const PROGRAM_WALL_PASS: &str = "wall_pass";
/// Task iterator program: counts the ticks of threads that have not run since the last pass.
pub const PROGRAM_WALL_SCAN: &str = "wall_scan";
/// Task iterator program: as [`PROGRAM_WALL_PASS`], for kernels whose iterator cannot copy stacks.
pub const PROGRAM_WALL_PASS_REQUESTING: &str = "wall_pass_requesting";
/// Raw tracepoint program that user space runs: unwinds a stack that it has copied.
pub const PROGRAM_UNWIND_COPIED: &str = "unwind_copied";
/// Tracepoint program: begins and ends the waits of off-CPU time.
pub const PROGRAM_OFF_CPU_SWITCH: &str = "off_cpu_switch";
/// As [`PROGRAM_OFF_CPU_SWITCH`]: user stacks by `bpf_get_stack`.
pub const PROGRAM_OFF_CPU_SWITCH_FP: &str = "off_cpu_switch_fp";
/// Tracepoint program: notes when, and by whom, a thread is woken.
pub const PROGRAM_OFF_CPU_WAKE: &str = "off_cpu_wake";
/// As [`PROGRAM_OFF_CPU_WAKE`]: user stacks by `bpf_get_stack`.
pub const PROGRAM_OFF_CPU_WAKE_FP: &str = "off_cpu_wake_fp";
/// Task iterator program: a pass over threads whose wait lacks its stacks.
pub const PROGRAM_OFF_CPU_PASS: &str = "off_cpu_pass";
/// perf_event program: samples a software or hardware event.
pub const PROGRAM_SAMPLE_EVENT: &str = "sample_event";
/// As [`PROGRAM_SAMPLE_EVENT`]: user stacks by `bpf_get_stack`.
pub const PROGRAM_SAMPLE_EVENT_FP: &str = "sample_event_fp";
/// Raw tracepoint program: samples a tracepoint.
pub const PROGRAM_SAMPLE_TRACEPOINT: &str = "sample_tracepoint";
/// As [`PROGRAM_SAMPLE_TRACEPOINT`]: user stacks by `bpf_get_stack`.
pub const PROGRAM_SAMPLE_TRACEPOINT_FP: &str = "sample_tracepoint_fp";
/// uprobe program: samples the executions of an instruction of a file.
pub const PROGRAM_SAMPLE_PROBE: &str = "sample_probe";
/// As [`PROGRAM_SAMPLE_PROBE`]: user stacks by `bpf_get_stack`.
pub const PROGRAM_SAMPLE_PROBE_FP: &str = "sample_probe_fp";
/// Raw tracepoint program that keeps the time at which a thread enters a system call.
pub const PROGRAM_SYSTEM_CALL_ENTER: &str = "system_call_enter";
/// Raw tracepoint program that removes what [`PROGRAM_SYSTEM_CALL_ENTER`] keeps of a thread that exits.
pub const PROGRAM_SYSTEM_CALL_THREAD_EXIT: &str = "system_call_thread_exit";

/// Ring buffer of [`SampleRecord`](super::SampleRecord), stack records and
/// [`StaleMappingsRecord`](super::StaleMappingsRecord).
pub const MAP_RECORDS: &str = "RECORDS";
/// Ids of the stacks that were sent.
pub const MAP_SENT_STACKS: &str = "SENT_STACKS";
/// Process id -> the time of its last [`StaleMappingsRecord`](super::StaleMappingsRecord).
pub const MAP_STALE_MAPPINGS: &str = "STALE_MAPPINGS";
/// Process or thread ids to sample.
pub const MAP_TARGETS: &str = "TARGETS";
/// The cgroup v2 directory to sample below.
pub const MAP_CGROUP: &str = "CGROUP";
/// One value for each [`Counter`](super::Counter).
pub const MAP_COUNTERS: &str = "COUNTERS";
/// Program array whose one entry is [`PROGRAM_UNWIND_TAILCALL`].
pub const MAP_TAIL_CALLS: &str = "TAIL_CALLS";
/// Address of a task -> [`SystemCallEntry`](super::system_call::SystemCallEntry).
pub const MAP_SYSTEM_CALLS: &str = "SYSTEM_CALLS";
/// Process id -> [`ProcessEntry`](super::unwind::ProcessEntry).
pub const MAP_PROCESSES: &str = "PROCESSES";
/// One value, all [`MappingEntry`](super::unwind::MappingEntry)s.
pub const MAP_MAPPINGS: &str = "MAPPINGS";
/// [`FileSegment`](super::unwind::FileSegment) -> [`SegmentTable`](super::unwind::SegmentTable).
pub const MAP_UNWIND_SEGMENTS: &str = "UNWIND_SEGMENTS";
/// One value, all [`PageEntry`](super::unwind::PageEntry)s.
pub const MAP_UNWIND_PAGES: &str = "UNWIND_PAGES";
/// Array of maps: chunk -> an array of one value, its [`Row`](super::unwind::Row)s.
pub const MAP_UNWIND_ROWS: &str = "UNWIND_ROWS";
/// One value, all [`Rule`](super::unwind::Rule)s.
pub const MAP_UNWIND_RULES: &str = "UNWIND_RULES";
/// One value, a [`WallPass`](super::wall::WallPass).
pub const MAP_WALL_PASS: &str = "WALL_PASS";
/// One value, a [`WallScan`](super::wall::WallScan).
pub const MAP_WALL_SCAN: &str = "WALL_SCAN";
/// Number of a thread -> [`ScannedThread`](super::wall::ScannedThread).
pub const MAP_SCANNED_THREADS: &str = "SCANNED_THREADS";
/// Address of a task -> [`WaitingThread`](super::wall::WaitingThread).
pub const MAP_WAITING_THREADS: &str = "WAITING_THREADS";
/// Index -> [`StackRequest`](super::requested_stack::StackRequest).
pub const MAP_STACK_REQUESTS: &str = "STACK_REQUESTS";
/// One value, a [`CopiedStack`](super::requested_stack::CopiedStack).
pub const MAP_COPIED_STACK: &str = "COPIED_STACK";
/// Address of a task -> [`OffCpuThread`](super::off_cpu::OffCpuThread).
pub const MAP_OFF_CPU_THREADS: &str = "OFF_CPU_THREADS";
/// Stacks that were copied at switches.
pub const MAP_STACKS_AT_SWITCH: &str = "STACKS_AT_SWITCH";
/// Index of an event -> its [`EventCounts`](super::event::EventCounts).
pub const MAP_EVENT_COUNTS: &str = "EVENT_COUNTS";
/// Index of an event -> the working memory of its program.
pub const MAP_EVENT_SCRATCH: &str = "EVENT_SCRATCH";
/// The load-time constant of type [`Config`](super::Config).
pub const GLOBAL_CONFIG: &str = "CONFIG";
