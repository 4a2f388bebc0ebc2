//! Tests that the BPF programs keep the overhead limit, and that the weights of the samples add up to the ticks.

use profiler_tests::{Workload, profiler, run_beside_others, run_command};

#[test]
fn the_summary_says_that_the_limit_was_reached() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let pid = workload.pid().to_string();
    let run =
        |limit| run_command(&mut profiler(&["-p", &pid, "-F", "999", "-d", "1.5", "--max-overhead", limit]));
    assert!(run("0.01").stderr.contains("reached --max-overhead"));
    assert!(!run("50").stderr.contains("--max-overhead"));
}

mod measured {
    use std::{fs, time::Duration};

    use profiler::{Builder, Profile};
    use profiler_tests::{FoldedStacks, Workload, measure_alone, sample_pid};

    const SAMPLED: Duration = Duration::from_secs(3);

    fn profile(builder: Builder) -> Profile {
        builder.build().unwrap().start().unwrap().run_for(SAMPLED).unwrap()
    }

    /// The time that the hypervisor took from all CPUs so far: `steal` of proc_stat(5), with an error of a tick.
    fn stolen() -> Duration {
        const TICK: Duration = Duration::from_millis(10);
        let statistics = fs::read_to_string("/proc/stat").unwrap();
        let ticks = statistics.lines().next().unwrap().split_whitespace().nth(8).unwrap();
        TICK * ticks.parse().unwrap()
    }

    /// The run time of the BPF programs on the CPU of a target with one thread.
    fn overhead_percent(profile: &Profile) -> f64 {
        profile.ledger().cost.bpf_run_time_ns as f64 / profile.header().duration_ns as f64 * 100.0
    }

    #[test]
    fn deep_stacks_at_a_high_frequency_take_no_more_than_the_limit() {
        const LIMIT_PERCENT: f64 = 2.0;
        let Some(_lock) = measure_alone() else { return };
        let workload = Workload::start("deep");
        let sampled = || sample_pid(workload.pid()).frequency_hz(9_999);
        let unlimited = profile(sampled().max_overhead_percent(100.0));
        let stolen_before = stolen();
        let limited = profile(sampled().max_overhead_percent(LIMIT_PERCENT));
        let stolen_percent = (stolen() - stolen_before).as_secs_f64() / SAMPLED.as_secs_f64() * 100.0;
        let ledger = limited.first_ledger();
        // Where other programs leave the target a third of a CPU as well.
        assert!(overhead_percent(&unlimited) > 2.0 * LIMIT_PERCENT, "{:?}", unlimited.ledger());
        // What is allowed in a second is there from the start.
        let allowed_percent = LIMIT_PERCENT * (1.0 + 1.0 / SAMPLED.as_secs_f64());
        // A pause of the CPU by the hypervisor counts as run time.
        let max_percent = 1.5 * allowed_percent + stolen_percent;
        assert!(overhead_percent(&limited) < max_percent, "{stolen_percent} % stolen: {ledger:?}");
        assert!(ledger.adds_up() && ledger.cut_stacks > 0, "{ledger:?}");
        assert_eq!((unlimited.first_ledger().skipped_ticks, unlimited.first_ledger().cut_stacks), (0, 0));
    }

    #[test]
    fn ticks_are_skipped_where_cut_stacks_do_not_suffice() {
        let Some(_lock) = measure_alone() else { return };
        let workload = Workload::start("deep");
        let limited = profile(sample_pid(workload.pid()).frequency_hz(9_999).max_overhead_percent(0.5));
        let ledger = limited.first_ledger();
        assert!(ledger.adds_up() && ledger.skipped_ticks * 10 > ledger.due, "{ledger:?}");
        assert!(ledger.cut_stacks > 0, "{ledger:?}");
        // The weights add up to all ticks except those skipped after the last sample.
        assert_eq!(limited.total_value(), ledger.reported);
        assert!(ledger.lost_total() * 1_000 < ledger.due, "{ledger:?}");
    }

    #[test]
    fn shares_are_right_where_most_ticks_are_skipped() {
        let Some(_lock) = measure_alone() else { return };
        let workload = Workload::start("shares");
        // Most ticks are skipped also where other programs leave the target a third of a CPU.
        let profile = profile(sample_pid(workload.pid()).frequency_hz(9_999).max_overhead_percent(0.05));
        let ledger = profile.first_ledger();
        assert!(ledger.skipped_ticks * 2 > ledger.due, "{ledger:?}");
        let stacks = FoldedStacks::from_profile(&profile);
        let samples = effective_samples(&profile);
        assert!(samples > 50.0, "{samples:.0}: {ledger:?}");
        for (function, percent) in [("alpha", 60.0), ("beta", 30.0), ("gamma", 10.0)] {
            let found = stacks.percent(|stack| stack.has(function));
            let deviation = (percent * (100.0 - percent) / samples).sqrt();
            assert!(
                (found - percent).abs() < 5.0 * deviation,
                "{function}: {found:.1} % with a standard deviation of {deviation:.1}"
            );
        }
    }

    /// The number of samples of equal weight with the same standard deviation (Kish, "Survey Sampling", 1965).
    fn effective_samples(profile: &Profile) -> f64 {
        let weights = || profile.samples().iter().map(|sample| sample.value as f64);
        let sum: f64 = weights().sum();
        sum * sum / weights().map(|weight| weight * weight).sum::<f64>()
    }
}
