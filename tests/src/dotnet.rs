//! What the tests of .NET wait for.

use std::path::Path;

use crate::deadline::until;

/// Waits until the methods of the .NET workload were compiled for good, as its perf map tells.
///
/// # Panics
/// When they never are.
pub fn await_optimized(map: &Path) {
    await_optimized_methods(map, "Cpu", &["Alpha", "Beta", "Gamma", "Middle", "Outer"]);
}

/// Waits until these methods of a class of the .NET workload were compiled for good, as its perf map tells.
///
/// # Panics
/// When they never are.
pub fn await_optimized_methods(map: &Path, class: &str, methods: &[&str]) {
    until("the optimized code", || {
        let text = String::from_utf8_lossy(&std::fs::read(map).ok()?).into_owned();
        let is_optimized = |method: &&str| {
            text.lines()
                .any(|line| line.contains(&format!("Workload.{class}::{method}(")) && line.contains("Tier1"))
        };
        methods.iter().all(is_optimized).then_some(())
    });
}
