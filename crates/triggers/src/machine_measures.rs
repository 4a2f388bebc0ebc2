//! Reads the measures of the machine.

use std::{collections::BTreeSet, io::Read as _};

use profiler_processes::ProcFs;

use crate::{
    Measure, MeasureSource, Values,
    cgroups::{Resource, pressure_of_machine},
    online_cpus,
    rate::Rate,
};

/// Bytes read of a file. `/proc/schedstat` has some hundred for each CPU.
const MAX_FILE_BYTES: u64 = 1 << 20;

const NS_PER_S: u64 = 1_000_000_000;

const BYTES_PER_KIB: u64 = 1024;

/// Reads the measures of the machine from `/proc`, kernel threads included. Quotas and exits are those of cgroups and processes:
/// they have no value.
#[derive(Debug)]
pub struct MachineMeasures {
    proc: ProcFs,
    cpu: Rate,
    run_queue: Rate,
}

impl Default for MachineMeasures {
    fn default() -> Self {
        Self::with_proc(ProcFs::live())
    }
}

impl MachineMeasures {
    /// Begins to measure the machine in a proc file system.
    #[must_use]
    pub fn with_proc(proc: ProcFs) -> Self {
        Self { proc, cpu: Rate::default(), run_queue: Rate::default() }
    }

    /// Sets the values of those measures whose [source](Measure::source) is [`MeasureSource::Kernel`]. `now_ns` is the
    /// time of `CLOCK_MONOTONIC`. The first value of a share of time is that of the second call.
    pub fn read(&mut self, measures: &BTreeSet<Measure>, now_ns: u64, values: &mut Values) {
        let cpu = self.busy_ns().and_then(|busy_ns| self.cpu.update(now_ns, busy_ns));
        for measure in measures.iter().filter(|measure| measure.source() == MeasureSource::Kernel) {
            let value = self.value(measure, now_ns, cpu);
            values.set(measure.clone(), value);
        }
    }

    fn value(&mut self, measure: &Measure, now_ns: u64, cpu: Option<f64>) -> Option<f64> {
        match measure {
            Measure::Cpu => cpu,
            Measure::CpuOfMachine => Some(cpu? / online_cpus::count()? as f64),
            Measure::Runnable => self.run_queue.update(now_ns, self.run_queue_ns()?),
            Measure::Rss => Some((self.memory_bytes("AnonPages")? + self.memory_bytes("Mapped")?) as f64),
            Measure::Memory => self.used_memory(),
            Measure::Threads => self.threads(),
            Measure::Fds => self.text("sys/fs/file-nr")?.split_ascii_whitespace().next()?.parse().ok(),
            Measure::PsiCpu => pressure_of_machine(&self.proc, Resource::Cpu),
            Measure::PsiMemory => pressure_of_machine(&self.proc, Resource::Memory),
            Measure::PsiIo => pressure_of_machine(&self.proc, Resource::Io),
            Measure::Exit => Some(0.0),
            _ => None,
        }
    }

    /// The time for which CPUs were not idle: user, nice, system, irq and softirq in `/proc/stat` (proc_stat(5)). Time of guests is
    /// part of user time; stolen time is that of other machines.
    fn busy_ns(&self) -> Option<u64> {
        const BUSY: [usize; 5] = [0, 1, 2, 5, 6];
        let text = self.text("stat")?;
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line.split_ascii_whitespace().map_while(|number| number.parse().ok()).collect();
        let busy = BUSY.iter().map(|index| ticks.get(*index).copied()).sum::<Option<u64>>()?;
        Some(busy.saturating_mul(NS_PER_S / rustix::param::clock_ticks_per_second().max(1)))
    }

    /// The time for which threads waited in run queues: the eighth number of each CPU in `/proc/schedstat`
    /// (`Documentation/scheduler/sched-stats.rst`).
    fn run_queue_ns(&self) -> Option<u64> {
        const WAITED: usize = 8;
        let text = self.text("schedstat")?;
        let cpus = text.lines().filter(|line| line.starts_with("cpu"));
        cpus.map(|line| line.split_ascii_whitespace().nth(WAITED)?.parse::<u64>().ok()).sum()
    }

