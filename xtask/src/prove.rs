//! `cargo xtask prove`: the checks that take longer than `cargo xtask test` may.

#![cfg(feature = "commands")]

use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::{
    bench, build_ebpf, fresh_machine, fuzz, kernel_matrix, shell, soak,
    test::{
        features, minimum_rust, packaging,
        report::{self, Step},
        selections::{self, run_long},
        static_checks,
    },
    workspace::cargo,
};

/// Run what takes too long for `cargo xtask test`: all kernels, long fuzzing, all unwind tables, each feature, benches.
#[derive(Args)]
pub(crate) struct Prove {}

const BUDGET: Duration = Duration::from_secs(180 * 60);

const STEPS: [Step; 21] = [
    Step::check("minimum Rust version", minimum_rust::check),
    Step::check("a second build does nothing", static_checks::second_build),
    Step::check("man pages and completions", || shell::run(&mut cargo(&["xtask", "manual"]))),
    Step::check("no features", features::check_none),
    Step::check("each feature alone", features::check_each),
    Step::check("an embedder without features", selections::run_embedder),
    Step::check("packages built from their archives", packaging::verify),
    Step::check("BPF object", build_ebpf::install_and_check),
    Step::check("kernel matrix", kernel_matrix::run_always),
    Step::check("a machine with many CPUs", kernel_matrix::run_many_cpus),
    Step::check("unwind tables of all files in /usr", || {
        run_long(selections::CFI_COMPARISON, "PROFILER_COMPARE", "/usr")
    }),
    Step::check("computed unwind rows of all files in /usr", || {
        run_long("rows_agree_with_the_call_frame_information", "PROFILER_COMPARE", "/usr")
    }),
    Step::check("two million steps of a program without CFI", || {
        run_long("rows_of_a_static_musl_program_are_right_at_each_stop", "PROFILER_STOPS", "2000000")
    }),
    Step::check("200,000 steps of .NET methods", || {
        run_long("optimized_methods_have_their_callers_at_each_instruction", "PROFILER_STOPS", "200000")
    }),
    Step::check("a million OTLP requests", || {
        run_long(selections::OTLP_RULES, "PROFILER_RANDOM_WINDOWS", "1000000")
    }),
    Step::check("ten minutes of a healthy server", || {
        run_long(selections::HEALTHY_SERVER, "PROFILER_HEALTHY_SECONDS", "600")
    }),
    Step::check("healthy programs", selections::sample_healthy_programs),
    Step::check("soak", soak::smoke),
    Step::check("fuzz", fuzz::run_all),
    Step::check("benches run", bench::smoke),
    Step::check("all tests on a fresh machine", fresh_machine::test),
];

impl Prove {
    pub(crate) fn run(&self) -> Result<()> {
        report::run(&STEPS, BUDGET)
    }
}
