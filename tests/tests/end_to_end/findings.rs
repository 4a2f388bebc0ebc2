//! Tests findings and idle threads: programs with one problem each, and healthy ones.

use std::{collections::BTreeMap, process::Command, time::Duration};

use profiler::{
    Profile,
    findings::{WaitCause, Waits},
    profile::{
        EventId, Finding, FindingKind, FrameKind, Sample, StackEnd, Symbolization, ThreadState, Whole,
    },
};
use profiler_tests::{
    Workload, aspnet, profiler, run_beside_others, run_command, sample_pid, wait_until, workload_path,
};

const WALL_HZ: u64 = 49;
const SAMPLED: Duration = Duration::from_millis(2_500);

/// A deadlock is one in which threads wait for 3 s.
const SAMPLED_DEADLOCK: Duration = Duration::from_secs(4);

/// The threads of a .NET program without a pool.
const RUNTIME_THREADS: usize = 12;

fn wall_profile(workload: &Workload) -> Profile {
    wall_profile_of(workload, SAMPLED)
}

fn wall_profile_of(workload: &Workload, time: Duration) -> Profile {
    let builder = sample_pid(workload.pid()).wall_clock_hz(WALL_HZ).cpu_samples(false);
    let mut session = builder.build().unwrap().start().unwrap();
    // The last profile of a session has limited time to read symbols, which a busy machine exceeds.
    session.take_profile(time).unwrap()
}

/// The findings but that of the run queue, which depends on what else runs on the machine.
fn findings(profile: &Profile) -> Vec<&Finding> {
    profile.findings().iter().filter(|finding| finding.kind != FindingKind::RunQueue).collect()
}

/// The method that a finding names.
fn method(finding: &Finding) -> Option<&str> {
    finding.facts.place.as_ref().map(|place| place.method.as_str())
}

/// Waits until the pool of a .NET workload has so many threads.
fn await_threads(workload: &Workload, threads: usize) {
    wait_until("the threads of the pool", || (workload.tids().len() >= threads).then_some(()));
}

/// The .NET workload with two versions of the runtime, and as a single file of a third one.
const DOTNET_PROGRAMS: [&str; 3] = ["3.1", "9.0", "single-file-10.0"];

/// A profile in which the stacks of waiting threads with managed frames reach their root, and these frames have names: the
/// unwind tables are loaded, and the runtime has sent its methods.
fn settled_wall_profile(workload: &Workload, time: Duration) -> Profile {
    let builder = sample_pid(workload.pid()).wall_clock_hz(WALL_HZ).cpu_samples(false);
    let mut session = builder.build().unwrap().start().unwrap();
    wait_until("whole stacks with names", || {
        let profile = session.take_profile(time).unwrap();
        are_whole_and_named(&profile).then_some(profile)
    })
}

/// Whether the stacks of waiting threads with managed frames reach their root, and these frames have names.
fn are_whole_and_named(profile: &Profile) -> bool {
    let (mut waiting, mut whole, mut frames, mut named) = (0, 0, 0, 0);
    for sample in profile.samples_of(EventId::FIRST).filter(|sample| sample.state != Some(ThreadState::OnCpu))
    {
        let stack = profile.stack(sample.stack);
        let of_stack = stack.frames.iter().map(|frame| profile.frame(*frame));
        let managed = of_stack.filter(|frame| matches!(frame.kind, FrameKind::Jit | FrameKind::Precompiled));
        let has_name: Vec<_> =
            managed.map(|frame| matches!(frame.symbolization, Symbolization::Symbol(_))).collect();
        if has_name.is_empty() {
            continue;
        }
        waiting += sample.value;
        frames += sample.value * has_name.len() as u64;
        named += sample.value * has_name.iter().filter(|has_name| **has_name).count() as u64;
        if stack.end == StackEnd::Root {
            whole += sample.value;
        }
    }
    println!("{whole} of {waiting} stacks reach their root, {named} of {frames} frames have names");
    waiting > 100 && whole * 100 >= waiting * 99 && named * 1000 >= frames * 995
}

