//! Tests off-CPU time: the length of waits, their states, stacks and wakers.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use profiler::{
    Builder, Profile, Profiler, Target,
    profile::{EventId, Sample, Sampling, StackEnd, ThreadState},
};
use profiler_tests::{measure_alone, profiler, run_beside_others, run_command, workload_path};

use crate::wall::start_waits;

const SECONDS: u64 = 3;
const NS_PER_S: f64 = 1e9;
/// The part of a switch that the CPU clock of the thread counts and its off-CPU time does not, or the reverse: the
/// kernel reads its clock before it chooses the next thread, and the event comes after that.
const SWITCH_ERROR_NS: f64 = 30e3;

/// What a run of the workload measured, and its profile.
struct Run {
    profile: Profile,
    /// The nanoseconds for which each thread did not run, by its name, and what its functions measured.
    measured: BTreeMap<String, f64>,
    /// The nanoseconds that the hypervisor took from all CPUs meanwhile. A thread's CPU clock leaves them out, and they
    /// are no wait for the kernel.
    stolen: f64,
}

/// A file that is not in a tmpfs, and another one for the report.
fn files(test: &str) -> (PathBuf, PathBuf) {
    const BYTES: usize = 512 * 4096;
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (pages, report) = (directory.join(format!("{test}.pages")), directory.join(format!("{test}.report")));
    fs::write(&pages, vec![1; BYTES]).unwrap();
    fs::File::open(&pages).unwrap().sync_all().unwrap();
    (pages, report)
}

/// The nanoseconds that the hypervisor took from all CPUs so far: `steal` of proc_stat(5), with an error of a tick.
fn stolen_ns() -> f64 {
    const TICKS_PER_S: f64 = 100.0;
    let statistics = fs::read_to_string("/proc/stat").unwrap();
    let steal = statistics.lines().next().unwrap().split_whitespace().nth(8).unwrap();
    steal.parse::<f64>().unwrap() / TICKS_PER_S * NS_PER_S
}

/// Profiles the workload from its start to its end.
fn run(test: &str, configure: impl FnOnce(Builder) -> Builder) -> Run {
    let (pages, report) = files(test);
    let command = [
        workload_path("off_cpu").into_os_string(),
        SECONDS.to_string().into(),
        report.clone().into(),
        pages.clone().into(),
    ];
    let builder = Profiler::builder().target(Target::Command(command.to_vec())).cpu_samples(false);
    let stolen_before = stolen_ns();
    let mut session = configure(builder).build().unwrap().start().unwrap();
    session.wait(None);
    let stolen = stolen_ns() - stolen_before;
    let profile = session.take_profile(Duration::ZERO).unwrap();
    let lines = fs::read_to_string(&report).unwrap();
    let measured = lines.lines().map(|line| {
        let (name, waited_ns) = line.split_once(' ').unwrap();
        (name.to_owned(), waited_ns.parse().unwrap())
    });
    let measured = measured.collect();
    fs::remove_file(pages).unwrap();
    fs::remove_file(report).unwrap();
    assert!(profile.ledger().adds_up(), "{:?}", profile.ledger());
    Run { profile, measured, stolen }
}

/// Off-CPU time without a limit of the overhead, which leaves out stacks on a slow machine.
fn every_stack(builder: Builder, min_block: Duration, wakers: bool) -> Builder {
    builder.off_cpu(min_block, wakers).max_overhead_percent(100.0)
}

fn thread<'a>(profile: &'a Profile, sample: &Sample) -> &'a str {
    profile.string(profile.thread(sample.thread).comm)
}

fn names<'a>(profile: &'a Profile, sample: &Sample) -> Vec<&'a str> {
    let frames = &profile.stack(sample.stack).frames;
    frames.iter().map(|frame| profile.string(profile.frame(*frame).name)).collect()
}

/// The nanoseconds of the samples that are wanted.
fn sum_ns(profile: &Profile, is_wanted: impl Fn(&Sample) -> bool) -> f64 {
    profile.samples().iter().filter(|sample| is_wanted(sample)).map(|sample| sample.value as f64).sum()
}

