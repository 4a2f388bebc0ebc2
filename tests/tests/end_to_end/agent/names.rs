//! Tests the names of services that processes publish while `profiler agent` samples them.

use std::{collections::BTreeSet, process::Command};

use profiler::Profile;
use profiler_tests::{Workload, run_beside_others, workload_path};
use rustix::process::{Pid, Signal, kill_process};

use super::process::{Agent, path_text, recordings};

/// The names of its service that the sampled process with a PID has.
fn services(profile: &Profile, pid: u32) -> BTreeSet<&str> {
    let processes = profile.samples().iter().map(|sample| profile.thread(sample.thread).process);
    let of_pid = processes.filter(|id| profile.process(*id).pid == pid);
    of_pid.map(|id| profile.attribute(id, "service.name").unwrap_or_default()).collect()
}

#[test]
fn a_process_context_that_is_published_later_precedes_the_environment() {
    let Some(_guard) = run_beside_others() else { return };
    let mut command = Command::new(workload_path("process_context"));
    let command = command.args(["60", "context-shop"]).env("OTEL_SERVICE_NAME", "environment-shop");
    let workload = Workload::run(command);
    let pid = i32::try_from(workload.pid()).ok().and_then(Pid::from_raw).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(&["--write-dir", path_text(&directory)]);
    (0..2).for_each(|_| drop(agent.wait_for("event=window")));
    kill_process(pid, Signal::USR1).unwrap();
    // The context is read in the second, the fourth and the eighth window with samples.
    (0..9).for_each(|_| drop(agent.wait_for("event=window")));
    agent.signal(Signal::TERM);
    agent.finish();
    let profiles = recordings(directory.path());
    let names: Vec<_> = profiles.iter().map(|profile| services(profile, workload.pid())).collect();
    // The first and the last window can be too short for a sample.
    let mut of_windows = names.iter().filter(|names| !names.is_empty());
    assert_eq!(of_windows.next(), Some(&BTreeSet::from(["environment-shop"])), "{names:?}");
    assert_eq!(of_windows.next_back(), Some(&BTreeSet::from(["context-shop"])), "{names:?}");
}
