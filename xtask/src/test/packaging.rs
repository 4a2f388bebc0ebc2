//! Packs all publishable packages as `cargo publish` would, in the order of their dependencies.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::Package;

use crate::{
    project, shell,
    workspace::{cargo, folder, is_publishable, packages, publishable_packages},
};

/// The texts of the licences, which every copy of a package has to contain.
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// Packs without building: what is missing in a manifest shows.
pub(crate) fn check() -> Result<()> {
    publishable_packages()?.iter().try_for_each(check_texts)?;
    shell::run(package()?.arg("--no-verify"))
}

/// What a registry shows of a package, and its licences.
fn check_texts(package: &Package) -> Result<()> {
    let (name, folder) = (&package.name, folder(package));
    let description = package.description.as_deref().with_context(|| format!("{name} has no description"))?;
    let readme = fs_err::read_to_string(folder.join("README.md"))?;
    let has_both = readme.starts_with(&format!("# {name}\n\n{description}.\n"));
    ensure!(has_both, "README.md of {name} does not begin with its name and description");
    let is_listed = !package.keywords.is_empty() && !package.categories.is_empty();
    ensure!(is_listed, "Cargo.toml of {name} lacks keywords or categories");
    for licence in LICENCES {
        let [own, common] = [folder, project::root()].map(|folder| fs_err::read(folder.join(licence)));
        ensure!(own? == common?, "{licence} of {name} is not a link to that of the workspace");
    }
    Ok(())
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
