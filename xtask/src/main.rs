//! The project's own commands: `cargo xtask <command>`.

mod build_ebpf;
mod project;
mod shell;

use clap::Parser;

/// The project's own commands.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
enum Command {
    BuildEbpf(build_ebpf::BuildEbpf),
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::BuildEbpf(command) => command.run(),
    }
}
