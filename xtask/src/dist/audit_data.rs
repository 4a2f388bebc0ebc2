//! Reads the list of packages that `cargo auditable` puts into a binary.

use anyhow::{Context as _, Result};
use serde::Deserialize;

/// The uncompressed list has some kilobytes.
const MAX_JSON_BYTES: usize = 8 << 20;

/// A package that the binary was built from.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ListedPackage {
    pub(super) name: String,
    pub(super) version: String,
    /// `crates.io`, or `local` for a package of this project.
    pub(super) source: String,
    #[serde(default)]
    pub(super) kind: Kind,
    /// Indices of the packages that it uses.
    #[serde(default)]
    pub(super) dependencies: Vec<usize>,
    /// Whether it is the package of the binary.
    #[serde(default)]
    pub(super) root: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// Its code is in the binary.
    #[default]
    Runtime,
    /// Its code ran while the binary was built.
    Build,
}

/// The packages in the order of the list, to which indices refer.
pub(super) fn read(binary: &[u8]) -> Result<Vec<ListedPackage>> {
    #[derive(Deserialize)]
    struct AuditData {
        packages: Vec<ListedPackage>,
    }
    let json = auditable_info::json_from_slice(binary, MAX_JSON_BYTES).context(
        "it has no list of its packages: `cargo xtask setup --only release` installs `cargo auditable`, which adds it",
    )?;
    let data: AuditData = serde_json::from_str(&json).context("failed to parse its list of packages")?;
    Ok(data.packages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_without_a_list_is_refused_with_what_adds_it() {
        let test = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let error = read(&test).unwrap_err().to_string();
        assert!(error.contains("cargo auditable"), "{error}");
    }

    #[test]
    fn a_package_without_a_kind_is_linked() {
        let json = r#"{"name":"libc","version":"0.2.1","source":"crates.io"}"#;
        let package: ListedPackage = serde_json::from_str(json).unwrap();
        assert_eq!((package.kind, package.root, package.dependencies.len()), (Kind::Runtime, false, 0));
    }
}
