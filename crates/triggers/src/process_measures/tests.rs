//! Tests with a directory that looks like `/proc` and the cgroup file systems, and with real processes.

mod running;

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::Condition;

const PID: Pid = Pid(7);

/// A proc file system with one process and the cgroup hierarchies of a machine.
struct Machine {
    directory: TempDir,
    measures: BTreeSet<Measure>,
}

/// The parts of `/proc/PID/stat` that tests change.
#[derive(Clone, Copy)]
struct StatText {
    state: char,
    user_ticks: u64,
    system_ticks: u64,
    threads: u64,
    start_ticks: u64,
}

const RUNNING: StatText =
    StatText { state: 'R', user_ticks: 100, system_ticks: 50, threads: 3, start_ticks: 900 };

impl Machine {
    fn new(measures: &str, mounts: &[&str], memberships: &str) -> Self {
        let machine = Self {
            directory: tempfile::tempdir().unwrap(),
            measures: measures.parse::<Condition>().unwrap().measures(),
        };
        let below = machine.directory.path().to_str().unwrap();
        let mounts: Vec<_> = mounts.iter().map(|mount| format!("{}\n", mount.replace('@', below))).collect();
        machine.write("self/mountinfo", &mounts.concat());
        machine.write("7/cgroup", memberships);
        machine.set_stat(RUNNING);
        machine
    }

    /// A machine with the unified hierarchy. The process is in the cgroup `/pod/app`.
    fn unified(measures: &str) -> Self {
        Self::new(measures, &["34 33 0:29 / @/cgroup rw - cgroup2 cgroup2 rw"], "0::/pod/app\n")
    }