    /// The share of the memory that new programs cannot have without swapping (`MemAvailable`, proc_meminfo(5)).
    fn used_memory(&self) -> Option<f64> {
        let (total, available) = (self.memory_bytes("MemTotal")?, self.memory_bytes("MemAvailable")?);
        (total > 0).then(|| total.saturating_sub(available) as f64 / total as f64)
    }

    fn memory_bytes(&self, key: &str) -> Option<u64> {
        let text = self.text("meminfo")?;
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        value.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(BYTES_PER_KIB)
    }

    /// The number after the slash in the fourth field of `/proc/loadavg` (proc_loadavg(5)).
    fn threads(&self) -> Option<f64> {
        self.text("loadavg")?.split_ascii_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
    }

    fn text(&self, name: &str) -> Option<String> {
        let mut text = String::new();
        self.proc.open_global(name).ok()?.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::Condition;

    struct Machine {
        proc: TempDir,
        wanted: BTreeSet<Measure>,
    }

    impl Machine {
        fn new(condition: &str) -> Self {
            Self {
                proc: tempfile::tempdir().unwrap(),
                wanted: condition.parse::<Condition>().unwrap().measures(),
            }
        }

        fn write(&self, file: &str, text: &str) {
            let path = self.proc.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn open(&self) -> MachineMeasures {
            MachineMeasures::with_proc(ProcFs::from_capture(self.proc.path().to_owned()))
        }

        fn values(&self, machine: &mut MachineMeasures, second: u64) -> String {
            let mut values = Values::default();
            machine.read(&self.wanted, second * NS_PER_S, &mut values);
            let values = self.wanted.iter().map(|measure| measure.describe(values.get(measure)));
            values.collect::<Vec<_>>().join(", ")
        }
    }

    #[test]
    fn time_on_cpus_and_in_run_queues_is_that_of_all_cpus() {
        let machine = Machine::new("cpu > 0 or runnable > 0");
        let hz = rustix::param::clock_ticks_per_second();
        machine.write("stat", "cpu  10 20 30 9999 9999 40 50 9999 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n");
        machine.write(
            "schedstat",
            "version 17\ncpu0 0 0 0 0 0 0 9 100 9\ndomain0 x 1\ncpu1 0 0 0 0 0 0 9 200 9\n",
        );
        let mut measures = machine.open();
        assert_eq!(machine.values(&mut measures, 10), "cpu unknown, runnable unknown");
        let user = 10 + hz;
        machine.write("stat", &format!("cpu  {user} 20 30 99 99 40 50 99 0 0\n"));
        machine.write("schedstat", "cpu0 0 0 0 0 0 0 9 100 9\ncpu1 0 0 0 0 0 0 9 500000200 9\n");
        assert_eq!(machine.values(&mut measures, 12), "cpu 50.0 %, runnable 25.0 %");
    }

    #[test]
    fn memory_threads_and_files_are_counted() {
        let machine = Machine::new("rss > 0 or memory > 0 or threads > 0 or fds > 0 or psi.io > 0 or exit");
        machine.write(
            "meminfo",
            "MemTotal:  1000 kB\nMemAvailable:  250 kB\nAnonPages: 100 kB\nMapped: 28 kB\n",
        );
        machine.write("loadavg", "0.1 0.2 0.3 2/345 678\n");
        machine.write("sys/fs/file-nr", "1234\t0\t999\n");
        machine.write("pressure/io", "some avg10=12.50 avg60=0.00 avg300=0.00 total=1\n");
        let values = machine.values(&mut machine.open(), 1);
        assert_eq!(values, "rss 128 KiB, memory 75.0 %, threads 345, fds 1234, psi.io 12.5 %, not exited");
    }

    #[test]
    fn what_a_machine_does_not_have_is_unknown() {
        let machine = Machine::new("throttled > 0 or cpu-of-quota > 0 or memory > 0 or runnable > 0");
        let mut measures = machine.open();
        let unknown = "cpu-of-quota unknown, throttled unknown, runnable unknown, memory unknown";
        assert_eq!(machine.values(&mut measures, 1), unknown);
    }

    #[test]
    fn this_machine_has_values() {
        let machine = Machine::new("cpu > 0 or memory > 0 or threads > 0 or fds > 0 or rss > 0");
        let mut measures = MachineMeasures::default();
        machine.values(&mut measures, 1);
        let values = machine.values(&mut measures, 2);
        assert!(!values.contains("unknown"), "{values}");
    }
}
