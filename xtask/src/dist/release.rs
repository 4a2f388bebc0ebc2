//! The content of a release: the binary, its man pages, completions and documents, and the time that dates archives.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use fs_err as fs;

use super::{binary::Binary, tree::Tree};
use crate::{manual::Manual, project, shell};

/// The name of the program, its package and its image.
pub(super) const NAME: &str = "profiler";

const DOCUMENTS: [&str; 5] =
    ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "profiler-ebpf/LICENSE-GPL2"];

/// A file by its name, or by its path below the folder of the repository that a release contains.
pub(super) struct NamedFile {
    pub(super) name: String,
    pub(super) content: Vec<u8>,
}

/// Everything that archives of one version contain.
pub(super) struct Release {
    pub(super) version: String,
    /// Date of all archive entries, in seconds since 1970.
    pub(super) time_s: u64,
    pub(super) binary: Binary,
    /// Pages of section 1 in roff.
    pub(super) man_pages: Vec<NamedFile>,
    /// For bash, fish and zsh, named as these look them up.
    pub(super) completions: Vec<NamedFile>,
    pub(super) documents: Vec<NamedFile>,
    /// What deploys the profiler, by its path below `deploy/`: manifests, units, the plugin of kubectl, and their README.
    pub(super) deployment: Vec<NamedFile>,
}

impl Release {
    /// Collects what belongs to `binary`.
    pub(super) fn new(binary: Binary) -> Result<Self> {
        let manual = project::root().join("target/dist-manual");
        if manual.exists() {
            fs::remove_dir_all(&manual)?;
        }
        Manual { folder: manual.clone() }.run()?;
        let (man_pages, completions): (Vec<_>, Vec<_>) =
            files_below(&manual)?.into_iter().partition(|file| file.name.ends_with(".1"));
        ensure!(!man_pages.is_empty() && completions.len() == 3, "the manual is incomplete");
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            time_s: time_s()?,
            binary,
            man_pages,
            completions,
            documents: DOCUMENTS
                .iter()
                .map(|path| read(&project::root().join(path)))
                .collect::<Result<_>>()?,
            deployment: files_below(&project::root().join("deploy"))?,
        })
    }

    /// Name and version, as file names begin.
    pub(super) fn stem(&self) -> String {
        format!("{NAME}-{}", self.version)
    }

    /// An empty archive, dated by the release.
    pub(super) fn tree(&self) -> Tree {
        Tree::new(self.time_s)
    }

    /// The documents with a name in `names`.
    pub(super) fn documents(&self, names: &[&str]) -> impl Iterator<Item = &NamedFile> {
        self.documents.iter().filter(move |file| names.contains(&file.name.as_str()))
    }

    /// The file of `deploy/` at a path below it.
    pub(super) fn deployment_file(&self, path: &str) -> Result<&NamedFile> {
        let file = self.deployment.iter().find(|file| file.name == path);
        file.with_context(|| format!("the release has no deploy/{path}"))
    }

    /// The release time in a format of `date`.
    pub(super) fn date(&self, format: &str) -> Result<String> {
        let mut date = Command::new("date");
        date.env("LC_ALL", "C").args(["-u", "-d", &format!("@{}", self.time_s), format]);
        shell::read(&mut date)
    }
}

/// The files below a folder, by their paths in it.
fn files_below(folder: &Path) -> Result<Vec<NamedFile>> {
    let named = |path: &PathBuf| -> Result<NamedFile> {
        let name = path.strip_prefix(folder)?.to_string_lossy().into_owned();
        Ok(NamedFile { name, content: fs::read(path)? })
    };
    project::files_below(folder)?.iter().map(named).collect()
}

fn read(path: &Path) -> Result<NamedFile> {
    let content = fs::read(path)?;
    let name = path.file_name().context("a file without a name")?.to_string_lossy().into_owned();
    Ok(NamedFile { name, content })
}

/// `SOURCE_DATE_EPOCH`, or the time of the last commit. <https://reproducible-builds.org/specs/source-date-epoch/>
fn time_s() -> Result<u64> {
    let text = match env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => commit_time().context("no commit dates the release: set SOURCE_DATE_EPOCH")?,
    };
    text.trim().parse().with_context(|| format!("not a time in seconds: {text}"))
}

fn commit_time() -> Result<String> {
    shell::read(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(project::root()))
}

#[cfg(test)]
pub(super) mod tests {
    use auditable_serde::{DependencyKind, Package, Source};

    use super::*;

    pub(in crate::dist) fn example() -> Release {
        let file = |name: &str| NamedFile { name: name.to_owned(), content: name.as_bytes().to_vec() };
        Release {
            version: "1.2.3".to_owned(),
            time_s: 1_700_000_000,
            binary: Binary {
                content: b"\x7fELF...".to_vec(),
                architecture: "amd64",
                packages: listed_packages(),
            },
            man_pages: vec![file("profiler-live.1"), file("profiler.1")],
            completions: vec![file("_profiler"), file("profiler.bash"), file("profiler.fish")],
            documents: vec![file("README.md"), file("CHANGELOG.md"), file("LICENSE-MIT")],
            deployment: vec![
                file("pod.yaml"),
                file("kubernetes/base/daemon-set.yaml"),
                NamedFile {
                    name: "kubectl/kubectl-profiler".to_owned(),
                    content: b"#!/bin/sh\nIMAGE=registry.example/profiler:1.2.3\n".to_vec(),
                },
                NamedFile {
                    name: "kubectl/krew.yaml".to_owned(),
                    content: b"version: v@VERSION@\nsha256: @SHA256@\n".to_vec(),
                },
            ],
        }
    }

    /// The profiler, a package of its own, one of a registry, and a procedural macro.
    fn listed_packages() -> Vec<Package> {
        let package = |name: &str, version: &str, source, kind| Package {
            name: name.to_owned(),
            version: version.parse().unwrap(),
            source,
            kind,
            dependencies: Vec::new(),
            root: false,
        };
        vec![
            Package {
                dependencies: vec![1, 2, 3],
                root: true,
                ..package("profiler", "1.2.3", Source::Local, DependencyKind::Runtime)
            },
            package("profiler-common", "1.2.3", Source::Local, DependencyKind::Runtime),
            package("wasi", "0.14.7+wasi-0.2.4", Source::CratesIo, DependencyKind::Runtime),
            package("clap_derive", "4.6.7", Source::CratesIo, DependencyKind::Build),
        ]
    }

    #[test]
    fn dates_are_in_utc() {
        assert_eq!(example().date("+%Y-%m-%dT%H:%M:%SZ").unwrap(), "2023-11-14T22:13:20Z");
    }
}
