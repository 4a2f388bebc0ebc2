//! The command line of `cargo xtask`.

#![cfg(feature = "commands")]

use anyhow::Result;
use clap::Parser as _;

use crate::{
    bench, build_ebpf, dist, fresh_machine, fuzz, guards, kernel_matrix, manual, picture, prove, run, setup,
    soak, test, tidy, workloads,
};

/// The project's own commands.
#[derive(clap::Parser)]
#[command(bin_name = "cargo xtask")]
enum Command {
    Run(Run),
    Test(test::Test),
    Prove(prove::Prove),
    PublicApi(test::public_api::PublicApi),
    Setup(setup::Setup),
    BuildEbpf(build_ebpf::BuildEbpf),
    Workloads(workloads::Workloads),
    /// Check the rules on files and words.
    Tidy,
    Fuzz(fuzz::Fuzz),
    Guards(guards::Guards),
    FreshMachine(fresh_machine::FreshMachine),
    Manual(manual::Manual),
    Dist(dist::Dist),
    Picture(picture::Picture),
    Bench(bench::Bench),
    Soak(soak::Soak),
    KernelMatrix(kernel_matrix::KernelMatrix),
}

/// Build the static binary and run it as root; without arguments, on a small program for five seconds.
#[derive(clap::Args)]
struct Run {
    /// The arguments of `profiler`.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Parses the command line and executes its command.
pub(crate) fn execute() -> Result<()> {
    match Command::parse() {
        Command::Run(command) => run::run(&command.arguments),
        Command::Test(command) => command.run(),
        Command::Prove(command) => command.run(),
        Command::PublicApi(command) => command.run(),
        Command::Setup(command) => command.run(),
        Command::BuildEbpf(command) => command.run(),
        Command::Workloads(command) => command.run(),
        Command::Tidy => tidy::check(),
        Command::Fuzz(command) => command.run(),
        Command::Guards(command) => command.run(),
        Command::FreshMachine(command) => command.run(),
        Command::Manual(command) => command.run(),
        Command::Dist(command) => command.run(),
        Command::Picture(command) => command.run(),
        Command::Bench(command) => command.run(),
        Command::Soak(command) => command.run(),
        Command::KernelMatrix(command) => command.run(),
    }
}
