//! Tests the timers' ticks: their account by cause, and that they do not beat with work that sleeps and wakes.

use std::{process::Command, time::Duration};

use profiler::{Profile, Profiler, Target, profile::MissedTick};
use profiler_tests::{Sysctl, Workload, measure_alone, sample_pid, workload_path};

const FREQUENCY_HZ: u64 = 9_999;

/// The ticks due by the duration of a profile.
fn ticks_by_duration(profile: &Profile) -> f64 {
    let header = profile.header();
    header.duration_ns as f64 / 1e9 * f64::from(header.cpus) * FREQUENCY_HZ as f64
}

#[test]
fn throttled_ticks_are_counted_with_that_cause() {
    let Some(_lock) = measure_alone() else { return };
    let workload = Workload::start("shares");
    let mut session = sample_pid(workload.pid()).frequency_hz(FREQUENCY_HZ).build().unwrap().start().unwrap();
    let before = session.take_profile(Duration::from_millis(500)).unwrap();
    assert!(!before.ledger().timer.missed.contains_key(&MissedTick::Throttled), "{:?}", before.ledger());
    let rate = Sysctl::set("perf_event_max_sample_rate", 1_000);
    let during = session.take_profile(Duration::from_secs(1)).unwrap();
    drop(rate);
    let timer = &during.ledger().timer;
    let throttled = timer.missed.get(&MissedTick::Throttled).copied().unwrap_or_default();
    // At least on the CPU of the workload; an idle one has nothing to miss.
    let idle = timer.missed.get(&MissedTick::IdleCpu).copied().unwrap_or_default();
    assert!(throttled * 20 > timer.due, "{timer:?}");
    assert_eq!(throttled + idle, timer.missed_total(), "{timer:?}");
    session.stop().unwrap();
}

/// The kernel or the hypervisor may stop the timers of CPUs without work: that is no loss.
#[test]
fn ticks_that_an_idle_cpu_misses_are_counted_with_that_cause() {
    let Some(_lock) = measure_alone() else { return };
    let mut session =
        Profiler::builder().target(Target::Everything).frequency_hz(997).build().unwrap().start().unwrap();
    let profile = session.take_profile(Duration::from_secs(1)).unwrap();
    let timer = &profile.ledger().timer;
    let of_busy_cpus =
        timer.missed_total() - timer.missed.get(&MissedTick::IdleCpu).copied().unwrap_or_default();
    assert!(of_busy_cpus * 20 < timer.due, "{timer:?}");
    session.stop().unwrap();
}

#[test]
fn ticks_due_are_those_of_the_frequency_on_every_cpu() {
    let Some(_lock) = measure_alone() else { return };
    let workload = Workload::start("shares");
    let mut session = sample_pid(workload.pid()).frequency_hz(FREQUENCY_HZ).build().unwrap().start().unwrap();
    for _ in 0..3 {
        let profile = session.take_profile(Duration::from_millis(500)).unwrap();
        let (due, expected) = (profile.ledger().timer.due as f64, ticks_by_duration(&profile));
        assert!((due / expected - 1.0).abs() < 0.05, "{due} ticks due, {expected} by the duration");
    }
}

/// With a timer slack of 1 ms, the interrupt of a tick wakes threads that may sleep on for up to 1 ms: they compute right
/// after a tick. With one timer on each CPU, that is right after every tick, and 5 to 25 % of the samples are found. With
/// several, ticks of the other timers find the threads, and more than half of the samples.
#[test]
fn threads_that_a_tick_wakes_are_found_by_the_ticks_of_other_timers() {
    const TIMER_SLACK_NS: &str = "1000000";
    let Some(_lock) = measure_alone() else { return };
    let (found, due) = found_and_due(TIMER_SLACK_NS, 997);
    assert!(found > 0.38 * due, "{found} of {due} samples due");
}

/// At this frequency the threads compute during every second period of a timer.
#[test]
fn threads_in_a_rhythm_have_as_many_samples_as_their_cpu_time_is_worth() {
    const DEFAULT_TIMER_SLACK: &str = "0";
    let Some(_lock) = measure_alone() else { return };
    let (found, due) = found_and_due(DEFAULT_TIMER_SLACK, 99);
    // As many ticks at random times differ less, but once in 100,000 times.
    let tolerance = 4.42 * due.sqrt();
    assert!((found - due).abs() < tolerance && tolerance < 0.3 * due, "{found} of {due} samples due");
}

/// The samples of threads that sleep 20 ms and compute about 0.1 ms, and those that are due: their CPU time times the
/// frequency. In several sessions, because the phase of the timers is that of their start.
fn found_and_due(timer_slack_ns: &str, frequency_hz: u64) -> (f64, f64) {
    const SESSIONS: u32 = 3;
    const SESSION: Duration = Duration::from_secs(2);
    // Before other work: a thread that waits for a CPU computes later than its timer says.
    let mut command = Command::new("nice");
    command.args(["-n", "-20"]).arg(workload_path("sleepers"));
    let workload = Workload::run(command.args(["600", "100", "20000", "80000", timer_slack_ns]));
    let (mut found, mut cpu_time) = (0, Duration::ZERO);
    for _ in 0..SESSIONS {
        let profiler = sample_pid(workload.pid()).frequency_hz(frequency_hz).build().unwrap();
        let mut session = profiler.start().unwrap();
        let before = workload.cpu_time_of_threads();
        found += session.take_profile(SESSION).unwrap().total_value();
        cpu_time += workload.cpu_time_of_threads() - before;
    }
    (found as f64, cpu_time.as_secs_f64() * frequency_hz as f64)
}
