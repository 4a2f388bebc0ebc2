//! Tests wall-clock samples: threads that wait, with their states and stacks.

use std::{
    collections::BTreeMap,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use profiler::{
    Profile, Profiler, Target,
    profile::{EventId, StackEnd, ThreadState},
};
use profiler_tests::{
    FoldedStacks, QUANTILE, Workload, assert_share, measure_alone, profiler, run_beside_others, run_command,
    wait_until,
};

const WALL_HZ: u64 = 49;

/// The functions of a waiting thread of the workload, from the leaf on.
const WAITS: [(&str, &[&str]); 5] = [
    ("sleeper", &["sleeper", "run", "start_thread"]),
    ("reader", &["read_nothing", "reader", "run", "start_thread"]),
    ("locker", &["locker", "run", "start_thread"]),
    ("poller", &["poller", "run", "start_thread"]),
    ("deep", &["read_nothing", "descend", "descend"]),
];

/// Starts the workload, and waits until its threads have their names and wait.
pub(crate) fn start_waits() -> Workload {
    start_waits_of("waits")
}

/// As [`start_waits`], with another build of the workload.
fn start_waits_of(program: &str) -> Workload {
    let workload = Workload::start(program);
    wait_until("all threads to wait", || {
        let threads = statuses(&workload);
        let waits = |name: &str| {
            let line = format!("Name:\t{name}\n");
            threads.iter().any(|status| status.starts_with(&line) && status.contains("State:\tS"))
        };
        WAITS.iter().all(|(name, _)| waits(name)).then_some(())
    });
    workload
}

/// The `status` of each thread.
fn statuses(workload: &Workload) -> Vec<String> {
    let read = |tid| std::fs::read_to_string(format!("/proc/{}/task/{tid}/status", workload.pid())).ok();
    workload.tids().into_iter().filter_map(read).collect()
}

/// A profile of so many seconds.
fn profile(
    workload: &Workload,
    seconds: f64,
    sample: impl FnOnce(profiler::Builder) -> profiler::Builder,
) -> Profile {
    let builder = Profiler::builder().target(Target::Pid(workload.pid()));
    let mut session = sample(builder).build().unwrap().start().unwrap();
    session.take_profile(Duration::from_secs_f64(seconds)).unwrap()
}

/// The ticks of an event by the name of the thread and its state.
fn ticks(profile: &Profile, event: EventId) -> BTreeMap<(String, Option<ThreadState>), u64> {
    let mut ticks = BTreeMap::new();
    for sample in profile.samples_of(event) {
        let name = profile.string(profile.thread(sample.thread).comm).to_owned();
        *ticks.entry((name, sample.state)).or_default() += sample.value;
    }
    ticks
}

/// The ticks of a thread in all states.
fn of_thread(ticks: &BTreeMap<(String, Option<ThreadState>), u64>, thread: &str) -> u64 {
    ticks.iter().filter(|((name, _), _)| name == thread).map(|(_, ticks)| ticks).sum()
}

/// A pass after the last read would have ticks without samples.
#[test]
fn no_pass_follows_the_end_of_a_session() {
    let Some(_lock) = run_beside_others() else { return };
    // A hundred threads: each wakes every 20 ms.
    let workload = Workload::start_with("sleepers", &["600", "100", "20000", "1000", "0"]);
    for session in 0..20 {
        let builder = Profiler::builder().target(Target::Pid(workload.pid())).max_overhead_percent(100.0);
        let mut passes = builder.wall_clock_hz(4_999).cpu_samples(false).build().unwrap().start().unwrap();
        passes.wait(Some(Duration::from_millis(50)));
        let profile = passes.stop().unwrap();
        assert!(profile.ledger().adds_up(), "session {session}: {:?}", profile.first_ledger());
    }
}

#[test]
fn the_stacks_of_waiting_threads_are_whole_and_named() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = start_waits();
    let profile = profile(&workload, 1.0, |builder| builder.wall_clock_hz(WALL_HZ).cpu_samples(false));
    let waiting = profile.samples().iter().filter(|sample| sample.state == Some(ThreadState::Blocked));
    let mut stacks_of = BTreeMap::<&str, u64>::new();
    for sample in waiting {
        let thread = profile.string(profile.thread(sample.thread).comm);
        let stack = profile.stack(sample.stack);
        let names: Vec<_> =
            stack.frames.iter().map(|frame| profile.string(profile.frame(*frame).name)).collect();
        if let Some((_, expected)) = WAITS.iter().find(|(name, _)| *name == thread) {
            assert_eq!(stack.end, StackEnd::Root, "{thread}: {names:?}");
            assert!(names.windows(expected.len()).any(|window| window == *expected), "{thread}: {names:?}");
            assert!(names.contains(&"do_syscall_64"), "{thread}: {names:?}");
            *stacks_of.entry(thread).or_default() += sample.value;
        }
        if thread == "deep" {
            assert_eq!(names.iter().filter(|name| **name == "descend").count(), 301, "{names:?}");
        }
    }
    assert_eq!(stacks_of.len(), WAITS.len(), "{stacks_of:?}");
}