#[test]
fn threads_that_queue_for_one_lock_are_a_convoy() {
    let Some(_lock) = run_beside_others() else { return };
    let profile = wall_profile(&Workload::start("convoy"));
    let [finding] = findings(&profile)[..] else {
        panic!("{:?} of {:#?}", profile.findings(), profile.ledger())
    };
    assert_eq!((finding.kind, method(finding)), (FindingKind::LockConvoy, Some("append")));
    // A mutex is not fair: the thread that holds it can get it again and again, and is then never seen to wait.
    assert!(matches!(finding.facts.threads, Some(7 | 8)), "{finding:?}");
    assert_eq!(finding.facts.selection.threads.len() as u32, finding.facts.threads.unwrap(), "{finding:?}");
    assert_eq!(finding.facts.share.map(|share| share.of), Some(Whole::TimeOfThreadsWithWork));
}

#[test]
fn threads_with_locks_of_their_own_are_no_convoy() {
    let Some(_lock) = run_beside_others() else { return };
    let profile = wall_profile(&Workload::start_with("convoy", &["600", "apart"]));
    assert!(profile.total_value() > 1_000);
    assert_eq!(findings(&profile), Vec::<&Finding>::new());
}

/// Waits until the threads use almost no CPU time: that of a timer now and then.
fn await_standstill(workload: &Workload) {
    const CHECKS: usize = 40;
    const MOST: Duration = Duration::from_millis(1);
    let (mut used, mut still) = (Duration::ZERO, 0);
    wait_until("a standstill", || {
        let now = workload.cpu_time_of_threads();
        still = if now <= used + MOST { still + 1 } else { 0 };
        used = now;
        (still >= CHECKS).then_some(())
    });
}

#[test]
fn threads_that_wait_for_locks_of_each_other_are_a_deadlock() {
    let Some(_lock) = run_beside_others() else { return };
    let mut workload = Workload::start("deadlock");
    workload.write_line("");
    await_standstill(&workload);
    let off_cpu = sample_pid(workload.pid()).off_cpu(Duration::ZERO, false).cpu_samples(false);
    let mut session = off_cpu.build().unwrap().start().unwrap();
    session.wait(Some(SAMPLED_DEADLOCK));
    for profile in [wall_profile_of(&workload, SAMPLED_DEADLOCK), session.stop().unwrap()] {
        let [finding] = findings(&profile)[..] else {
            panic!("{:?} of {:#?}", profile.findings(), profile.ledger())
        };
        assert_eq!((finding.kind, method(finding)), (FindingKind::Deadlock, Some("transfer")));
        assert_eq!(finding.facts.threads, Some(4), "{finding:?}");
    }
}

#[test]
fn a_pool_that_is_starved_by_sync_over_async_is_found() {
    let Some(_lock) = run_beside_others() else { return };
    for program in DOTNET_PROGRAMS {
        let workload = Workload::dotnet_program(program, "starve");
        await_threads(&workload, RUNTIME_THREADS + 3);
        let profile = settled_wall_profile(&workload, SAMPLED);
        let [finding] = findings(&profile)[..] else { panic!("{program}: {:?}", profile.findings()) };
        assert_eq!(finding.kind, FindingKind::PoolStarvation, "{program}");
        assert_eq!(method(finding), Some("Workload.Cart.Get"), "{program}: {finding}");
        assert_eq!(finding.facts.share.map(|share| share.of), Some(Whole::PoolWorkers));
        assert_eq!(finding.remedy, "make Cart.Get asynchronous", "{program}");
    }
}

#[test]
fn methods_that_hold_a_lock_or_wait_for_a_service_are_found() {
    let Some(_lock) = run_beside_others() else { return };
    for (mode, kind, place, programs) in [
        ("convoy", FindingKind::LockConvoy, "Workload.Ledger.Add", &DOTNET_PROGRAMS[..]),
        ("deadlock", FindingKind::Deadlock, "Workload.Account.Transfer", &DOTNET_PROGRAMS[..]),
        // The core library of the last program lacks what this mode needs.
        ("downstream", FindingKind::SlowDownstream, "Workload.Prices.Fetch", &DOTNET_PROGRAMS[..2]),
    ] {
        for program in programs {
            let time = if mode == "deadlock" { SAMPLED_DEADLOCK } else { SAMPLED };
            let profile = settled_wall_profile(&Workload::dotnet_program(program, mode), time);
            let [finding] = findings(&profile)[..] else { panic!("{mode}: {:?}", profile.findings()) };
            let found = (finding.kind, method(finding));
            assert_eq!(found, (kind, Some(place)), "{program} {mode}: {finding}");
        }
    }
}

