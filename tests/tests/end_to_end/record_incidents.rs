//! Tests `profiler record` with one cause for each incident: the file has the finding of the cause.

use std::{fs::File, path::Path, process::Command, time::Duration};

use profiler::{
    Profile,
    profile::{Finding, FindingKind, Sample, ThreadState},
};
use profiler_tests::{
    Recorder, Workload, aspnet, measure_alone, run_beside_others, wait_until, workload_path,
};
use rustix::process::{Pid, Signal, kill_process};

/// Starts a recorder that ends with the first file, and waits until it samples.
fn start_recorder(pid: u32, directory: &Path, arguments: &[&str]) -> Recorder {
    let (pid, output) = (pid.to_string(), directory.join("trap-%n.profile"));
    let fixed = ["-p", &pid, "--count", "1", "-o", output.to_str().unwrap()];
    Recorder::start(&[&fixed[..], arguments].concat())
}

/// Waits until a recorder has written its file, and reads it.
fn end_recorder(recorder: Recorder, directory: &Path) -> Profile {
    let (lines, code) = recorder.end();
    assert_eq!(code, Some(0), "{lines:#?}");
    read(directory)
}

fn read(directory: &Path) -> Profile {
    Profile::read(File::open(directory.join("trap-1.profile")).unwrap()).unwrap()
}

fn finding(profile: &Profile, kind: FindingKind) -> &Finding {
    let found = profile.findings().iter().find(|finding| finding.kind == kind);
    found.unwrap_or_else(|| panic!("{kind:?} is not among {:?}", profile.findings()))
}

/// The method that a finding names.
fn method(finding: &Finding) -> Option<&str> {
    finding.facts.place.as_ref().map(|place| place.method.as_str())
}

/// Whether a frame of the sample's stack has a name with this text.
fn has_function(profile: &Profile, sample: &Sample, text: &str) -> bool {
    let frames = &profile.stack(sample.stack).frames;
    frames.iter().any(|frame| profile.string(profile.frame(*frame).name).contains(text))
}

/// Four threads that take two locks in one order, until half of them take them in the other.
#[test]
fn a_deadlock_has_the_time_before_and_the_function_that_waits() {
    let Some(_lock) = run_beside_others() else { return };
    let mut workload = Workload::start("deadlock");
    let directory = tempfile::tempdir().unwrap();
    let trigger = ["--wall", "--after", "6s", "--trigger", "cpu < 2% for 2s"];
    let recorder = start_recorder(workload.pid(), directory.path(), &trigger);
    let end = workload.cpu_time_of_threads() + Duration::from_secs(2);
    wait_until("CPU time", || (workload.cpu_time_of_threads() >= end).then_some(()));
    workload.write_line("");
    let profile = end_recorder(recorder, directory.path());
    let deadlock = finding(&profile, FindingKind::Deadlock);
    assert_eq!((method(deadlock), deadlock.facts.threads), (Some("transfer"), Some(4)), "{deadlock:?}");
    let since_ns = profile.header().incident.as_ref().unwrap().since_ns;
    assert!(deadlock.facts.selection.begin_ns >= since_ns, "{deadlock:?}");
    let on_cpu = |is_shown: &dyn Fn(u64) -> bool| {
        let is_transfer = |sample: &&Sample| has_function(&profile, sample, "transfer");
        let samples = profile.samples().iter().filter(is_transfer).filter(|sample| is_shown(sample.time_ns));
        samples.filter(|sample| sample.state == Some(ThreadState::OnCpu)).count()
    };
    assert!(on_cpu(&|time_ns| time_ns < since_ns) > 50, "it worked before");
    assert_eq!(on_cpu(&|time_ns| time_ns > since_ns + 1_000_000_000), 0, "nothing runs");
}

/// The owner of a lock waits for a process, which is read when the file is written.
#[test]
fn a_held_lock_in_a_file_has_the_process_for_which_its_owner_waits() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::run(Command::new(workload_path("mutexes")).args(["600", "runs"]));
    let directory = tempfile::tempdir().unwrap();
    let trigger = ["--wall", "--after", "5s", "--trigger", "threads > 2"];
    let profile = end_recorder(start_recorder(workload.pid(), directory.path(), &trigger), directory.path());
    let held = finding(&profile, FindingKind::HeldLock);
    let partner = held.facts.partner.as_ref().unwrap_or_else(|| panic!("{held:?}"));
    assert_eq!(partner.name, "converter", "{held:?}");
}

#[test]
fn a_crash_is_an_incident_with_what_the_process_did_before() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let directory = tempfile::tempdir().unwrap();
    let pid = workload.pid();
    let recorder = start_recorder(pid, directory.path(), &["-F", "99", "--trigger", "exit"]);
    let end = workload.cpu_time() + Duration::from_secs(1);
    wait_until("CPU time", || (workload.cpu_time() >= end).then_some(()));
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::SEGV).unwrap();
    let profile = end_recorder(recorder, directory.path());
    assert_eq!(profile.header().incident.as_ref().unwrap().condition, "exit");
    assert!(profile.total_value() > 50, "{}", profile.total_value());
}

