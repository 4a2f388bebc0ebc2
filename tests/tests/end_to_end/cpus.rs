//! Tests sampling of selected CPUs, and CPUs that go offline and come back online.

use std::{fs, process::Command, time::Duration};

use profiler::{ErrorKind, Profiler, Session, Target};
use profiler_tests::{
    Workload, measure_alone, profiler, run_beside_others, run_command, sample, sample_pid,
    skip_on_this_machine, wait_until,
};

#[test]
fn only_the_selected_cpus_are_sampled() {
    let Some(_lock) = run_beside_others() else { return };
    // With more threads than CPUs, every CPU runs some of them.
    let workload = Workload::start("threads");
    let profile = sample(sample_pid(workload.pid()).cpus([0]), 500);
    assert!(profile.samples().iter().all(|sample| sample.cpu == 0));
    assert_eq!(profile.header().cpus, 1);
    assert!(profile.ledger().adds_up());
}

#[test]
fn a_cpu_that_does_not_exist_is_an_error() {
    let error = Profiler::builder().target(Target::Everything).cpus([0, 4_000]).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().starts_with("CPU 4000 does not exist: this machine has the CPUs 0"), "{error}");
}

#[test]
fn the_perf_events_of_many_cpus_need_no_raised_limit_on_open_files() {
    let Some(_lock) = run_beside_others() else { return };
    // Fewer than the events of one CPU and the maps need.
    let mut limited = Command::new("prlimit");
    limited.arg("--nofile=20:4096").arg(profiler(&[]).get_program()).args(["--", "sh", "-c", "ulimit -Sn"]);
    let run = run_command(&mut limited);
    // It may end before the first tick.
    assert!([0, 3].contains(&run.code()), "{}", run.stderr);
    assert_eq!(run.stdout.lines().next(), Some("20"), "the command has the limit of its user");
}

mod measured {
    use super::*;

    const SECOND_CPU: &str = "/sys/devices/system/cpu/cpu1/online";

    /// Sets the CPU online when the test ends, even if it fails.
    struct Online;

    impl Drop for Online {
        fn drop(&mut self) {
            fs::write(SECOND_CPU, "1").expect("the CPU goes online again");
        }
    }

    /// Sets the second CPU offline while `away` runs, and checks that the CPU is sampled again afterwards. Returns false
    /// if the machine cannot set a CPU offline.
    fn second_cpu_comes_back(away: impl FnOnce(&mut Session)) -> bool {
        if !fs::read_to_string(SECOND_CPU).is_ok_and(|state| state.trim() == "1") {
            return false;
        }
        let workload = Workload::start_nice("threads");
        let mut session = sample_pid(workload.pid()).build().unwrap().start().unwrap();
        let _online = Online;
        if fs::write(SECOND_CPU, "0").is_err() {
            return false;
        }
        away(&mut session);
        // Discards samples from before, including those that are still in the ring buffer.
        let _before = session.take_profile(Duration::ZERO).unwrap();
        fs::write(SECOND_CPU, "1").unwrap();
        wait_until("samples of the CPU that came back", || {
            let profile = session.take_profile(Duration::from_millis(200)).unwrap();
            profile.samples().iter().any(|sample| sample.cpu == 1).then_some(())
        });
        assert!(session.stop().unwrap().ledger().adds_up());
        true
    }

    #[test]
    fn a_cpu_that_was_offline_is_sampled_again() {
        let Some(_lock) = measure_alone() else { return };
        let is_possible = second_cpu_comes_back(|session| {
            // Longer than the interval in which the profiler checks for it.
            let without = session.take_profile(Duration::from_millis(1_500)).unwrap();
            assert!(without.total_value() > 0);
        });
        if !is_possible {
            skip_on_this_machine("it has no second CPU that can be taken offline");
        }
    }

    #[test]
    fn a_cpu_that_was_offline_for_a_moment_is_sampled_again() {
        let Some(_lock) = measure_alone() else { return };
        if !second_cpu_comes_back(|_| {}) {
            skip_on_this_machine("it has no second CPU that can be taken offline");
        }
    }
}