/// Such a program has neither call frame information of its C library nor the names of the functions that start its threads.
#[test]
fn the_stacks_of_waiting_threads_reach_their_root_in_musl_without_symbols() {
    let Some(_lock) = run_beside_others() else { return };
    for program in ["unwinding/waits-musl", "unwinding/waits-musl-shared"] {
        let workload = start_waits_of(program);
        let profile = profile(&workload, 1.0, |builder| builder.wall_clock_hz(WALL_HZ).frequency_hz(WALL_HZ));
        let early_ends: BTreeMap<_, _> = profile
            .samples()
            .iter()
            .filter(|sample| profile.stack(sample.stack).end != StackEnd::Root)
            .map(|sample| {
                let stack = profile.stack(sample.stack);
                let frames = stack.frames.iter().map(|frame| profile.frame(*frame));
                let names: Vec<_> = frames.map(|frame| profile.string(frame.name).to_owned()).collect();
                (profile.string(profile.thread(sample.thread).comm).to_owned(), (stack.end, names))
            })
            .collect();
        let ticks = |is_wanted: &dyn Fn(StackEnd) -> bool| {
            let wanted = profile.samples().iter().filter(|sample| is_wanted(profile.stack(sample.stack).end));
            wanted.map(|sample| sample.value).sum::<u64>()
        };
        // A session starts before the rows of the C library are computed, if that takes longer than it waits.
        let early = ticks(&|end| end != StackEnd::Root);
        assert!(early * 20 <= ticks(&|_| true), "{program}: {early} ticks, {early_ends:#?}");
        let depths = profile.samples().iter().map(|sample| profile.stack(sample.stack).frames.len());
        assert!(depths.max() > Some(301), "{program}");
    }
}

#[test]
fn cpu_samples_and_wall_clock_samples_are_events_of_one_profile() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = start_waits();
    let profile = profile(&workload, 1.0, |builder| builder.frequency_hz(199).wall_clock_hz(WALL_HZ));
    assert!(profile.ledger().adds_up(), "{:?}", profile.ledger());
    let (cpu, wall) = (profile.find_event("cpu-clock").unwrap(), profile.find_event("wall").unwrap());
    let cpu_ticks = of_thread(&ticks(&profile, cpu), "spinner");
    let on_cpu = ticks(&profile, wall)[&("spinner".to_owned(), Some(ThreadState::OnCpu))];
    let expected = cpu_ticks as f64 * WALL_HZ as f64 / 199.0;
    assert!((on_cpu as f64 - expected).abs() <= 2.0, "{on_cpu} of {expected}");
    assert_eq!(of_thread(&ticks(&profile, cpu), "reader"), 0, "a thread that waits has no CPU sample");
}

/// The number of context switches of all threads of the workload but those that run on their own.
fn switches(workload: &Workload) -> u64 {
    let of_thread = |status: String| {
        let is_parked = ["reader", "locker", "poller", "deep"]
            .iter()
            .any(|name| status.contains(&format!("Name:\t{name}\n")));
        let counts = status.lines().filter(|line| line.contains("ctxt_switches"));
        let sum: u64 = counts.filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok()).sum();
        if is_parked { sum } else { 0 }
    };
    statuses(workload).into_iter().map(of_thread).sum()
}

#[test]
fn waiting_threads_are_not_woken() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = start_waits();
    let before = switches(&workload);
    let profile = profile(&workload, 1.0, |builder| builder.wall_clock_hz(199).cpu_samples(false));
    assert!(profile.total_value() > 1_000);
    assert_eq!(switches(&workload), before);
}

#[test]
fn a_stopped_process_is_sampled_as_stopped() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = start_waits();
    let pid = workload.pid().to_string();
    assert!(Command::new("kill").args(["-STOP", &pid]).status().unwrap().success());
    wait_until("all threads to stop", || {
        statuses(&workload).iter().all(|status| status.contains("State:\tT")).then_some(())
    });
    let profile = profile(&workload, 1.0, |builder| builder.wall_clock_hz(WALL_HZ).cpu_samples(false));
    assert!(Command::new("kill").args(["-CONT", &pid]).status().unwrap().success());
    let stopped = profile.samples().iter().filter(|sample| sample.state == Some(ThreadState::Stopped));
    let stopped: u64 = stopped.map(|sample| sample.value).sum();
    assert!(stopped * 100 >= profile.total_value() * 99, "{:?}", ticks(&profile, EventId::FIRST));
}

#[test]
fn states_are_frames_and_filters_of_the_command_line() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = start_waits();
    let pid = workload.pid().to_string();
    let folded = |arguments: &[&str]| {
        let mut command = profiler(&["-p", &pid, "--wall", "-d", "1", "--format", "folded"]);
        let outcome = run_command(command.args(arguments).stdin(Stdio::null()));
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr);
        FoldedStacks::parse(&outcome.stdout)
    };
    let all = folded(&["--per-state"]);
    let has_state = |state: &str| all.count(|stack| stack.frames[0] == format!("[{state}]"));
    assert!(has_state("blocked") > 0 && has_state("on CPU") > 0, "{all:#?}");
    let blocked = folded(&["--state", "blocked"]);
    assert!(blocked.count(|stack| stack.has("read_nothing")) > 0, "{blocked:#?}");
    assert_eq!(blocked.count(|stack| stack.has("spinner")), 0, "{blocked:#?}");
}

