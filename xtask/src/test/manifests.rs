//! Checks features, packages and the minimum Rust version where a manifest or the use of a feature has changed.
//!
//! These checks are those of `cargo xtask prove`, and take minutes. A committed digest names the state that passed them.

use std::{env, path::PathBuf};

use anyhow::{Result, ensure};
use fs_err as fs;

use super::{features, minimum_rust, packaging};
use crate::{digest, project, workspace};

/// With this variable the digest is written, as golden files are.
const BLESS: &str = "BLESS";

/// Checks that builds and tests share their dependencies, and runs the other checks if the digest is not that of the committed
/// file.
pub(super) fn check_if_changed() -> Result<()> {
    features::check_shared()?;
    let digest = digest()?;
    if fs::read_to_string(path()).is_ok_and(|committed| committed.trim_end() == digest) {
        println!("skipped: the manifests and features passed in this state");
        return Ok(());
    }
    minimum_rust::check()?;
    features::check_none()?;
    packaging::check()?;
    let is_written = env::var_os(BLESS).is_some();
    if is_written {
        fs::write(path(), digest + "\n")?;
    }
    ensure!(
        is_written,
        "the checks passed, and {} is outdated: run `{BLESS}=1 cargo xtask test --only manifests`",
        project::relative(&path()).display()
    );
    Ok(())
}

fn path() -> PathBuf {
    project::root().join("tests/manifests.sha256")
}

/// A hash over the manifests of all packages, the lock file, and the lines that name a feature.
fn digest() -> Result<String> {
    let mut listing = digest::of_sources(&["Cargo.toml", "Cargo.lock"])?;
    for package in &workspace::publishable_packages()? {
        for file in project::files_below(workspace::folder(package))? {
            let content = fs::read_to_string(&file).unwrap_or_default();
            let path = project::relative(&file).display();
            if file.ends_with("Cargo.toml") {
                listing += &format!("{path}\n{content}\n");
            }
            let uses = content.lines().filter(|line| line.contains("feature = \""));
            listing.extend(uses.map(|line| format!("{path}: {}\n", line.trim())));
        }
    }
    Ok(digest::sha256(listing.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_the_same_sources() {
        assert_eq!(digest().unwrap(), digest().unwrap());
        assert_eq!(digest().unwrap().len(), 64);
    }
}
