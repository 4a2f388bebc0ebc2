//! Tests with real processes.

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::*;
use crate::Evaluator;

/// A child process, killed at the end of the test.
struct Process {
    child: Child,
    started: Instant,
}

impl Process {
    fn start(script: &str) -> Self {
        let child = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
        Self { child, started: Instant::now() }
    }

    /// A process that uses all the CPU time it gets.
    fn busy() -> Self {
        Self::start("while :; do :; done")
    }

    /// A process that waits for its input.
    fn idle() -> Self {
        Self::start("read line")
    }

    fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap()
    }

    /// A number of `/proc/PID/schedstat`, whose unit is a nanosecond: 0 for the time on a CPU of the only thread.
    fn schedstat(&self, position: usize) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.pid())).unwrap();
        text.split_ascii_whitespace().nth(position).unwrap().parse().unwrap()
    }

    fn run_on(&self, cpu: usize) {
        let mut cpus = rustix::thread::CpuSet::new();
        cpus.set(cpu);
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::thread::sched_setaffinity(Some(pid), &cpus).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It can have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A reading of measures, between two readings of a number of `schedstat`. This test can lose its CPU between them.
struct Reading {
    time_ns: u64,
    before_ns: u64,
    after_ns: u64,
}

impl Reading {
    fn take(process: &Process, position: usize, read: impl FnOnce(u64)) -> Self {
        let before_ns = process.schedstat(position);
        let time_ns = process.now_ns();
        read(time_ns);
        Self { time_ns, before_ns, after_ns: process.schedstat(position) }
    }

    /// Checks that a measure of the time between two readings is the share that the scheduler counts.
    fn assert_share_until(&self, last: &Self, share: f64) {
        /// The kernel counts in clock ticks at either end.
        const TOLERANCE_NS: u64 = 40_000_000;
        let passed_ns = (last.time_ns - self.time_ns) as f64;
        let least = last.before_ns.saturating_sub(self.after_ns + TOLERANCE_NS) as f64 / passed_ns;
        let most = (last.after_ns + TOLERANCE_NS - self.before_ns) as f64 / passed_ns;
        assert!((least..=most).contains(&share), "{share} instead of {least} to {most}");
    }
}

fn wait_until(what: &str, mut is_reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_reached() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

fn measures(condition: &str) -> BTreeSet<Measure> {
    condition.parse::<Condition>().unwrap().measures()
}

#[test]
fn the_cpu_time_of_a_busy_process_is_what_the_scheduler_counts() {
    let process = Process::busy();
    let mut read = ProcessMeasures::open(process.pid()).unwrap();
    let (measures, mut values) =
        (measures("cpu > 0 and threads > 0 and fds > 0 and rss > 0 or exit"), Values::default());
    let first = Reading::take(&process, 0, |now_ns| read.read(&measures, now_ns, &mut values));
    assert_eq!((values.get(&Measure::Cpu), values.get(&Measure::Exit)), (None, Some(0.0)));
    wait_until("the process gets no CPU time", || process.schedstat(0) >= first.before_ns + NS_PER_S);
    let last = Reading::take(&process, 0, |now_ns| read.read(&measures, now_ns, &mut values));
    first.assert_share_until(&last, values.get(&Measure::Cpu).unwrap());
    assert_eq!(values.get(&Measure::Threads), Some(1.0));
    assert!(values.get(&Measure::Fds).is_some_and(|files| files >= 3.0), "{values:?}");
    assert!(values.get(&Measure::Rss).is_some_and(|bytes| (1e5..1e8).contains(&bytes)), "{values:?}");
}

#[test]
fn processes_that_share_a_cpu_wait_for_it() {
    let processes = [Process::busy(), Process::busy()];
    let [process, other] = &processes;
    processes.iter().for_each(|process| process.run_on(0));
    let mut read = ProcessMeasures::open(process.pid()).unwrap();
    let (measures, mut values) = (measures("runnable > 0"), Values::default());
    let first = Reading::take(process, 1, |now_ns| read.read(&measures, now_ns, &mut values));
    wait_until("the processes do not wait", || {
        process.schedstat(1) >= first.before_ns + NS_PER_S && other.schedstat(1) > 0
    });
    let last = Reading::take(process, 1, |now_ns| read.read(&measures, now_ns, &mut values));
    first.assert_share_until(&last, values.get(&Measure::Runnable).unwrap());
}

#[test]
fn an_idle_process_meets_a_condition_until_it_ends() {
    let mut process = Process::idle();
    let mut read = ProcessMeasures::open(process.pid()).unwrap();
    let mut low = Evaluator::new("cpu < 20% for 100ms and not exit".parse().unwrap());
    let mut exit = Evaluator::new("exit".parse().unwrap());
    let measures = measures("cpu < 20% or exit");
    let mut values = Values::default();
    let (mut began, mut ended) = (None, None);
    wait_until("the condition does not become true", || {
        let now_ns = process.now_ns();
        read.read(&measures, now_ns, &mut values);
        ended = ended.take().or(exit.apply(now_ns, &values));
        began = low.apply(now_ns, &values);
        began.is_some()
    });
    let incident = began.unwrap();
    assert!(incident.time_ns >= NS_PER_S / 10, "{incident:?}");
    assert!(incident.value.starts_with("cpu ") && incident.value.ends_with(" %, not exited"), "{incident:?}");
    assert_eq!(ended, None);

    // The end of the input ends it.
    drop(process.child.stdin.take());
    wait_until("the end is not noticed", || {
        let now_ns = process.now_ns();
        read.read(&measures, now_ns, &mut values);
        ended = exit.apply(now_ns, &values);
        ended.is_some()
    });
    assert_eq!(ended.unwrap().value, "exited");
    // It is the same after its parent has waited for it.
    process.child.wait().unwrap();
    let now_ns = process.now_ns();
    read.read(&measures, now_ns, &mut values);
    assert_eq!((values.get(&Measure::Exit), values.get(&Measure::Cpu)), (Some(1.0), None));
}

#[test]
fn the_exit_status_is_known_once_the_parent_has_waited() {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    let shows_status = (numbers.next(), numbers.next()) >= (Some(6), Some(15));
    for (script, wanted) in
        [("read line; exit 3", 3.0), ("read line; kill -9 $$", 137.0), ("read line; exit 0", 0.0)]
    {
        let mut process = Process::start(script);
        let mut read = ProcessMeasures::open(process.pid()).unwrap();
        let (measures, mut values) = (measures("exit != 0"), Values::default());
        read.read(&measures, process.now_ns(), &mut values);
        assert_eq!((values.get(&Measure::Exit), values.get(&Measure::ExitStatus)), (Some(0.0), None));
        drop(process.child.stdin.take());
        process.child.wait().unwrap();
        read.read(&measures, process.now_ns(), &mut values);
        let found = (values.get(&Measure::Exit), values.get(&Measure::ExitStatus));
        assert_eq!(found, (Some(1.0), shows_status.then_some(wanted)), "{script} on Linux {release}");
    }
}

#[test]
fn the_kernel_has_the_files_that_are_read() {
    let process = Process::idle();
    let mut read = ProcessMeasures::open(process.pid()).unwrap();
    let (measures, mut values) =
        (measures("cpu > 0 or psi.cpu > 0 or psi.memory > 0 or psi.io > 0"), Values::default());
    read.read(&measures, process.now_ns(), &mut values);
    // A kernel can be built without pressure stall information, or boot with `psi=0`.
    let has_pressure = fs::read_to_string("/proc/pressure/io").is_ok();
    for measure in [Measure::PsiCpu, Measure::PsiMemory, Measure::PsiIo] {
        let value = values.get(&measure);
        assert_eq!(
            value.is_some_and(|share| (0.0..=1.0).contains(&share)),
            has_pressure,
            "{measure} {value:?}"
        );
    }
}

#[test]
fn no_process_is_not_opened() {
    assert_eq!(ProcessMeasures::open(Pid(u32::MAX)).unwrap_err().kind(), io::ErrorKind::NotFound);
}
