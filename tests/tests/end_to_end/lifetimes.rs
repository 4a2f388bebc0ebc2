//! Tests processes that start, exit, load libraries and execute other programs while they are sampled.

use std::{
    pin::pin,
    process::Command,
    sync::Arc,
    task::{Context, Poll, Wake},
    thread::Thread,
    time::{Duration, Instant},
};

use futures_core::Stream as _;
use profiler::{
    Builder, Ended, Format, OutputOptions, PolledIntervals, Profile, Profiler, Session, Target,
    profile::{FrameView, Reason, SampleView},
};
use profiler_tests::{
    DEADLINE, FoldedStack, FoldedStacks, Outcome, Workload, profiler, run_beside_others, run_command, sample,
    sample_pid, start_sampling, wait_for_samples, wait_until, workload_path,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, kill_process},
};

use crate::NEARLY_ALL_PERCENT;

/// As many samples that a few of the start of a program are no share of them.
const SAMPLES: u64 = 1_000;

/// The duration of a profile of all processes. A test takes several profiles.
const ROUND: Duration = Duration::from_secs(2);
const MAX_ROUNDS: u32 = 30;

/// The stacks of one process.
fn of_process(profile: &Profile, pid: u32) -> FoldedStacks {
    let mut folded = Vec::new();
    let options = OutputOptions { per_process: true, ..OutputOptions::default() };
    Format::Folded.write_with(profile, &options, &mut folded).unwrap();
    let mut stacks = FoldedStacks::parse(&String::from_utf8(folded).unwrap());
    let frame = format!("process {pid} (");
    stacks.0.retain(|stack| stack.frames[0].starts_with(&frame));
    stacks.0.iter_mut().for_each(|stack| drop(stack.frames.remove(0)));
    stacks
}

/// The stacks of the time in which a workload computes for half a second.
fn stacks_of_half_a_second(session: &mut Session, workload: &Workload) -> FoldedStacks {
    let end = workload.cpu_time_of_threads() + Duration::from_millis(500);
    wait_until("CPU time", || (workload.cpu_time_of_threads() >= end).then_some(()));
    of_process(&session.take_profile(Duration::ZERO).unwrap(), workload.pid())
}

#[test]
fn children_that_live_for_milliseconds_are_symbolized() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("forkstorm");
    let profile = sample(sample_pid(workload.pid()).children(true), 2_000);
    assert!(profile.ledger().adds_up());
    assert!(profile.processes().len() > 50, "{} processes", profile.processes().len());
    let stacks = FoldedStacks::from_profile(&profile);
    // The rest is the kernel's fork, exec and exit, and the loader.
    assert!(stacks.percent(|stack| stack.has("burn_in_child")) > 60.0, "{stacks:#?}");
    let in_children = stacks.clone().with("burn_in_child");
    let whole = in_children.percent(|stack| stack.has_chain(&["main", "child", "burn_in_child"]));
    assert!(whole > NEARLY_ALL_PERCENT, "{in_children:#?}");
    // The process has the name of the executed program, here of a symbolic link to it.
    let renamed = stacks.count(|stack| stack.has("burn_in_child") && stack.comm == "exe");
    let burning = stacks.count(|stack| stack.has("burn_in_child"));
    assert!(renamed * 100 >= burning * 98, "{renamed} of {burning}");
    // At the start of a program, its loader keeps no frame pointers, and unwinding goes wrong.
    let is_unnamed = |frame: &String| frame.starts_with('[');
    let astray = stacks.percent(|stack| stack.frames.iter().any(is_unnamed));
    assert!(astray < 20.0, "{stacks:#?}");
    let burning_astray =
        stacks.count(|stack| stack.has("burn_in_child") && stack.frames.iter().any(is_unnamed));
    assert!(burning_astray * 100 <= burning, "{burning_astray} of {burning}");
    let gone = profile
        .first_ledger()
        .unsymbolized
        .iter()
        .filter(|(unnamed, _)| unnamed.reason == Reason::ProcessGone);
    assert!(gone.map(|(_, count)| count).sum::<u64>() * 100 <= stacks.total(), "{:?}", profile.ledger());
}

