//! Entry points of the kernel side. Each is a wrapper that counts what its `try_` function could not do.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]

#[cfg(not(target_arch = "bpf"))]
fn main() {}

#[cfg(target_arch = "bpf")]
mod ahead;
#[cfg(target_arch = "bpf")]
mod cgroup;
#[cfg(target_arch = "bpf")]
mod config;
#[cfg(target_arch = "bpf")]
mod filter;
#[cfg(target_arch = "bpf")]
mod kernel;
#[cfg(target_arch = "bpf")]
mod maps;
#[cfg(target_arch = "bpf")]
mod process;
#[cfg(target_arch = "bpf")]
mod registers;
#[cfg(target_arch = "bpf")]
mod sample;
#[cfg(target_arch = "bpf")]
mod stack;
#[cfg(target_arch = "bpf")]
mod tables;
#[cfg(target_arch = "bpf")]
mod walk;

#[cfg(target_arch = "bpf")]
mod entry {
    use aya_ebpf::{
        macros::{perf_event, raw_tracepoint},
        programs::{PerfEventContext, RawTracePointContext},
    };

    use crate::{maps::count, process, sample};

    /// Runs at each tick of a CPU's timer event, where user stacks are taken by the kernel's own walk.
    #[perf_event]
    fn sample(context: PerfEventContext) -> u32 {
        sample::by_frame_pointer(&context);
        0
    }

    /// Runs at each tick of a CPU's timer event, where user stacks are walked by tables.
    #[perf_event]
    fn sample_loop(context: PerfEventContext) -> u32 {
        sample::by_loop(&context);
        0
    }

    /// As above, where the kernel has no loops.
    #[perf_event]
    fn sample_chain(context: PerfEventContext) -> u32 {
        sample::by_chain(&context);
        0
    }

    /// Runs in place of the one above and of itself.
    #[perf_event]
    fn sample_link(context: PerfEventContext) -> u32 {
        sample::link(&context);
        0
    }

    /// Runs at `sched_process_fork`: a child has what its parent has before it runs.
    #[raw_tracepoint(tracepoint = "sched_process_fork")]
    fn process_fork(context: RawTracePointContext) -> i32 {
        if let Err(counter) = process::try_fork(&context) {
            count(counter);
        }
        0
    }

    /// Runs at `sched_process_exec`: the mappings of the program before are gone.
    #[raw_tracepoint(tracepoint = "sched_process_exec")]
    fn process_exec(_context: RawTracePointContext) -> i32 {
        process::exec();
        0
    }

    /// Runs at `sched_process_exit`: the id of a target that ended is free for another process.
    #[raw_tracepoint(tracepoint = "sched_process_exit")]
    fn process_exit(context: RawTracePointContext) -> i32 {
        process::exit(&context);
        0
    }

    #[panic_handler]
    fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
        loop {}
    }

    /// The kernel lends its stack and task helpers to programs under the GPL only.
    #[unsafe(no_mangle)]
    #[unsafe(link_section = "license")]
    static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
}
