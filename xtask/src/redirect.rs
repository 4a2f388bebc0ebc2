//! The command line without the feature `commands`: executes `run`, passes anything else on to a build with the feature.

#![cfg(not(feature = "commands"))]

use std::{env, os::unix::process::CommandExt as _, process::Command};

use anyhow::{Error, Result};

use crate::{project, run};

/// Executes `run`, or replaces this process by the same command line with all commands.
pub(crate) fn execute() -> Result<()> {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let words: Option<Vec<String>> =
        arguments.iter().map(|argument| argument.to_str().map(str::to_owned)).collect();
    match words.as_deref() {
        Some([command]) if command == "run" => return run::run(&[]),
        Some([command, separator, rest @ ..]) if command == "run" && separator == "--" => {
            return run::run(rest);
        }
        _ => {}
    }
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--quiet", "--package", "xtask", "--manifest-path"]);
    cargo.arg(project::root().join("Cargo.toml")).arg("--").args(arguments);
    Err(Error::new(cargo.exec()).context("failed to start cargo"))
}
