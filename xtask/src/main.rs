//! The project's own commands: `cargo xtask <command>`.

mod bench;
mod build_ebpf;
mod container;
mod digest;
mod dist;
mod document;
mod fuzz;
mod kernel_matrix;
mod manual;
mod picture;
mod project;
mod run;
mod setup;
mod shell;
mod test;
mod tidy;
mod workloads;

use std::process::ExitCode;

use clap::Parser;

/// The project's own commands.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
enum Command {
    Run(run::Run),
    Test(test::Test),
    Setup(setup::Setup),
    BuildEbpf(build_ebpf::BuildEbpf),
    Workloads(workloads::Workloads),
    Tidy(tidy::Tidy),
    Fuzz(fuzz::Fuzz),
    Manual(manual::Manual),
    Dist(dist::Dist),
    Picture(picture::Picture),
    Bench(bench::Bench),
    KernelMatrix(kernel_matrix::KernelMatrix),
}

fn main() -> ExitCode {
    let done = match Command::parse() {
        Command::Run(command) => command.run(),
        Command::Test(command) => command.run(),
        Command::Setup(command) => command.run(),
        Command::BuildEbpf(command) => command.run(),
        Command::Workloads(command) => command.run(),
        Command::Tidy(command) => command.run(),
        Command::Fuzz(command) => command.run(),
        Command::Manual(command) => command.run(),
        Command::Dist(command) => command.run(),
        Command::Picture(command) => command.run(),
        Command::Bench(command) => command.run(),
        Command::KernelMatrix(command) => command.run(),
    };
    if let Err(error) = done {
        eprintln!("error: {error:#}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
