//! The packages of the workspace as `cargo metadata` lists them: manifests, features, dependencies between them.

#![cfg(feature = "commands")]

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::{project, shell};

/// The package of the BPF program is no member of the workspace.
pub(crate) const BPF_FOLDER: &str = "profiler-ebpf";

/// A member of the workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    manifest_path: PathBuf,
    /// Feature -> what it enables.
    pub(crate) features: BTreeMap<String, Vec<String>>,
    pub(crate) targets: Vec<Target>,
    /// `None`: any registry. An empty list: `publish = false`.
    publish: Option<Vec<String>>,
}

/// A library, program, test or example of a package.
#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

impl Package {
    /// The folder of `Cargo.toml`.
    pub(crate) fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }

    pub(crate) fn is_publishable(&self) -> bool {
        self.publish.as_ref().is_none_or(|registries| !registries.is_empty())
    }

    /// The name of the library target, as in `use NAME`.
    pub(crate) fn library(&self) -> Option<&str> {
        let is_library = |target: &&Target| target.kind.iter().any(|kind| kind == "lib");
        self.targets.iter().find(is_library).map(|target| target.name.as_str())
    }
}

/// All members, sorted by name.
pub(crate) fn packages() -> Result<Vec<Package>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    let mut cargo = cargo(&["metadata", "--quiet", "--format-version", "1", "--no-deps", "--locked"]);
    let metadata: Metadata = serde_json::from_str(&shell::read(&mut cargo)?)
        .context("failed to parse the output of cargo metadata")?;
    let mut packages = metadata.packages;
    packages.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(packages)
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
        let profiler = packages.iter().find(|package| package.name == "profiler").unwrap();
        assert!(profiler.features.contains_key("formats"));
        assert!(profiler.folder().join("Cargo.toml").is_file());
        assert_eq!(profiler.library(), Some("profiler"));
        let xtask = packages.iter().find(|package| package.name == "xtask").unwrap();
        assert!(!xtask.is_publishable() && xtask.library().is_none());
    }
}
