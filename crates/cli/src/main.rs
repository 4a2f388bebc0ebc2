//! The `profiler` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    profiler_cli::run()
}