#[test]
fn children_are_not_sampled_by_default() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("forkstorm");
    let run = run_command(&mut profiler(&["-p", &workload.pid().to_string(), "-F", "9999", "-d", "1"]));
    let stacks = FoldedStacks::parse(&run.stdout);
    assert!(stacks.0.iter().all(|stack| !stack.has("burn_in_child")), "{stacks:#?}");
}

#[test]
fn libraries_loaded_while_sampling_are_symbolized() {
    let Some(_lock) = run_beside_others() else { return };
    let mut workload = Workload::start_with("dlopen", &["600"]);
    let mut session = sample_pid(workload.pid()).build().unwrap().start().unwrap();
    wait_for_samples(&mut session, SAMPLES);
    workload.write_line("load");
    workload.wait_for("loaded");
    let before = FoldedStacks::from_profile(&session.take_profile(Duration::ZERO).unwrap());
    wait_for_samples(&mut session, SAMPLES);
    let after = FoldedStacks::from_profile(&session.take_profile(Duration::ZERO).unwrap());
    assert!(before.count(|stack| stack.has_chain(&["main", "run", "before"])) > 0, "{before:#?}");
    let plugin = after.percent(|stack| stack.has_chain(&["main", "run", "plugin_burn", "plugin_leaf"]));
    assert!(plugin > NEARLY_ALL_PERCENT, "{plugin} % in\n{after:#?}");
}

#[test]
fn a_session_ends_with_its_target_and_keeps_the_symbols() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shortlived");
    let mut session = sample_pid(workload.pid()).build().unwrap().start().unwrap();
    wait_for_samples(&mut session, SAMPLES);
    assert_eq!(workload.end().code(), Some(7));
    let profile = session.run().unwrap();
    let stacks = FoldedStacks::from_profile(&profile);
    assert!(stacks.total() >= SAMPLES, "{stacks:#?}");
    let named = stacks.percent(|stack| stack.has_chain(&["main", "run", "burn"]));
    assert!(named > NEARLY_ALL_PERCENT, "{stacks:#?}");
    assert!(profile.ledger().adds_up());
}

#[test]
fn intervals_follow_each_other_and_end_with_their_target() {
    const PERIOD: Duration = Duration::from_millis(100);
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shortlived");
    let mut intervals = sample_pid(workload.pid()).build().unwrap().start().unwrap().intervals(PERIOD);
    let mut profiles = Vec::new();
    while profiles.iter().map(Profile::total_value).sum::<u64>() < SAMPLES {
        profiles.push(intervals.next().unwrap().unwrap());
    }
    assert_eq!(intervals.ended(), None);
    assert_eq!(workload.end().code(), Some(7));
    profiles.extend(intervals.by_ref().map(Result::unwrap));
    assert_eq!(intervals.ended(), Some(Ended::TargetExited));
    assert!(intervals.stopper().is_none());

    for (interval, next) in profiles.iter().zip(&profiles[1..]) {
        let end_ns = interval.header().started_monotonic_ns + interval.header().duration_ns;
        assert_eq!(end_ns, next.header().started_monotonic_ns);
    }
    assert!(profiles.iter().all(|profile| profile.ledger().adds_up()));
    let samples = || profiles.iter().flat_map(Profile::sample_views);
    let is_named = |sample: &SampleView<'_>| {
        let names: Vec<_> = sample.stack().frames().rev().map(FrameView::name).collect();
        names.windows(3).any(|names| names == ["main", "run", "burn"])
    };
    let (named, all) = (samples().filter(is_named).count(), samples().count());
    assert!(named as f64 > NEARLY_ALL_PERCENT / 100.0 * all as f64, "{named} of {all}");
}

#[test]
fn intervals_end_when_they_are_stopped() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("chain");
    let mut intervals = sample_pid(workload.pid()).build().unwrap().start().unwrap().intervals(DEADLINE);
    intervals.stopper().unwrap().stop();
    assert!(intervals.next().unwrap().unwrap().ledger().adds_up());
    assert_eq!(intervals.ended(), Some(Ended::Stopped));
    assert!(intervals.next().is_none());
}

