//! Compares the tables of crates and of threads in ARCHITECTURE.md with the tree.

use std::{collections::BTreeSet, path::Path};

use anyhow::{Context as _, Result};
use fs_err as fs;

use super::rust_code;
use crate::project;

const DOCUMENT: &str = "ARCHITECTURE.md";

/// Crates and threads that the tree has and the document lacks, and the reverse.
pub(super) fn check(files: &[String]) -> Result<Vec<String>> {
    let document = read(DOCUMENT)?;
    let mut violations = compare("crate", &table(&document, "## Crates")?, &packages(files));
    let mut threads = BTreeSet::new();
    for path in files.iter().filter(|path| is_shipped_code(path)) {
        threads.extend(thread_names(&read(path)?)?);
    }
    violations.extend(compare("thread", &table(&document, "## Threads")?, &threads));
    Ok(violations)
}

fn read(path: &str) -> Result<String> {
    Ok(fs::read_to_string(project::root().join(path))?)
}

/// The names in backquotes in the first column of the table below `heading`.
fn table(document: &str, heading: &str) -> Result<BTreeSet<String>> {
    let (_, section) =
        document.split_once(heading).with_context(|| format!("no `{heading}` in {DOCUMENT}"))?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix('|')?.split('|').next());
    Ok(rows.flat_map(|column| column.split('`').skip(1).step_by(2)).map(str::to_owned).collect())
}

/// Folders of packages that the document describes. Packages below `tests/` belong to the row of `tests`.
fn packages(files: &[String]) -> BTreeSet<String> {
    let manifests = files.iter().filter_map(|path| path.strip_suffix("/Cargo.toml"));
    manifests.filter(|folder| !folder.starts_with("tests/")).map(str::to_owned).collect()
}

fn is_shipped_code(path: &str) -> bool {
    let is_code = ["profiler/src/", "crates/"].iter().any(|folder| path.starts_with(folder));
    is_code
        && Path::new(path).extension().is_some_and(|extension| extension == "rs")
        && !path.contains("/tests/")
}

/// Names that are given to threads: the literals of `.name("...")` and of the functions that start a thread.
fn thread_names(code: &str) -> Result<Vec<String>> {
    let tokens = rust_code::tokens(code)?;
    let names = tokens.windows(4).filter_map(|tokens| {
        let [before, function, open, name] = tokens else { return None };
        let starts =
            matches!((before.as_str(), function.as_str()), (".", "name") | (":", "start") | (_, "spawn"));
        (starts && open == "(").then(|| name.strip_prefix('"')?.strip_suffix('"'))?
    });
    Ok(names.map(str::to_owned).collect())
}

fn compare(kind: &str, described: &BTreeSet<String>, existing: &BTreeSet<String>) -> Vec<String> {
    let absent =
        existing.difference(described).map(|name| format!("{DOCUMENT}: no row for the {kind} `{name}`"));
    let gone = described.difference(existing).map(|name| format!("{DOCUMENT}: there is no {kind} `{name}`"));
    absent.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLES: &str = "# A\n## Crates\n| folder | content |\n|---|---|\n| `a` | uses `b` |\n\n## Threads\n\
                          | thread | work |\n|---|---|\n| `reader`, `keys` | all |\n";

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_table_has_the_names_of_its_first_column() {
        assert_eq!(table(TABLES, "## Crates").unwrap(), set(&["a"]));
        assert_eq!(table(TABLES, "## Threads").unwrap(), set(&["keys", "reader"]));
    }

    #[test]
    fn packages_are_folders_with_a_manifest() {
        let files =
            ["Cargo.toml", "crates/a/Cargo.toml", "tests/Cargo.toml", "tests/fuzz/Cargo.toml", "xtask/a.rs"];
        assert_eq!(packages(&files.map(str::to_owned)), set(&["crates/a", "tests"]));
    }

    #[test]
    fn threads_of_tests_are_left_out() {
        let code = r#"
            #[cfg(test)]
            mod tests { fn f() { Builder::new().name("tested".to_owned()) } }
            fn f() {
                Builder::new().name("reader".to_owned());
                spawn("keys", run)?;
                RuntimeThread::start("events", run)
            }
        "#;
        assert_eq!(thread_names(code).unwrap(), ["reader", "keys", "events"]);
    }

    #[test]
    fn what_is_missing_on_either_side_is_a_violation() {
        let violations = compare("crate", &set(&["a", "b"]), &set(&["b", "c"]));
        assert_eq!(
            violations,
            ["ARCHITECTURE.md: no row for the crate `c`", "ARCHITECTURE.md: there is no crate `a`"]
        );
    }
}
