//! Checks that every published package compiles with no feature and with each feature alone.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};

use crate::{
    shell,
    workspace::{Package, cargo, packages},
};

/// The packages that an embedder of the profiler compiles at most, without features.
const MAX_EMBEDDER_PACKAGES: usize = 45;

/// Runs clippy on the libraries and programs of every published package, once without features and once with each.
pub(crate) fn check() -> Result<()> {
    check_embedder()?;
    for package in packages()?.into_iter().filter(Package::is_publishable) {
        for feature in features(&package) {
            let what = if feature.is_empty() { "no feature" } else { &feature };
            println!("{}: {what}", package.name);
            let mut clippy = cargo(&["clippy", "--quiet", "--locked", "--no-default-features"]);
            clippy.args(["--package", &package.name, "--features", &feature, "--", "-D", "warnings"]);
            shell::run(&mut clippy).with_context(|| format!("{} with {what}", package.name))?;
        }
    }
    Ok(())
}

/// Counts the packages that `profiler` without features is compiled from, itself included.
fn check_embedder() -> Result<()> {
    let mut tree = cargo(&["tree", "--locked", "--package", "profiler", "--no-default-features"]);
    tree.args(["--edges", "normal,build", "--prefix", "none", "--format", "{p}"]);
    let tree = shell::read(&mut tree)?;
    let packages: BTreeSet<_> = tree.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    println!("profiler without features: {} packages", packages.len());
    ensure!(
        packages.len() <= MAX_EMBEDDER_PACKAGES,
        "more than {MAX_EMBEDDER_PACKAGES}: {}",
        Vec::from_iter(packages).join(", ")
    );
    Ok(())
}

/// No feature, written as an empty name, and each one. `default` is what all other steps build.
fn features(package: &Package) -> Vec<String> {
    let named = package.features.keys().filter(|name| *name != "default").cloned();
    [String::new()].into_iter().chain(named).collect()
}
