//! Waits until methods of the .NET workload have their final tier, and checks the shares of their samples.

use std::path::Path;

use profiler::Profile;

use crate::{
    deadline::wait_until,
    folded_stacks::FoldedStacks,
    sampling::{sample, sample_pid},
    shares::sample_with_shares,
};

/// Waits until the perf map of the .NET workload lists its methods as optimized.
///
/// # Panics
/// Panics if that does not happen by the deadline.
pub fn await_optimized(map: &Path) {
    await_optimized_methods(map, "Cpu", &["Alpha", "Beta", "Gamma", "Middle", "Outer"]);
}

/// Waits until the perf map of the .NET workload lists these methods of a class as optimized.
///
/// # Panics
/// Panics if that does not happen by the deadline.
pub fn await_optimized_methods(map: &Path, class: &str, methods: &[&str]) {
    wait_until("the optimized code", || {
        let text = String::from_utf8_lossy(&std::fs::read(map).ok()?).into_owned();
        let is_optimized = |method: &&str| {
            text.lines()
                .any(|line| line.contains(&format!("Workload.{class}::{method}(")) && line.contains("Tier1"))
        };
        methods.iter().all(is_optimized).then_some(())
    });
}

/// Waits until samples show the final, inlined code of the hot methods of the .NET workload. Before, their loop is a
/// method of its own, which hides its caller while its code is replaced.
///
/// # Panics
/// Panics if that does not happen by the deadline, or if the process cannot be sampled.
pub fn await_inlined(pid: u32) {
    const SAMPLES: u64 = 300;
    wait_until("the optimized code", || {
        let stacks = FoldedStacks::from_profile(&sample(sample_pid(pid), SAMPLES));
        let runs = stacks.count(|stack| stack.has("app!Workload.Cpu.Alpha()")) > 0;
        let has_loop = stacks.count(|stack| stack.has("app!Workload.Cpu.Spin(int)")) > 0;
        (runs && !has_loop).then_some(())
    });
}

/// The shares of the time in percent: the lengths of the methods' loops.
const CPU_SHARES: [(&str, f64); 3] = [
    ("app!Workload.Cpu.Alpha()", 60.0),
    ("app!Workload.Cpu.Beta()", 30.0),
    ("app!Workload.Cpu.Gamma()", 10.0),
];

/// Samples the .NET workload `cpu` until its methods have their shares; see [`sample_with_shares`].
///
/// # Panics
/// Panics if no profile has the shares.
pub fn sample_with_cpu_shares(sample: impl FnMut() -> Profile) -> Profile {
    sample_with_shares(&CPU_SHARES, sample)
}
