//! Targets in containers, and the profiler in containers beside them.

mod bundle;
mod capabilities;
mod cgroups;
mod container;
mod dotnet;
mod hostile;
mod namespaces;
mod recipe;
mod replaced;
mod sidecar;

/// What the workload `jit` generates, and what calls it.
const HOT_CHAIN: [&str; 3] = ["main", "run", "demo!Demo.Program.HotLoop(int64)"];
const COLD: &str = "demo!Demo.Program.ColdLoop(int64)";
