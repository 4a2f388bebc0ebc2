//! Lists the packages that the binary is built from, in the format from which `cargo auditable` makes its data.
//!
//! By default `cargo auditable` asks `cargo metadata`, which enables the features that any member of the workspace asks
//! for: it lists packages that are not in the binary. Cargo's own list (`-Z sbom`) needs a nightly compiler. `cargo tree`
//! resolves features as a build of the same package does.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use fs_err as fs;

use crate::{project, shell};

/// A package in one version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Whether it is a package of this project.
    is_local: bool,
}

/// The packages of a build, and which ones each uses.
#[derive(Debug)]
struct PackageGraph {
    /// The first one is the package of the binary.
    packages: Vec<Package>,
    /// User and used, by index.
    edges: BTreeSet<(usize, usize)>,
}

/// The packages that are linked into the binary for `target`.
pub(crate) fn linked_packages(target: &str) -> Result<BTreeSet<Package>> {
    Ok(PackageGraph::linked(target)?.packages.into_iter().collect())
}

/// Writes the packages of a build for `target` as Cargo's SBOM precursor
/// (<https://doc.rust-lang.org/cargo/reference/unstable.html#sbom>).
pub(super) fn write(path: &Path, target: &str) -> Result<()> {
    let all = PackageGraph::parse(&tree(target, "normal,build")?)?;
    let precursor = precursor(&all, &PackageGraph::linked(target)?);
    Ok(fs::write(path, precursor)?)
}

/// Each package below its user, with its depth before its name.
fn tree(target: &str, edges: &str) -> Result<String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["tree", "--locked", "--package", "profiler-cli", "--target", target, "--edges", edges]);
    shell::read(cargo.args(["--prefix", "depth", "--format", " {p}"]).current_dir(project::root()))
}

impl PackageGraph {
    /// The packages whose code is in the binary. Procedural macros and build scripts run while it is built.
    fn linked(target: &str) -> Result<Self> {
        Self::parse(&tree(target, "normal,no-proc-macro")?)
    }

    fn parse(tree: &str) -> Result<Self> {
        let mut graph = Self { packages: Vec::new(), edges: BTreeSet::new() };
        let mut indices = BTreeMap::new();
        // The users of the package of the current line, outermost first.
        let mut users: Vec<usize> = Vec::new();
        for line in tree.lines() {
            let (depth, package) =
                parse_line(line).with_context(|| format!("cargo tree printed {line:?}"))?;
            let index = *indices.entry(package.clone()).or_insert(graph.packages.len());
            if index == graph.packages.len() {
                graph.packages.push(package);
            }
            ensure!(depth <= users.len(), "cargo tree printed {line:?} without its user");
            users.truncate(depth);
            graph.edges.extend(users.last().map(|user| (*user, index)));
            users.push(index);
        }
        ensure!(!graph.packages.is_empty(), "cargo tree printed nothing");
        Ok(graph)
    }

    fn index(&self, package: &Package) -> Option<usize> {
        self.packages.iter().position(|other| other == package)
    }
}

/// `2 NAME vVERSION`, then ` (proc-macro)`, ` (/FOLDER)` of a local package, or ` (*)` of one that was printed before.
/// Sources other than crates.io are unknown to this project: `deny.toml`.
fn parse_line(line: &str) -> Option<(usize, Package)> {
    let mut words = line.split(' ');
    let depth = words.next()?.parse().ok()?;
    let name = words.next()?.to_owned();
    let version = words.next()?.strip_prefix('v')?.to_owned();
    let is_local = words.any(|word| word.starts_with("(/"));
    Some((depth, Package { name, version, is_local }))
}

/// The precursor: an edge that the linked packages have, too, is one of run time.
fn precursor(all: &PackageGraph, linked: &PackageGraph) -> String {
    let is_linked = |user: &Package, used: &Package| {
        let edge = linked.index(user).zip(linked.index(used));
        edge.is_some_and(|edge| linked.edges.contains(&edge))
    };
    let mut crates = Vec::new();
    for (index, package) in all.packages.iter().enumerate() {
        let used = all.edges.range((index, 0)..=(index, usize::MAX)).map(|(_, used)| *used);
        let dependencies = used.filter_map(|used| {
            let kind = if is_linked(package, all.packages.get(used)?) { "normal" } else { "build" };
            Some(format!(r#"{{"index":{used},"kind":"{kind}"}}"#))
        });
        let dependencies = dependencies.collect::<Vec<_>>().join(",");
        crates.push(format!(
            r#"{{"id":"{}","kind":[],"features":[],"dependencies":[{dependencies}]}}"#,
            package.id()
        ));
    }
    let crates = crates.join(",");
    // Nothing reads what is said of the compiler.
    let rustc = r#"{"version":"","commit_hash":"","host":"","verbose_version":""}"#;
    format!(r#"{{"version":1,"root":0,"crates":[{crates}],"rustc":{rustc}}}"#)
}

impl Package {
    /// As a package id specification. Nothing reads the path of a local package.
    fn id(&self) -> String {
        let source = if self.is_local {
            "path+file:///profiler"
        } else {
            "registry+https://github.com/rust-lang/crates.io-index"
        };
        format!("{source}#{}@{}", self.name, self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "0 profiler v0.1.0 (/checkout/profiler)\n\
                       1 aya v0.14.0\n\
                       2 libc v0.2.1\n\
                       1 derive v1.0.0 (proc-macro)\n\
                       2 libc v0.2.1\n\
                       1 libc v0.2.1";
    const LINKED: &str =
        "0 profiler v0.1.0 (/checkout/profiler)\n1 aya v0.14.0\n2 libc v0.2.1\n1 libc v0.2.1";

    fn names(packages: impl IntoIterator<Item = Package>) -> Vec<String> {
        packages.into_iter().map(|package| package.name).collect()
    }

    #[test]
    fn a_package_is_listed_once_with_all_its_users() {
        let graph = PackageGraph::parse(ALL).unwrap();
        assert_eq!(names(graph.packages), ["profiler", "aya", "libc", "derive"]);
        assert_eq!(Vec::from_iter(graph.edges), [(0, 1), (0, 2), (0, 3), (1, 2), (3, 2)]);
    }

    #[test]
    fn packages_of_the_build_alone_are_marked() {
        let text = precursor(&PackageGraph::parse(ALL).unwrap(), &PackageGraph::parse(LINKED).unwrap());
        for part in [
            r#"{"id":"path+file:///profiler#profiler@0.1.0","kind":[],"features":[],"dependencies":[{"index":1,"kind":"normal"},{"index":2,"kind":"normal"},{"index":3,"kind":"build"}]}"#,
            r#"#derive@1.0.0","kind":[],"features":[],"dependencies":[{"index":2,"kind":"build"}]}"#,
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn lines_that_are_no_packages_are_errors() {
        for tree in ["", "0 profiler", "[build-dependencies]", "x profiler v1", "1 profiler v0.1.0"] {
            assert!(PackageGraph::parse(tree).is_err(), "{tree}");
        }
    }

    #[test]
    fn features_of_other_members_of_the_workspace_add_no_packages() {
        let linked = names(linked_packages(&shell::host_target().unwrap()).unwrap());
        for package in ["aya", "clap", "ebpf-profiler", "profiler-common", "rustix"] {
            assert!(linked.iter().any(|name| name == package), "{package}");
        }
        for package in ["cbindgen", "clap_derive", "palette", "profiler-tests", "syn", "xtask"] {
            assert!(!linked.iter().any(|name| name == package), "{package}");
        }
    }
}
