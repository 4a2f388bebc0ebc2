//! Loads the programs that measure threads that wait, for `--wall` and `--off-cpu`.

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
};

use profiler_common::{Config, names};

use super::{
    config,
    loader::{Helper, clone_fd, has_helper, load_program, map},
    off_cpu::OffCpuWaits,
    requested_stacks::RequestedStacks,
    wall::{WallMaps, WallPasses, WallStacks},
    wall_scan::{ScanLinks, WallScanner},
};
use crate::{
    error::{Error, Operation, Result},
    sampler::{Filter, Plan},
    sys::{
        bpf::ProgramType,
        bpf_link::{self, IteratedTasks},
    },
};

/// Loads the task iterator of wall-clock samples.
pub(super) fn wall_passes(
    object: &aya_obj::Object,
    plan: &Plan,
    config: &Config,
    maps: &HashMap<String, OwnedFd>,
    frequency_hz: u64,
) -> Result<WallPasses> {
    let tasks = iterated_tasks(plan);
    let fd = |name| clone_fd(map(maps, name)?);
    let (link, stacks) = if config::copies_stacks_of_tasks() {
        let program = load_iterator(object, names::PROGRAM_WALL_PASS, true)?;
        let link = attach_iterator(&program, tasks)?;
        let scanner = match tasks {
            IteratedTasks::Process(pid) if config.wall.signal_thread_head != 0 => {
                wall_scanner(object, pid, fd(names::MAP_WALL_SCAN)?, program)
            }
            _ => None,
        };
        (link, WallStacks::Copied(scanner))
    } else {
        let program = load_iterator(object, names::PROGRAM_WALL_PASS_REQUESTING, false)?;
        let unwind = load_program(object, names::PROGRAM_UNWIND_COPIED, ProgramType::RawTracepoint)?;
        let (requests, copied) = (fd(names::MAP_STACK_REQUESTS)?, fd(names::MAP_COPIED_STACK)?);
        let requested = RequestedStacks::new(unwind, requests, copied);
        (attach_iterator(&program, tasks)?, WallStacks::Requested(requested))
    };
    let maps = WallMaps { pass: fd(names::MAP_WALL_PASS)?, threads: fd(names::MAP_WAITING_THREADS)? };
    Ok(WallPasses::new(maps, link, stacks, frequency_hz, plan.max_overhead_percent))
}

/// Loads the scan of the threads of a process. `None` where the kernel refuses it.
fn wall_scanner(object: &aya_obj::Object, pid: u32, result: OwnedFd, pass: OwnedFd) -> Option<WallScanner> {
    let scan = load_iterator(object, names::PROGRAM_WALL_SCAN, false);
    let links = scan.and_then(|scan| {
        let attach = |pid| attach_iterator(&scan, IteratedTasks::Thread(pid));
        Ok(ScanLinks { scan: attach(pid)?, end: attach(std::process::id())? })
    });
    let links = links.inspect_err(|error| log::debug!("each pass visits all threads: {error}")).ok();
    links.map(|links| WallScanner::new(links, result, pass))
}

/// Loads the programs of off-CPU time.
pub(super) fn off_cpu_waits(
    object: &aya_obj::Object,
    plan: &Plan,
    maps: &HashMap<String, OwnedFd>,
) -> Result<OffCpuWaits> {
    let unwinds = plan.uses_unwinder() && has_helper(Helper::Loop);
    let [switch, wake] = match unwinds {
        true => [names::PROGRAM_OFF_CPU_SWITCH, names::PROGRAM_OFF_CPU_WAKE],
        false => [names::PROGRAM_OFF_CPU_SWITCH_FP, names::PROGRAM_OFF_CPU_WAKE_FP],
    };
    let programs = [(switch, "sched_switch"), (wake, "sched_waking")].map(|(program, tracepoint)| {
        let btf_id = config::tracepoint(tracepoint)?;
        load_program(object, program, ProgramType::Tracepoint { btf_id })
    });
    let programs = programs.into_iter().collect::<Result<_>>()?;
    let pass = if config::copies_stacks_of_tasks() {
        let program = load_iterator(object, names::PROGRAM_OFF_CPU_PASS, true)?;
        Some(attach_iterator(&program, iterated_tasks(plan))?)
    } else {
        log::warn!(
            "threads that wait from before the start to the end have no stacks: before Linux 5.18, the task iterator cannot copy them"
        );
        None
    };
    Ok(OffCpuWaits::new(programs, pass, clone_fd(map(maps, names::MAP_OFF_CPU_THREADS)?)?))
}

/// Loads a program of the task iterator.
fn load_iterator(object: &aya_obj::Object, name: &str, is_sleepable: bool) -> Result<OwnedFd> {
    let btf_id = config::task_iterator()?;
    load_program(object, name, ProgramType::Iterator { btf_id, is_sleepable })
}

/// The tasks that can belong to the target.
fn iterated_tasks(plan: &Plan) -> IteratedTasks {
    match &plan.filter {
        Filter::Processes(ids) if !plan.children && ids.len() == 1 => IteratedTasks::Process(ids[0]),
        Filter::Threads(ids) if ids.len() == 1 => IteratedTasks::Thread(ids[0]),
        _ => IteratedTasks::All,
    }
}

fn attach_iterator(program: &OwnedFd, tasks: IteratedTasks) -> Result<OwnedFd> {
    bpf_link::attach_task_iterator(program.as_fd(), tasks)
        .map_err(|error| Error::from_io(Operation::LoadProgram, "failed to attach the task iterator", error))
}