    /// A machine with the controllers in version 1 and an empty version 2. The process is in the cgroup `/pod/app` of
    /// each version 1 hierarchy.
    fn hybrid(measures: &str, cpu_controllers: &str) -> Self {
        let cpu = format!("38 33 0:33 / @/v1-cpu rw - cgroup cgroup rw,{cpu_controllers}");
        let mounts = [
            "34 33 0:29 / @/cgroup rw - cgroup2 cgroup2 rw",
            cpu.as_str(),
            "39 33 0:34 / @/v1-memory rw - cgroup cgroup rw,memory",
        ];
        Self::new(measures, &mounts, &format!("3:{cpu_controllers}:/pod/app\n2:memory:/pod/app\n0::/\n"))
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn set_stat(&self, stat: StatText) {
        let StatText { state, user_ticks, system_ticks, threads, start_ticks } = stat;
        let text = format!(
            "7 (a) b) {state} 1 7 7 0 -1 4194304 100 0 0 0 {user_ticks} {system_ticks} 0 0 20 0 {threads} 0 {start_ticks} \
             3133440 393 18446744073709551615\n"
        );
        self.write("7/stat", &text);
    }

    fn open(&self) -> io::Result<ProcessMeasures> {
        ProcessMeasures::with_proc(ProcFs::from_capture(self.directory.path().to_owned()), PID)
    }

    /// The values of the measures at a second, as text.
    fn values(&self, process: &mut ProcessMeasures, second: u64) -> String {
        let mut values: Values = self.measures.iter().map(|measure| (measure.clone(), 77.0)).collect();
        process.read(&self.measures, second * NS_PER_S, &mut values);
        let values = self.measures.iter().map(|measure| measure.describe(values.get(measure)));
        values.collect::<Vec<_>>().join(", ")
    }

    /// The values at the first second.
    fn first_values(&self) -> String {
        self.values(&mut self.open().unwrap(), 0)
    }
}

fn ticks(seconds: f64) -> u64 {
    (seconds * rustix::param::clock_ticks_per_second() as f64) as u64
}

#[test]
fn cpu_is_that_of_all_threads_per_time() {
    let machine = Machine::unified("cpu > 0 or cpu-of-machine > 0");
    let mut process = machine.open().unwrap();
    assert_eq!(machine.values(&mut process, 10), "cpu unknown, cpu-of-machine unknown");
    let StatText { user_ticks, system_ticks, .. } = RUNNING;
    machine.set_stat(StatText {
        user_ticks: user_ticks + ticks(1.0),
        system_ticks: system_ticks + ticks(0.5),
        ..RUNNING
    });
    let of_machine = 75.0 / online_cpus::count().unwrap() as f64;
    assert_eq!(machine.values(&mut process, 12), format!("cpu 75.0 %, cpu-of-machine {of_machine:.1} %"));
    assert!(machine.values(&mut process, 13).starts_with("cpu 0.0 %"));
}

#[test]
fn counts_are_those_of_proc() {
    let machine = Machine::unified("rss > 0 or threads > 0 or fds > 0 or exit");
    for descriptor in 0..5 {
        machine.write(&format!("7/fd/{descriptor}"), "");
    }
    let rss = Measure::Rss.describe(Some(393.0 * rustix::param::page_size() as f64));
    assert_eq!(machine.first_values(), format!("{rss}, threads 3, fds 5, not exited"));
    machine.set_stat(StatText { state: 'Z', ..RUNNING });
    assert!(machine.first_values().contains("threads 2"), "the leader has ended");
}

#[test]
fn the_wait_for_a_cpu_is_that_of_all_threads() {
    let machine = Machine::unified("runnable > 0");
    machine.write("7/task/7/schedstat", "1 1000000000 5\n");
    machine.write("7/task/8/schedstat", "1 0 5\n");
    let mut process = machine.open().unwrap();
    assert_eq!(machine.values(&mut process, 1), "runnable unknown");
    machine.write("7/task/7/schedstat", "1 2000000000 5\n");
    machine.write("7/task/8/schedstat", "1 500000000 5\n");
    assert_eq!(machine.values(&mut process, 2), "runnable 150.0 %");
}

#[test]
fn the_quota_of_a_version_2_cgroup_is_the_most_used_one_of_its_levels() {
    let machine = Machine::unified("cpu-of-quota > 0 or throttled > 0");
    machine.write("cgroup/cpu.stat", "usage_usec 0\n");
    machine.write("cgroup/pod/cpu.max", "100000 100000\n");
    machine.write("cgroup/pod/cpu.stat", "usage_usec 0\nthrottled_usec 0\n");
    machine.write("cgroup/pod/app/cpu.max", "50000 100000\n");
    machine.write("cgroup/pod/app/cpu.stat", "usage_usec 1000\nuser_usec 3\nthrottled_usec 5000\n");
    let mut process = machine.open().unwrap();
    assert_eq!(machine.values(&mut process, 1), "cpu-of-quota unknown, throttled unknown");
    machine.write("cgroup/pod/app/cpu.stat", "usage_usec 201000\nuser_usec 3\nthrottled_usec 305000\n");
    machine.write("cgroup/pod/cpu.stat", "usage_usec 300000\nthrottled_usec 100000\n");
    assert_eq!(machine.values(&mut process, 2), "cpu-of-quota 40.0 %, throttled 30.0 %");
    machine.write("cgroup/pod/app/cpu.max", "max 100000\n");
    machine.write("cgroup/pod/cpu.stat", "usage_usec 1200000\nthrottled_usec 900000\n");
    assert_eq!(machine.values(&mut process, 3), "cpu-of-quota 90.0 %, throttled 80.0 %");
}

#[test]
fn the_quota_of_a_version_1_cgroup_counts_its_own_cpu_time() {
    let machine = Machine::hybrid("cpu-of-quota > 0 or throttled > 0", "cpu,cpuacct");
    machine.write("v1-cpu/cpu.cfs_quota_us", "-1\n");
    machine.write("v1-cpu/cpu.cfs_period_us", "100000\n");
    machine.write("v1-cpu/pod/app/cpu.cfs_quota_us", "200000\n");
    machine.write("v1-cpu/pod/app/cpu.cfs_period_us", "100000\n");
    machine.write("v1-cpu/pod/app/cpuacct.usage", "0\n");
    machine.write("v1-cpu/pod/app/cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n");
    let mut process = machine.open().unwrap();
    machine.values(&mut process, 1);
    machine.write("v1-cpu/pod/app/cpuacct.usage", "1500000000\n");
    machine.write("v1-cpu/pod/app/cpu.stat", "nr_periods 9\nnr_throttled 3\nthrottled_time 250000000\n");
    assert_eq!(machine.values(&mut process, 2), "cpu-of-quota 75.0 %, throttled 25.0 %");
}

#[test]
fn without_cpu_accounting_the_cpu_time_is_that_of_the_process() {
    let machine = Machine::hybrid("cpu-of-quota > 0", "cpu");
    machine.write("v1-cpu/pod/app/cpu.cfs_quota_us", "50000\n");
    machine.write("v1-cpu/pod/app/cpu.cfs_period_us", "100000\n");
    let mut process = machine.open().unwrap();
    machine.values(&mut process, 1);
    machine.set_stat(StatText { user_ticks: RUNNING.user_ticks + ticks(0.2), ..RUNNING });
    assert_eq!(machine.values(&mut process, 2), "cpu-of-quota 40.0 %");
}

#[test]
fn memory_is_a_share_of_the_limit_of_the_fullest_level() {
    let machine = Machine::unified("memory > 0");
    machine.write("cgroup/pod/app/memory.max", "max\n");
    machine.write("cgroup/pod/app/memory.current", "900\n");
    assert_eq!(machine.first_values(), "memory unknown", "no limit");
    machine.write("cgroup/pod/memory.max", "2000\n");
    machine.write("cgroup/pod/memory.current", "1000\n");
    assert_eq!(machine.first_values(), "memory 50.0 %");
    machine.write("cgroup/pod/app/memory.max", "1000\n");
    assert_eq!(machine.first_values(), "memory 90.0 %");

    let machine = Machine::hybrid("memory > 0", "cpu");
    machine.write("v1-memory/pod/app/memory.limit_in_bytes", "9223372036854771712\n");
    machine.write("v1-memory/pod/app/memory.usage_in_bytes", "1000\n");
    assert_eq!(machine.first_values(), "memory unknown", "no limit");
    machine.write("v1-memory/pod/app/memory.limit_in_bytes", "4000\n");
    assert_eq!(machine.first_values(), "memory 25.0 %");
}

#[test]
fn pressure_is_that_of_the_cgroup_or_of_the_machine() {
    let machine = Machine::unified("psi.cpu > 0 or psi.memory > 0 or psi.io > 0");
    let pressure =
        |average: &str| format!("some avg10={average} avg60=1.00 avg300=1.00 total=1\nfull avg10=9.00\n");
    machine.write("pressure/cpu", &pressure("12.50"));
    machine.write("pressure/memory", &pressure("2.50"));
    machine.write("cgroup/pod/app/cpu.pressure", &pressure("50.00"));
    assert_eq!(machine.first_values(), "psi.cpu 50.0 %, psi.memory 2.5 %, psi.io unknown");
}

#[test]
fn a_process_that_moves_to_another_cgroup_is_followed() {
    let machine = Machine::unified("memory > 0");
    for (cgroup, used) in [("pod/app", "100"), ("other", "700")] {
        machine.write(&format!("cgroup/{cgroup}/memory.max"), "1000\n");
        machine.write(&format!("cgroup/{cgroup}/memory.current"), used);
    }
    let mut process = machine.open().unwrap();
    assert_eq!(machine.values(&mut process, 1), "memory 10.0 %");
    machine.write("7/cgroup", "0::/other\n");
    assert_eq!(machine.values(&mut process, 2), "memory 70.0 %");
    machine.write("7/cgroup", "0::/../outside of the namespace\n");
    assert_eq!(machine.values(&mut process, 3), "memory unknown");
}

#[test]
fn a_process_that_has_ended_has_no_value_but_its_end() {
    let reused = StatText { start_ticks: RUNNING.start_ticks + 1, ..RUNNING };
    let waited_for = StatText { state: 'Z', threads: 1, ..RUNNING };
    for ended in [Some(reused), Some(waited_for), None] {
        let machine = Machine::unified("rss > 0 or exit");
        let mut process = machine.open().unwrap();
        match ended {
            Some(stat) => machine.set_stat(stat),
            None => fs::remove_dir_all(machine.directory.path().join("7")).unwrap(),
        }
        assert_eq!(machine.values(&mut process, 1), "rss unknown, exited");
        assert_eq!(machine.values(&mut process, 2), "rss unknown, exited");
    }
}

#[test]
fn a_process_that_cannot_be_read_has_not_ended() {
    let machine = Machine::unified("rss > 0 or exit");
    let mut process = machine.open().unwrap();
    machine.write("7/stat", "malformed\n");
    assert_eq!(machine.values(&mut process, 1), "rss unknown, exit unknown");
}

#[test]
fn only_measures_of_the_process_are_set() {
    let machine = Machine::unified("signal or heap > 1B or exit != 0");
    assert_eq!(machine.first_values(), "signal 77, not exited, exit status unknown, heap 77 B");
}

#[test]
fn a_process_that_has_ended_is_not_opened() {
    let machine = Machine::unified("exit");
    machine.set_stat(StatText { state: 'Z', threads: 1, ..RUNNING });
    let error = machine.open().unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string()),
        (io::ErrorKind::NotFound, "process 7 has ended".to_owned())
    );
    fs::remove_file(machine.directory.path().join("7/stat")).unwrap();
    let error = machine.open().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(error.to_string().starts_with("failed to read `/proc/7/stat`: "), "{error}");
}

#[test]
fn damaged_files_give_no_values() {
    let machine = Machine::unified("cpu-of-quota > 0 or throttled > 0 or memory > 0 or psi.cpu > 0");
    let unknown = "cpu-of-quota unknown, throttled unknown, memory unknown, psi.cpu unknown";
    for text in [
        "",
        "\n",
        "some",
        "some avg10=",
        "x y",
        "0 0\n",
        "-1 5\n",
        "18446744073709551616\n",
        "some avg10=x\n",
    ] {
        for file in ["cpu.max", "cpu.stat", "memory.max", "memory.current", "cpu.pressure"] {
            machine.write(&format!("cgroup/pod/app/{file}"), text);
        }
        let mut process = machine.open().unwrap();
        machine.values(&mut process, 1);
        assert_eq!(machine.values(&mut process, 2), unknown, "{text:?}");
    }
}
