//! Tests samples of threads that wait against the scheduler's account, and their stacks beside short waits and locked mappings.

use std::{collections::BTreeMap, fs, time::Duration};

use profiler::{
    Builder, Profile, Profiler, Session, Target,
    profile::{Sample, StackEnd, ThreadState},
};
use profiler_tests::{
    QUANTILE, Workload, measure_alone, run_beside_others, skip_on_this_machine, wait_until,
};

const WALL_HZ: u64 = 99;
const NS_PER_S: f64 = 1e9;

fn start(workload: &Workload, configure: impl FnOnce(Builder) -> Builder) -> Session {
    let builder = Profiler::builder().target(Target::Pid(workload.pid())).cpu_samples(false);
    configure(builder).build().unwrap().start().unwrap()
}

fn take(session: &mut Session, seconds: f64) -> Profile {
    session.take_profile(Duration::from_secs_f64(seconds)).unwrap()
}

/// The name of the thread of a sample.
fn thread<'a>(profile: &'a Profile, sample: &Sample) -> &'a str {
    profile.string(profile.thread(sample.thread).comm)
}

fn has_function(profile: &Profile, sample: &Sample, function: &str) -> bool {
    let frames = &profile.stack(sample.stack).frames;
    frames.iter().any(|frame| profile.string(profile.frame(*frame).name) == function)
}

/// The sum of the values of the samples that are wanted.
fn sum(profile: &Profile, is_wanted: impl Fn(&Sample) -> bool) -> u64 {
    profile.samples().iter().filter(|sample| is_wanted(sample)).map(|sample| sample.value).sum()
}

/// Another thread changes the mappings nearly all the time, or waits for its turn.
#[test]
fn a_stack_that_locked_mappings_hide_says_so_and_has_its_kernel_frames() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("map_lock");
    let mut session = start(&workload, |builder| builder.wall_clock_hz(WALL_HZ));
    wait_until("stacks behind locked mappings", || {
        let profile = take(&mut session, 0.5);
        let ends_so = |sample: &Sample, end| profile.stack(sample.stack).end == end;
        let unreadable = sum(&profile, |sample| ends_so(sample, StackEnd::UnreadableStack));
        assert_eq!(unreadable, 0, "{:?}", profile.first_ledger());
        let locked = |sample: &Sample| ends_so(sample, StackEnd::MappingsLocked);
        let has_kernel_frames = |sample: &Sample| {
            ["do_syscall_64", "asm_exc_page_fault"].iter().any(|entry| has_function(&profile, sample, entry))
        };
        let (all, with_kernel_frames) =
            (sum(&profile, locked), sum(&profile, |sample| locked(sample) && has_kernel_frames(sample)));
        assert_eq!(all, with_kernel_frames);
        (all > 0).then_some(())
    });
}

#[test]
fn a_thread_that_the_kernel_runs_for_a_process_has_a_whole_stack_without_user_frames() {
    let Some(_lock) = run_beside_others() else { return };
    let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    if disabled.trim() == "2" {
        return skip_on_this_machine("kernel.io_uring_disabled is 2");
    }
    let workload = Workload::start("io_uring");
    let mut session = start(&workload, |builder| builder.wall_clock_hz(WALL_HZ));
    wait_until("samples of the worker", || {
        let profile = take(&mut session, 0.2);
        let of_worker = |sample: &Sample| thread(&profile, sample).starts_with("iou-wrk");
        let ends: Vec<_> = profile
            .samples()
            .iter()
            .filter(|sample| of_worker(sample))
            .map(|sample| profile.stack(sample.stack).end)
            .collect();
        assert!(ends.iter().all(|end| *end == StackEnd::Root), "{ends:?}");
        (!ends.is_empty()).then_some(())
    });
}

mod measured {
    use super::*;

    /// What the scheduler counts of a thread, nanoseconds: the time on a CPU, and that in run queues (`/proc/PID/schedstat`,
    /// `Documentation/scheduler/sched-stats.rst`).
    #[derive(Clone, Copy)]
    struct Account {
        on_cpu: f64,
        in_run_queue: f64,
    }

