//! Loads the programs that measure threads that wait, for `--wall` and `--off-cpu`.

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
};

use profiler_common::{Config, names};

use super::{
    kernel_types::KernelTypes,
    object::{Helper, clone_fd, has_helper, load_program, map},
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

/// What the programs are loaded from and for.
pub(super) struct WaitingPrograms<'a> {
    pub(super) object: &'a aya_obj::Object,
    pub(super) plan: &'a Plan,
    pub(super) types: &'a KernelTypes,
    pub(super) maps: &'a HashMap<String, OwnedFd>,
}

impl WaitingPrograms<'_> {
    /// Loads the task iterator of wall-clock samples.
    pub(super) fn wall_passes(&self, config: &Config, frequency_hz: u64) -> Result<WallPasses> {
        let tasks = iterated_tasks(self.plan);
        let (link, stacks) = if self.types.copies_stacks_of_tasks() {
            let program = self.load_iterator(names::PROGRAM_WALL_PASS, true)?;
            let link = attach_iterator(&program, tasks)?;
            let scanner = match tasks {
                IteratedTasks::Process(pid) if config.wall.signal_thread_head != 0 => {
                    self.wall_scanner(pid, program)?
                }
                _ => None,
            };
            (link, WallStacks::Copied(scanner))
        } else {
            let program = self.load_iterator(names::PROGRAM_WALL_PASS_REQUESTING, false)?;
            let unwind = load_program(self.object, names::PROGRAM_UNWIND_COPIED, ProgramType::RawTracepoint)?;
            let (requests, copied) =
                (self.map(names::MAP_STACK_REQUESTS)?, self.map(names::MAP_COPIED_STACK)?);
            let requested = RequestedStacks::new(unwind, requests, copied);
            (attach_iterator(&program, tasks)?, WallStacks::Requested(requested))
        };
        let maps = WallMaps {
            pass: self.map(names::MAP_WALL_PASS)?,
            threads: self.map(names::MAP_WAITING_THREADS)?,
        };
        Ok(WallPasses::new(maps, link, stacks, frequency_hz, self.plan.max_overhead_percent))
    }

    /// Loads the scan of the threads of a process. `None` where the kernel refuses it.
    fn wall_scanner(&self, pid: u32, pass: OwnedFd) -> Result<Option<WallScanner>> {
        let scan = self.load_iterator(names::PROGRAM_WALL_SCAN, false);
        let links = scan.and_then(|scan| {
            let attach = |pid| attach_iterator(&scan, IteratedTasks::Thread(pid));
            Ok(ScanLinks { scan: attach(pid)?, end: attach(std::process::id())? })
        });
        let links = links.inspect_err(|error| log::debug!("each pass visits all threads: {error}")).ok();
        let result = self.map(names::MAP_WALL_SCAN)?;
        Ok(links.map(|links| WallScanner::new(links, result, pass)))
    }

    /// Loads the programs of off-CPU time.
    pub(super) fn off_cpu_waits(&self) -> Result<OffCpuWaits> {
        let unwinds = self.plan.uses_unwinder() && has_helper(Helper::Loop);
        let [switch, wake] = match unwinds {
            true => [names::PROGRAM_OFF_CPU_SWITCH, names::PROGRAM_OFF_CPU_WAKE],
            false => [names::PROGRAM_OFF_CPU_SWITCH_FP, names::PROGRAM_OFF_CPU_WAKE_FP],
        };
        let programs = [(switch, "sched_switch"), (wake, "sched_waking")].map(|(program, tracepoint)| {
            let btf_id = self.types.tracepoint(tracepoint)?;
            load_program(self.object, program, ProgramType::Tracepoint { btf_id })
        });
        let programs = programs.into_iter().collect::<Result<_>>()?;
        let pass = if self.types.copies_stacks_of_tasks() {
            let program = self.load_iterator(names::PROGRAM_OFF_CPU_PASS, true)?;
            Some(attach_iterator(&program, iterated_tasks(self.plan))?)
        } else {
            log::warn!(
                "threads that wait from before the start to the end have no stacks: before Linux 5.18, the task iterator cannot copy them"
            );
            None
        };
        Ok(OffCpuWaits::new(programs, pass, self.map(names::MAP_OFF_CPU_THREADS)?))
    }

    /// Loads a program of the task iterator.
    fn load_iterator(&self, name: &str, is_sleepable: bool) -> Result<OwnedFd> {
        let btf_id = self.types.task_iterator()?;
        load_program(self.object, name, ProgramType::Iterator { btf_id, is_sleepable })
    }

    fn map(&self, name: &str) -> Result<OwnedFd> {
        clone_fd(map(self.maps, name)?)
    }
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
