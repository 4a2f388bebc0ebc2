//! Checks that no dependency needs a newer Rust than `rust-version` of the workspace.
//!
//! This and `clippy::incompatible_msrv` do not replace a build with that compiler: neither looks at language features.

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::{shell, workspace::cargo};

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    rust_version: Option<String>,
}

/// Compares `rust-version` of every package in the lock file with that of the workspace.
pub(crate) fn check() -> Result<()> {
    let mut metadata = cargo(&["metadata", "--quiet", "--format-version", "1", "--locked", "--all-features"]);
    let metadata: Metadata = serde_json::from_str(&shell::read(&mut metadata)?)?;
    let is_member = |package: &&Package| metadata.workspace_members.contains(&package.id);
    let own =
        metadata.packages.iter().filter(is_member).filter_map(|package| package.rust_version.as_deref());
    let own = own.min_by_key(|version| numbers(version)).context("no member has a rust-version")?;
    let newer = metadata.packages.iter().filter(|package| {
        package.rust_version.as_deref().is_some_and(|version| numbers(version) > numbers(own))
    });
    let newer = newer.map(|package| {
        let needed = package.rust_version.as_deref().unwrap_or_default();
        format!("{} {} needs Rust {needed}", package.name, package.version)
    });
    let newer = newer.collect::<Vec<_>>();
    ensure!(newer.is_empty(), "rust-version is {own}, but\n{}", newer.join("\n"));
    println!("{} packages build with Rust {own} by their own statement", metadata.packages.len());
    Ok(())
}

/// `1.88` and `1.88.0` are the same version.
fn numbers(version: &str) -> [u32; 3] {
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(u32::MAX));
    [0; 3].map(|_| numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert_eq!(numbers("1.88"), numbers("1.88.0"));
        assert!(numbers("1.9") < numbers("1.88"));
        assert!(numbers("2") > numbers("1.95.1"));
    }
}