    /// The accounts of the threads, by name.
    fn accounts(workload: &Workload) -> BTreeMap<String, Account> {
        let read = |tid| {
            let file =
                |name| fs::read_to_string(format!("/proc/{}/task/{tid}/{name}", workload.pid())).unwrap();
            let (name, times) = (file("comm"), file("schedstat"));
            let mut times = times.split_whitespace().map(|time| time.parse::<f64>().unwrap());
            let account = Account { on_cpu: times.next().unwrap(), in_run_queue: times.next().unwrap() };
            (name.trim().to_owned(), account)
        };
        workload.tids().into_iter().map(read).collect()
    }

    /// The pass must not run when a thread begins to wait, nor count a thread that waits because of the pass.
    #[test]
    fn threads_that_nap_have_the_ticks_that_the_scheduler_counts() {
        const SECONDS: f64 = 6.0;
        let Some(_lock) = measure_alone() else { return };
        let workload = Workload::start("naps");
        let mut session = start(&workload, |builder| builder.wall_clock_hz(WALL_HZ));
        // The account of a thread begins at its first tick.
        take(&mut session, 0.5);
        let before = accounts(&workload);
        let profile = take(&mut session, SECONDS);
        let after = accounts(&workload);
        assert!(profile.ledger().adds_up(), "{:?}", profile.ledger());
        let due = profile.header().duration_ns as f64 / NS_PER_S * WALL_HZ as f64;
        for name in ["busy", "napper", "owner", "waiter"] {
            let (before, after) = (before[name], after[name]);
            let ticks = |is_wanted: &dyn Fn(&Sample) -> bool| {
                sum(&profile, |sample| thread(&profile, sample) == name && is_wanted(sample)) as f64
            };
            let all = ticks(&|_| true);
            let in_run_queue =
                ticks(&|sample| matches!(sample.state, Some(ThreadState::Runnable | ThreadState::Throttled)));
            let expected = (after.in_run_queue - before.in_run_queue) / NS_PER_S * WALL_HZ as f64;
            let what = format!("{name}: {all} of {due} ticks, {in_run_queue} of {expected} in the run queue");
            // Waits that last at either end, and the rest of a tick.
            assert!(in_run_queue < expected * 1.3 + 3.0, "{what}");
            assert!(in_run_queue > expected / 1.3 - 3.0, "{what}");
            // Ticks of the timers, and those of passes that find the thread asleep, are independent of each other and of the account:
            // each is binomially distributed.
            let share = |ns: f64| (ns / NS_PER_S * WALL_HZ as f64 / due).clamp(0.0, 1.0);
            let on_cpu = share(after.on_cpu - before.on_cpu);
            let asleep = (1.0 - on_cpu - share(after.in_run_queue - before.in_run_queue)).clamp(0.0, 1.0);
            let variance = due * (on_cpu * (1.0 - on_cpu) + asleep * (1.0 - asleep));
            let most_error = due * 0.02 + 3.0 + QUANTILE * variance.sqrt();
            assert!((all - due).abs() < most_error, "{what}");
        }
    }

    /// Thirty waits of 20 us come before one of 20 ms, and all stacks would cost several times of what they may.
    #[test]
    fn long_waits_among_many_short_ones_have_their_stacks() {
        const SECONDS: f64 = 3.0;
        const MIN_BLOCK: Duration = Duration::from_millis(1);
        let Some(_lock) = measure_alone() else { return };
        let workload = Workload::start("short_waits");
        let mut session = start(&workload, |builder| builder.off_cpu(MIN_BLOCK, false));
        // The tables of its mappings are installed.
        take(&mut session, 1.0);
        let profile = take(&mut session, SECONDS);
        let all = sum(&profile, |_| true);
        let without_stack = sum(&profile, |sample| profile.stack(sample.stack).end == StackEnd::Empty);
        assert!(without_stack as f64 <= 0.01 * all as f64, "{without_stack} of {all} ns");
        let blocked = |sample: &Sample| {
            thread(&profile, sample) == "mixed"
                && sample.state == Some(ThreadState::Blocked)
                && profile.stack(sample.stack).end != StackEnd::Empty
        };
        let (waits, whole) = (
            sum(&profile, blocked),
            sum(&profile, |sample| {
                blocked(sample)
                    && profile.stack(sample.stack).end == StackEnd::Root
                    && ["long_wait", "short_wait"]
                        .iter()
                        .any(|function| has_function(&profile, sample, function))
            }),
        );
        assert!(whole as f64 > 0.98 * waits as f64, "{whole} of {waits} ns: {:?}", profile.first_ledger());
    }
}
