//! What the tests of .NET wait for.

use std::path::Path;

use crate::{
    deadline::until,
    sampling::{sample, sample_pid},
    stacks::Stacks,
};

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

/// Waits until the hot methods of the .NET workload run as compiled for good, as samples tell: their loop is a method of its
/// own before, which hides its caller while its code is replaced.
///
/// # Panics
/// When they never do, and when the process cannot be sampled.
pub fn await_inlined(pid: u32) {
    const SAMPLES: u64 = 300;
    until("the optimized code", || {
        let stacks = Stacks::of(&sample(sample_pid(pid), SAMPLES));
        let runs = stacks.count(|stack| stack.has("app!Workload.Cpu.Alpha()")) > 0;
        let has_loop = stacks.count(|stack| stack.has("app!Workload.Cpu.Spin(int)")) > 0;
        (runs && !has_loop).then_some(())
    });
}
