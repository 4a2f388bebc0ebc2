//! Checks that every published package compiles with no feature, and with each feature alone, and that tests enable no other
//! features of dependencies than builds.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use cargo_metadata::Package;

use crate::{
    shell,
    workspace::{cargo, publishable_packages},
};

/// The packages of others that an embedder of the profiler compiles at most, without features.
const MAX_FOREIGN_PACKAGES: usize = 37;

/// Compiles every published package without features.
pub(crate) fn check_none() -> Result<()> {
    check_embedder()?;
    publishable_packages()?.iter().try_for_each(|package| compile(package, ""))
}

/// Compiles every published package with each of its features alone. `default` is what all other steps build.
pub(crate) fn check_each() -> Result<()> {
    for package in &publishable_packages()? {
        let mut features = package.features.keys().filter(|name| *name != "default");
        features.try_for_each(|feature| compile(package, feature))?;
    }
    Ok(())
}

/// Fails if a dependency has a feature in tests that it lacks in builds of the workspace: it would be compiled twice, and everything
/// that depends on it.
pub(super) fn check_shared() -> Result<()> {
    let in_tests = features_of_dependencies("normal,build,dev")?;
    let in_builds = features_of_dependencies("normal,build")?;
    let other: Vec<_> = in_builds.difference(&in_tests).map(String::as_str).collect();
    ensure!(
        other.is_empty(),
        "tests enable features of these packages that builds do not: enable them in tests/Cargo.toml as well\n{}",
        other.join("\n")
    );
    Ok(())
}

/// All packages with their features, over these kinds of dependencies.
fn features_of_dependencies(kinds: &str) -> Result<BTreeSet<String>> {
    let mut tree = cargo(&["tree", "--workspace", "--locked", "--edges", kinds]);
    let tree = shell::read(tree.args(["--prefix", "none", "--format", "{p} {f}"]))?;
    Ok(tree.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect())
}

/// Compiles a package with one feature, or with none where its name is empty. A warning is an error.
fn compile(package: &Package, feature: &str) -> Result<()> {
    let what = if feature.is_empty() { "no feature" } else { feature };
    println!("{}: {what}", package.name);
    let mut check = cargo(&["check", "--quiet", "--locked", "--no-default-features"]);
    let check = check.args(["--package", &package.name, "--features", feature]).output()?;
    let messages = String::from_utf8_lossy(&check.stderr);
    ensure!(check.status.success() && messages.is_empty(), "{} with {what}:\n{messages}", package.name);
    Ok(())
}

/// Counts the packages of others that `profiler` without features is compiled from.
fn check_embedder() -> Result<()> {
    let mut tree = cargo(&["tree", "--locked", "--package", "ebpf-profiler", "--no-default-features"]);
    tree.args(["--edges", "normal,build", "--prefix", "none", "--format", "{p}"]);
    let tree = shell::read(&mut tree)?;
    let lines = tree.lines().map(|line| line.trim_end_matches(" (*)"));
    let packages: BTreeSet<_> = lines.filter(|line| !line.contains("profiler")).collect();
    println!("profiler without features: {} packages of others", packages.len());
    ensure!(
        packages.len() <= MAX_FOREIGN_PACKAGES,
        "more than {MAX_FOREIGN_PACKAGES}: {}",
        Vec::from_iter(packages).join(", ")
    );
    Ok(())
}
