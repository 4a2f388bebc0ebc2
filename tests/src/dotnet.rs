//! What the tests of .NET wait for.

use std::path::Path;

use crate::deadline::until;

/// Waits until the methods of the .NET workload were compiled for good, as its perf map tells.
///
/// # Panics
/// When they never are.
pub fn await_optimized(map: &Path) {
    until("the optimized code", || {
        let text = String::from_utf8_lossy(&std::fs::read(map).ok()?).into_owned();
        let is_optimized = |method: &str| {
            text.lines()
                .any(|line| line.contains(&format!("Workload.Cpu::{method}(")) && line.contains("Tier1"))
        };
        ["Alpha", "Beta", "Gamma", "Middle", "Outer"].into_iter().all(is_optimized).then_some(())
    });
}
