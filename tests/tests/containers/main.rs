//! Targets in containers, and the profiler in containers beside them.

mod aspnet;
mod bundle;
mod capabilities;
mod cgroups;
mod container;
mod deployment;
mod dotnet;
mod hostile;
mod image;
mod manifest;
mod namespaces;
mod pod;
mod recipe;
mod release;
mod replaced;
mod seccomp;
mod sidecar;

use profiler_tests::Stacks;

/// What the workload `jit` spends three quarters of its time in, and what calls that.
const HOT_CHAIN: [&str; 3] = ["main", "run", "demo!Demo.Program.HotLoop(long)"];

/// What it spends the rest in.
const COLD: &str = "demo!Demo.Program.ColdLoop(long)";

/// Checks that `jit` has its names, those of its own file and those of its perf map. Shares are roughly enough: what
/// runs in containers is not what disturbs them.
fn assert_jit_named(stacks: &Stacks) {
    assert!(stacks.percent(|stack| stack.has_chain(&HOT_CHAIN)) > 60.0, "{stacks:#?}");
    assert!(stacks.percent(|stack| stack.has(COLD)) > 15.0, "{stacks:#?}");
}
