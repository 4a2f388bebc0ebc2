//! Packs all publishable packages as `cargo publish` would, in the order of their dependencies.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::{
    shell,
    workspace::{cargo, is_publishable, packages},
};

/// Packs without building: what is missing in a manifest shows.
pub(crate) fn check() -> Result<()> {
    shell::run(package()?.arg("--no-verify"))
}

/// Packs and builds each package from its archive alone.
pub(crate) fn verify() -> Result<()> {
    shell::run(&mut package()?)
}

fn package() -> Result<Command> {
    let packages = packages()?;
    let private = packages.iter().filter(|package| !is_publishable(package));
    ensure!(private.clone().count() < packages.len(), "there is no package to publish");
    // Changes that are not committed yet are packed as well.
    let mut cargo = cargo(&["package", "--quiet", "--workspace", "--locked", "--allow-dirty"]);
    for package in private {
        cargo.args(["--exclude", &package.name]);
    }
    Ok(cargo)
}
