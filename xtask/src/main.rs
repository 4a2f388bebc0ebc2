//! The project's own commands: `cargo xtask <command>`.

mod build_ebpf;
mod digest;
mod project;
mod setup;
mod shell;

use clap::Parser;

/// The project's own commands.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
enum Command {
    BuildEbpf(build_ebpf::BuildEbpf),
    Setup(setup::Setup),
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::BuildEbpf(command) => command.run(),
        Command::Setup(command) => command.run(),
    }
}
