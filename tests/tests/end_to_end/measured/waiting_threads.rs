//! Tests wall-clock samples and off-CPU time of threads that are many, exit, are stopped, or outlive their leader.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::{Duration, Instant},
};

use profiler::{
    Ended, Profile, Profiler, Session, Target,
    profile::{Loss, Sample, ThreadState},
};
use profiler_tests::{Workload, measure_alone, wait_until};
use rustix::process::{Pid, Signal, kill_process};

const WALL_HZ: u64 = 49;
const NS_PER_S: f64 = 1e9;

/// The events of waiting threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    WallClock,
    OffCpu,
}

const BOTH: [Waiting; 2] = [Waiting::WallClock, Waiting::OffCpu];

impl Waiting {
    fn start(self, target: Target) -> Session {
        let builder = Profiler::builder().target(target).cpu_samples(false);
        let builder = match self {
            Self::WallClock => builder.wall_clock_hz(WALL_HZ),
            Self::OffCpu => builder.off_cpu(Duration::from_millis(1), false),
        };
        builder.build().unwrap().start().unwrap()
    }
}

/// The seconds of the samples of a process that are wanted.
fn seconds(profile: &Profile, pid: u32, is_wanted: impl Fn(&Sample) -> bool) -> f64 {
    let unit_s = profile.first_event().unit_ns().unwrap() as f64 / NS_PER_S;
    let of_process = |sample: &&Sample| profile.process(profile.thread(sample.thread).process).pid == pid;
    let wanted = profile.samples().iter().filter(of_process).filter(|sample| is_wanted(sample));
    wanted.map(|sample| sample.value as f64 * unit_s).sum()
}

/// The seconds of a thread.
fn seconds_of_thread(profile: &Profile, pid: u32, tid: u32) -> f64 {
    seconds(profile, pid, |sample| profile.thread(sample.thread).tid == tid)
}

fn duration_s(profile: &Profile) -> f64 {
    profile.header().duration_ns as f64 / NS_PER_S
}

/// The first and the last period of wall-clock samples are not whole.
fn assert_near(found_s: f64, expected_s: f64, what: &str) {
    let tolerance_s = 0.02 * expected_s + 2.0 / WALL_HZ as f64;
    assert!((found_s - expected_s).abs() <= tolerance_s, "{what}: {found_s} of {expected_s} s");
}

fn names<'a>(profile: &'a Profile, sample: &Sample) -> Vec<&'a str> {
    let frames = &profile.stack(sample.stack).frames;
    frames.iter().map(|frame| profile.string(profile.frame(*frame).name)).collect()
}

fn assert_adds_up(profile: &Profile, what: &str) {
    assert!(profile.ledger().adds_up(), "{what}: {:?}", profile.ledger());
}

/// The threads of a workload but the first one.
fn other_threads(workload: &Workload) -> BTreeSet<u32> {
    workload.tids().into_iter().filter(|tid| *tid != workload.pid()).collect()
}

/// Sends a signal to a process and waits until its leader is in the state that it leads to.
fn send_signal(workload: &Workload, signal: Signal, is_reached: impl Fn(&str) -> bool) {
    let pid = i32::try_from(workload.pid()).ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, signal).unwrap();
    wait_until("the state after a signal", || {
        let in_state = |tid: u32| {
            let status = fs::read_to_string(format!("/proc/{}/task/{tid}/status", workload.pid())).unwrap();
            is_reached(status.lines().find(|line| line.starts_with("State:")).unwrap())
        };
        workload.tids().into_iter().all(in_state).then_some(())
    });
}

/// A program with 2,000 threads beside the first one, which never run, or wake five times a second.
fn start_two_thousand_threads(program: &str) -> Workload {
    let arguments: &[&str] = match program {
        "parked" => &["600", "2000"],
        _ => &["600", "2000", "200000", "1000", "0"],
    };
    let workload = Workload::start_with(program, arguments);
    wait_until("all threads", || (workload.tids().len() == 2_001).then_some(()));
    workload
}

