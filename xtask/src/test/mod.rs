//! `cargo xtask test`: installs what is missing and runs the checks of a tier, stopping at the first that fails.

#![cfg(feature = "commands")]

pub(crate) mod demo;
pub(crate) mod end_to_end;
pub(crate) mod features;
pub(crate) mod minimum_rust;
pub(crate) mod packaging;
pub(crate) mod public_api;
pub(crate) mod report;
mod static_checks;
pub(crate) mod unit_tests;

use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;

use self::report::Step;
use crate::{
    build_ebpf, fuzz, kernel_matrix,
    setup::{self, Purpose},
    shell, soak, tidy, workloads,
    workspace::cargo,
};

/// Install what is missing and run every check, including the tests that load BPF programs.
#[derive(Args)]
pub(crate) struct Test {
    /// Run only what needs neither root nor, once the dependencies are there, a network.
    #[arg(long, conflicts_with = "privileged")]
    quick: bool,
    /// Run only the tests that load BPF programs.
    #[arg(long)]
    privileged: bool,
    /// Run only the steps with these names, as the table of times has them.
    #[arg(long, value_name = "STEP", conflicts_with_all = ["quick", "privileged"])]
    only: Vec<String>,
}

const QUICK_BUDGET: Duration = Duration::from_secs(120);
const PRIVILEGED_BUDGET: Duration = Duration::from_secs(8 * 60);
const FULL_BUDGET: Duration = Duration::from_secs(25 * 60);

/// Nothing is installed for these.
const QUICK: [Step; 7] = [
    ("format", static_checks::format),
    ("tidy", tidy::check),
    ("clippy", static_checks::clippy),
    ("unit tests", unit_tests::run_quick),
    ("golden, replay and command-line tests", end_to_end::run_unprivileged),
    ("BPF program's tests on the host", unit_tests::run_bpf_program),
    ("documentation links", static_checks::documentation),
];

const PRIVILEGED: [Step; 5] = [
    ("setup", || setup::install(&[Purpose::Workloads, Purpose::EndToEnd])),
    ("workloads", workloads::build),
    ("privileged unit tests", unit_tests::run_privileged),
    ("privileged end-to-end tests", end_to_end::run_privileged),
    ("containers on cgroup version 2", end_to_end::run_on_cgroup2),
];

/// Short steps first, so that a slip shows at once.
const FULL: [Step; 21] = [
    ("setup", || setup::install(&setup::FOR_TESTS)),
    ("format", static_checks::format),
    ("tidy", tidy::check),
    ("clippy", static_checks::clippy),
    ("documentation links", static_checks::documentation),
    ("dependencies", static_checks::dependencies),
    ("minimum Rust version", minimum_rust::check),
    ("no features", features::check_none),
    ("packages", packaging::check),
    ("public API", public_api::check),
    ("BPF object", build_ebpf::check),
    ("BPF program's tests on the host", unit_tests::run_bpf_program),
    ("fuzz smoke", fuzz::smoke),
    ("a second build does nothing", static_checks::second_build),
    ("man pages and completions", || shell::run(&mut cargo(&["xtask", "manual"]))),
    ("workloads", workloads::build),
    ("unit tests", unit_tests::run_all),
    ("demo run", demo::check),
    ("end-to-end tests", end_to_end::run),
    ("containers on cgroup version 2", end_to_end::run_on_cgroup2),
    ("soak", soak::smoke),
];

/// The last step: it costs minutes after a change of its sources, else nothing.
const KERNEL_MATRIX: Step = ("kernel matrix", kernel_matrix::run_if_changed);

impl Test {
    pub(crate) fn run(&self) -> Result<()> {
        if self.quick {
            report::run(&QUICK, QUICK_BUDGET)
        } else if self.privileged {
            report::run(&PRIVILEGED, PRIVILEGED_BUDGET)
        } else {
            report::run(&self.selected(&[&FULL[..], &[KERNEL_MATRIX]].concat())?, FULL_BUDGET)
        }
    }

    /// The steps that `--only` names, or all.
    fn selected(&self, steps: &[Step]) -> Result<Vec<Step>> {
        if self.only.is_empty() {
            return Ok(steps.to_vec());
        }
        let step = |name: &String| {
            let step = steps.iter().find(|(step, _)| step == name);
            step.copied().with_context(|| {
                let names = steps.iter().map(|(name, _)| *name).collect::<Vec<_>>();
                format!("no step is named {name:?}; the steps are: {}", names.join(", "))
            })
        };
        self.only.iter().map(step).collect()
    }
}
