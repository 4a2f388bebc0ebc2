//! Tests the names of services that processes publish while `profiler agent` samples them.

use std::{collections::BTreeSet, process::Command};

use profiler::Profile;
use profiler_tests::{Workload, share_privileged, workload_path};
use rustix::process::Signal;

use super::process::{Agent, path_text, recordings};

/// The names of its service that the sampled process with a PID has.
fn services(profile: &Profile, pid: u32) -> BTreeSet<&str> {
    let processes = profile.samples().iter().map(|sample| profile.thread(sample.thread).process);
    let of_pid = processes.filter(|id| profile.process(*id).pid == pid);
    of_pid.map(|id| profile.attribute(id, "service.name").unwrap_or_default()).collect()
}

#[test]
fn a_process_context_that_is_published_later_precedes_the_environment() {
    let Some(_guard) = share_privileged() else { return };
    let mut command = Command::new(workload_path("process_context"));
    let command = command.args(["60", "context-shop", "4"]).env("OTEL_SERVICE_NAME", "environment-shop");
    let workload = Workload::run(command);
    let directory = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(&["--write-dir", path_text(&directory)]);
    // The context is read in the second, the fourth and the eighth window with samples; the first one can be too short for any.
    (0..10).for_each(|_| drop(agent.wait_for("event=window")));
    agent.signal(Signal::TERM);
    agent.finish();
    let profiles = recordings(directory.path());
    let names: Vec<_> = profiles.iter().map(|profile| services(profile, workload.pid())).collect();
    assert_eq!(names.first(), Some(&BTreeSet::from(["environment-shop"])), "{names:?}");
    assert_eq!(names.last(), Some(&BTreeSet::from(["context-shop"])), "{names:?}");
}
