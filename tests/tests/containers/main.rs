//! Tests targets in containers, from the host and from sidecar containers.

mod api_server;
mod aspnet;
mod bundle;
mod capabilities;
mod cgroups;
mod container;
mod container_builder;
mod containerd;
mod daemon_set;
mod deployment;
mod dotnet;
mod hostile;
mod image;
mod kubectl_plugin;
mod kubernetes;
mod kustomization;
mod limits;
mod manifest;
mod namespaces;
mod pod;
mod record;
mod release;
mod replaced;
mod seccomp;
mod service_files;
mod sidecar;
mod waiting;

use profiler_tests::FoldedStacks;

/// The function that takes three quarters of the time of the workload `jit`, with its callers.
const HOT_CHAIN: [&str; 3] = ["main", "run", "demo!Demo.Program.HotLoop(long)"];

/// The function that takes the rest of the time.
const COLD: &str = "demo!Demo.Program.ColdLoop(long)";

/// Checks that functions of the executable of `jit` and of its perf map are symbolized. On a busy machine the samples are too
/// few for shares.
fn assert_jit_named(stacks: &FoldedStacks) {
    /// Of so many samples one is of the function with a quarter of the time, but for once in 100,000 times.
    const SAMPLES_WITH_COLD: u64 = 40;
    let all = stacks.count(|_| true);
    let hot = stacks.count(|stack| stack.has_chain(&HOT_CHAIN));
    let cold = stacks.count(|stack| stack.has(COLD));
    assert!(hot > 0 && (hot + cold) * 10 >= all * 9, "{stacks:#?}");
    assert!(cold > 0 || all < SAMPLES_WITH_COLD, "{stacks:#?}");
}
