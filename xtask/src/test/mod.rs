//! `cargo xtask test`: installs what is missing and runs the checks of a tier.

#![cfg(feature = "commands")]

mod changes;
pub(crate) mod demo;
pub(crate) mod features;
mod junit;
mod manifests;
pub(crate) mod minimum_rust;
mod nextest;
pub(crate) mod packaging;
pub(crate) mod public_api;
mod released_api;
pub(crate) mod report;
pub(crate) mod selections;
pub(crate) mod static_checks;
mod suite;

use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;

use self::report::Step;
use crate::{
    build_ebpf, fuzz, kernel_matrix,
    setup::{self, Purpose},
    tidy, workloads,
};

/// Install what is missing and run every check, including the tests that load BPF programs.
#[derive(Args)]
pub(crate) struct Test {
    /// Run only what needs neither root nor, once the dependencies are there, a network.
    #[arg(long, group = "part")]
    quick: bool,
    /// Run only the tests that load BPF programs.
    #[arg(long, group = "part")]
    privileged: bool,
    /// Run the quick checks, and the tests of what differs from this commit.
    #[arg(long, value_name = "COMMIT", group = "part", num_args = 0..=1, default_missing_value = "HEAD")]
    changed: Option<String>,
    /// Run only the steps with these names, as the table of times has them.
    #[arg(long, value_name = "STEP", group = "part")]
    only: Vec<String>,
    /// Run the tests with this in their names so many times: finds those that are red by chance.
    #[arg(long, value_names = ["N", "NAME"], num_args = 2, group = "part")]
    repeat: Option<Vec<String>>,
}

const QUICK_BUDGET: Duration = Duration::from_secs(100);
const PRIVILEGED_BUDGET: Duration = Duration::from_secs(8 * 60);
const FULL_BUDGET: Duration = Duration::from_secs(18 * 60);

/// Nothing is installed for these.
const QUICK: [Step; 7] = [
    Step::check("format", static_checks::format),
    Step::check("tidy", tidy::check),
    Step::check("clippy", static_checks::clippy),
    Step::check("quick tests", selections::run_quick),
    Step::check("BPF program's tests on the host", selections::run_bpf_program),
    Step::check("documentation and public API", public_api::check),
    Step::check("public API of the last release", released_api::check),
];

const PRIVILEGED: [Step; 4] = [
    Step::preparation("setup", || setup::install(&[Purpose::Tests, Purpose::Workloads, Purpose::EndToEnd])),
    Step::preparation("workloads", workloads::build),
    Step::check("privileged tests", selections::run_privileged),
    Step::check("containers on cgroup version 2", selections::run_on_cgroup2),
];

/// Short steps first, so that a slip shows at once. The last step costs minutes after a change of its sources, else nothing.
const FULL: [Step; 17] = [
    Step::preparation("setup", || setup::install(&setup::FOR_TESTS)),
    Step::check("format", static_checks::format),
    Step::check("tidy", tidy::check),
    Step::check("clippy", static_checks::clippy),
    Step::check("documentation and public API", public_api::check),
    Step::check("public API of the last release", released_api::check),
    Step::check("dependencies", static_checks::dependencies),
    Step::check("manifests", manifests::check_if_changed),
    Step::check("stamp of the BPF object", build_ebpf::check_stamp),
    Step::check("BPF program's tests on the host", selections::run_bpf_program),
    Step::check("fuzz smoke", fuzz::smoke),
    Step::preparation("workloads", workloads::build),
    Step::check("tests", selections::run_all),
    Step::check("documentation tests", selections::run_documentation_tests),
    Step::check("demo run", demo::check),
    Step::check("containers on cgroup version 2", selections::run_on_cgroup2),
    Step::check("kernel matrix", kernel_matrix::run_if_changed),
];

impl Test {
    pub(crate) fn run(&self) -> Result<()> {
        if self.quick {
            report::run(&QUICK, QUICK_BUDGET)
        } else if self.privileged {
            report::run(&PRIVILEGED, PRIVILEGED_BUDGET)
        } else if let Some(commit) = &self.changed {
            let expression = changes::tests_since(commit)?;
            report::run(&QUICK, QUICK_BUDGET)?;
            expression.map_or(Ok(()), |expression| selections::run_selected(&expression))
        } else if let Some([times, name]) = self.repeat.as_deref() {
            selections::repeat(name, times.parse().context("--repeat takes a number and a name")?)
        } else {
            report::run(&self.selected(&FULL)?, FULL_BUDGET)
        }
    }

    /// The steps that `--only` names, or all.
    fn selected(&self, steps: &[Step]) -> Result<Vec<Step>> {
        if self.only.is_empty() {
            return Ok(steps.to_vec());
        }
        let step = |name: &String| {
            let step = steps.iter().find(|step| step.name() == name);
            step.copied().with_context(|| {
                let names = steps.iter().map(Step::name).collect::<Vec<_>>();
                format!("no step is named {name:?}; the steps are: {}", names.join(", "))
            })
        };
        self.only.iter().map(step).collect()
    }
}
