//! The `profiler` binary: runs the command line of the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    profiler::cli::run()
}