/// The runtime of version 3.1 has symbols. Those of the others are stripped.
#[test]
fn threads_that_wait_for_collections_are_found() {
    let Some(_lock) = run_beside_others() else { return };
    for program in DOTNET_PROGRAMS {
        let profile = wall_profile(&Workload::dotnet_program(program, "storm"));
        let kinds: Vec<_> = findings(&profile).into_iter().map(|finding| finding.kind).collect();
        assert!(kinds.contains(&FindingKind::GcSuspension), "{program}: {:?}", profile.findings());
    }
}

/// A server whose requests take 100 ms without a thread.
#[test]
fn a_healthy_server_has_no_finding_and_all_of_its_threads_are_idle() {
    let Some(_lock) = run_beside_others() else { return };
    let mut command = Command::new(workload_path("dotnet/run"));
    let mut server = Workload::run(command.args(["aspnet", "serve", "600"]).env("PERF_MAP", "0"));
    let port = server.wait_for("port ");
    aspnet::warm_up(&port, &["/sleep"]);
    let _load = aspnet::load(&port, 16, &["/sleep"]);
    let profile = wall_profile(&server);
    assert_eq!(findings(&profile), Vec::<&Finding>::new());
    // Threads that wait since before the unwind tables were loaded have no whole stack.
    let waits = Waits::of(&profile);
    let is_whole = |sample: &&Sample| {
        sample.state == Some(ThreadState::Blocked) && profile.stack(sample.stack).end == StackEnd::Root
    };
    let mut ticks_by_thread = BTreeMap::<u32, (u64, u64)>::new();
    for sample in profile.samples_of(EventId::FIRST).filter(is_whole) {
        let (idle, busy) = ticks_by_thread.entry(profile.thread(sample.thread).tid).or_default();
        let is_idle = waits.cause(sample) == Some(WaitCause::Idle);
        *(if is_idle { idle } else { busy }) += sample.value;
    }
    assert!(ticks_by_thread.len() > 10, "{ticks_by_thread:?}");
    // One thread reads standard input. Workers wait for microseconds.
    let mut ticks: Vec<_> = ticks_by_thread.into_values().collect();
    ticks.sort_by_key(|(idle, busy)| (*busy, *idle));
    let reader = ticks.pop();
    let (idle, busy) = ticks.iter().fold((0, 0), |sum, ticks| (sum.0 + ticks.0, sum.1 + ticks.1));
    assert!(busy * 50 <= idle, "{busy} of {idle} ticks, {reader:?} of the reader");
    assert!(profile.first_ledger().idle > 0);
}

#[test]
fn pictures_hide_idle_threads_and_data_has_them() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("convoy");
    let pid = workload.pid().to_string();
    let folder = tempfile::tempdir().unwrap();
    let [svg, folded] = ["a.svg", "a.folded"].map(|name| folder.path().join(name));
    let run = |arguments: &[&str]| {
        let mut command = profiler(&["-p", &pid, "--wall", "-d", "2"]);
        let outcome = run_command(command.args(arguments).arg("-o").arg(&svg).arg("-o").arg(&folded));
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr);
        let has_loop = |path| std::fs::read_to_string(path).unwrap().contains("run_loop");
        (has_loop(&svg), has_loop(&folded), outcome.stderr)
    };
    let (in_picture, in_data, summary) = run(&[]);
    assert!(!in_picture && in_data, "{summary}");
    assert!(summary.contains(" samples of idle threads are hidden (--show-idle)\n"), "{summary}");
    // On a busy machine, that of the run queue is another one.
    let (findings, _) = summary.split_once(" samples in ").unwrap();
    assert!(
        findings.contains("wait for the lock in append ("),
        "the findings are the first lines: {summary}"
    );
    let (in_picture, in_data, summary) = run(&["--show-idle"]);
    assert!(in_picture && in_data && !summary.contains("hidden"), "{summary}");
}
