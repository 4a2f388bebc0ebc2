//! Tests the number and the time of system calls against those that a program measures itself.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use profiler::{
    Builder, CountedEvent, Profile, Profiler, Target,
    profile::{Sample, Sampling},
};
use profiler_tests::{measure_alone, run_beside_others, wait_until};

use super::{event, run_workload};

/// What the program measured of the calls of a function.
#[derive(Clone, Copy, Debug)]
struct CallTimes {
    calls: u64,
    ns: u64,
}

/// Profiles the workload; also returns what it measured, by function.
fn run(test: &str, configure: impl FnOnce(Builder) -> Builder) -> (Profile, BTreeMap<String, CallTimes>) {
    let (profile, text) = run_workload("call_times", test, configure);
    let measured = text.lines().map(|line| {
        let [function, calls, ns] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        (function.to_owned(), CallTimes { calls: calls.parse().unwrap(), ns: ns.parse().unwrap() })
    });
    (profile, measured.collect())
}

/// The samples of a system call, by the name of the leaf, and the sum of their values; those below a function, if there is one.
fn found(profile: &Profile, event: &str, function: Option<&str>, leaf: &str) -> (u64, u64) {
    let id = profile.find_event(event).unwrap();
    let name = |frame| profile.string(profile.frame(frame).name);
    let is_found = |sample: &&Sample| {
        let frames = &profile.stack(sample.stack).frames;
        name(frames[0]) == leaf
            && function.is_none_or(|function| frames.iter().any(|frame| name(*frame) == function))
    };
    let values = profile.samples_of(id).filter(is_found).map(|sample| sample.value);
    values.fold((0, 0), |(samples, sum), value| (samples + 1, sum + value))
}

/// Asserts that a time is that which the program measured, which has the time of the tracepoints as well.
fn assert_measured(time_ns: u64, measured: CallTimes) {
    assert!(time_ns <= measured.ns, "{time_ns} ns of {measured:?}");
    assert!(time_ns * 100 >= measured.ns * 99, "{time_ns} ns of {measured:?}");
}

#[test]
fn a_call_that_had_begun_before_counts_from_the_start_on() {
    const SAMPLED: Duration = Duration::from_millis(300);
    let Some(_lock) = run_beside_others() else { return };
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    // The number of the system call in which the thread waits is the first word.
    wait_until("cat reads", || {
        let call = fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
        call.starts_with("0 ").then_some(())
    });
    let builder = Profiler::builder().target(Target::Pid(pid)).cpu_samples(false);
    let builder = builder.counted_event(CountedEvent::system_call_time());
    let before = Instant::now();
    let mut session = builder.build().unwrap().start().unwrap();
    session.wait(Some(SAMPLED));
    child.stdin.take().unwrap().write_all(b"x").unwrap();
    child.wait().unwrap();
    let ended = before.elapsed();
    let profile = session.stop().unwrap();
    let (reads, time_ns) = found(&profile, "syscall-time", None, "[read]");
    let time = Duration::from_nanos(time_ns);
    assert_eq!(reads, 2, "the one that had begun, and one that finds the end of the pipe");
    assert!(SAMPLED <= time && time <= ended, "{time:?} of {ended:?}");
}

mod measured {
    use super::*;

    #[test]
    fn calls_and_their_times_are_those_that_the_program_measured() {
        const TIME: &str = "syscall-time";
        let Some(_lock) = measure_alone() else { return };
        let long_reads = event("syscalls:sys_exit_read").weighted_by("duration");
        let events = [
            event("raw_syscalls:sys_enter"),
            CountedEvent::system_call_time(),
            long_reads.only_where("duration > 1000000".parse().unwrap()),
            event("syscalls:sys_exit_getppid").weighted_by("duration"),
        ];
        let (profile, measured) = run("call_times", |builder| {
            events.into_iter().fold(builder.max_overhead_percent(100.0), Builder::counted_event)
        });
        for ledger in &profile.ledger().events {
            assert_eq!(ledger.lost_total(), 0, "{ledger:?}");
        }
        let time = profile.event(profile.find_event(TIME).unwrap());
        assert_eq!((&*time.name, time.sampling), (TIME, Sampling::Times { period: 1 }));
        for (function, leaf) in [
            ("sleep_calls", "[clock_nanosleep]"),
            ("read_calls", "[read]"),
            // The children of `fork` return from a call that another thread has entered.
            ("fork_calls", "[clone]"),
            ("compat_calls", "[32-bit system call 20]"),
            // A call that is denied is not entered.
            ("denied_calls", "[getppid]"),
        ] {
            let measured = measured[function];
            assert_eq!(
                found(&profile, "raw_syscalls:sys_enter", Some(function), leaf).1,
                measured.calls,
                "{function}"
            );
            let (calls, time_ns) = found(&profile, TIME, Some(function), leaf);
            assert_eq!(calls, measured.calls, "{function}");
            assert!(time_ns <= measured.ns, "{function}: {time_ns} ns of {measured:?}");
        }
        for (function, leaf) in [("sleep_calls", "[clock_nanosleep]"), ("read_calls", "[read]")] {
            assert_measured(found(&profile, TIME, Some(function), leaf).1, measured[function]);
        }

        let value = |event: &str| {
            let samples = profile.samples_of(profile.find_event(event).unwrap()).map(|sample| sample.value);
            samples.fold((0, 0), |(samples, sum), value| (samples + 1, sum + value))
        };
        let (reads, time_ns) = value("syscalls:sys_exit_read duration");
        assert!(reads <= measured["read_calls"].calls, "{reads}");
        assert_measured(time_ns, measured["read_calls"]);
        let (allowed, time_ns) = value("syscalls:sys_exit_getppid duration");
        assert_eq!(allowed, measured["denied_calls"].calls);
        assert!(time_ns <= measured["denied_calls"].ns, "{time_ns} ns");
    }

    #[test]
    fn long_calls_have_their_time_beyond_the_overhead_limit() {
        /// Allows 3 ms of run time at once. A sample during which the hypervisor does not run the CPU takes 1 ms of them.
        const OVERHEAD_PERCENT: f64 = 0.3;
        const PAUSE_NS: u64 = 10_000_000;
        let Some(_lock) = measure_alone() else { return };
        let (profile, measured) = run("limited_call_times", |builder| {
            builder.max_overhead_percent(OVERHEAD_PERCENT).counted_event(CountedEvent::system_call_time())
        });
        let samples = profile.samples().len() as u64;
        assert!(samples < measured["compat_calls"].calls, "the limit is not reached: {samples} samples");
        let slept = measured["sleep_calls"];
        let (samples, time_ns) = found(&profile, "syscall-time", Some("sleep_calls"), "[clock_nanosleep]");
        assert!(samples * 10 >= slept.calls * 9 && samples <= slept.calls, "{samples} samples of {slept:?}");
        assert!(time_ns >= samples * PAUSE_NS, "{time_ns} ns of {samples} calls");
        // The first sample after the start of the program has the time of the calls that were skipped until then.
        let of_all_functions: u64 = measured.values().map(|measured| measured.ns).sum();
        let others_ns = profile.header().duration_ns - of_all_functions;
        assert!(
            time_ns <= slept.ns + others_ns,
            "{time_ns} ns of {slept:?}, and {others_ns} ns outside of the functions"
        );
    }
}
