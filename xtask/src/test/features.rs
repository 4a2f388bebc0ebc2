//! Checks that every published package compiles with no feature and with each feature alone.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use crate::{
    shell,
    workspace::{Package, cargo, packages},
};

/// The packages that an embedder of the profiler compiles at most, without features.
const MAX_EMBEDDER_PACKAGES: usize = 45;

/// Compiles every published package, once without features and once with each. A warning is an error.
pub(crate) fn check() -> Result<()> {
    check_embedder()?;
    for package in packages()?.into_iter().filter(Package::is_publishable) {
        for feature in features(&package) {
            let what = if feature.is_empty() { "no feature" } else { &feature };
            println!("{}: {what}", package.name);
            let mut check = cargo(&["check", "--quiet", "--locked", "--no-default-features"]);
            let check = check.args(["--package", &package.name, "--features", &feature]).output()?;
            let messages = String::from_utf8_lossy(&check.stderr);
            ensure!(
                check.status.success() && messages.is_empty(),
                "{} with {what}:\n{messages}",
                package.name
            );
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
