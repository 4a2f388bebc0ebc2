//! Tests events that are sampled at their occurrences: page faults, system calls, signals and switches of known number.

mod system_calls;

use std::{collections::BTreeMap, fs, num::NonZeroU64, path::Path};

use profiler::{
    Builder, CountedEvent, ErrorKind, Profile, Profiler, Target,
    profile::{EventId, Sample, Sampling},
};
use profiler_tests::{
    Workload, measure_alone, run_beside_others, wait_for_samples, wait_until, workload_path,
};

fn event(name: &str) -> CountedEvent {
    name.parse().unwrap()
}

/// Profiles a workload that writes what it counted or measured; also returns that.
fn run_workload(workload: &str, test: &str, configure: impl FnOnce(Builder) -> Builder) -> (Profile, String) {
    let report = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}.report", std::process::id()));
    let command = [workload_path(workload).into_os_string(), report.clone().into()];
    let builder = Profiler::builder().target(Target::Command(command.to_vec())).cpu_samples(false);
    let mut session = configure(builder).build().unwrap().start().unwrap();
    session.wait(None);
    let profile = session.stop().unwrap();
    let text = fs::read_to_string(&report).unwrap();
    fs::remove_file(report).unwrap();
    assert!(profile.ledger().adds_up(), "{:?}", profile.ledger());
    (profile, text)
}

/// Profiles the workload; also returns the number of events below each function.
fn run(test: &str, configure: impl FnOnce(Builder) -> Builder) -> (Profile, BTreeMap<String, u64>) {
    let (profile, text) = run_workload("occurrences", test, configure);
    let counts = text.lines().map(|line| {
        let (function, number) = line.split_once(' ').unwrap();
        (function.to_owned(), number.parse().unwrap())
    });
    (profile, counts.collect())
}

/// The occurrences of an event in stacks with a function.
fn below(profile: &Profile, event: &str, function: &str) -> u64 {
    let id = profile.find_event(event).unwrap();
    let has_function = |sample: &&Sample| {
        let frames = &profile.stack(sample.stack).frames;
        frames.iter().any(|frame| profile.string(profile.frame(*frame).name) == function)
    };
    profile.samples_of(id).filter(has_function).map(|sample| sample.value).sum()
}

#[test]
fn every_nth_occurrence_stands_for_n() {
    let Some(_lock) = run_beside_others() else { return };
    let hundredth = event("page-faults").every(NonZeroU64::new(100).unwrap());
    let every_hundredth = |builder: Builder| builder.max_overhead_percent(100.0).counted_event(hundredth);
    let (profile, counts) = run("hundredth", every_hundredth);
    let sampling = profile.event(EventId::FIRST).sampling;
    assert_eq!(sampling, Sampling::Occurrences { period: 100 });
    assert!(profile.samples().iter().all(|sample| sample.value == 100));
    let faults = below(&profile, "page-faults", "touch_pages");
    // The kernel counts the faults of all processes of a CPU: beside others, each one of this process is the hundredth with a
    // probability of 1/100. The bound is that of the binomial distribution, which a true share exceeds once in 100,000 times.
    let expected = counts["touch_pages"] as f64;
    let deviation = 100.0 * (expected / 100.0).sqrt();
    let tolerance = (4.42 * deviation) as u64;
    assert!(faults.abs_diff(counts["touch_pages"]) <= tolerance, "{faults} of {}", counts["touch_pages"]);
}

#[test]
fn a_condition_selects_and_a_weight_sums() {
    const GETPPID: u64 = 110;
    let Some(_lock) = run_beside_others() else { return };
    let condition = format!("id == {GETPPID}").parse().unwrap();
    let (profile, counts) = run("condition", |builder| {
        let sum_of_ids = event("raw_syscalls:sys_enter").weighted_by("id").only_where(condition);
        builder.max_overhead_percent(100.0).counted_event(sum_of_ids)
    });
    let ledger = profile.first_ledger();
    assert_eq!(profile.total_value() + ledger.lost_total(), GETPPID * counts["call_getppid"], "{ledger:?}");
    assert!(profile.samples().iter().all(|sample| sample.value == GETPPID));
    assert_eq!(below(&profile, "raw_syscalls", "call_getppid"), profile.total_value());
}

#[test]
fn every_nth_run_of_a_program_stands_for_n() {
    let Some(_lock) = run_beside_others() else { return };
    let (profile, counts) = run("nth", |builder| {
        let hundredth = event("signal:signal_generate").every(NonZeroU64::new(100).unwrap());
        builder.max_overhead_percent(100.0).counted_event(hundredth)
    });
    let signals = below(&profile, "signal", "raise_signals");
    // Each CPU has up to 99 that are in no sample.
    assert!(signals.abs_diff(counts["raise_signals"]) < 1_000, "{signals} of {}", counts["raise_signals"]);
    assert!(profile.samples().iter().all(|sample| sample.value == 100));
}