#[test]
fn waits_below_functions_with_return_probes_have_their_callers() {
    let Some(_lock) = run_beside_others() else { return };
    let Run { profile, .. } = run("return_probes", |builder| {
        let event = format!("uretprobe:{}:wait_70", workload_path("off_cpu").display());
        every_stack(builder, Duration::from_millis(1), false).counted_event(event.parse().unwrap())
    });
    let waits = |sample: &Sample, is_wanted: &dyn Fn(&[&str]) -> bool| {
        sample.state == Some(ThreadState::Blocked)
            && thread(&profile, sample) == "split"
            && is_wanted(&names(&profile, sample))
    };
    let below = sum_ns(&profile, |sample| waits(sample, &|names| names.contains(&"wait_70")));
    let whole = sum_ns(&profile, |sample| {
        profile.stack(sample.stack).end == StackEnd::Root
            && waits(sample, &|names| names.windows(3).any(|names| names == ["wait_70", "split", "run"]))
    });
    // It waits for nothing else, but beside other programs for a CPU after each wait: a tenth of the time has a hundred waits.
    assert!(below > 0.1 * SECONDS as f64 * NS_PER_S && whole > 0.99 * below, "{whole} of {below}");
}

#[test]
fn the_waker_of_a_lock_is_its_owner_and_that_of_a_timer_is_an_interrupt() {
    let Some(_lock) = run_beside_others() else { return };
    let Run { profile, .. } = run("wakers", |builder| every_stack(builder, Duration::from_millis(1), true));
    let share = |name: &str, has_waker: &dyn Fn(&[&str]) -> bool| {
        let is_blocked =
            |sample: &Sample| thread(&profile, sample) == name && sample.state == Some(ThreadState::Blocked);
        let woken = sum_ns(&profile, |sample| is_blocked(sample) && has_waker(&names(&profile, sample)));
        woken / sum_ns(&profile, is_blocked)
    };
    // Leaf first: the name of the waker, its stack from the root on, the separator, the stack that waits.
    let woken_by = |waker: &'static str, function: &'static str, waits_in: &'static str| {
        move |names: &[&str]| {
            let separator = names.iter().position(|name| *name == "--");
            let Some((waker_frames, wait)) = separator.map(|at| names.split_at(at)) else { return false };
            waker_frames[0] == waker && waker_frames.contains(&function) && wait.contains(&waits_in)
        }
    };
    for (thread, woken) in [
        ("mutex", woken_by("owner", "hold_lock", "take_lock")),
        ("pipe", woken_by("feeder", "write_byte", "read_byte")),
        ("sleep", woken_by("[interrupt]", "hrtimer_wakeup", "sleep_10_ms")),
    ] {
        let share = share(thread, &woken);
        assert!(share > 0.95, "{thread}: {share}");
    }
}

#[test]
fn waits_from_before_the_start_to_after_the_end_are_cut_at_the_edges() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = start_waits();
    let builder = Profiler::builder().target(Target::Pid(workload.pid())).cpu_samples(false);
    let mut session = builder.off_cpu(Duration::from_millis(1), false).build().unwrap().start().unwrap();
    let mut found_ns = BTreeMap::<String, u64>::new();
    let mut duration_ns = 0;
    for _ in 0..2 {
        let profile = session.take_profile(Duration::from_secs(1)).unwrap();
        duration_ns += profile.header().duration_ns;
        add_by_thread(&profile, &mut found_ns);
    }
    session.wait(Some(Duration::from_secs(1)));
    let profile = session.stop().unwrap();
    duration_ns += profile.header().duration_ns;
    add_by_thread(&profile, &mut found_ns);
    for name in ["reader", "locker", "poller", "deep"] {
        let found = found_ns[name] as f64 / duration_ns as f64;
        assert!((found - 1.0).abs() < 0.01, "{name}: {found} of the time: {found_ns:?}");
    }
}

/// Adds the waits of each thread. All of them have their stack, and are within the interval.
fn add_by_thread(profile: &Profile, found_ns: &mut BTreeMap<String, u64>) {
    assert!(profile.ledger().adds_up(), "{:?}", profile.ledger());
    for sample in profile.samples() {
        *found_ns.entry(thread(profile, sample).to_owned()).or_default() += sample.value;
        assert!(sample.time_ns + sample.value <= profile.header().duration_ns + 50_000_000, "{sample:?}");
        let names = names(profile, sample);
        assert!(names.contains(&"start_thread") || names.contains(&"main"), "{names:?}");
    }
}

