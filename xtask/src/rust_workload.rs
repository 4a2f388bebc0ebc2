//! Compiles the workloads in Rust with `rustc` alone.

use std::{path::PathBuf, process::Command};

use anyhow::Result;
use fs_err as fs;

use crate::{make::make, project};

/// Builds the workload `name`, with frame pointers, and returns the program's path.
pub(crate) fn build(name: &str) -> Result<PathBuf> {
    let source = source_folder().join(name).with_extension("rs");
    let program = output_folder().join(name);
    fs::create_dir_all(output_folder())?;
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition", "2024", "-O", "-g", "-C", "force-frame-pointers=yes", "-o"]);
    rustc.arg(&program).arg(&source);
    make(&program, &[&source, &source_folder().join("lifetime.rs")], &mut rustc)?;
    Ok(program)
}

/// The folder of the workloads' sources.
pub(crate) fn source_folder() -> PathBuf {
    project::root().join("tests/workloads")
}

/// The folder of the built workloads.
pub(crate) fn output_folder() -> PathBuf {
    project::root().join("target/workloads")
}
