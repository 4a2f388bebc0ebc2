//! The project's own commands: `cargo xtask <command>`.
//!
//! Without the feature `commands` there is `cargo xtask run` alone, which needs no dependency but `anyhow`; any other
//! command line is passed on to a build with the feature.

#[cfg(feature = "commands")]
mod bench;
#[cfg(feature = "commands")]
mod build_ebpf;
#[cfg(feature = "commands")]
mod commands;
#[cfg(feature = "commands")]
mod container;
#[cfg(feature = "commands")]
mod digest;
#[cfg(feature = "commands")]
mod dist;
#[cfg(feature = "commands")]
mod document;
#[cfg(feature = "commands")]
mod fuzz;
#[cfg(feature = "commands")]
mod kernel_matrix;
mod make;
#[cfg(feature = "commands")]
mod manual;
#[cfg(feature = "commands")]
mod picture;
#[cfg_attr(not(feature = "commands"), allow(dead_code, reason = "other commands use the rest"))]
mod project;
#[cfg(feature = "commands")]
mod prove;
#[cfg(not(feature = "commands"))]
mod redirect;
mod run;
mod rust_workload;
#[cfg(feature = "commands")]
mod setup;
#[cfg_attr(not(feature = "commands"), allow(dead_code, reason = "other commands use the rest"))]
mod shell;
#[cfg_attr(not(feature = "commands"), allow(dead_code, reason = "other commands use the rest"))]
mod static_binary;
#[cfg(feature = "commands")]
mod steal;
#[cfg(feature = "commands")]
mod test;
#[cfg(feature = "commands")]
mod tidy;
#[cfg(feature = "commands")]
mod workloads;
#[cfg(feature = "commands")]
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