#[test]
fn the_command_prints_microseconds() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = start_waits();
    let pid = workload.pid().to_string();
    let begin = Instant::now();
    let outcome = run_command(&mut profiler(&["-p", &pid, "--off-cpu", "-d", "1", "--format", "folded"]));
    let elapsed_us = begin.elapsed().as_secs_f64() * 1e6;
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr);
    let reader = outcome.stdout.lines().find(|line| line.contains(";reader;")).unwrap();
    let value: f64 = reader.rsplit_once(' ').unwrap().1.parse().unwrap();
    // It waits all the time.
    assert!(value > 0.95e6 && value < elapsed_us, "{reader}, in {elapsed_us} us");
}

mod measured {
    use super::*;

    /// Checks the waits of a thread. Each can be wrong by [`SWITCH_ERROR_NS`]: a thread that waits 200 times a second for milliseconds
    /// has an error of half a percent from this alone.
    fn assert_as_long_as_measured(Run { profile, measured, stolen }: &Run, name: &str) {
        let waits = profile.samples().iter().filter(|sample| thread(profile, sample) == name).count();
        let found_ns = sum_ns(profile, |sample| thread(profile, sample) == name);
        let measured_ns = measured[name];
        let tolerance_ns = 0.01 * SECONDS as f64 * NS_PER_S + waits as f64 * SWITCH_ERROR_NS + stolen;
        println!("{name}: {found_ns} of {measured_ns} ns in {waits} waits, {stolen} ns were stolen");
        assert!(
            (found_ns - measured_ns).abs() < tolerance_ns,
            "{name}: {found_ns} of {measured_ns} ns in {waits} waits, {stolen} ns were stolen: {:?}",
            profile.first_ledger()
        );
    }

    #[test]
    fn waits_are_as_long_as_the_program_measured() {
        let Some(_lock) = measure_alone() else { return };
        let run = run("lengths", |builder| every_stack(builder, Duration::ZERO, false));
        let profile = &run.profile;
        assert!(profile.first_ledger().lost.is_empty(), "{:?}", profile.ledger());
        let event = profile.event(EventId::FIRST);
        assert_eq!((&*event.name, event.sampling), ("off-cpu", Sampling::Durations { min_ns: 0 }));
        let elapsed_ns = SECONDS as f64 * NS_PER_S;
        for name in run.measured.keys().filter(|name| !name.contains("()")) {
            assert_as_long_as_measured(&run, name);
        }
        let in_states = |name: &str, is_in: &dyn Fn(ThreadState) -> bool| {
            sum_ns(profile, |sample| thread(profile, sample) == name && sample.state.is_some_and(is_in))
        };
        for name in ["mutex", "poll", "long"] {
            // Beside threads that compute, each waits for a CPU as well.
            let blocked = in_states(name, &|state| state == ThreadState::Blocked);
            let asleep = in_states(name, &|state| state != ThreadState::Runnable);
            assert!(
                blocked > 0.01 * elapsed_ns && blocked > 0.9 * asleep,
                "{name}: {blocked} of {asleep} ns"
            );
        }
        let share = in_states("idle", &|state| state == ThreadState::Runnable) / in_states("idle", &|_| true);
        assert!(share > 0.6, "idle: {share}");
        // A fast disk answers sooner than a CPU is free: beside a load its waits are few, and all are recorded.
        let on_disk = in_states("disk", &|state| state == ThreadState::Disk);
        let asleep = in_states("disk", &|state| state != ThreadState::Runnable);
        assert!(on_disk > 0.0 && on_disk > 0.9 * asleep, "disk: {on_disk} of {asleep} ns");
    }

