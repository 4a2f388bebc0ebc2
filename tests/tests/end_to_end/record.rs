//! Tests `profiler record`: incidents with what led to them, consecutive files, limits and ends.

use std::{
    fs::{self, File},
    io::Write as _,
    ops::Range,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use profiler::{
    Profile,
    profile::{EventId, Incident},
};
use profiler_tests::{
    FoldedStacks, Recorder, Workload, measure_alone, profiler, run_beside_others, run_command, wait_until,
    workload_path,
};
use rustix::{
    process::Signal,
    time::{ClockId, clock_gettime},
};
use tempfile::TempDir;

const NS_PER_S: f64 = 1e9;

fn files(directory: &TempDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory.path()).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn read(path: &Path) -> Profile {
    Profile::read(File::open(path).unwrap()).unwrap()
}

fn incident(profile: &Profile) -> &Incident {
    profile.header().incident.as_ref().expect("the profile has its incident")
}

/// The path of the files of a series.
fn output(directory: &TempDir, name: &str) -> String {
    directory.path().join(name).to_str().unwrap().to_owned()
}

/// Waits until the workload has used this much more CPU time.
fn compute(workload: &Workload, seconds: f64) {
    let end = workload.cpu_time() + Duration::from_secs_f64(seconds);
    wait_until("CPU time of the workload", || (workload.cpu_time() >= end).then_some(()));
}

/// The share of samples of an event with a function, in a period.
fn share(profile: &Profile, event: EventId, function: &str, period_ns: Range<u64>) -> f64 {
    let (mut with, mut all) = (0, 0);
    for sample in profile.samples_of(event).filter(|sample| period_ns.contains(&sample.time_ns)) {
        let frames = &profile.stack(sample.stack).frames;
        let has = frames.iter().any(|frame| profile.string(profile.frame(*frame).name) == function);
        with += u64::from(has) * sample.value;
        all += sample.value;
    }
    with as f64 / all.max(1) as f64
}

/// The present time of the clock that profiles start by.
fn monotonic_ns() -> u64 {
    let now = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap();
    u64::try_from(now.as_nanos()).unwrap()
}

#[test]
fn the_exit_of_a_command_is_an_incident() {
    let Some(_guard) = run_beside_others() else { return };
    let directory = tempfile::tempdir().unwrap();
    let output = output(&directory, "trap-%t-%n.profile");
    let run = |command: &str| {
        let trigger = ["record", "--trigger", "exit != 0", "-o", &output, "--", "sh", "-c", command];
        run_command(&mut profiler(&trigger))
    };
    let outcome = run("exit 0");
    assert_eq!((outcome.code(), files(&directory).len()), (0, 0), "{}", outcome.stderr);
    let outcome = run("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; exit 3");
    assert_eq!(outcome.code(), 3, "{}", outcome.stderr);
    let [file] = &files(&directory)[..] else { panic!("{:?}", files(&directory)) };
    let profile = read(file);
    assert!(incident(&profile).values.contains('3'), "{:?}", incident(&profile));
    assert!(profile.total_value() > 0);
}

#[test]
fn a_signal_and_a_line_of_a_log_file_are_incidents() {
    let Some(_guard) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("service.log");
    fs::write(&log, "ERROR 1, before the recorder\n").unwrap();
    let (pid, output) = (workload.pid().to_string(), output(&directory, "trap-%n.profile"));
    let triggers = ["--trigger", "signal", "--trigger", "file ~ \"ERROR [0-9]+\"", "--after", "0"];
    let log_file = ["--log-file", log.to_str().unwrap(), "--log-format", "json"];
    let arguments = [&["-p", &pid, "-o", &output][..], &triggers[..], &log_file[..]].concat();
    let mut recorder = Recorder::spawn(&arguments);
    recorder.wait_for(r#""event":"started""#);
    recorder.signal(Signal::USR2);
    let line = recorder.wait_for(r#""event":"incident""#);
    assert!(line.contains(r#""condition":"signal""#), "{line}");
    recorder.wait_for(r#""event":"written""#);
    writeln!(File::options().append(true).open(&log).unwrap(), "WARN\nERROR 42").unwrap();
    let line = recorder.wait_for(r#""event":"incident""#);
    assert!(line.contains("ERROR [0-9]+"), "{line}");
    recorder.wait_for(r#""event":"written""#);
    recorder.signal(Signal::TERM);
    assert_eq!(recorder.end().1, Some(0));
    let conditions: Vec<_> = [1, 2]
        .map(|number| read(&directory.path().join(format!("trap-{number}.profile"))))
        .map(|profile| incident(&profile).condition.clone())
        .into();
    assert_eq!(conditions, ["signal", "file ~ \"ERROR [0-9]+\""]);
}

#[test]
fn the_file_with_conditions_is_read_again_at_sighup() {
    let Some(_guard) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let directory = tempfile::tempdir().unwrap();
    let conditions = directory.path().join("conditions");
    fs::write(&conditions, "# never\nrss > 1TB\n").unwrap();
    let (pid, output) = (workload.pid().to_string(), output(&directory, "trap-%n.profile"));
    let from_file = ["--trigger-file", conditions.to_str().unwrap(), "--after", "0", "--count", "1"];
    let mut recorder = Recorder::start(&[&["-p", &pid, "-o", &output][..], &from_file[..]].concat());
    for (text, event) in
        [("rss >", "event=failed"), ("gc-pause > 1s", "event=failed"), ("cpu > 1%", "event=reloaded")]
    {
        fs::write(&conditions, text).unwrap();
        recorder.signal(Signal::HUP);
        recorder.wait_for(event);
    }
    recorder.wait_for("condition=\"cpu > 1%\"");
    recorder.wait_for("event=written");
    assert_eq!(recorder.end().1, Some(0));
}

#[test]
fn consecutive_files_have_every_sample_once() {
    const SECONDS: f64 = 3.0;
    let Some(_guard) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let directory = tempfile::tempdir().unwrap();
    let (pid, output) = (workload.pid().to_string(), output(&directory, "part-%n.profile"));
    let arguments = ["record", "-p", &pid, "-F", "499", "--rotate", "1s", "-d", "3", "-o", &output];
    let begin = Instant::now();
    let outcome = run_command(&mut profiler(&arguments));
    let elapsed_s = begin.elapsed().as_secs_f64();
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr);
    let profiles: Vec<_> = files(&directory).iter().map(|path| read(path)).collect();
    let end = |profile: &Profile| profile.header().started_monotonic_ns + profile.header().duration_ns;
    for pair in profiles.windows(2) {
        assert_eq!(end(&pair[0]), pair[1].header().started_monotonic_ns);
        let [before, after] = [&pair[0], &pair[1]].map(|profile| profile.header().started_unix_ns);
        assert!(after > before, "{before} {after}");
    }
    let joined = Profile::joined(&profiles);
    assert!(joined.ledger().adds_up());
    let seconds = joined.header().duration_ns as f64 / NS_PER_S;
    assert!(seconds >= SECONDS && seconds < elapsed_s, "{seconds} s of {elapsed_s} s");
    let count = profiles.len();
    assert!(count >= 2 && count as f64 <= seconds.ceil() + 1.0, "{count} files in {seconds} s");
    FoldedStacks::from_profile(&joined).assert_share("main", 100.0);
}

#[test]
fn old_files_are_removed_and_the_command_runs_for_each_new_one() {
    let Some(_guard) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let (directory, done) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (pid, output) = (workload.pid().to_string(), output(&directory, "part-%n.profile"));
    let list = done.path().join("list");
    let command = format!("basename \"$1\" >> '{}'", list.display());
    let limits = ["--rotate", "800ms", "--keep-files", "2", "--exec", &command];
    let mut recorder = Recorder::start(&[&["-p", &pid, "-o", &output][..], &limits[..]].concat());
    for _ in 0..3 {
        recorder.wait_for("event=written");
    }
    recorder.signal(Signal::TERM);
    assert_eq!(recorder.end().1, Some(0));
    assert_eq!(files(&directory).len(), 2);
    let run: Vec<_> = fs::read_to_string(&list).unwrap().lines().map(str::to_owned).collect();
    let expected: Vec<_> = (1..=run.len()).map(|number| format!("part-{number}.profile")).collect();
    assert!(run.len() > 2 && run == expected, "{run:?}");
}

/// The processes are copies of a workload, whose name no other process has.
#[test]
fn the_next_process_with_the_name_is_followed() {
    let Some(_guard) = run_beside_others() else { return };
    let directory = tempfile::tempdir().unwrap();
    let name = format!("next-{}", std::process::id());
    let program = directory.path().join(&name);
    fs::copy(workload_path("shares"), &program).unwrap();
    let output = output(&directory, "trap-%n.profile");
    let mut recorder = Recorder::spawn(&[
        "--follow",
        "--process",
        &name,
        "--trigger",
        "exit",
        "--after",
        "0",
        "-o",
        &output,
    ]);
    recorder.wait_for("event=waiting");
    let pids = [1, 2].map(|_| {
        let workload = Workload::run(Command::new(&program).arg("600"));
        recorder.wait_for("event=started");
        let pid = workload.pid();
        compute(&workload, 0.2);
        drop(workload);
        recorder.wait_for("event=written");
        pid
    });
    recorder.wait_for("event=waiting");
    recorder.signal(Signal::TERM);
    assert_eq!(recorder.end().1, Some(0));
    for (number, pid) in (1..).zip(pids) {
        let profile = read(&directory.path().join(format!("trap-{number}.profile")));
        assert!(
            profile
                .samples()
                .iter()
                .all(|sample| profile.process(profile.thread(sample.thread).process).pid == pid)
        );
        assert!(!profile.samples().is_empty());
    }
}

/// The recorder of a follower ends with it, also where it is killed.
#[test]
fn a_killed_follower_leaves_no_recorder_behind() {
    let Some(_guard) = run_beside_others() else { return };
    let directory = tempfile::tempdir().unwrap();
    let name = format!("kill-{}", std::process::id());
    let program = directory.path().join(&name);
    fs::copy(workload_path("shares"), &program).unwrap();
    let workload = Workload::run(Command::new(&program).arg("600"));
    let output = output(&directory, "trap-%n.profile");
    let mut recorder = Recorder::spawn(&["--follow", "--process", &name, "--trigger", "exit", "-o", &output]);
    recorder.wait_for("event=started");
    recorder.signal(Signal::KILL);
    // The recorder has the other end of the pipe.
    recorder.wait_for("event=stopped");
    let _ = recorder.end();
    drop(workload);
}

#[test]
fn a_killed_recorder_leaves_nothing_behind() {
    let Some(_guard) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let directory = tempfile::tempdir().unwrap();
    let (pid, output) = (workload.pid().to_string(), output(&directory, "trap-%n.profile"));
    let mut recorder =
        Recorder::start(&["-p", &pid, "--trigger", "cpu > 1%", "--after", "60s", "-o", &output]);
    recorder.wait_for("event=incident");
    recorder.signal(Signal::KILL);
    let _ = recorder.end();
    assert!(files(&directory).is_empty(), "{:?}", files(&directory));
}

#[test]
fn the_present_values_of_conditions_are_printed() {
    let Some(_guard) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let pid = workload.pid().to_string();
    let conditions =
        ["--trigger", "cpu < 20% and rss > 1GB", "--trigger", "threads > 100", "--trigger", "gc-pause > 1s"];
    let outcome = run_command(profiler(&["record", "--check", "-p", &pid]).args(conditions));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr);
    let lines: Vec<_> = outcome.stdout.lines().collect();
    let [cpu, threads, pause] = lines[..] else { panic!("{}", outcome.stdout) };
    assert!(cpu.starts_with("cpu < 20% and rss > 1GB: cpu ") && cpu.contains(", rss "), "{cpu}");
    assert_eq!(threads, "threads > 100: threads 1");
    assert!(pause.starts_with("gc-pause > 1s: gc-pause "), "{pause}");
}

/// Of all processes: of the workload alone, the CPU time is that of a CPU.
#[test]
fn conditions_can_compare_measures_of_the_machine() {
    let Some(_guard) = run_beside_others() else { return };
    let _workload = Workload::start("shares");
    let condition =
        "cpu > 50% and cpu-of-machine > 1% and memory > 1% and threads > 20 and rss > 1MB and fds > 100";
    let outcome = run_command(&mut profiler(&["record", "--check", "-a", "--trigger", condition]));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr);
    let values = outcome.stdout.strip_prefix(&format!("{condition}: ")).unwrap();
    assert!(values.contains("threads ") && !values.contains("unknown"), "{values}");
    let directory = tempfile::tempdir().unwrap();
    let output = output(&directory, "trap-%n.profile");
    let arguments = ["-a", "-F", "19", "--trigger", condition, "--after", "0", "--count", "1", "-o", &output];
    let mut recorder = Recorder::start(&arguments);
    recorder.wait_for("event=written");
    assert_eq!(recorder.end().1, Some(0));
}

#[test]
fn conditions_and_outputs_that_cannot_work_are_refused() {
    for (arguments, message) in [
        (&["-a", "--trigger", "cpu <"][..], "^"),
        (&["-a", "--trigger", "cpu < 20MB"], "%"),
        (&["-a"], "--trigger"),
        (&["-a", "--trigger", "exit", "-o", "/tmp/same.profile"], "add %t"),
        (&["-a", "--trigger", "exit", "-o", "/no/such/folder/%n.profile"], "/no/such/folder"),
        (&["-a", "--trigger", "exit", "-o", "/tmp/%n.unknown"], "unknown"),
        (&["-a", "--trigger", "exit", "--keep", "2h"], "1h"),
        (&["-a", "--rotate", "1m", "--trigger", "exit"], "--trigger"),
    ] {
        let outcome = run_command(profiler(&["record"]).args(arguments));
        assert!(outcome.code() != 0 && outcome.stderr.contains(message), "{arguments:?}: {}", outcome.stderr);
    }
    let Some(_guard) = run_beside_others() else { return };
    let directory = tempfile::tempdir().unwrap();
    let output = output(&directory, "%n.profile");
    let tid = std::process::id().to_string();
    let refused = [
        (&["-t", &tid][..], "cpu < 20%", "--cgroup, --container, --pod or -a"),
        (&["-a"], "file ~ \"x\"", "--log-file"),
        (&["-a"], "event(page-faults) > 1/s", "-e NAME"),
    ];
    for (target, trigger, message) in refused {
        let outcome = run_command(profiler(&["record", "--trigger", trigger, "-o", &output]).args(target));
        assert!(outcome.code() == 2 && outcome.stderr.contains(message), "{trigger}: {}", outcome.stderr);
    }
}

#[test]
fn occurrences_of_an_event_are_an_incident() {
    const EVENT: &str = "raw_syscalls:sys_enter";
    let Some(_guard) = run_beside_others() else { return };
    let workload = Workload::start("stalls");
    let directory = tempfile::tempdir().unwrap();
    let (pid, output) = (workload.pid().to_string(), output(&directory, "trap-%n.profile"));
    let trigger = format!("event({EVENT}) > 0/s");
    let arguments = ["-p", &pid, "-e", EVENT, "--trigger", &trigger, "--after", "0", "--count", "1"];
    let mut recorder = Recorder::start(&[&arguments[..], &["-o", &output]].concat());
    recorder.wait_for("event=written");
    assert_eq!(recorder.end().1, Some(0));
    let profile = read(&directory.path().join("trap-1.profile"));
    assert!(profile.samples_of(profile.find_event(EVENT).unwrap()).count() > 0);
    assert!(
        incident(&profile).values.starts_with(&format!("event(\"{EVENT}\") ")),
        "{:?}",
        incident(&profile)
    );
}

#[test]
fn runtime_events_are_incidents() {
    let Some(_guard) = run_beside_others() else { return };
    let directory = tempfile::tempdir().unwrap();
    for (program, trigger) in [("3.1", "exceptions > 1/s"), ("9.0", "gc-pause > 0ms and threads > 1")] {
        let mut workload = Workload::dotnet_program(program, "events");
        let sockets_before = workload.sockets();
        let name = format!("{program}-%n.profile");
        let (pid, output) = (workload.pid().to_string(), output(&directory, &name));
        let triggers = ["--trigger", trigger, "--after", "0", "--count", "1"];
        let mut recorder = Recorder::start(&[&["-p", &pid, "-o", &output][..], &triggers[..]].concat());
        wait_until("event sessions", || (workload.sockets() > sockets_before + 1).then_some(()));
        workload.write_line("go");
        let line = recorder.wait_for("event=incident");
        assert!(line.contains(trigger), "{line}");
        recorder.wait_for("event=written");
        assert_eq!(recorder.end().1, Some(0));
        let profile = read(&directory.path().join(format!("{program}-1.profile")));
        assert!(!profile.runtime_events().is_empty());
    }
}

/// Conditions on CPU time. The workload has priority over other programs of the machine, which would starve beside it.
mod measured {
    use super::*;

    #[test]
    fn each_incident_has_a_file_with_what_led_to_it() {
        let Some(_guard) = measure_alone() else { return };
        let mut workload = Workload::start_first("stalls");
        let directory = tempfile::tempdir().unwrap();
        let (pid, output) = (workload.pid().to_string(), output(&directory, "trap-%n.profile"));
        let mut recorder = Recorder::start(&[
            "-p",
            &pid,
            "-F",
            "99",
            "--wall",
            "--trigger",
            "cpu < 5% for 1s",
            "--keep",
            "5s",
            "--after",
            "500ms",
            "--count",
            "2",
            "-o",
            &output,
        ]);
        for number in 1..=2 {
            compute(&workload, 1.5);
            let (stalled, stalled_ns) = (Instant::now(), monotonic_ns());
            workload.write_line("wait");
            recorder.wait_for("event=incident");
            let seen_after = stalled.elapsed().as_secs_f64();
            assert!(seen_after > 1.0, "after {seen_after} s");
            recorder.wait_for("event=written");
            let profile = read(&directory.path().join(format!("trap-{number}.profile")));
            assert!(profile.ledger().adds_up());
            let Incident { since_ns, time_ns, condition, values } = incident(&profile);
            assert_eq!(condition, "cpu < 5% for 1s");
            assert!(values.starts_with("cpu ") && values.ends_with(" %"), "{values}");
            let lasted = (time_ns - since_ns) as f64 / NS_PER_S;
            // It may begin in the interval in which the process still computed.
            assert!(lasted >= 1.0 && lasted < seen_after + 1.0, "{lasted}, seen after {seen_after}");
            let wall = profile.find_event("wall").unwrap();
            // The incident begins with the first interval in which the process hardly ran, up to an interval after the stall.
            let stall_ns = stalled_ns - profile.header().started_monotonic_ns;
            let before = share(&profile, wall, "work", stall_ns.saturating_sub(1_000_000_000)..stall_ns);
            let after = share(&profile, wall, "wait_for_line", stall_ns + 200_000_000..u64::MAX);
            assert!(before > 0.9 && after > 0.9, "work before {before}, waits after {after}");
            assert!(*since_ns as f64 > 0.75 * NS_PER_S, "{since_ns} ns before the incident");
            workload.write_line("compute");
        }
        assert_eq!(recorder.end().1, Some(0));
        assert_eq!(files(&directory).len(), 2);
        // The count holds for a recorder that starts again.
        let again = ["record", "-p", &pid, "--trigger", "exit", "--count", "2", "-o", &output];
        let outcome = run_command(&mut profiler(&again));
        assert!(outcome.code() == 1 && outcome.stderr.contains("raise --count"), "{}", outcome.stderr);
    }

    #[test]
    fn the_report_of_an_incident_begins_with_what_changed() {
        let Some(_guard) = measure_alone() else { return };
        let mut workload = Workload::start_first("stalls");
        let directory = tempfile::tempdir().unwrap();
        let (pid, output) = (workload.pid().to_string(), output(&directory, "trap-%n.profile"));
        let trigger = ["--trigger", "cpu < 5% for 1s", "--after", "1s", "--count", "1"];
        let mut recorder =
            Recorder::start(&[&["-p", &pid, "--wall", "-o", &output][..], &trigger[..]].concat());
        compute(&workload, 1.5);
        workload.write_line("wait");
        recorder.wait_for("event=written");
        assert_eq!(recorder.end().1, Some(0));
        let path = directory.path().join("trap-1.profile");
        let report = run_command(&mut profiler(&["report", path.to_str().unwrap(), "-o", "-.html"]));
        assert_eq!(report.code(), 0, "{}", report.stderr);
        assert!(report.stderr.contains("incident at "), "{}", report.stderr);
        let changed = report.stderr.lines().find(|line| line.contains("changed since then")).unwrap();
        assert!(changed.contains("work ") && changed.contains("wait_for_line "), "{changed}");
    }
}

#[test]
fn the_profile_of_an_incident_whose_file_cannot_be_written_is_saved_elsewhere() {
    let Some(_guard) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let (directory, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (pid, output) = (workload.pid().to_string(), output(&directory, "trap-%n.profile"));
    let mut command = profiler(&["record", "-p", &pid, "--trigger", "signal", "--after", "0", "-o", &output]);
    let mut recorder = Recorder::run(command.env("TMPDIR", temporary.path()));
    recorder.wait_for("event=started");
    fs::remove_dir(directory.path()).unwrap();
    recorder.signal(Signal::USR2);
    let failed = recorder.wait_for("event=failed");
    let saved = failed.split('`').find(|part| part.starts_with(temporary.path().to_str().unwrap()));
    assert_eq!(incident(&read(Path::new(saved.expect(&failed)))).condition, "signal");
    recorder.signal(Signal::TERM);
    assert_eq!(recorder.end().1, Some(0));
}
