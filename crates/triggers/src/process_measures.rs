//! Reads the measures of a process from `/proc` and from its cgroups.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use profiler_processes::{Pid, ProcFs, Stat, cgroup::CgroupMounts};
use rustix::{
    io::Errno,
    process::{PidfdFlags, pidfd_open},
};

use crate::{
    Measure, MeasureSource, Values,
    cgroups::{Cgroups, Place, Resource},
    online_cpus,
    rate::Rate,
    run_queue::RunQueue,
    sys,
};

const NS_PER_S: u64 = 1_000_000_000;

/// Reads the measures of a process from outside: `/proc`, cgroups of both versions, and pressure stall information.
///
/// It needs no permission besides that to read `/proc/PID`, except for [`Measure::Fds`] before Linux 6.2. The process
/// is identified by its PID and its start time, so that a process that gets the same PID later is not measured.
#[derive(Debug)]
pub struct ProcessMeasures {
    proc: ProcFs,
    pid: Pid,
    /// Start time of the process, clock ticks since boot.
    start_ticks: u64,
    /// Shows the wait status; `None` if the proc file system is not that of the kernel.
    pidfd: Option<OwnedFd>,
    cpu: Rate,
    run_queue: RunQueue,
    cgroups: Cgroups,
}

impl ProcessMeasures {
    /// Begins to measure a running process.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when no process has this PID or the process has ended; those of reading `/proc`.
    pub fn open(pid: Pid) -> io::Result<Self> {
        Self::with_proc(ProcFs::live(), pid)
    }

    /// As [`open`](Self::open), in a proc file system. The mounts of cgroups are those in its `self/mountinfo`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn with_proc(proc: ProcFs, pid: Pid) -> io::Result<Self> {
        let stat =
            read_stat(&proc, pid).map_err(|error| failed(&format!("read `/proc/{pid}/stat`"), &error))?;
        let pidfd = if proc.is_live() { Some(open_pidfd(pid)?) } else { None };
        let mounts =
            CgroupMounts::read(&proc).map_err(|error| failed("read `/proc/self/mountinfo`", &error))?;
        let (cpu, run_queue, cgroups) = (Rate::default(), RunQueue::default(), Cgroups::new(mounts));
        let process = Self { proc, pid, start_ticks: stat.start_ticks, pidfd, cpu, run_queue, cgroups };
        // The pidfd is that of the process if it runs before and after.
        match process.state() {
            ProcessState::Running(_) => Ok(process),
            _ => Err(io::Error::new(io::ErrorKind::NotFound, format!("process {pid} has ended"))),
        }
    }

    /// Sets the values of those measures whose [source](Measure::source) is [`MeasureSource::Kernel`]. `now_ns` is the
    /// time of `CLOCK_MONOTONIC`.
    ///
    /// A measure that cannot be read, or that the kernel or the cgroup does not have, has no value. The first value of
    /// a share of time is that of the second call. After the end of the process, only [`Measure::Exit`] has a value,
    /// and [`Measure::ExitStatus`] where the kernel shows it: a parent of the process sets it after this call.
    pub fn read(&mut self, measures: &BTreeSet<Measure>, now_ns: u64, values: &mut Values) {
        let wanted = measures.iter().filter(|measure| measure.source() == MeasureSource::Kernel);
        let mut state = self.state();
        let mut read = Vec::new();
        if let ProcessState::Running(stat) = &state {
            read = self.running_values(wanted.clone(), now_ns, stat);
            // What was read is that of another process if this one has ended in the meantime.
            state = self.state();
        }
        let ended = |measure: &Measure| match measure {
            Measure::Exit => Some(1.0),
            Measure::ExitStatus => self.exit_status(),
            _ => None,
        };
        match state {
            ProcessState::Running(_) => {
                read.into_iter().for_each(|(measure, value)| values.set(measure, value));
            }
            ProcessState::Ended => wanted.for_each(|measure| values.set(measure.clone(), ended(measure))),
            ProcessState::Unknown => wanted.for_each(|measure| values.set(measure.clone(), None)),
        }
    }

    fn running_values<'a>(
        &mut self,
        wanted: impl Iterator<Item = &'a Measure> + Clone,
        now_ns: u64,
        stat: &Stat,
    ) -> Vec<(Measure, Option<f64>)> {
        let tick_ns = NS_PER_S / rustix::param::clock_ticks_per_second().max(1);
        let cpu_ns = stat.user_ticks.saturating_add(stat.system_ticks).saturating_mul(tick_ns);
        let cpu = self.cpu.update(now_ns, cpu_ns);
        if wanted.clone().any(is_of_cgroup) {
            self.cgroups.enter(Place::OfProcess(self.proc.read(self.pid, "cgroup").unwrap_or_default()));
        }
        let moment = Moment { now_ns, stat, cpu };
        wanted.map(|measure| (measure.clone(), self.value(measure, &moment))).collect()
    }

    fn value(&mut self, measure: &Measure, moment: &Moment<'_>) -> Option<f64> {
        let Moment { now_ns, stat, cpu } = *moment;
        match measure {
            Measure::Cpu => cpu,
            Measure::CpuOfMachine => Some(cpu? / online_cpus::count()? as f64),
            Measure::CpuOfQuota => self.cgroups.cpu_of_quota(now_ns, cpu),
            Measure::Throttled => self.cgroups.throttled(now_ns),
            Measure::Runnable => self.run_queue.update(&self.proc, &[self.pid], now_ns),
            Measure::Rss => Some(stat.resident_pages as f64 * rustix::param::page_size() as f64),
            Measure::Memory => self.cgroups.memory_of_limit(),
            Measure::Threads => Some(stat.living_threads() as f64),
            Measure::Fds => self.proc.open_files(self.pid).ok().map(|files| files as f64),
            Measure::PsiCpu => self.cgroups.pressure(&self.proc, Resource::Cpu),
            Measure::PsiMemory => self.cgroups.pressure(&self.proc, Resource::Memory),
            Measure::PsiIo => self.cgroups.pressure(&self.proc, Resource::Io),
            Measure::Exit => Some(0.0),
            _ => None,
        }
    }

    fn state(&self) -> ProcessState {
        match read_stat(&self.proc, self.pid) {
            Ok(stat) if stat.start_ticks != self.start_ticks || stat.has_ended() => ProcessState::Ended,
            Ok(stat) => ProcessState::Running(stat),
            Err(error) if is_of_ended_process(&error) => ProcessState::Ended,
            Err(_) => ProcessState::Unknown,
        }
    }

    /// The exit code, or 128 and the number of the signal, from the bits of the wait status (wait(2)).
    fn exit_status(&self) -> Option<f64> {
        const SIGNAL_BITS: i32 = 0x7f;
        let status = sys::wait_status(self.pidfd.as_ref()?.as_fd())?;
        let signal = status & SIGNAL_BITS;
        Some(f64::from(if signal == 0 { (status >> 8) & 0xff } else { 128 + signal }))
    }
}