/// The time on a CPU of the thread of this process that runs passes.
fn reader_cpu_time() -> Duration {
    let mut tasks = fs::read_dir("/proc/self/task").unwrap().flatten().map(|task| task.path());
    let is_reader =
        |task: &std::path::PathBuf| fs::read(task.join("comm")).is_ok_and(|name| name == b"reader\n");
    let statistics = fs::read_to_string(tasks.find(is_reader).unwrap().join("schedstat")).unwrap();
    Duration::from_nanos(statistics.split(' ').next().unwrap().parse().unwrap())
}

/// Threads that never run keep their stacks; those that wake five times a second are unwound again at each pass.
#[test]
fn passes_over_a_machine_with_thousands_of_threads_take_no_more_than_the_limit() {
    const LIMIT_PERCENT: f64 = 2.0;
    let Some(_lock) = measure_alone() else { return };
    for program in ["parked", "sleepers"] {
        let workload = start_two_thousand_threads(program);
        let builder = Profiler::builder().target(Target::Everything).wall_clock_hz(WALL_HZ);
        let builder = builder.cpu_samples(false).max_overhead_percent(LIMIT_PERCENT);
        let mut session = builder.build().unwrap().start().unwrap();
        let started = Instant::now();
        session.wait(Some(Duration::from_secs(5)));
        let overhead_percent = reader_cpu_time().as_secs_f64() / started.elapsed().as_secs_f64() * 100.0;
        let profile = session.stop().unwrap();
        let ledger = profile.first_ledger();
        println!("{program}: {overhead_percent:.2} % of a CPU, {ledger:?}, {:?}", profile.ledger().cost);
        // The thread also reads the records. The pause after the last pass is not over.
        assert!(overhead_percent < 2.0 * LIMIT_PERCENT, "{program}: {overhead_percent} %, {ledger:?}");
        let bpf_s = profile.ledger().cost.bpf_run_time_ns as f64 / NS_PER_S;
        assert!(bpf_s * 100.0 < LIMIT_PERCENT * duration_s(&profile), "{program}: {bpf_s} s, {ledger:?}");
        assert_adds_up(&profile, program);
        let lost_s = ledger.lost_total() as f64 / WALL_HZ as f64;
        let found_s = seconds(&profile, workload.pid(), |_| true);
        let due_s = 2_000.0 * duration_s(&profile);
        assert!(
            found_s <= 1.05 * due_s && found_s + lost_s >= 0.95 * due_s,
            "{program}: {found_s} s, {lost_s} s lost, of {due_s} s: {ledger:?}"
        );
    }
}

#[test]
fn the_waits_of_thousands_of_threads_add_up_on_a_machine_where_all_waits_are_measured() {
    let Some(_lock) = measure_alone() else { return };
    for program in ["parked", "sleepers"] {
        let workload = start_two_thousand_threads(program);
        let mut session = Waiting::OffCpu.start(Target::Everything);
        let started = Instant::now();
        session.wait(Some(Duration::from_secs(3)));
        let reader_percent = reader_cpu_time().as_secs_f64() / started.elapsed().as_secs_f64() * 100.0;
        let profile = session.stop().unwrap();
        let ledger = profile.first_ledger();
        println!("{program}: {reader_percent:.2} % of a CPU, {ledger:?}, {:?}", profile.ledger().cost);
        assert_adds_up(&profile, program);
        assert!(!ledger.lost.contains_key(&Loss::TooManyThreads), "{program}: {ledger:?}");
        let (found_s, due_s) = (seconds(&profile, workload.pid(), |_| true), 2_000.0 * duration_s(&profile));
        assert!((0.95..1.01).contains(&(found_s / due_s)), "{program}: {found_s} of {due_s} s: {ledger:?}");
    }
}

