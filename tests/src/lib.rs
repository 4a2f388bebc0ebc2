//! Helpers of the end-to-end tests: workloads to profile, running the program under test, parsing its output.

pub mod aspnet;
mod chain;
mod compare;
mod deadline;
mod dotnet;
mod golden_profile;
mod pane;
mod program;
mod sampling;
mod stacks;
mod symbol_server;
mod sysctl;
mod turn;
mod workload;

pub use chain::{Chain, Chains};
pub use compare::assert_matches_file;
pub use deadline::{DEADLINE, until};
pub use dotnet::{await_inlined, await_optimized, await_optimized_methods};
pub use golden_profile::golden_profile;
pub use pane::Pane;
pub use program::{Outcome, outcome, profiler, start_sampling};
pub use sampling::{sample, sample_pid, sample_settled};
pub use stacks::{Stack, Stacks};
pub use symbol_server::{Answer, SymbolServer};
pub use sysctl::{Sysctl, hide_kernel_addresses};
pub use turn::{privileged, skip_on_this_machine, skip_unless_required};
pub use workload::{Workload, built, write_program};

use std::path::PathBuf;

/// The path of a file in the folder of this package.
#[must_use]
pub fn file(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}
