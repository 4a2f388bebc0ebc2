//! Checks that no dependency needs a newer Rust than `rust-version` of the workspace.
//!
//! This and `clippy::incompatible_msrv` do not replace a build with that compiler: neither looks at language features.

use anyhow::{Context as _, Result, ensure};

use crate::workspace::{cargo, metadata};

/// Compares `rust-version` of every package in the lock file with that of the workspace.
pub(crate) fn check() -> Result<()> {
    let metadata = metadata(&mut cargo(&["metadata", "--all-features"]))?;
    let members = metadata.workspace_packages();
    let own = members.iter().filter_map(|package| package.rust_version.as_ref()).min();
    let own = own.context("no member has a rust-version")?;
    let newer = metadata.packages.iter().filter_map(|package| {
        let needed = package.rust_version.as_ref().filter(|version| *version > own)?;
        Some(format!("{} {} needs Rust {needed}", package.name, package.version))
    });
    let newer = newer.collect::<Vec<_>>();
    ensure!(newer.is_empty(), "rust-version is {own}, but\n{}", newer.join("\n"));
    println!("{} packages build with Rust {own} by their own statement", metadata.packages.len());
    Ok(())
}
