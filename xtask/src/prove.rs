//! `cargo xtask prove`: the checks that take longer than `cargo xtask test` may.

use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::{
    bench, fuzz, kernel_matrix, shell,
    test::{
        end_to_end, packaging,
        report::{self, Step},
    },
    workspace::test_workspace,
};

/// Run what takes too long for `cargo xtask test`: all kernels, long fuzzing, all unwind tables, benches.
#[derive(Args)]
pub(crate) struct Prove {}

const BUDGET: Duration = Duration::from_secs(120 * 60);

const STEPS: [Step; 6] = [
    ("an embedder without features", end_to_end::run_embedder),
    ("packages built from their archives", packaging::verify),
    ("kernel matrix", kernel_matrix::run_always),
    ("unwind tables of all files in /usr", compare_unwind_tables),
    ("fuzz", fuzz::run_all),
    ("benches run", bench::smoke),
];

impl Prove {
    pub(crate) fn run(&self) -> Result<()> {
        report::run(&STEPS, BUDGET)
    }
}

/// Compares the unwind tables of every ELF file below `/usr` with gimli's evaluation.
fn compare_unwind_tables() -> Result<()> {
    const TEST: &str = "tables_say_what_the_call_frame_information_says";
    shell::run(test_workspace(&["--lib", TEST]).env("PROFILER_COMPARE", "/usr"))
}