#[test]
fn calls_and_returns_of_a_function_are_counted_by_probes() {
    let Some(_lock) = run_beside_others() else { return };
    let program = workload_path("occurrences");
    let names = ["uprobe", "uretprobe"].map(|kind| format!("{kind}:{}:called", program.display()));
    let (profile, counts) = run("probes", |builder| {
        let builder = builder.max_overhead_percent(100.0);
        names.iter().fold(builder, |builder, name| builder.counted_event(event(name)))
    });
    for (name, ledger) in names.iter().zip(&profile.ledger().events) {
        let found = below(&profile, name, "call_function");
        assert_eq!(found + ledger.lost_total(), counts["call_function"], "{name}: {ledger:?}");
        assert!(ledger.lost_total() * 1_000 < found, "{name}: {ledger:?}");
    }
    let at_entry = profile.samples_of(EventId::FIRST).next().unwrap();
    let leaf = profile.frame(profile.stack(at_entry.stack).frames[0]);
    assert_eq!(profile.string(leaf.name), "called");
}

#[test]
fn each_place_of_a_static_probe_is_counted_and_its_semaphore_is_set() {
    let Some(_lock) = run_beside_others() else { return };
    let program = workload_path("occurrences");
    let names = ["pass", "watched"].map(|name| format!("usdt:{}:occurrences:{name}", program.display()));
    let (profile, counts) = run("static_probes", |builder| {
        let builder = builder.max_overhead_percent(100.0);
        names.iter().fold(builder, |builder, name| builder.counted_event(event(name)))
    });
    for (name, function, ledger) in [
        (&names[0], "pass_probes", &profile.ledger().events[0]),
        (&names[1], "pass_watched", &profile.ledger().events[1]),
    ] {
        let found = below(&profile, name, function);
        assert_eq!(found + ledger.lost_total(), counts[function], "{name}: {ledger:?}");
        assert!(ledger.lost_total() * 1_000 < found, "{name}: {ledger:?}");
    }
    let (_, counts) = run("unwatched", |builder| builder.counted_event(event(&names[0])));
    assert_eq!(counts["pass_watched"], 0, "the semaphore of another probe is not set");
}

#[test]
fn an_argument_of_a_static_probe_is_read_at_the_operand_of_each_place() {
    let Some(_lock) = run_beside_others() else { return };
    let name = format!("usdt:{}:occurrences:pass", workload_path("occurrences").display());
    let (profile, counts) = run("operands", |builder| {
        let sum = event(&name).weighted_by("arg1").only_where("arg1 >= 0".parse().unwrap());
        builder.max_overhead_percent(100.0).counted_event(sum)
    });
    let ledger = profile.first_ledger();
    let found = below(&profile, &name, "pass_probes");
    assert_eq!(found + ledger.lost_total(), counts["sum_of_arguments"], "{ledger:?}");
    assert!(ledger.lost_total() * 1_000 < found, "{ledger:?}");
}

#[test]
fn a_condition_and_a_weight_apply_to_a_system_call() {
    const LARGE_BYTES: u64 = 50;
    let Some(_lock) = run_beside_others() else { return };
    let condition = format!("arg3 > {LARGE_BYTES}").parse().unwrap();
    let (profile, counts) = run("bytes", |builder| {
        let bytes = event("syscalls:sys_exit_write").weighted_by("ret").only_where(condition);
        builder.max_overhead_percent(100.0).counted_event(bytes)
    });
    let found = below(&profile, "syscalls:sys_exit_write", "write_bytes");
    assert_eq!(found, counts["write_bytes"], "{:?}", profile.first_ledger());
    assert!(profile.samples().iter().all(|sample| sample.value > LARGE_BYTES));
}

#[test]
fn page_faults_have_managed_stacks() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::dotnet("9.0", "memory");
    let builder = Profiler::builder().target(Target::Pid(workload.pid())).cpu_samples(false);
    let builder = builder.max_overhead_percent(100.0).counted_event(event("page-faults"));
    let mut session = builder.build().unwrap().start().unwrap();
    wait_for_samples(&mut session, 1_000);
    let profile = session.stop().unwrap();
    assert!(profile.ledger().adds_up(), "{:?}", profile.ledger());
    let is_managed = |sample: &&Sample| {
        let frames = &profile.stack(sample.stack).frames;
        frames.iter().any(|frame| profile.string(profile.frame(*frame).name).contains("Memory.Touch"))
    };
    let managed: u64 = profile.samples().iter().filter(is_managed).map(|sample| sample.value).sum();
    let all = profile.total_value();
    assert!(managed * 10 > all * 9, "{managed} of {all}: {:?}", profile.first_ledger());
}

