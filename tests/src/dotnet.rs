//! What the .NET workload must look like: the tier of its methods, and the shares of their samples.

use std::path::Path;

use crate::deadline::wait_until;

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

/// The shares of the .NET workload `cpu` in percent: the lengths of the methods' loops.
pub const CPU_SHARES: [(&str, f64); 3] = [
    ("app!Workload.Cpu.Alpha()", 60.0),
    ("app!Workload.Cpu.Beta()", 30.0),
    ("app!Workload.Cpu.Gamma()", 10.0),
];