#[test]
fn an_interval_without_an_end_is_one_that_is_not_waited_for() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shortlived");
    let session = sample_pid(workload.pid()).build().unwrap().start().unwrap();
    let mut intervals = session.intervals(Duration::MAX);
    assert_eq!(workload.end().code(), Some(7));
    assert!(intervals.next().unwrap().unwrap().ledger().adds_up());
    assert_eq!(intervals.ended(), Some(Ended::TargetExited));
}

/// Waits until intervals have an answer.
fn wait_until_readable(intervals: &PolledIntervals) {
    let timeout = Timespec::try_from(DEADLINE).unwrap();
    let ready = poll(&mut [PollFd::new(intervals, PollFlags::IN)], Some(&timeout));
    assert_eq!(ready, Ok(1), "no profile within {DEADLINE:?}");
}

#[test]
fn polled_intervals_follow_each_other_and_are_readable_when_there_is_one() {
    const PERIOD: Duration = Duration::from_millis(50);
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shortlived");
    let session = sample_pid(workload.pid()).build().unwrap().start().unwrap();
    let mut intervals = session.polled_intervals(PERIOD).unwrap();
    let mut profiles: Vec<Profile> = Vec::new();
    while profiles.iter().map(Profile::total_value).sum::<u64>() < SAMPLES {
        wait_until_readable(&intervals);
        let Poll::Ready(Some(profile)) = intervals.try_next() else { panic!("readable without a profile") };
        profiles.push(profile.unwrap());
    }
    // Nothing is taken meanwhile: two profiles are there, and the interval after them goes on.
    assert_eq!(workload.end().code(), Some(7));
    loop {
        wait_until_readable(&intervals);
        match intervals.try_next() {
            Poll::Ready(Some(profile)) => profiles.push(profile.unwrap()),
            Poll::Ready(None) => break,
            Poll::Pending => panic!("readable without a profile"),
        }
    }
    assert_eq!(intervals.ended(), Some(Ended::TargetExited));
    for (interval, next) in profiles.iter().zip(&profiles[1..]) {
        let end_ns = interval.header().started_monotonic_ns + interval.header().duration_ns;
        assert_eq!(end_ns, next.header().started_monotonic_ns);
    }
    assert!(profiles.iter().all(|profile| profile.ledger().adds_up()));
}

#[test]
fn a_stream_of_intervals_wakes_its_task_and_ends_when_it_is_stopped() {
    const PERIOD: Duration = Duration::from_millis(50);
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("chain");
    let session = sample_pid(workload.pid()).build().unwrap().start().unwrap();
    let intervals = session.polled_intervals(PERIOD).unwrap();
    let stopper = intervals.stopper().unwrap();
    let mut intervals = pin!(intervals);
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut task = Context::from_waker(&waker);
    let (mut profiles, began) = (0, Instant::now());
    loop {
        match intervals.as_mut().poll_next(&mut task) {
            Poll::Ready(Some(profile)) => {
                assert!(profile.unwrap().ledger().adds_up());
                profiles += 1;
                if profiles == 3 {
                    stopper.stop();
                }
            }
            Poll::Ready(None) => break,
            Poll::Pending => std::thread::park_timeout(DEADLINE),
        }
        assert!(began.elapsed() < DEADLINE, "{profiles} profiles");
    }
    assert!(profiles >= 3);
    assert_eq!(intervals.ended(), Some(Ended::Stopped));
}

#[test]
fn a_command_is_sampled_from_its_first_instruction_and_its_exit_code_is_returned() {
    let Some(_lock) = run_beside_others() else { return };
    let program = workload_path("shortlived");
    let run = |seconds| {
        let run = run_command(&mut profiler(&["-F", "9999", "--", program.to_str().unwrap(), seconds]));
        assert_eq!(run.code(), 7, "{}", run.stderr);
        let stacks = stacks_of_command(&run);
        assert!(stacks.0.iter().all(|stack| stack.comm == "shortlived"), "{stacks:#?}");
        stacks
    };
    let stacks = run("0.5");
    assert!(stacks.percent(|stack| stack.has_chain(&["main", "run", "burn"])) > 90.0, "{stacks:#?}");
    let is_early = |name: &String| ["_dl", "execve", "_start", "mmap"].iter().any(|part| name.contains(part));
    // The start takes about a millisecond, and not every one has a sample.
    wait_until("a sample of the start", || {
        run("0.05").0.iter().any(|stack| stack.frames.iter().any(is_early)).then_some(())
    });
}

