//! Packs the plugin of kubectl as the plugin manager krew installs it: an archive, and the manifest with its checksum.

use anyhow::{Context as _, Result, ensure};

use super::release::Release;
use crate::digest::sha256;

/// The name of the plugin's program, and the beginning of its file names.
pub(super) const NAME: &str = "kubectl-profiler";

/// What the manifest in the repository has in place of the version and of the checksum of the archive.
const PLACEHOLDERS: [&str; 2] = ["@VERSION@", "@SHA256@"];

/// The archive with the plugin and a licence, which krew requires.
pub(super) fn pack(release: &Release) -> Result<Vec<u8>> {
    let program = &release.deployment_file("kubectl/kubectl-profiler")?.content;
    let image = format!("registry.example/profiler:{}", release.version);
    ensure!(
        program.windows(image.len()).any(|window| window == image.as_bytes()),
        "{NAME} does not start the image of this version: {image}"
    );
    let mut tree = release.tree();
    tree.program(NAME, program.as_slice());
    let licence = release.documents(&["LICENSE-MIT"]).next().context("the release has no LICENSE-MIT")?;
    tree.file("LICENSE", licence.content.as_slice());
    tree.tar_gz("")
}

/// The manifest of krew for this archive.
pub(super) fn krew_manifest(release: &Release, archive: &[u8]) -> Result<Vec<u8>> {
    let mut text = String::from_utf8(release.deployment_file("kubectl/krew.yaml")?.content.clone())?;
    for (placeholder, value) in PLACEHOLDERS.into_iter().zip([release.version.clone(), sha256(archive)]) {
        ensure!(text.contains(placeholder), "deploy/kubectl/krew.yaml lacks {placeholder}");
        text = text.replace(placeholder, &value);
    }
    Ok(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::{super::release::tests::example, *};

    #[test]
    fn the_manifest_has_the_version_and_the_checksum_of_the_archive() {
        let archive = pack(&example()).unwrap();
        let manifest = String::from_utf8(krew_manifest(&example(), &archive).unwrap()).unwrap();
        assert_eq!(manifest, format!("version: v1.2.3\nsha256: {}\n", sha256(&archive)));
    }

    #[test]
    fn a_plugin_that_starts_the_image_of_another_version_is_an_error() {
        let mut release = example();
        release.version = "1.2.4".to_owned();
        assert!(pack(&release).unwrap_err().to_string().contains("registry.example/profiler:1.2.4"));
    }
}