/// A server that answers, until its requests block the threads that their responses need.
#[test]
fn a_server_whose_pool_starves_has_the_time_before_and_the_call_that_blocks() {
    let Some(_lock) = run_beside_others() else { return };
    let mut command = Command::new(workload_path("dotnet/run"));
    let mut server = Workload::run(command.args(["aspnet", "serve", "600"]).env("PERF_MAP", "0"));
    let port = server.wait_for("port ");
    aspnet::warm_up(&port, &["/json", "/wait"]);
    let directory = tempfile::tempdir().unwrap();
    // A healthy server has fewer threads, however busy the machine is; a starved pool adds them without end.
    let trigger = ["--wall", "--trigger", "threads > 60", "--keep", "60s", "--after", "2s"];
    let recorder = start_recorder(server.pid(), directory.path(), &trigger);
    let busy = aspnet::load(&port, 8, &["/json"]);
    let end = server.cpu_time_of_threads() + Duration::from_secs(4);
    wait_until("a busy server", || (server.cpu_time_of_threads() >= end).then_some(()));
    busy.end();
    let _blocked = aspnet::load(&port, 200, &["/wait"]);
    let profile = end_recorder(recorder, directory.path());
    let starvation = finding(&profile, FindingKind::PoolStarvation);
    let method = method(starvation).unwrap_or_default();
    assert!(method.contains("Workload.Routes.Wait"), "{starvation:?}");
    let incident = profile.header().incident.as_ref().unwrap();
    let has = |name: &str, is_shown: &dyn Fn(u64) -> bool| {
        let mut shown = profile.samples().iter().filter(|sample| is_shown(sample.time_ns));
        shown.any(|sample| has_function(&profile, sample, name))
    };
    assert!(has("Routes.Json", &|time_ns| time_ns < incident.since_ns), "{incident:?}");
    assert!(has("Routes.Wait", &|time_ns| time_ns > incident.since_ns), "{incident:?}");
}

mod measured {
    use super::*;

    #[test]
    fn storms_of_collections_and_exceptions_have_their_findings() {
        let Some(_lock) = measure_alone() else { return };
        for (mode, trigger, kind) in [
            ("storm", "gc-share > 5% for 1s", FindingKind::GcPauses),
            ("exceptions", "exceptions > 50/s", FindingKind::Exceptions),
            ("convoy", "cpu < 50% and threads > 8", FindingKind::LockConvoy),
        ] {
            let workload = Workload::dotnet_program("9.0", mode);
            let sampling = ["--wall", "--events", "default", "--after", "2s", "--trigger", trigger];
            let directory = tempfile::tempdir().unwrap();
            let recorder = start_recorder(workload.pid(), directory.path(), &sampling);
            finding(&end_recorder(recorder, directory.path()), kind);
        }
    }

    /// How long a healthy server is recorded, seconds: more in `cargo xtask prove`.
    const HEALTHY_SECONDS: &str = "PROFILER_HEALTHY_SECONDS";

    /// A server under steady load meets no condition that asks for a problem.
    #[test]
    fn a_healthy_server_under_load_has_no_incident() {
        let Some(_lock) = measure_alone() else { return };
        let seconds = std::env::var(HEALTHY_SECONDS).unwrap_or_else(|_| "12".to_owned());
        let mut command = Command::new(workload_path("dotnet/run"));
        let mut server = Workload::run(command.args(["aspnet", "serve", "900"]).env("PERF_MAP", "0"));
        let port = server.wait_for("port ");
        aspnet::warm_up(&port, &aspnet::EVERY_LAYER);
        let directory = tempfile::tempdir().unwrap();
        let output = directory.path().join("trap-%n.profile");
        let conditions = [
            // A busy machine leaves it little time.
            "cpu < 1% for 10s and requests > 5/s",
            "gc-pause > 200ms",
            "gc-share > 20% for 5s",
            "exceptions > 50/s",
            "pool-starvation",
            "throttled > 10% for 2s",
            "rss > 2GB or threads > 500 or fds > 5000",
            "request-time p99 > 1s",
            "exit",
        ];
        let (pid, output) = (server.pid().to_string(), output.to_str().unwrap());
        let mut arguments = vec!["-p", &pid, "--wall", "--events", "default", "-o", output];
        arguments.extend(conditions.iter().flat_map(|condition| ["--trigger", *condition]));
        let recorder = Recorder::start(&arguments);
        let mut load =
            Workload::start_with("load", &[&[&seconds, port.trim(), "4"], &aspnet::EVERY_LAYER[..]].concat());
        let requests = load.wait_for("requests ");
        println!("{requests}");
        recorder.signal(Signal::TERM);
        let (lines, code) = recorder.end();
        assert_eq!(code, Some(0));
        assert!(lines.iter().all(|line| !line.contains("event=incident")), "{lines:#?}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
