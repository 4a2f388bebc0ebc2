//! Tests `profiler record` on the host, of a process in a container.

use std::{
    fs::{self, File},
    process,
    time::Duration,
};

use profiler::{
    Profile,
    profile::{FindingKind, Sample},
};
use profiler_tests::{Recorder, Workload, profiler, run_beside_others, run_command, wait_until};
use rustix::process::Signal;

use crate::container_builder::ContainerBuilder;

/// Runs a recorder of a process until the condition holds, and returns the profile of the incident.
fn record(pid: u32, condition: &str) -> Profile {
    record_target(["-p", &pid.to_string()], condition)
}

fn record_target([option, target]: [&str; 2], condition: &str) -> Profile {
    let directory = tempfile::tempdir().unwrap();
    let mut command = profiler(&["record", option, target, "--wall", "--count", "1", "--after", "2s"]);
    command.args(["--trigger", condition, "-o"]);
    let outcome = run_command(command.arg(directory.path().join("trap-%n.profile")));
    assert_eq!(outcome.code(), 0, "{}{}", outcome.stdout, outcome.stderr);
    Profile::read(File::open(directory.path().join("trap-1.profile")).unwrap()).unwrap()
}

#[test]
fn a_cpu_quota_that_is_used_up_is_an_incident() {
    let Some(_lock) = run_beside_others() else { return };
    // So small that the process uses it up however many others compute.
    let container = ContainerBuilder::workload("shares-static", &["300"]).cpu_quota_percent(5).start();
    let pid = container.pid().to_string();
    let memberships = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    // `ID:CONTROLLERS:PATH`, where version 2 has no controllers.
    let mut paths = memberships.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let of_cpu = paths.clone().find(|(controllers, _)| controllers.split(',').any(|name| name == "cpu"));
    let (_, cgroup) = of_cpu.or_else(|| paths.find(|(controllers, _)| controllers.is_empty())).unwrap();
    for target in [["-p", &pid], ["--cgroup", cgroup]] {
        let profile = record_target(target, "throttled > 10% and cpu-of-quota > 80% and cpu > 2% for 1s");
        let values = &profile.header().incident.as_ref().unwrap().values;
        assert!(values.contains("throttled ") && values.contains("cpu-of-quota "), "{target:?}: {values}");
        let kinds: Vec<_> = profile.findings().iter().map(|finding| finding.kind).collect();
        assert!(kinds.contains(&FindingKind::CpuQuota), "{target:?}: {:?}", profile.findings());
    }
}

#[test]
fn a_slow_disk_is_an_incident_with_the_function_that_reads() {
    let Some(_lock) = run_beside_others() else { return };
    let reader = ContainerBuilder::workload("page_reader-static", &["300", "/pages"]).reads_per_second(50);
    let container = reader.start();
    let profile = record(container.pid(), "cpu < 20% and threads > 4 for 1s");
    let disk = profile.findings().iter().find(|finding| finding.kind == FindingKind::Disk);
    let disk = disk.unwrap_or_else(|| panic!("{:?}", profile.findings())).to_string();
    assert!(
        disk.contains("threads at a time wait for files") && disk.contains("most below load_page"),
        "{disk}"
    );
}

/// A service manager removes the cgroup of a service that ends, and makes it again when it starts the service.
#[test]
fn the_next_cgroup_with_the_name_is_followed() {
    let Some(_lock) = run_beside_others() else { return };
    let of_container = ContainerBuilder::workload("shares-static", &["300"]).start().cgroups().remove(0);
    let cgroup = of_container.with_file_name(format!("profiler-follow-{}", process::id()));
    let start = || {
        let workload = Workload::start("shares");
        fs::create_dir(&cgroup).unwrap();
        fs::write(cgroup.join("cgroup.procs"), workload.pid().to_string()).unwrap();
        workload
    };
    let end = |workload: Workload| {
        let pid = workload.pid();
        let end = workload.cpu_time_of_threads() + Duration::from_millis(200);
        wait_until("CPU time", || (workload.cpu_time_of_threads() >= end).then_some(()));
        drop(workload);
        wait_until("the end of the cgroup", || fs::remove_dir(&cgroup).ok());
        pid
    };
    let workload = start();
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("part-%n.profile");
    let arguments = ["--follow", "--rotate", "60s", "--cgroup", cgroup.to_str().unwrap()];
    let mut recorder = Recorder::start(&[&arguments[..], &["-o", output.to_str().unwrap()]].concat());
    let first = end(workload);
    recorder.wait_for("event=waiting");
    let workload = start();
    recorder.wait_for("event=started");
    let second = end(workload);
    recorder.wait_for("event=waiting");
    recorder.signal(Signal::TERM);
    assert_eq!(recorder.end().1, Some(0));
    for (number, pid) in [(1, first), (2, second)] {
        let path = directory.path().join(format!("part-{number}.profile"));
        let profile = Profile::read(File::open(path).unwrap()).unwrap();
        let process = |sample: &Sample| profile.process(profile.thread(sample.thread).process);
        assert!(!profile.samples().is_empty(), "{number}");
        assert!(profile.samples().iter().all(|sample| process(sample).pid == pid), "{number}");
    }
}
