//! The project's own commands: `cargo xtask <command>`.

mod build_ebpf;
mod digest;
mod project;
mod setup;
mod shell;
mod workloads;

use clap::Parser;

/// The project's own commands.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
enum Command {
    BuildEbpf(build_ebpf::BuildEbpf),
    Setup(setup::Setup),
    Workloads(workloads::Workloads),
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::BuildEbpf(command) => command.run(),
        Command::Setup(command) => command.run(),
        Command::Workloads(command) => command.run(),
    }
}