    #[test]
    fn the_time_of_each_function_that_waits_is_exact() {
        let Some(_lock) = measure_alone() else { return };
        let Run { profile, measured, .. } =
            run("functions", |builder| every_stack(builder, Duration::from_millis(1), false));
        let of_function = |name| sum_ns(&profile, |sample| names(&profile, sample).contains(&name));
        let (wait_30, wait_70) = (of_function("wait_30"), of_function("wait_70"));
        let share = wait_30 / (wait_30 + wait_70);
        // Beside threads that compute, the thread waits for a CPU at the end of each sleep: the shares are not 30 and 70.
        let expected = measured["wait_30()"] / (measured["wait_30()"] + measured["wait_70()"]);
        assert!((share - expected).abs() < 0.01, "{share}, measured {expected}");
        assert!(wait_30 + wait_70 > 0.95 * SECONDS as f64 * NS_PER_S, "{} ns", wait_30 + wait_70);
        let ledger = profile.first_ledger();
        assert!(ledger.short_waits > 1_000, "those of `micro`: {ledger:?}");
        assert!(ledger.short_waits_ns / ledger.short_waits < 1_000_000, "{ledger:?}");
        let whole = ledger.stacks.get(&StackEnd::Root).copied().unwrap_or(0);
        assert!(whole * 100 >= ledger.reported * 99, "{ledger:?}");
    }

    #[test]
    fn waits_for_files_are_as_many_and_as_long_as_the_program_measured() {
        let Some(_lock) = measure_alone() else { return };
        let Run { profile, measured, stolen } =
            run("io", |builder| builder.io_waits().max_overhead_percent(100.0));
        let event = profile.event(EventId::FIRST);
        assert_eq!((&*event.name, event.sampling), ("io", Sampling::Durations { min_ns: 0 }));
        assert!(profile.samples().iter().all(|sample| sample.state == Some(ThreadState::Disk)));
        let reads: Vec<_> = profile
            .samples()
            .iter()
            .filter(|sample| names(&profile, sample).contains(&"read_page"))
            .collect();
        let switches = measured["read_page()#"];
        let share = reads.len() as f64 / switches;
        let lost = profile.first_ledger().lost_total();
        assert!(
            switches > 100.0 && (0.99..=1.0).contains(&share),
            "{share} of {switches} waits, {lost} lost"
        );
        let found_ns: f64 = reads.iter().map(|sample| sample.value as f64).sum();
        let measured_ns = measured["read_page()"];
        let tolerance_ns = 0.01 * measured_ns + switches * SWITCH_ERROR_NS + stolen;
        assert!(
            (found_ns - measured_ns).abs() < tolerance_ns,
            "{found_ns} of {measured_ns} ns in {switches} waits, {stolen} ns were stolen"
        );
        // Threads that wait most of the time, but not for files: only their code may have to be read again, on a machine whose memory
        // is full.
        let waits_otherwise = |(name, waited_ns): &(&String, &f64)| {
            !name.contains("()") && *name != "disk" && **waited_ns > 0.5 * SECONDS as f64 * NS_PER_S
        };
        let mut threads = 0;
        for (name, waited_ns) in measured.iter().filter(waits_otherwise) {
            let on_disk_ns = sum_ns(&profile, |sample| thread(&profile, sample) == name);
            assert!(on_disk_ns < 0.5 * waited_ns, "{name}: {on_disk_ns} of {waited_ns} ns");
            threads += 1;
        }
        assert!(threads >= 5, "{threads} threads that wait: {measured:?}");
    }

    /// A thread with thousands of waits a second uses up what stacks may cost.
    #[test]
    fn waits_without_a_stack_are_timed() {
        let Some(_lock) = measure_alone() else { return };
        let run = run("limit", |builder| builder.off_cpu(Duration::ZERO, false).max_overhead_percent(1.0));
        let profile = &run.profile;
        let without_stack = sum_ns(profile, |sample| profile.stack(sample.stack).end == StackEnd::Empty);
        assert!(without_stack > 0.0, "{:?}", profile.ledger());
        let of_long_waits = |sample: &Sample| thread(profile, sample) == "split";
        let (all, with_stack) = (
            sum_ns(profile, of_long_waits),
            sum_ns(profile, |sample| of_long_waits(sample) && !names(profile, sample).is_empty()),
        );
        // Most waits of `micro` have no stack.
        for name in ["split", "micro"] {
            assert_as_long_as_measured(&run, name);
        }
        assert!(with_stack > 0.9 * all, "a thread that waits long has its stacks: {with_stack} of {all} ns");
    }
}