/// Whether a process runs.
enum ProcessState {
    Running(Stat),
    /// It has ended; another process may have its PID.
    Ended,
    /// `/proc` cannot be read now.
    Unknown,
}

/// What the measures of one moment share.
struct Moment<'a> {
    now_ns: u64,
    stat: &'a Stat,
    /// CPU time of the process per time.
    cpu: Option<f64>,
}

fn is_of_cgroup(measure: &Measure) -> bool {
    matches!(
        measure,
        Measure::CpuOfQuota
            | Measure::Throttled
            | Measure::Memory
            | Measure::PsiCpu
            | Measure::PsiMemory
            | Measure::PsiIo
    )
}

/// Whether an error of reading `/proc/PID` is that of a process that does not exist: of opening an entry, or of reading
/// one that was opened before its end.
fn is_of_ended_process(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || Errno::from_io_error(error) == Some(Errno::SRCH)
}

fn read_stat(proc: &ProcFs, pid: Pid) -> io::Result<Stat> {
    let text = proc.read(pid, "stat")?;
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "the text is malformed");
    Stat::parse(&String::from_utf8_lossy(&text)).ok_or_else(malformed)
}

fn open_pidfd(pid: Pid) -> io::Result<OwnedFd> {
    let id =
        i32::try_from(pid.0).ok().and_then(rustix::process::Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
    pidfd_open(id, PidfdFlags::empty())
        .map_err(|error| failed(&format!("open a descriptor of process {pid}"), &error.into()))
}

fn failed(action: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("failed to {action}: {error}"))
}
