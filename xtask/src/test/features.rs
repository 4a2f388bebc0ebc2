//! Checks that every package compiles with no feature and with each feature alone.

use anyhow::{Context as _, Result};

use crate::{
    shell,
    workspace::{Package, cargo, packages},
};

/// Runs clippy on the libraries and programs of every package, once without features and once with each.
pub(crate) fn check() -> Result<()> {
    for package in packages()? {
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

/// No feature, written as an empty name, and each one. `default` is what all other steps build.
fn features(package: &Package) -> Vec<String> {
    let named = package.features.keys().filter(|name| *name != "default").cloned();
    [String::new()].into_iter().chain(named).collect()
}
