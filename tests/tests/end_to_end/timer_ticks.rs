//! Tests the account of the timers' ticks on all CPUs: due, delivered, and missed by cause.

use std::time::Duration;

use profiler::{Profile, profile::MissedTick};
use profiler_tests::{Sysctl, Workload, lock_privileged, sample_pid};

const FREQUENCY_HZ: u64 = 9_999;

/// The ticks due by the duration of a profile.
fn ticks_by_duration(profile: &Profile) -> f64 {
    let header = profile.header();
    header.duration_ns as f64 / 1e9 * f64::from(header.cpus) * FREQUENCY_HZ as f64
}

#[test]
fn throttled_ticks_are_counted_with_that_cause() {
    let Some(_lock) = lock_privileged() else { return };
    let workload = Workload::start("shares");
    let mut session = sample_pid(workload.pid()).frequency_hz(FREQUENCY_HZ).build().unwrap().start().unwrap();
    let before = session.take_profile(Duration::from_millis(500)).unwrap();
    assert!(!before.ledger().timer.missed.contains_key(&MissedTick::Throttled), "{:?}", before.ledger());
    let rate = Sysctl::set("perf_event_max_sample_rate", 1_000);
    let during = session.take_profile(Duration::from_secs(1)).unwrap();
    drop(rate);
    let timer = &during.ledger().timer;
    let throttled = timer.missed.get(&MissedTick::Throttled).copied().unwrap_or_default();
    assert!(throttled * 10 > timer.due, "{timer:?}");
    assert_eq!(throttled, timer.missed_total(), "{timer:?}");
    session.stop().unwrap();
}

#[test]
fn ticks_due_are_those_of_the_frequency_on_every_cpu() {
    let Some(_lock) = lock_privileged() else { return };
    let workload = Workload::start("shares");
    let mut session = sample_pid(workload.pid()).frequency_hz(FREQUENCY_HZ).build().unwrap().start().unwrap();
    for _ in 0..3 {
        let profile = session.take_profile(Duration::from_millis(500)).unwrap();
        let (due, expected) = (profile.ledger().timer.due as f64, ticks_by_duration(&profile));
        assert!((due / expected - 1.0).abs() < 0.05, "{due} ticks due, {expected} by the duration");
    }
}