/// More threads than are remembered at a time wait and exit, one after the other.
#[test]
fn tens_of_thousands_of_threads_that_exit_after_a_wait_are_sampled() {
    const WAITS: usize = 40_000;
    const TICKS: usize = 1_000;
    let Some(_lock) = measure_alone() else { return };
    for (waiting, threads) in BOTH.into_iter().zip([TICKS, WAITS]) {
        let workload = Workload::start_with("parked", &["600", "32", "storm"]);
        let mut session = waiting.start(Target::Pid(workload.pid()));
        let started = Instant::now();
        // Each wait of a thread has two samples: before and after it was woken.
        wait_until("waits of many threads", || {
            (session.progress().samples >= 2 * threads as u64).then_some(())
        });
        println!("{waiting:?}: {:?}", started.elapsed());
        let profile = session.take_profile(Duration::ZERO).unwrap();
        assert_eq!(session.wait(Some(Duration::ZERO)), Ended::Elapsed);
        let last = session.stop().unwrap();
        assert_adds_up(&last, "the last profile");
        assert_adds_up(&profile, "the storm");
        let ledger = profile.first_ledger();
        println!("{waiting:?}: {ledger:?}");
        assert!(!ledger.lost.contains_key(&Loss::TooManyThreads), "{waiting:?}: {ledger:?}");
        assert!(ledger.lost_total() * 4 < ledger.due, "{waiting:?}: {ledger:?}");
        let of_threads: Vec<_> = profile
            .samples()
            .iter()
            .filter(|sample| profile.thread(sample.thread).tid != workload.pid())
            .collect();
        let tids: BTreeSet<_> = of_threads.iter().map(|sample| profile.thread(sample.thread).tid).collect();
        assert!(tids.len() * 2 > threads, "{waiting:?}: {} threads", tids.len());
        for sample in &of_threads {
            let thread = profile.thread(sample.thread);
            let process = profile.process(thread.process);
            assert_eq!(process.pid, workload.pid());
            assert_eq!((profile.string(process.comm), profile.string(thread.comm)), ("parked", "parked"));
        }
        // One that could run has not begun its wait, or has ended it.
        let blocked = of_threads.iter().filter(|sample| sample.state == Some(ThreadState::Blocked));
        let with_stack = blocked.filter(|sample| !names(&profile, sample).is_empty());
        let (all, in_nap) = with_stack.fold((0_usize, 0_usize), |(all, in_nap), sample| {
            (all + 1, in_nap + usize::from(names(&profile, sample).contains(&"nap")))
        });
        println!("{waiting:?}: {in_nap} of {all} of {}", of_threads.len());
        assert!(all > 0 && in_nap * 100 >= all * 80, "{waiting:?}: {in_nap} of {all} stacks");
    }
}

#[test]
fn threads_that_exit_while_they_wait_have_samples_up_to_then() {
    let Some(_lock) = measure_alone() else { return };
    for waiting in BOTH {
        let mut workload = Workload::start_with("parked", &["600", "20", "cancel"]);
        let pid = workload.pid();
        let threads = other_threads(&workload);
        let mut session = waiting.start(Target::Pid(pid));
        let before = session.take_profile(Duration::from_secs(1)).unwrap();
        workload.write_line("cancel");
        workload.wait_for("cancelled");
        let during = session.take_profile(Duration::ZERO).unwrap();
        let after = session.take_profile(Duration::from_millis(500)).unwrap();
        let last = session.stop().unwrap();
        for profile in [&before, &during, &after, &last] {
            assert_adds_up(profile, "threads that are cancelled");
        }
        assert_eq!(threads.len(), 20);
        for tid in threads {
            let what = format!("{waiting:?}, thread {tid}");
            assert_near(seconds_of_thread(&before, pid, tid), duration_s(&before), &what);
            let until_exit_s = seconds_of_thread(&during, pid, tid);
            assert!(until_exit_s <= duration_s(&during) + 2.0 / WALL_HZ as f64, "{what}: {until_exit_s} s");
            assert_near(seconds_of_thread(&after, pid, tid), 0.0, &what);
            assert!(seconds_of_thread(&last, pid, tid) <= 0.0, "{what}");
        }
        assert_near(seconds_of_thread(&after, pid, pid), duration_s(&after), "the thread that goes on");
    }
}

#[test]
fn waits_that_last_until_the_process_ends_are_sampled() {
    let Some(_lock) = measure_alone() else { return };
    for waiting in BOTH {
        let workload = Workload::start_with("parked", &["600", "100"]);
        let pid = workload.pid();
        let threads = other_threads(&workload);
        let mut session = waiting.start(Target::Pid(pid));
        assert_eq!(session.wait(Some(Duration::from_millis(1_900))), Ended::Elapsed);
        let sampled_s = session.elapsed().as_secs_f64();
        assert!(workload.end().success());
        assert_eq!(session.wait(None), Ended::TargetExited);
        let profile = session.stop().unwrap();
        assert_adds_up(&profile, "a process that ends");
        for tid in threads {
            let found_s = seconds_of_thread(&profile, pid, tid);
            let range =
                0.98 * sampled_s - 2.0 / WALL_HZ as f64..1.02 * duration_s(&profile) + 2.0 / WALL_HZ as f64;
            assert!(range.contains(&found_s), "{waiting:?}, thread {tid}: {found_s} of {range:?} s");
        }
    }
}

