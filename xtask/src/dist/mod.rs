//! `cargo xtask dist`: builds the static binary and packs it as a tarball, a Debian package and an OCI image.
//!
//! Beside them are the plugin of kubectl, the bill of materials of the binary and the checksums of all files. All archives are deterministic:
//! entries are sorted, owned by root and dated by `SOURCE_DATE_EPOCH` or the time of the last commit.

#![cfg(feature = "commands")]

mod bill_of_materials;
mod binary;
mod debian;
mod image;
mod kubectl_plugin;
mod release;
mod tarball;
mod tree;

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Result;
use clap::Args;
use fs_err as fs;

use self::{binary::Binary, release::Release};
use crate::{
    digest::sha256,
    setup::{self, Purpose},
};

/// Build the static binary and pack it: tarball, Debian package, OCI image, plugin of kubectl, bill of materials and
/// checksums.
#[derive(Args)]
pub(crate) struct Dist {
    /// Folder for the files; created if missing.
    #[arg(long, value_name = "FOLDER", default_value = "target/dist")]
    out: PathBuf,
    /// Pack this static binary instead of building one with the `dist` profile.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
}

/// A file of a release.
pub(crate) struct Artifact {
    /// File name with version and architecture.
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
    pub(crate) is_executable: bool,
}

impl Dist {
    pub(crate) fn run(&self) -> Result<()> {
        let binary = match &self.binary {
            Some(path) => path.clone(),
            None => {
                setup::install(&[Purpose::Release])?;
                binary::build()?
            }
        };
        pack(&binary, &self.out)?;
        println!("release files: {}", self.out.display());
        Ok(())
    }
}

/// Packs the static binary at `path` and writes all release files with their checksums into `folder`.
pub(crate) fn pack(path: &Path, folder: &Path) -> Result<()> {
    let release = Release::new(Binary::read(path)?)?;
    let artifacts = artifacts(&release)?;
    fs::create_dir_all(folder)?;
    for artifact in &artifacts {
        write(&folder.join(&artifact.name), artifact)?;
    }
    fs::write(folder.join("SHA256SUMS"), checksums(&artifacts))?;
    Ok(())
}

fn artifacts(release: &Release) -> Result<Vec<Artifact>> {
    let archive = |name, content| Artifact { name, content, is_executable: false };
    let (version, architecture) = (&release.version, release.binary.architecture);
    let plugin = kubectl_plugin::pack(release)?;
    let krew_manifest = kubectl_plugin::krew_manifest(release, &plugin)?;
    Ok(vec![
        Artifact {
            name: format!("{}-linux-{architecture}", release.stem()),
            content: release.binary.content.clone(),
            is_executable: true,
        },
        archive(format!("{}-linux-{architecture}.tar.gz", release.stem()), tarball::pack(release)?),
        archive(format!("{}-oci-{architecture}.tar", release.stem()), image::pack(release)?),
        archive(format!("{}_{version}_{architecture}.deb", release::NAME), debian::pack(release)?),
        archive(format!("{}-{version}.tar.gz", kubectl_plugin::NAME), plugin),
        archive(format!("{}-{version}.yaml", kubectl_plugin::NAME), krew_manifest),
        // The ending by which tools recognize a CycloneDX document.
        archive(
            format!("{}-linux-{architecture}.cdx.json", release.stem()),
            bill_of_materials::write(release)?,
        ),
    ])
}

/// Lines as `sha256sum --check` reads them.
fn checksums(artifacts: &[Artifact]) -> String {
    let mut artifacts: Vec<_> = artifacts.iter().collect();
    artifacts.sort_by_key(|artifact| &artifact.name);
    artifacts
        .into_iter()
        .map(|artifact| format!("{}  {}\n", sha256(&artifact.content), artifact.name))
        .collect()
}

/// Replaces the file by a rename, so that a running binary of the same name does not prevent it.
fn write(path: &Path, artifact: &Artifact) -> Result<()> {
    let mut scratch = path.as_os_str().to_owned();
    scratch.push(".new");
    let scratch = PathBuf::from(scratch);
    fs::write(&scratch, &artifact.content)?;
    let mode = if artifact.is_executable { 0o755 } else { 0o644 };
    fs::set_permissions(&scratch, Permissions::from_mode(mode))?;
    Ok(fs::rename(&scratch, path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_give_the_same_bytes() {
        let pack = || artifacts(&release::tests::example()).unwrap();
        for (first, second) in pack().into_iter().zip(pack()) {
            assert_eq!(first.name, second.name);
            assert!(first.content == second.content, "{} differs", first.name);
        }
    }

    #[test]
    fn every_archive_depends_on_the_commit_time_and_all_but_the_plugin_on_the_binary() {
        let example = artifacts(&release::tests::example()).unwrap();
        let mut later = release::tests::example();
        later.time_s += 1;
        let later = artifacts(&later).unwrap();
        let mut longer = release::tests::example();
        longer.binary.content.push(0);
        let longer = artifacts(&longer).unwrap();
        for (index, artifact) in example.iter().enumerate() {
            let is_plugin = artifact.name.starts_with(kubectl_plugin::NAME);
            assert_eq!(artifact.content == longer[index].content, is_plugin, "{}", artifact.name);
            assert_eq!(artifact.content == later[index].content, artifact.is_executable, "{}", artifact.name);
        }
    }

    #[test]
    fn file_names_have_the_version_and_the_architecture() {
        let names: Vec<_> = artifacts(&release::tests::example()).unwrap();
        let names: Vec<_> = names.into_iter().map(|artifact| artifact.name).collect();
        assert_eq!(
            names,
            [
                "profiler-1.2.3-linux-amd64",
                "profiler-1.2.3-linux-amd64.tar.gz",
                "profiler-1.2.3-oci-amd64.tar",
                "profiler_1.2.3_amd64.deb",
                "kubectl-profiler-1.2.3.tar.gz",
                "kubectl-profiler-1.2.3.yaml",
                "profiler-1.2.3-linux-amd64.cdx.json",
            ]
        );
    }

    #[test]
    fn checksums_are_sorted_by_name() {
        let artifact =
            |name: &str| Artifact { name: name.to_owned(), content: Vec::new(), is_executable: false };
        const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(checksums(&[artifact("b"), artifact("a")]), format!("{EMPTY}  a\n{EMPTY}  b\n"));
    }
}
