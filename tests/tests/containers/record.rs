//! Tests `profiler record` on the host, of a process in a container.

use std::fs::File;

use profiler::{Profile, profile::FindingKind};
use profiler_tests::{lock_privileged, profiler, run_command};

use crate::container_builder::ContainerBuilder;

/// Runs a recorder until the condition holds, and returns the profile of the incident.
fn record(pid: u32, condition: &str) -> Profile {
    let directory = tempfile::tempdir().unwrap();
    let mut command =
        profiler(&["record", "-p", &pid.to_string(), "--wall", "--count", "1", "--after", "2s"]);
    command.args(["--trigger", condition, "-o"]);
    let outcome = run_command(command.arg(directory.path().join("trap-%n.profile")));
    assert_eq!(outcome.code(), 0, "{}{}", outcome.stdout, outcome.stderr);
    Profile::read(File::open(directory.path().join("trap-1.profile")).unwrap()).unwrap()
}

#[test]
fn a_cpu_quota_that_is_used_up_is_an_incident() {
    let Some(_lock) = lock_privileged() else { return };
    let container = ContainerBuilder::workload("shares-static", &["60"]).cpu_quota_percent(20).start();
    let profile = record(container.pid(), "throttled > 10% and cpu-of-quota > 80% for 1s");
    let values = &profile.header().incident.as_ref().unwrap().values;
    assert!(values.contains("throttled ") && values.contains("cpu-of-quota "), "{values}");
    let kinds: Vec<_> = profile.findings().iter().map(|finding| finding.kind).collect();
    assert!(kinds.contains(&FindingKind::CpuQuota), "{:?}", profile.findings());
}

#[test]
fn a_slow_disk_is_an_incident_with_the_function_that_reads() {
    let Some(_lock) = lock_privileged() else { return };
    let reader = ContainerBuilder::workload("page_reader-static", &["60", "/pages"]).reads_per_second(50);
    let container = reader.start();
    let profile = record(container.pid(), "cpu < 20% and threads > 4 for 1s");
    let disk = profile.findings().iter().find(|finding| finding.kind == FindingKind::Disk);
    let disk = disk.unwrap_or_else(|| panic!("{:?}", profile.findings())).to_string();
    assert!(
        disk.contains("threads at a time wait for files") && disk.contains("most below load_page"),
        "{disk}"
    );
}
