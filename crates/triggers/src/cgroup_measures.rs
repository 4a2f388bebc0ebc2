//! Reads the measures of a cgroup with its descendants.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use profiler_processes::{
    Pid, ProcFs,
    cgroup::{self, CgroupMounts},
};

use crate::{
    Measure, MeasureSource, Values,
    cgroups::{Cgroups, Place, Resource},
    online_cpus,
    rate::Rate,
    run_queue::RunQueue,
};

/// Processes whose threads and files are counted at one moment.
const MAX_PROCESSES: usize = 512;

/// Reads the measures of a cgroup, such as that of a container, from its files in both versions and from `/proc`.
///
/// Its path is the same in every mounted hierarchy, as container runtimes and systemd make it.
#[derive(Debug)]
pub struct CgroupMeasures {
    proc: ProcFs,
    directory: PathBuf,
    cgroups: Cgroups,
    cpu: Rate,
    run_queue: RunQueue,
}

impl CgroupMeasures {
    /// Begins to measure the cgroup with a directory in a mounted hierarchy.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when the directory is not below a mount; those of reading `/proc/self/mountinfo`.
    pub fn open(directory: &Path) -> io::Result<Self> {
        Self::with_proc(ProcFs::live(), directory)
    }

    /// As [`open`](Self::open), in a proc file system. The mounts are those in its `self/mountinfo`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn with_proc(proc: ProcFs, directory: &Path) -> io::Result<Self> {
        let mounts = CgroupMounts::read(&proc)?;
        let not_mounted = || {
            let message = format!("`{}` is in no mounted cgroup hierarchy", directory.display());
            io::Error::new(io::ErrorKind::NotFound, message)
        };
        let path = mounts.path_of(directory).ok_or_else(not_mounted)?;
        let mut cgroups = Cgroups::new(mounts);
        cgroups.enter(Place::Path(path));
        let (cpu, run_queue) = (Rate::default(), RunQueue::default());
        Ok(Self { proc, directory: directory.to_owned(), cgroups, cpu, run_queue })
    }

    /// Sets the values of those measures whose [source](Measure::source) is [`MeasureSource::Kernel`]. `now_ns` is the
    /// time of `CLOCK_MONOTONIC`.
    ///
    /// A measure that the cgroup does not have has no value. The first value of a share of time is that of the second call.
    /// After the end of the cgroup, only [`Measure::Exit`] has a value.
    pub fn read(&mut self, measures: &BTreeSet<Measure>, now_ns: u64, values: &mut Values) {
        let exists = self.directory.is_dir();
        let cpu = self.cgroups.cpu_ns().and_then(|cpu_ns| self.cpu.update(now_ns, cpu_ns));
        for measure in measures.iter().filter(|measure| measure.source() == MeasureSource::Kernel) {
            let value = match measure {
                Measure::Exit => Some(f64::from(u8::from(!exists))),
                measure => self.value(measure, now_ns, cpu).filter(|_| exists),
            };
            values.set(measure.clone(), value);
        }
    }

    fn value(&mut self, measure: &Measure, now_ns: u64, cpu: Option<f64>) -> Option<f64> {
        match measure {
            Measure::Cpu => cpu,
            Measure::CpuOfMachine => Some(cpu? / online_cpus::count()? as f64),
            Measure::CpuOfQuota => self.cgroups.cpu_of_quota(now_ns, cpu),
            Measure::Throttled => self.cgroups.throttled(now_ns),
            Measure::Runnable => self.run_queue.update(&self.proc, &self.processes(), now_ns),
            Measure::Rss => self.cgroups.resident_bytes().map(|bytes| bytes as f64),
            Measure::Memory => self.cgroups.memory_of_limit(),
            Measure::Threads => self.cgroups.threads().map(|threads| threads as f64),
            Measure::Fds => Some(self.open_files() as f64),
            Measure::PsiCpu => self.cgroups.pressure(&self.proc, Resource::Cpu),
            Measure::PsiMemory => self.cgroups.pressure(&self.proc, Resource::Memory),
            Measure::PsiIo => self.cgroups.pressure(&self.proc, Resource::Io),
            _ => None,
        }
    }

    fn processes(&self) -> Vec<Pid> {
        cgroup::processes_in(&self.directory, MAX_PROCESSES)
    }

    /// The open files of its processes. One that ends meanwhile has none.
    fn open_files(&self) -> u64 {
        self.processes().into_iter().filter_map(|pid| self.proc.open_files(pid).ok()).sum()
    }
}
