//! Tests JavaScript symbols from the perf map that Node.js writes.

use std::process::Command;

use profiler_tests::{FoldedStacks, Workload, assert_share, run_beside_others, sample, sample_pid};

#[test]
fn javascript_functions_have_symbols_and_shares() {
    let Some(_lock) = run_beside_others() else { return };
    // Node.js writes a log into its working folder.
    let folder = tempfile::tempdir().unwrap();
    let mut node = Command::new("node");
    node.args(["--perf-basic-prof", "--interpreted-frames-native-stack"]);
    node.arg(profiler_tests::file("workloads/shares.js")).arg("600").current_dir(folder.path());
    let workload = Workload::run(&mut node);
    let profile = sample(sample_pid(workload.pid()), 2_000);
    assert!(profile.ledger().adds_up());
    let stacks = FoldedStacks::from_profile(&profile);
    let of = |name: &str| {
        let optimized = format!("JS:*{name} ");
        stacks.count(|stack| stack.frames.iter().any(|frame| frame.starts_with(&optimized)))
    };
    let (alpha, beta) = (of("alpha"), of("beta"));
    assert!((alpha + beta) * 100 > stacks.total() * 95, "{alpha} {beta}\n{stacks:#?}");
    // The loops differ in nothing but their lengths.
    assert_share(alpha, alpha + beta, 75.0, 0.5);
    let called = stacks.percent(|stack| {
        let at = |name: &str| stack.frames.iter().position(|frame| frame.contains(&format!("{name} ")));
        at("roundOfWork").zip(at("alpha").or(at("beta"))).is_some_and(|(caller, callee)| caller < callee)
    });
    assert!(called > 95.0, "{called} % in\n{stacks:#?}");
}