/// The stacks of a run of the profiler whose command has the same standard output, and precedes it there with one line.
fn stacks_of_command(run: &Outcome) -> FoldedStacks {
    let folded: String = run.stdout.lines().skip(1).map(|line| format!("{line}\n")).collect();
    FoldedStacks::parse(&folded)
}

#[test]
fn an_unknown_command_is_an_error_with_its_name() {
    let Some(_lock) = run_beside_others() else { return };
    let run = run_command(&mut profiler(&["--", "/no/such/program"]));
    assert_eq!(run.code(), 1);
    assert!(run.stderr.contains("/no/such/program") && run.stderr.contains("No such file"), "{}", run.stderr);
    assert_eq!(run.stdout, "");
}

#[test]
fn a_command_that_exits_at_once_is_not_an_error() {
    let Some(_lock) = run_beside_others() else { return };
    let run = run_command(&mut profiler(&["--", "true"]));
    assert!([0, 3].contains(&run.code()), "{run:?}");
    assert!(run.stderr.contains("samples"), "{}", run.stderr);
}

#[test]
fn a_target_is_still_sampled_after_it_executes_another_program() {
    let Some(_lock) = run_beside_others() else { return };
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo ready $$; read -r line; exec \"$0\" 600"]).arg(workload_path("shares"));
    let mut workload = Workload::run(&mut shell);
    let builder = Profiler::builder().target(Target::Pid(workload.pid())).frequency_hz(1_999);
    let mut session = builder.build().unwrap().start().unwrap();
    workload.write_line("go");
    workload.wait_for("ready");
    wait_for_samples(&mut session, 2 * SAMPLES);
    let stacks = FoldedStacks::from_profile(&session.take_profile(Duration::ZERO).unwrap());
    let renamed = stacks.percent(|stack| stack.comm == "shares");
    assert!(renamed > NEARLY_ALL_PERCENT, "{stacks:#?}");
    let named = stacks.percent(|stack| stack.has_chain(&["main", "run", "round_of_work"]));
    assert!(named > 90.0, "{stacks:#?}");
}

#[test]
fn a_process_whose_first_thread_has_exited_keeps_its_names() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("leader_exits");
    let status = format!("/proc/{}/status", workload.pid());
    wait_until("the leader's exit", || {
        std::fs::read_to_string(&status).ok()?.contains("Z (zombie)").then_some(())
    });
    let pid = Target::Pid(workload.pid());
    for target in [pid, Target::Everything] {
        let mut session =
            Profiler::builder().target(target).frequency_hz(999).build().unwrap().start().unwrap();
        for _ in 0..2 {
            let stacks = stacks_of_half_a_second(&mut session, &workload);
            assert!(stacks.total() > 250, "{stacks:#?}");
            assert!(stacks.0.iter().all(|stack| stack.comm == "leader_exits"), "{stacks:#?}");
            let named = stacks.percent(|stack| stack.has_chain(&["thread_main", "compute"]));
            assert!(named > NEARLY_ALL_PERCENT, "{named} % in\n{stacks:#?}");
        }
    }
}

#[test]
fn a_process_with_a_reused_id_is_not_sampled() {
    let Some(_lock) = run_beside_others() else { return };
    let (ended, other) = (Workload::start("shares"), Workload::start("chain"));
    let pids = vec![ended.pid(), other.pid()];
    let builder = Profiler::builder().target(Target::Pids(pids)).frequency_hz(999);
    let mut session = builder.build().unwrap().start().unwrap();
    let pid = ended.pid();
    ended.end();
    let reused = Workload::start_with("reuse_pid", &["600", &pid.to_string()]);
    assert_eq!(reused.pid(), pid);
    let before = reused.cpu_time();
    wait_until("time on a CPU", || (reused.cpu_time() - before > Duration::from_millis(300)).then_some(()));
    let during = session.take_profile(Duration::ZERO).unwrap();
    let last = session.stop().unwrap();
    for profile in [during, last] {
        let stacks = FoldedStacks::from_profile(&profile);
        assert_eq!(stacks.count(|stack| stack.has("compute_with_reused_pid")), 0, "{stacks:#?}");
        assert!(profile.ledger().adds_up(), "{:?}", profile.ledger());
    }
}

