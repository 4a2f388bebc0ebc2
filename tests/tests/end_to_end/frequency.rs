//! Tests the change of the sampling frequency in a running session.

use std::time::Duration;

use profiler::{Profile, Profiler, Target};
use profiler_tests::{Workload, measure_alone, run_beside_others, wait_for_samples};

#[test]
fn stacks_that_were_evicted_are_sampled_again() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let builder = Profiler::builder().target(Target::Pid(workload.pid())).frequency_hz(199);
    let mut session = builder.build().unwrap().start().unwrap();
    for _ in 0..3 {
        session.evict_stacks();
        wait_for_samples(&mut session, 50);
        let profile = session.take_profile(Duration::ZERO).unwrap();
        assert!(profile.ledger().adds_up() && profile.total_value() > 10, "{:?}", profile.first_ledger());
        assert_eq!(profile.first_ledger().lost_total(), 0, "{:?}", profile.first_ledger());
    }
}

mod measured {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(1_500);

    /// The samples of a profile, after a check of its account and frequency.
    fn samples(profile: &Profile, frequency_hz: Option<u64>) -> u64 {
        assert!(profile.ledger().adds_up(), "{:?}", profile.first_ledger());
        assert_eq!(profile.first_event().frequency_hz(), frequency_hz);
        profile.total_value()
    }

    #[test]
    fn each_profile_has_samples_of_one_frequency() {
        let Some(_lock) = measure_alone() else { return };
        let workload = Workload::start("shares");
        let builder = Profiler::builder().target(Target::Pid(workload.pid())).frequency_hz(199);
        let mut session = builder.build().unwrap().start().unwrap();
        // The frequency changes at the end of the interval; that of the start is the highest.
        let mut next = |next_hz, frequency_hz| {
            let before = workload.cpu_time();
            session.set_frequency_hz(next_hz);
            let samples = samples(&session.take_profile(INTERVAL).unwrap(), frequency_hz);
            (samples, (workload.cpu_time() - before).as_secs_f64())
        };
        let profiles = [next(99, Some(199)), next(0, Some(99)), next(9_999, None), next(199, Some(199))];
        for ((samples, seconds), frequency_hz) in profiles.into_iter().zip([199.0, 99.0, 0.0, 199.0]) {
            let expected = seconds * frequency_hz;
            let is_near = (samples as f64 - expected).abs() <= 0.25 * expected + 4.0 * expected.sqrt();
            assert!(is_near, "{samples} in place of {expected}: {profiles:?}");
        }
    }
}