mod measured {
    use super::*;

    const SECONDS: f64 = 4.0;

    #[test]
    fn each_thread_has_a_tick_for_each_period_whether_it_runs_or_waits() {
        let Some(_lock) = measure_alone() else { return };
        let workload = start_waits();
        let (begin, ran_before) = (Instant::now(), workload.cpu_time_of("spinner"));
        let profile =
            profile(&workload, SECONDS, |builder| builder.wall_clock_hz(WALL_HZ).cpu_samples(false));
        let ran = workload.cpu_time_of("spinner") - ran_before;
        let ran_percent = 100.0 * ran.as_secs_f64() / begin.elapsed().as_secs_f64();
        assert!(profile.ledger().adds_up(), "{:?}", profile.ledger());
        assert_eq!(profile.events().map(|event| &*event.name).collect::<Vec<_>>(), ["wall"]);
        let due = profile.header().duration_ns as f64 / 1e9 * WALL_HZ as f64;
        let ticks = ticks(&profile, EventId::FIRST);
        for (thread, _) in WAITS {
            let found = of_thread(&ticks, thread) as f64;
            // The first and the last period are not whole.
            assert!((found - due).abs() <= due * 0.02 + 2.0, "{thread}: {found} of {due} ticks: {ticks:?}");
            let blocked = ticks.get(&(thread.to_owned(), Some(ThreadState::Blocked))).copied().unwrap_or(0);
            assert!(blocked as f64 >= found * 0.9, "{thread}: {ticks:?}");
        }
        // Ticks of the timers and of passes are independent of each other where a thread runs: each is in the sum of two binomial
        // distributions, whose variance is the largest where it runs for half of the time.
        let spinner = of_thread(&ticks, "spinner") as f64;
        let most_error = due * 0.02 + QUANTILE * (due / 2.0).sqrt();
        assert!((spinner - due).abs() <= most_error, "{spinner} of {due} ticks: {ticks:?}");
        let on_cpu = ticks.get(&("spinner".to_owned(), Some(ThreadState::OnCpu))).copied().unwrap_or(0);
        assert_share(on_cpu, due as u64, ran_percent, 5.0);
    }

    /// The main thread wakes ten times a second, the others never.
    #[test]
    fn each_of_a_thousand_threads_that_wait_has_a_tick_for_each_period() {
        let Some(_lock) = measure_alone() else { return };
        let workload = Workload::start_with("parked", &["600", "1000"]);
        let profile =
            profile(&workload, SECONDS, |builder| builder.wall_clock_hz(WALL_HZ).cpu_samples(false));
        assert!(profile.ledger().adds_up(), "{:?}", profile.ledger());
        let due = profile.header().duration_ns as f64 / 1e9 * WALL_HZ as f64;
        let mut ticks = BTreeMap::<u32, u64>::new();
        for sample in profile.samples() {
            *ticks.entry(profile.thread(sample.thread).tid).or_default() += sample.value;
        }
        assert_eq!(ticks.len(), workload.tids().len());
        let is_wrong = |found: u64| (found as f64 - due).abs() > due * 0.02 + 2.0;
        let wrong: BTreeMap<_, _> = ticks.iter().filter(|(_, found)| is_wrong(**found)).collect();
        assert!(wrong.is_empty(), "{due} ticks are due; {}: {wrong:?}; {:?}", wrong.len(), profile.ledger());
    }

    /// The thread that runs a pass displaces a thread of a busy CPU: beside threads of a low priority one that has the CPU, and beside
    /// equal ones one that has it half of the time.
    #[test]
    fn a_thread_that_runs_is_not_found_waiting_because_of_the_pass() {
        let Some(_lock) = measure_alone() else { return };
        let cpus = std::thread::available_parallelism().unwrap().get();
        let (low, equal) =
            (Workload::start_nice as fn(&str) -> Workload, Workload::start as fn(&str) -> Workload);
        for (start, others) in [(low, cpus), (equal, cpus + 1)] {
            let busy: Vec<_> = (0..others).map(|_| start("waits")).collect();
            let workload = start_waits();
            let profile =
                profile(&workload, SECONDS, |builder| builder.wall_clock_hz(WALL_HZ).cpu_samples(false));
            let due = profile.header().duration_ns as f64 / 1e9 * WALL_HZ as f64;
            let ticks = ticks(&profile, EventId::FIRST);
            let spinner = of_thread(&ticks, "spinner") as f64;
            assert!(
                (spinner - due).abs() <= due * 0.25,
                "{spinner} of {due} ticks beside {others}: {ticks:?}"
            );
            drop(busy);
        }
    }
}
