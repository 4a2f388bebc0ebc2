//! The packages of the workspace as `cargo metadata` lists them: manifests, features, dependencies between them.

#![cfg(feature = "commands")]

use std::{env, path::Path, process::Command};

use anyhow::{Context as _, Result};
use cargo_metadata::{Metadata, MetadataCommand, Package, Target};

use crate::{project, shell};

/// The package of the BPF program is no member of the workspace.
pub(crate) const BPF_FOLDER: &str = "profiler-ebpf";

/// All members, sorted by name.
pub(crate) fn packages() -> Result<Vec<Package>> {
    let mut packages = metadata(&mut cargo(&["metadata", "--no-deps"]))?.packages;
    packages.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(packages)
}

/// The members that registries may have, sorted by name.
pub(crate) fn publishable_packages() -> Result<Vec<Package>> {
    let mut packages = packages()?;
    packages.retain(is_publishable);
    Ok(packages)
}

/// Without a list of registries, any of them may have the package; with `publish = false` the list is empty.
pub(crate) fn is_publishable(package: &Package) -> bool {
    package.publish.as_ref().is_none_or(|registries| !registries.is_empty())
}

/// The folder of `Cargo.toml`.
pub(crate) fn folder(package: &Package) -> &Path {
    let manifest = package.manifest_path.as_std_path();
    manifest.parent().unwrap_or(manifest)
}

/// The name of the library target, as in `use NAME`.
pub(crate) fn library(package: &Package) -> Option<&str> {
    package.targets.iter().find(|target| Target::is_lib(target)).map(|target| target.name.as_str())
}

/// The output of `cargo metadata`, to which `cargo` may have further arguments.
pub(crate) fn metadata(cargo: &mut Command) -> Result<Metadata> {
    let output = shell::read(cargo.args(["--quiet", "--format-version", "1", "--locked"]))?;
    MetadataCommand::parse(output).context("failed to parse the output of cargo metadata")
}

/// `cargo ARGUMENTS` in the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(arguments).current_dir(project::root());
    // `cargo run` describes the package of this program to it. Build scripts run again where that differs, and everything that
    // depends on their packages is compiled again.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Builds what further arguments of `cargo build`, separated by spaces, select.
pub(crate) fn build(selection: &str) -> Result<()> {
    shell::run(cargo(&["build", "--locked"]).args(selection.split(' ')))
}

/// `cargo ARGUMENTS` in the package of the BPF program.
pub(crate) fn bpf_cargo(arguments: &[&str]) -> Command {
    let mut cargo = cargo(arguments);
    cargo.current_dir(project::root().join(BPF_FOLDER));
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_members_of_the_workspace_are_listed_with_their_features() {
        let packages = packages().unwrap();
        let profiler = packages.iter().find(|package| package.name == "ebpf-profiler").unwrap();
        assert!(profiler.features.contains_key("formats"));
        assert!(folder(profiler).join("Cargo.toml").is_file());
        assert_eq!(library(profiler), Some("profiler"));
        let xtask = packages.iter().find(|package| package.name == "xtask").unwrap();
        assert!(!is_publishable(xtask) && library(xtask).is_none());
    }
}