#[test]
fn an_event_that_this_machine_lacks_is_an_error_that_says_so() {
    let Some(_lock) = run_beside_others() else { return };
    let start = |name: &str| {
        let builder = Profiler::builder().target(Target::Everything).cpu_samples(false);
        builder.counted_event(event(name)).build().unwrap().start()
    };
    let error = start("sched:no_such_event").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("no tracepoint `sched:no_such_event`"), "{error}");
    // A machine with a PMU has the event.
    if let Err(error) = start("cache-misses") {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("no hardware counter for `cache-misses`"), "{error}");
    }
}

#[test]
fn an_event_beyond_the_overhead_limit_is_counted_in_later_samples() {
    let Some(_lock) = run_beside_others() else { return };
    // A sample is charged with 1 ms at most, which is allowed again after 50 ms: less than the last sleeps of the workload take.
    // By then, each call before them is in a sample, and of the sleeps themselves half are at most in none.
    let limited =
        |builder: Builder| builder.max_overhead_percent(2.0).counted_event(event("raw_syscalls:sys_enter"));
    let (profile, counts) = wait_until("a run that is as fast as the limit", || {
        let (profile, counts) = run("limited", limited);
        let is_limited = (profile.samples().len() as u64) < profile.first_ledger().due / 2;
        is_limited.then_some((profile, counts))
    });
    let ledger = profile.first_ledger();
    let calls = counts["call_getppid"] + counts["raise_signals"];
    assert!(ledger.due >= calls, "{ledger:?}");
    assert!(ledger.lost_total() < counts["switch_away"], "{ledger:?}");
}

mod measured {
    use super::*;

    #[test]
    fn occurrences_are_exactly_as_many_as_the_program_counted() {
        let Some(_lock) = measure_alone() else { return };
        let (profile, counts) = run("exact", |builder| {
            ["page-faults", "raw_syscalls:sys_enter", "signal:signal_generate", "context-switches"]
                .into_iter()
                .fold(builder.max_overhead_percent(100.0), |builder, name| builder.counted_event(event(name)))
        });
        for ledger in &profile.ledger().events {
            assert_eq!(ledger.lost_total(), 0, "{ledger:?}");
        }
        let found = |event, function| (below(&profile, event, function), counts[function]);
        let (faults, expected) = found("page-faults", "touch_pages");
        assert_eq!(faults, expected, "page faults");
        let (signals, expected) = found("signal:signal_generate", "raise_signals");
        assert_eq!(signals, expected, "signals");
        // A first call of a function of the C library has system calls of the dynamic linker.
        let (calls, expected) = found("raw_syscalls:sys_enter", "call_getppid");
        assert_eq!(calls, expected, "system calls");
        let (switches, expected) = found("context-switches", "switch_away");
        assert_eq!(switches, expected, "context switches");
    }

    #[test]
    fn a_system_call_is_counted_at_its_entry_and_at_its_exit() {
        let Some(_lock) = measure_alone() else { return };
        let names = ["syscalls:sys_enter_getppid", "syscalls:sys_exit_getppid", "syscalls:sys_enter_tgkill"];
        let (profile, counts) = run("system_calls", |builder| {
            let builder = builder.max_overhead_percent(100.0);
            names.into_iter().fold(builder, |builder, name| builder.counted_event(event(name)))
        });
        let functions = ["call_getppid", "call_getppid", "raise_signals"];
        for ((name, function), ledger) in names.into_iter().zip(functions).zip(&profile.ledger().events) {
            assert_eq!(ledger.lost_total(), 0, "{name}: {ledger:?}");
            assert_eq!(below(&profile, name, function), counts[function], "{name}");
            assert_eq!(ledger.due, counts[function], "{name}: other calls are counted");
        }
    }

    #[test]
    fn cpu_samples_and_events_are_in_one_profile() {
        let Some(_lock) = measure_alone() else { return };
        let (profile, counts) = run("beside", |builder| {
            builder
                .cpu_samples(true)
                .frequency_hz(999)
                .max_overhead_percent(100.0)
                .counted_event(event("minor-faults"))
        });
        let names: Vec<_> = profile.events().map(|event| event.name.as_str()).collect();
        assert_eq!(names, ["cpu-clock", "minor-faults"]);
        // A tick that interrupts the handling of a fault is missed, and no fault within the handling of a tick is.
        assert_eq!(below(&profile, "minor-faults", "touch_pages"), counts["touch_pages"]);
        assert!(profile.samples_of(EventId::FIRST).count() > 10, "{:?}", profile.ledger());
    }
}
