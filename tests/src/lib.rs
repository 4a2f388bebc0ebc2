//! Helpers of the end-to-end tests: workloads to profile, running the program under test, parsing its output.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "not a program for users")]

pub mod aspnet;
mod chain;
mod compare;
mod deadline;
mod dotnet;
mod folded_stacks;
mod golden_profile;
mod loopback_server;
mod machine_load;
mod otlp_receiver;
mod pane;
mod privileged;
mod program;
mod recorder;
mod runtime_files;
mod sampling;
mod share;
pub mod situations;
mod symbol_server;
mod sysctl;
mod workload;

/// The programs of the guide for embedders, which are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../docs/library.md")]
pub struct GuideForEmbedders;

pub use chain::{Chain, ChainComparison};
pub use compare::assert_matches_file;
pub use deadline::{DEADLINE, wait_until};
pub use dotnet::{CPU_SHARES, await_optimized, await_optimized_methods};
pub use folded_stacks::{FoldedStack, FoldedStacks};
pub use golden_profile::{golden_profile, golden_profile_without_runtime_events};
pub use loopback_server::{LoopbackServer, ReceivedRequest};
pub use otlp_receiver::{OtlpReceiver, Reception};
pub use pane::Pane;
pub use privileged::{Alone, measure_alone, run_beside_others, skip_on_this_machine, skip_unless_required};
pub use program::{Outcome, base_memory_mb, profiler, run_command, start_sampling};
pub use recorder::Recorder;
pub use sampling::{sample, sample_pid, sample_pid_often, sample_settled, settle, wait_for_samples};
pub use share::{QUANTILE, assert_share};
pub use symbol_server::{Response, SymbolServer};
pub use sysctl::{Sysctl, hide_kernel_addresses};
pub use workload::{Workload, workload_path, write_program};

use std::path::PathBuf;

/// The name of an output file of every format, except those of the formats that two extensions have.
pub const OUTPUT_FILES: [&str; 12] = [
    "a.folded",
    "a.svg",
    "a.html",
    "a.top",
    "a.profile",
    "a.pb.gz",
    "a.speedscope.json",
    "a.json",
    "a.perf.txt",
    "a.trace.zip",
    "a.jsonl",
    "a.findings.json",
];

/// The path of a file in the folder of this package.
#[must_use]
pub fn file(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}
