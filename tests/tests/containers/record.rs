//! Tests `profiler record` on the host, of a process in a container.

use std::fs::File;

use profiler::{Profile, profile::FindingKind};
use profiler_tests::{lock_privileged, profiler, run_command};

use crate::container_builder::ContainerBuilder;

#[test]
fn a_cpu_quota_that_is_used_up_is_an_incident() {
    let Some(_lock) = lock_privileged() else { return };
    let container = ContainerBuilder::workload("shares-static", &["60"]).cpu_quota_percent(20).start();
    let directory = tempfile::tempdir().unwrap();
    let (pid, path) = (container.pid().to_string(), directory.path().join("trap-1.profile"));
    let mut command = profiler(&["record", "-p", &pid, "--wall", "--count", "1", "--after", "2s"]);
    command.args(["--trigger", "throttled > 10% and cpu-of-quota > 80% for 1s", "-o"]);
    let outcome = run_command(command.arg(directory.path().join("trap-%n.profile")));
    assert_eq!(outcome.code(), 0, "{}{}", outcome.stdout, outcome.stderr);
    let profile = Profile::read(File::open(path).unwrap()).unwrap();
    let values = &profile.header().incident.as_ref().unwrap().values;
    assert!(values.contains("throttled ") && values.contains("cpu-of-quota "), "{values}");
    let kinds: Vec<_> = profile.findings().iter().map(|finding| finding.kind).collect();
    assert!(kinds.contains(&FindingKind::CpuQuota), "{:?}", profile.findings());
}
