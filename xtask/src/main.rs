//! The project's own commands: `cargo xtask <command>`.
//!
//! Without the feature `commands` there is `cargo xtask run` alone, which needs no dependency but `anyhow` and `fs-err`;
//! any other command line is passed on to a build with the feature.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "not a program for users")]

mod bench;
mod build_ebpf;
mod commands;
mod container;
mod digest;
mod dist;
mod document;
mod fresh_machine;
mod fuzz;
mod guards;
mod kernel_matrix;
mod make;
mod manual;
mod picture;
mod process;
mod project;
mod prove;
mod redirect;
mod run;
mod rust_workload;
mod setup;
mod shell;
mod soak;
mod static_binary;
mod steal;
mod test;
mod tidy;
mod workloads;
mod workspace;

use std::process::ExitCode;

#[cfg(feature = "commands")]
use commands::execute;
#[cfg(not(feature = "commands"))]
use redirect::execute;

fn main() -> ExitCode {
    if let Err(error) = execute() {
        eprintln!("error: {error:#}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
