//! Builds the profiler as a static binary that runs on any Linux distribution.
//!
//! Where `cargo auditable` is installed, the binary has the list of its packages: `cargo xtask dist` needs it, and all
//! commands share one build.

#![cfg_attr(not(feature = "commands"), allow(dead_code, reason = "other commands use the rest"))]

mod package_graph;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;
use fs_err as fs;

#[cfg(feature = "commands")]
pub(crate) use self::package_graph::linked_packages;
use crate::{project, shell};

/// The cargo profile that is quick to build.
pub(crate) const QUICK: &str = "quick";

/// The cargo profile of what releases ship, with link-time optimization.
pub(crate) const DIST: &str = "dist";

/// Builds the binary with a cargo profile and returns its path.
pub(crate) fn build(profile: &str) -> Result<PathBuf> {
    let target = shell::host_target()?;
    let folder = project::root().join("target/static");
    let mut cargo = Command::new("cargo");
    if shell::find("cargo-auditable").is_some() {
        fs::create_dir_all(&folder)?;
        let packages = folder.join("packages.json");
        package_graph::write(&packages, &target)?;
        cargo.arg("auditable").env("CARGO_SBOM_PATH", packages);
    }
    cargo.args(["build", "--locked", "--package", "profiler-cli", "--profile", profile]);
    // With an explicit target, build scripts and procedural macros are not linked statically.
    cargo.args(["--target", &target, "--target-dir"]).arg(&folder);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", compiler_flags().join("\x1f")).current_dir(project::root());
    shell::run(&mut cargo)?;
    Ok(folder.join(target).join(profile).join("profiler"))
}

/// Flags for static linking with packed relocations (`DT_RELR`: a bit for most words, where `Elf64_Rela` has 24 bytes), and for panic
/// messages without paths of the build machine.
fn compiler_flags() -> [String; 6] {
    let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    [
        "-C".to_owned(),
        "target-feature=+crt-static".to_owned(),
        "-C".to_owned(),
        "link-arg=-Wl,-z,pack-relative-relocs".to_owned(),
        remap(project::root(), "."),
        remap(&shell::cargo_home(), "cargo"),
    ]
}