/// The process is stopped before the session starts, goes on, and is stopped again.
#[test]
fn the_time_of_a_stopped_process_adds_up() {
    const THREADS: &str = "3";
    let Some(_lock) = measure_alone() else { return };
    for waiting in BOTH {
        let workload = Workload::start_with("parked", &["600", THREADS]);
        let pid = workload.pid();
        let stop = || send_signal(&workload, Signal::STOP, |state| state.contains("T (stopped)"));
        let go_on = || send_signal(&workload, Signal::CONT, |state| !state.contains("T (stopped)"));
        stop();
        let mut session = waiting.start(Target::Pid(pid));
        let from_start = session.take_profile(Duration::from_millis(700)).unwrap();
        go_on();
        let transition = session.take_profile(Duration::ZERO).unwrap();
        let running = session.take_profile(Duration::from_millis(700)).unwrap();
        stop();
        let second_transition = session.take_profile(Duration::ZERO).unwrap();
        let again = session.take_profile(Duration::from_millis(700)).unwrap();
        go_on();
        let last = session.stop().unwrap();
        for profile in [&from_start, &transition, &running, &second_transition, &again, &last] {
            assert_adds_up(profile, "a stopped process");
        }
        for (profile, is_stopped) in [(&from_start, true), (&running, false), (&again, true)] {
            for tid in workload.tids() {
                let in_state = |is_wanted: &dyn Fn(ThreadState) -> bool| {
                    seconds(profile, pid, |sample| {
                        profile.thread(sample.thread).tid == tid && sample.state.is_some_and(is_wanted)
                    })
                };
                let what = format!("{waiting:?}, thread {tid}, is stopped: {is_stopped}");
                let expected_s = if is_stopped { duration_s(profile) } else { 0.0 };
                assert_near(in_state(&|state| state == ThreadState::Stopped), expected_s, &what);
                assert_near(in_state(&|_| true), duration_s(profile), &what);
            }
        }
    }
}

#[test]
fn a_thread_that_waits_after_its_leader_has_exited_is_sampled() {
    let Some(_lock) = measure_alone() else { return };
    let workload = Workload::start_with("leader_exits", &["600", "wait"]);
    let pid = workload.pid();
    let status = format!("/proc/{pid}/status");
    wait_until("the leader's exit", || {
        fs::read_to_string(&status).ok()?.contains("Z (zombie)").then_some(())
    });
    for waiting in BOTH {
        for target in [Target::Pid(pid), Target::Everything] {
            let what = format!("{waiting:?} {target:?}");
            let mut session = waiting.start(target);
            assert_eq!(session.wait(Some(Duration::from_millis(1_500))), Ended::Elapsed, "{what}");
            let profile = session.take_profile(Duration::ZERO).unwrap();
            assert_adds_up(&profile, &what);
            assert_near(seconds(&profile, pid, |_| true), duration_s(&profile), &what);
            // The unwind tables of a process arrive while it is sampled: late on a busy machine, where it is one of many.
            let mut latest = profile.clone();
            wait_until("stacks with their functions", || {
                let in_function_s = seconds(&latest, pid, |sample| {
                    names(&latest, sample).windows(2).any(|names| names == ["wait_100_ms", "thread_main"])
                });
                let all_s = seconds(&latest, pid, |_| true);
                println!("{what}: {in_function_s} of {all_s} s");
                latest = session.take_profile(Duration::from_millis(300)).unwrap();
                (in_function_s > 0.7 * all_s).then_some(())
            });
            let processes: BTreeMap<_, _> = profile
                .processes()
                .iter()
                .map(|process| (process.pid, profile.string(process.comm)))
                .collect();
            assert_eq!(processes[&pid], "leader_exits", "{what}");
        }
    }
}
