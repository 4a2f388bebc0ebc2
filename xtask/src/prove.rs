//! `cargo xtask prove`: the checks that take longer than `cargo xtask test` may.

#![cfg(feature = "commands")]

use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::{
    bench, fuzz, kernel_matrix, proto,
    test::{
        end_to_end, features, packaging,
        report::{self, Step},
        unit_tests,
    },
};

/// Run what takes too long for `cargo xtask test`: all kernels, long fuzzing, all unwind tables, each feature, benches.
#[derive(Args)]
pub(crate) struct Prove {}

const BUDGET: Duration = Duration::from_secs(120 * 60);

const STEPS: [Step; 11] = [
    ("an embedder without features", end_to_end::run_embedder),
    ("each feature alone", features::check_each),
    ("packages built from their archives", packaging::verify),
    ("kernel matrix", kernel_matrix::run_always),
    ("a machine with many CPUs", kernel_matrix::run_many_cpus),
    ("unwind tables of all files in /usr", unit_tests::compare_all_unwind_tables),
    ("messages of OTLP", proto::check),
    ("a million OTLP requests", unit_tests::check_a_million_otlp_requests),
    ("ten minutes of a healthy server", end_to_end::record_healthy_server),
    ("fuzz", fuzz::run_all),
    ("benches run", bench::smoke),
];

impl Prove {
    pub(crate) fn run(&self) -> Result<()> {
        report::run(&STEPS, BUDGET)
    }
}
