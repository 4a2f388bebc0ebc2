//! Runs the tools that `cargo xtask setup` installs to read the formats of other tools.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use profiler_tests::{file, run_command, skip_unless_required};

/// The path of an installed tool. `None`, with a notice, if it is missing and not required.
pub(crate) fn installed(name: &str) -> Option<PathBuf> {
    let path = file("../target/readers").join(name);
    if path.exists() {
        return Some(path);
    }
    skip_unless_required(&format!("{} is missing: cargo xtask setup", path.display()));
    None
}

/// The output of a command, which must succeed.
pub(crate) fn printed_by(command: &mut Command) -> String {
    let run = run_command(command);
    assert_eq!(run.code(), 0, "{command:?}: {run:?}");
    run.stdout
}

/// Runs a script on the files of a folder, with the numbers that it expects.
pub(crate) fn run_script(script: &str, profiles: &Path, numbers: &[(&str, String)]) {
    let Some(modules) = installed("node_modules") else { return };
    let mut node = Command::new("node");
    node.arg("--test").arg(file(script)).env("PROFILES", profiles).env("READERS", modules);
    printed_by(node.envs(numbers.iter().map(|(name, number)| (name, number))));
}
