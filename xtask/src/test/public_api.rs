//! Builds the documentation; `cargo xtask public-api` lists the public items of every library by it, and compares the lists
//! with the committed ones.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::Package;
use clap::Args;
use fs_err as fs;
use serde::Deserialize;

use crate::{
    project, shell,
    workspace::{cargo, library, publishable_packages},
};

/// List the public items of every library below `tests/public-api`.
#[derive(Args)]
pub(crate) struct PublicApi {
    /// Write the lists instead of comparing them.
    #[arg(long)]
    write: bool,
}

/// rustdoc's JSON format that the crate `public-api` reads.
const FORMAT_VERSION: u32 = 57;

/// The folder of the lists, below the root folder of the project.
pub(super) const FOLDER: &str = "tests/public-api";

/// A compiler whose rustdoc writes it.
const RUST_VERSION: &str = "1.95";

impl PublicApi {
    pub(crate) fn run(&self) -> Result<()> {
        if self.write { write() } else { check() }
    }
}

/// Fails if a link in the documentation is broken, or a library's public items are not those of its committed list.
pub(crate) fn check() -> Result<()> {
    let mut differences = Vec::new();
    for (path, listing) in listings()? {
        let committed = fs::read_to_string(&path).unwrap_or_default();
        differences.extend(
            difference(&committed, &listing)
                .map(|lines| format!("{}\n{lines}", project::relative(&path).display())),
        );
    }
    ensure!(
        differences.is_empty(),
        "the public API has changed; if that is intended, run `cargo xtask public-api --write`\n{}",
        differences.join("\n")
    );
    Ok(())
}

fn write() -> Result<()> {
    for (path, listing) in listings()? {
        fs::write(&path, &listing)?;
        println!("{}: {} items", project::relative(&path).display(), listing.lines().count());
    }
    Ok(())
}

/// Builds the documentation of all packages, where a broken link is an error. Returns the file of each publishable library,
/// and what it has to contain.
fn listings() -> Result<Vec<(PathBuf, String)>> {
    let packages = publishable_packages()?;
    let libraries = packages.iter().filter_map(|package| Some((package, library(package)?)));
    libraries.clone().try_for_each(|(_, library)| remove_pages_without_json(library))?;
    let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
    shell::run(doc.env("RUSTDOCFLAGS", "-D warnings").env("RUSTDOC", rustdoc_with_json()?))?;
    let folder = project::root().join(FOLDER);
    let listing = |(package, library): (&Package, &str)| {
        let items = list(library).with_context(|| format!("failed to list {}", package.name))?;
        Ok((folder.join(format!("{}.txt", package.name)), items))
    };
    libraries.map(listing).collect()
}

/// A `cargo doc` by hand writes pages alone, which are up to date afterwards: without them cargo writes both again.
fn remove_pages_without_json(library: &str) -> Result<()> {
    let pages = target_folder().join("doc").join(library);
    if pages.is_dir() && !json_file(library).is_file() {
        fs::remove_dir_all(&pages)?;
    }
    Ok(())
}

fn json_file(library: &str) -> PathBuf {
    target_folder().join("doc").join(library).with_extension("json")
}

/// The public items of a library with the features that the workspace enables, one a line, sorted.
fn list(library: &str) -> Result<String> {
    let json = json_file(library);
    ensure_format(&json)?;
    let items = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    Ok(items.items().map(|item| format!("{item}\n")).collect())
}

fn ensure_format(json: &Path) -> Result<()> {
    #[derive(Deserialize)]
    struct Header {
        format_version: u32,
    }
    let text = fs::read(json)?;
    let found = serde_json::from_slice::<Header>(&text)?.format_version;
    ensure!(
        found == FORMAT_VERSION,
        "rustdoc writes JSON of format {found}, the crate public-api reads {FORMAT_VERSION}: run this with Rust \
         {RUST_VERSION} (`rustup toolchain install {RUST_VERSION}`, `RUSTUP_TOOLCHAIN={RUST_VERSION}`)"
    );
    Ok(())
}

/// A script that runs rustdoc twice: for the pages, then for a JSON file of the items beside them. Another run of cargo would
/// check all packages again, and the variable for unstable options in its environment would compile every dependency again.
fn rustdoc_with_json() -> Result<PathBuf> {
    const SCRIPT: &str = r#"#!/bin/sh
set -e
rustdoc "$@"
case "$*" in
*" -o "*) RUSTC_BOOTSTRAP=1 exec rustdoc "$@" --cap-lints allow -Z unstable-options --output-format json ;;
esac
"#;
    let path = target_folder().join("rustdoc-with-json");
    fs::create_dir_all(target_folder())?;
    fs::write(&path, SCRIPT)?;
    project::make_executable(&path)?;
    Ok(path)
}

fn target_folder() -> PathBuf {
    project::root().join("target")
}

/// Lines of one text alone, marked as in a patch. `None` for equal texts.
fn difference(committed: &str, found: &str) -> Option<String> {
    let only = |mark: char, of: &str, other: &str| -> Vec<String> {
        let other: Vec<_> = other.lines().collect();
        of.lines().filter(|line| !other.contains(line)).map(|line| format!("{mark} {line}")).collect()
    };
    let lines = [only('-', committed, found), only('+', found, committed)].concat();
    (committed != found).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_and_removed_items_are_shown() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(difference("a\nb\n", "b\nc\n").as_deref(), Some("- a\n+ c"));
        assert!(difference("", "a\n").is_some());
    }

    #[test]
    fn another_rustdoc_format_is_refused_with_the_compiler_to_use() {
        let file = std::env::temp_dir().join(format!("public-api-{}.json", std::process::id()));
        fs::write(&file, r#"{"root":1,"format_version":12}"#).unwrap();
        let error = ensure_format(&file).unwrap_err().to_string();
        fs::remove_file(&file).unwrap();
        assert!(error.contains("format 12") && error.contains(RUST_VERSION), "{error}");
    }
}
