//! Off-CPU time: tracepoints of switches and wakeups, and passes over threads whose wait lacks its stacks.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use profiler_addresses::MonotonicTime;
use profiler_common::{names, off_cpu::OffCpuThread};
use profiler_processes::monotonic_time;
use zerocopy::FromBytes;

use super::{
    iterator_pass::{self, Blockage, MAX_WAITING_THREADS},
    programs::{ProgramLoader, attach_iterator},
};
use crate::{
    error::{Error, ErrorKind, Operation, Result},
    sys::{
        bpf::{self, ProgramType},
        bpf_link,
    },
};

/// How often stacks are captured that are missing, or that lacked an unwind table.
const PASS_INTERVAL: Duration = Duration::from_secs(1);

/// The programs of off-CPU time. They are loaded, and attached from [`start`](Self::start) to [`stop`](Self::stop).
#[derive(Debug)]
pub(super) struct OffCpuWaits {
    programs: Vec<OwnedFd>,
    tracepoints: Vec<OwnedFd>,
    /// The task iterator; `None` before Linux 5.18.
    pass: Option<OwnedFd>,
    blockage: Blockage,
    threads: OwnedFd,
    next_pass: Instant,
    stopped: Option<MonotonicTime>,
}

impl OffCpuWaits {
    /// Loads the programs of the tracepoints and the task iterator.
    pub(super) fn load(loader: &ProgramLoader<'_>) -> Result<Self> {
        let [switch, wake] = match loader.can_unwind() {
            true => [names::PROGRAM_OFF_CPU_SWITCH, names::PROGRAM_OFF_CPU_WAKE],
            false => [names::PROGRAM_OFF_CPU_SWITCH_FP, names::PROGRAM_OFF_CPU_WAKE_FP],
        };
        let types = loader.context.types;
        let programs = [(switch, "sched_switch"), (wake, "sched_waking")].map(|(program, tracepoint)| {
            loader.load(program, ProgramType::Tracepoint { btf_id: types.tracepoint(tracepoint)? })
        });
        let programs = programs.into_iter().collect::<Result<_>>()?;
        let pass = if types.copies_stacks_of_tasks() {
            let program = loader.load_iterator(names::PROGRAM_OFF_CPU_PASS, true)?;
            Some(attach_iterator(&program, loader.tasks)?)
        } else {
            log::warn!(
                "threads that wait from before the start to the end have no stacks: before Linux 5.18, the task iterator cannot copy them"
            );
            None
        };
        Ok(Self {
            programs,
            tracepoints: Vec::new(),
            pass,
            blockage: Blockage::default(),
            threads: loader.map(names::MAP_OFF_CPU_THREADS)?,
            next_pass: Instant::now(),
            stopped: None,
        })
    }

    /// Attaches the programs. Threads that wait already have waited since the start.
    pub(super) fn start(&mut self) -> Result<()> {
        for program in &self.programs {
            let link = bpf_link::open_tracepoint(program.as_fd()).map_err(|error| {
                let message = "failed to attach to the tracepoints `sched_switch` and `sched_waking`";
                Error::from_io(Operation::LoadProgram, message, error)
            })?;
            self.tracepoints.push(link);
        }
        self.run_pass()
    }

    /// Detaches the programs.
    pub(super) fn stop(&mut self) {
        self.tracepoints.clear();
        self.stopped = Some(monotonic_time());
    }

    /// Runs the pass that is due. It sends stacks, which are read before the waits that have them.
    pub(super) fn run_due(&mut self) -> Result<()> {
        if self.next_pass <= Instant::now() { self.run_pass() } else { Ok(()) }
    }

    /// Captures the stacks that are missing.
    pub(super) fn run_pass(&mut self) -> Result<()> {
        self.next_pass = Instant::now() + PASS_INTERVAL;
        let Some(link) = &self.pass else { return Ok(()) };
        let is_blocked = match iterator_pass::run_with_deadline(link.as_fd()) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => true,
            result => result.map(|()| false).map_err(failed)?,
        };
        self.blockage.set(is_blocked, "threads that wait since before the start have no stacks");
        Ok(())
    }

    /// The threads that wait at a time, or at the end of sampling if it was earlier, and that time.
    pub(super) fn waiting_threads(&self, at: MonotonicTime) -> Result<(Vec<OffCpuThread>, MonotonicTime)> {
        let at = self.stopped.unwrap_or(at);
        Ok((self.read_threads(at).map_err(failed)?, at))
    }

    fn read_threads(&self, at: MonotonicTime) -> io::Result<Vec<OffCpuThread>> {
        let mut threads = Vec::new();
        for key in bpf::keys::<{ size_of::<u64>() }>(self.threads.as_fd(), MAX_WAITING_THREADS as usize)? {
            let thread = self.thread(&key)?;
            // A thread that runs between the two reads is in another wait, whose fields can be in the first.
            let is_stable = |read: &OffCpuThread| Some(read.since_ns) == self.since_ns(&key);
            let waits = |read: &OffCpuThread| read.since_ns > 0 && MonotonicTime(read.since_ns) < at;
            threads.extend(thread.filter(|read| waits(read) && is_stable(read)));
        }
        Ok(threads)
    }

    fn since_ns(&self, key: &[u8]) -> Option<u64> {
        self.thread(key).ok().flatten().map(|thread| thread.since_ns)
    }

    /// The entry of a thread; `None` if it has exited.
    fn thread(&self, key: &[u8]) -> io::Result<Option<OffCpuThread>> {
        let mut value = [0; size_of::<OffCpuThread>()];
        match bpf::look_up_element(self.threads.as_fd(), key, &mut value) {
            Ok(()) => Ok(OffCpuThread::read_from_bytes(&value).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn failed(error: io::Error) -> Error {
    Error::with_source(ErrorKind::Io, "failed to read the threads that wait", error)
}
