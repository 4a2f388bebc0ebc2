//! Tests with a directory that looks like `/proc` and the cgroup file systems.

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::Condition;

const NS_PER_S: u64 = 1_000_000_000;

struct Machine {
    directory: TempDir,
    wanted: BTreeSet<Measure>,
}

impl Machine {
    fn new(condition: &str, mounts: &[&str]) -> Self {
        let wanted = condition.parse::<Condition>().unwrap().measures();
        let machine = Self { directory: tempfile::tempdir().unwrap(), wanted };
        let below = machine.directory.path().to_str().unwrap();
        let mounts: Vec<_> = mounts.iter().map(|mount| format!("{}\n", mount.replace('@', below))).collect();
        machine.write("self/mountinfo", &mounts.concat());
        machine
    }

    fn unified(condition: &str) -> Self {
        Self::new(condition, &["34 33 0:29 / @/cgroup rw - cgroup2 cgroup2 rw"])
    }

    fn hybrid(condition: &str) -> Self {
        Self::new(
            condition,
            &[
                "34 33 0:29 / @/cgroup rw - cgroup2 cgroup2 rw",
                "38 33 0:33 / @/cpu rw - cgroup cgroup rw,cpu,cpuacct",
                "39 33 0:34 / @/memory rw - cgroup cgroup rw,memory",
                "40 33 0:35 / @/pids rw - cgroup cgroup rw,pids",
            ],
        )
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn open(&self, cgroup: &str) -> io::Result<CgroupMeasures> {
        let proc = ProcFs::from_capture(self.directory.path().to_owned());
        CgroupMeasures::with_proc(proc, &self.directory.path().join(cgroup))
    }

    fn values(&self, cgroup: &mut CgroupMeasures, second: u64) -> String {
        let mut values = Values::default();
        cgroup.read(&self.wanted, second * NS_PER_S, &mut values);
        let values = self.wanted.iter().map(|measure| measure.describe(values.get(measure)));
        values.collect::<Vec<_>>().join(", ")
    }
}

const ALL: &str =
    "cpu > 0 or cpu-of-quota > 0 or throttled > 0 or rss > 0 or memory > 0 or threads > 0 or exit";

#[test]
fn the_measures_of_a_version_2_cgroup_are_those_of_its_files() {
    let machine = Machine::unified(ALL);
    let set_cpu = |used_us: u64, throttled_us: u64| {
        let text = format!("usage_usec {used_us}\nthrottled_usec {throttled_us}\n");
        machine.write("cgroup/pod/app/cpu.stat", &text);
    };
    set_cpu(5_000_000, 0);
    machine.write("cgroup/pod/app/cpu.max", "200000 100000\n");
    machine.write("cgroup/pod/app/memory.stat", "anon 1000\nfile 9999\nfile_mapped 500\n");
    machine.write("cgroup/pod/app/memory.current", "3000\n");
    machine.write("cgroup/pod/app/memory.max", "4000\n");
    machine.write("cgroup/pod/app/pids.current", "12\n");
    let mut cgroup = machine.open("cgroup/pod/app").unwrap();
    machine.values(&mut cgroup, 10);
    set_cpu(6_000_000, 500_000);
    assert_eq!(
        machine.values(&mut cgroup, 11),
        "cpu 100.0 %, cpu-of-quota 50.0 %, throttled 50.0 %, rss 1.46 KiB, memory 75.0 %, threads 12, not exited"
    );
    fs::remove_dir_all(machine.directory.path().join("cgroup/pod/app")).unwrap();
    assert_eq!(
        machine.values(&mut cgroup, 12),
        "cpu unknown, cpu-of-quota unknown, throttled unknown, rss unknown, memory unknown, threads unknown, exited"
    );
}

/// The target can be the directory in any hierarchy.
#[test]
fn the_measures_of_version_1_are_those_of_the_same_path_in_each_hierarchy() {
    for target in ["cgroup/pod/app", "cpu/pod/app", "memory/pod/app"] {
        let machine = Machine::hybrid(ALL);
        let set_cpu = |used_ns: u64| machine.write("cpu/pod/app/cpuacct.usage", &format!("{used_ns}\n"));
        set_cpu(0);
        machine.write("cgroup/pod/app/cgroup.procs", "");
        machine.write("cpu/pod/app/cpu.stat", "nr_throttled 0\nthrottled_time 0\n");
        machine.write("cpu/pod/app/cpu.cfs_quota_us", "50000\n");
        machine.write("cpu/pod/app/cpu.cfs_period_us", "100000\n");
        machine.write("memory/pod/app/memory.stat", "rss 1\ntotal_rss 1000\ntotal_mapped_file 24\n");
        machine.write("memory/pod/app/memory.usage_in_bytes", "100\n");
        machine.write("memory/pod/app/memory.limit_in_bytes", "1000\n");
        machine.write("pids/pod/app/pids.current", "3\n");
        let mut cgroup = machine.open(target).unwrap();
        machine.values(&mut cgroup, 1);
        set_cpu(NS_PER_S / 4);
        assert_eq!(
            machine.values(&mut cgroup, 2),
            "cpu 25.0 %, cpu-of-quota 50.0 %, throttled 0.0 %, rss 1 KiB, memory 10.0 %, threads 3, not exited",
            "{target}"
        );
    }
}

#[test]
fn run_queues_and_files_are_those_of_all_processes_below() {
    let machine = Machine::unified("runnable > 0 or fds > 0");
    machine.write("cgroup/pod/app/cgroup.procs", "7\n");
    machine.write("cgroup/pod/app/child/cgroup.procs", "8\n9\n");
    let set_waits = |waits: [u64; 2]| {
        for (pid, wait_ns) in [7, 8].into_iter().zip(waits) {
            machine.write(&format!("{pid}/task/{pid}/schedstat"), &format!("9 {wait_ns} 3\n"));
        }
    };
    set_waits([100, 200]);
    for file in ["7/fd/0", "7/fd/1", "8/fd/0"] {
        machine.write(file, "");
    }
    let mut cgroup = machine.open("cgroup/pod/app").unwrap();
    assert_eq!(machine.values(&mut cgroup, 1), "runnable unknown, fds 3");
    set_waits([100 + NS_PER_S / 4, 200 + NS_PER_S / 2]);
    assert_eq!(machine.values(&mut cgroup, 2), "runnable 75.0 %, fds 3");
}

#[test]
fn a_directory_that_is_no_cgroup_is_an_error() {
    let machine = Machine::unified(ALL);
    let error = machine.open("elsewhere").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(error.to_string().contains("is in no mounted cgroup hierarchy"), "{error}");
}