#[test]
fn after_lost_events_the_names_are_those_of_the_program_that_runs() {
    let Some(_lock) = run_beside_others() else { return };
    let program = workload_path("shares");
    // A ring holds about 600 events.
    let arguments = ["600", "20000", program.to_str().unwrap()];
    let mut workload = Workload::start_with("remap", &arguments);
    let run = start_sampling(&mut profiler(&["-p", &workload.pid().to_string(), "-F", "999", "-v"]));
    let computes = |workload: &Workload, time| {
        let end = workload.cpu_time() + time;
        wait_until("CPU time", || (workload.cpu_time() >= end).then_some(()));
    };
    computes(&workload, Duration::from_millis(500));
    let profiler_pid = Pid::from_child(&run);
    kill_process(profiler_pid, Signal::STOP).unwrap();
    workload.write_line("remap");
    workload.wait_for("ready ");
    kill_process(profiler_pid, Signal::CONT).unwrap();
    computes(&workload, Duration::from_secs(1));
    kill_process(profiler_pid, Signal::INT).unwrap();
    let output = run.wait_with_output().unwrap();
    let stacks = FoldedStacks::parse(&String::from_utf8(output.stdout).unwrap());
    let before = stacks.count(|stack| stack.has("compute_before_remaps"));
    let after = stacks.count(|stack| stack.has_chain(&["main", "run"]));
    assert!(before > 100 && after > 500, "{before} before, {after} after: {stacks:#?}");
    let unnamed = stacks.count(|stack| stack.frames.iter().any(|frame| frame.starts_with('[')));
    assert!(unnamed * 100 <= stacks.total(), "{unnamed} in {stacks:#?}");
    let renamed = stacks.count(|stack| stack.has("compute_before_remaps") && stack.comm != "remap");
    assert_eq!(renamed, 0, "{stacks:#?}");
}

/// Samples the workload `teardown` until its samples from when an address space is torn down go from the function of
/// the C library to the kernel's. The first ones are taken before the unwind tables of the workload are installed.
fn teardown_is_sampled(sampled: impl Fn(u32) -> Builder) {
    const SAMPLES_MIN: u64 = 30;
    let workload = Workload::start("teardown");
    let mut session = sampled(workload.pid()).frequency_hz(1_999).build().unwrap().start().unwrap();
    let mut teardown = FoldedStacks(Vec::new());
    for _ in 0..MAX_ROUNDS {
        let profile = session.take_profile(ROUND).unwrap();
        assert!(profile.ledger().adds_up());
        let mut round = FoldedStacks::from_profile(&profile).with("exit_mmap");
        teardown.0.extend(round.0.extract_if(.., |stack| stack.comm == "teardown"));
        if teardown.total() >= SAMPLES_MIN {
            if teardown.percent(is_whole_exit) > NEARLY_ALL_PERCENT {
                return;
            }
            teardown.0.clear();
        }
    }
    panic!("no whole stacks of the teardown of address spaces in {MAX_ROUNDS} rounds");
}

fn is_whole_exit(stack: &FoldedStack) -> bool {
    let entry = stack.frames.iter().position(|frame| frame == "entry_SYSCALL_64_after_hwframe");
    let caller = entry.and_then(|entry| stack.frames.get(entry.checked_sub(1)?));
    caller.is_some_and(|caller| caller.ends_with("_exit")) && stack.has("do_exit")
}

#[test]
fn the_teardown_of_a_childs_address_space_is_sampled() {
    let Some(_lock) = run_beside_others() else { return };
    teardown_is_sampled(|pid| sample_pid(pid).children(true));
}

#[test]
fn the_teardown_of_an_address_space_is_unwound_when_everything_is_sampled() {
    let Some(_lock) = run_beside_others() else { return };
    teardown_is_sampled(|_| Profiler::builder().target(Target::Everything));
}
