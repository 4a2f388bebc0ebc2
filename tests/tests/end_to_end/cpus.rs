//! CPUs: some of them, and such that come and go.

use std::fs;

use profiler::{Profiler, Target};
use profiler_tests::{Workload, privileged, sample, sample_pid};

const SECOND_CPU: &str = "/sys/devices/system/cpu/cpu1/online";

#[test]
fn only_the_cpus_that_were_asked_for_are_sampled() {
    let Some(_turn) = privileged() else { return };
    // More threads than CPUs: every CPU runs some of them.
    let workload = Workload::start("threads");
    let profile = sample(sample_pid(workload.pid()).cpus([0]), 500);
    assert!(profile.samples().iter().all(|sample| sample.cpu == 0));
    assert_eq!(profile.header().cpus, 1);
    assert!(profile.ledger().adds_up());
}

#[test]
fn a_cpu_that_does_not_exist_is_an_error() {
    let Some(_turn) = privileged() else { return };
    let builder = Profiler::builder().target(Target::Everything).cpus([4_000]);
    let error = builder.build().and_then(Profiler::start).unwrap_err();
    assert!(error.to_string().contains("online"), "{error}");
}

/// Puts the CPU back when the test ends, however that is.
struct Online;

impl Drop for Online {
    fn drop(&mut self) {
        fs::write(SECOND_CPU, "1").expect("the CPU goes online again");
    }
}

#[test]
fn sampling_goes_on_when_a_cpu_goes_and_when_it_comes_back() {
    let Some(_turn) = privileged() else { return };
    if fs::read_to_string(SECOND_CPU).map(|state| state.trim() == "1").unwrap_or(false) {
        let _online = Online;
        let workload = Workload::start("threads");
        let mut session = sample_pid(workload.pid()).build().unwrap().start().unwrap();
        let interval = std::time::Duration::from_millis(500);
        if let Err(error) = fs::write(SECOND_CPU, "0") {
            eprintln!("skipped, this machine keeps its CPUs: {error}");
            return;
        }
        let without = session.take_profile(interval).unwrap();
        fs::write(SECOND_CPU, "1").unwrap();
        let _settling = session.take_profile(interval).unwrap();
        let with = session.take_profile(interval).unwrap();
        assert!(without.sample_count() > 0);
        assert!(with.samples().iter().any(|sample| sample.cpu == 1), "the CPU came back unseen");
    } else {
        eprintln!("skipped, this machine has no second CPU that can be taken away");
    }
}
