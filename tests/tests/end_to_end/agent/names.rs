//! Tests the names of services that processes publish while `profiler agent` samples them.

use std::{collections::BTreeSet, fs::File, process::Command};

use profiler::Profile;
use profiler_tests::{Workload, run_beside_others, wait_until, workload_path};
use rustix::process::{Pid, Signal, kill_process};

use super::process::{Agent, path_text, recordings};
use super::totals::SERVICE;

/// The service of the published context.
const CONTEXT_SERVICE: &str = "agent-test-context";

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
    let command = command.args(["600", CONTEXT_SERVICE]).env("OTEL_SERVICE_NAME", SERVICE);
    let workload = Workload::run(command);
    let pid = i32::try_from(workload.pid()).ok().and_then(Pid::from_raw).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(&["--write-dir", path_text(&directory)]);
    // Waits until the recording of a window has samples of the process with this name alone. A window can be too short for a
    // sample. The context is read in the second, the fourth and the eighth window with samples.
    let mut wait_for_name = |name: &str| {
        wait_until(name, || {
            let line = agent.wait_for("event=written ");
            let path = line.trim_end().rsplit_once("file=").unwrap().1;
            let profile = Profile::read(File::open(path).unwrap()).unwrap();
            (services(&profile, workload.pid()) == BTreeSet::from([name])).then_some(())
        });
    };
    wait_for_name(SERVICE);
    kill_process(pid, Signal::USR1).unwrap();
    wait_for_name(CONTEXT_SERVICE);
    agent.signal(Signal::TERM);
    agent.finish();
    let profiles = recordings(directory.path());
    let names: Vec<_> = profiles.iter().map(|profile| services(profile, workload.pid())).collect();
    let mut of_windows = names.iter().filter(|names| !names.is_empty());
    assert_eq!(of_windows.next(), Some(&BTreeSet::from([SERVICE])), "{names:?}");
    assert_eq!(of_windows.next_back(), Some(&BTreeSet::from([CONTEXT_SERVICE])), "{names:?}");
}
