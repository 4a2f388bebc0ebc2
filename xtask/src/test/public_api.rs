//! `cargo xtask public-api`: lists the public items of every library, and compares the lists with the committed ones.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde::Deserialize;

use crate::{
    project, shell,
    workspace::{Package, cargo, packages},
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

/// A compiler whose rustdoc writes it.
const RUST_VERSION: &str = "1.95";

impl PublicApi {
    pub(crate) fn run(&self) -> Result<()> {
        if self.write { write() } else { check() }
    }
}

/// Fails with the difference if a library's public items are not those of its committed list.
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
        fs::write(&path, &listing).with_context(|| format!("failed to write {}", path.display()))?;
        println!("{}: {} items", project::relative(&path).display(), listing.lines().count());
    }
    Ok(())
}

/// The file of each publishable library, and what it has to contain.
fn listings() -> Result<Vec<(PathBuf, String)>> {
    let rustdoc = rustdoc_with_unstable_options()?;
    let folder = project::root().join("tests/public-api");
    let packages = packages()?;
    let libraries = packages.iter().filter(|package| package.is_publishable());
    let libraries = libraries.filter_map(|package| Some((package, package.library()?)));
    let listing = |(package, library): (&Package, &str)| {
        let items =
            list(package, library, &rustdoc).with_context(|| format!("failed to list {}", package.name))?;
        Ok((folder.join(format!("{}.txt", package.name)), items))
    };
    libraries.map(listing).collect()
}

/// The public items of a library with all features, one a line, sorted.
fn list(package: &Package, library: &str, rustdoc: &Path) -> Result<String> {
    let mut cargo = cargo(&["rustdoc", "--quiet", "--locked", "--lib", "--all-features", "--package"]);
    cargo.args([
        &package.name,
        "--",
        "--cap-lints",
        "allow",
        "-Z",
        "unstable-options",
        "--output-format",
        "json",
    ]);
    shell::run(cargo.env("RUSTDOC", rustdoc))?;
    let json = project::root().join("target/doc").join(library).with_extension("json");
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
    let text = fs::read(json).with_context(|| format!("failed to read {}", json.display()))?;
    let found = serde_json::from_slice::<Header>(&text)?.format_version;
    ensure!(
        found == FORMAT_VERSION,
        "rustdoc writes JSON of format {found}, the crate public-api reads {FORMAT_VERSION}: run this with Rust \
         {RUST_VERSION} (`rustup toolchain install {RUST_VERSION}`, `RUSTUP_TOOLCHAIN={RUST_VERSION}`)"
    );
    Ok(())
}

/// A script that runs rustdoc with unstable options. With the variable in the environment of all of cargo, every
/// dependency would be compiled again.
fn rustdoc_with_unstable_options() -> Result<PathBuf> {
    let path = project::root().join("target/rustdoc-with-unstable-options");
    fs::create_dir_all(project::root().join("target"))?;
    fs::write(&path, "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n")?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
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
