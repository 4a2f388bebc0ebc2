//! The tarball for any distribution: the binary with man pages, completions, documents and Kubernetes manifests.

use anyhow::Result;

use super::release::{NAME, Release};

/// The compressed tarball, all of it in one folder.
pub(super) fn pack(release: &Release) -> Result<Vec<u8>> {
    let mut tree = release.tree();
    tree.program(NAME, release.binary.content.as_slice());
    let folders = [
        ("", &release.documents),
        ("man/man1/", &release.man_pages),
        ("completions/", &release.completions),
        ("deploy/", &release.manifests),
    ];
    for (folder, files) in folders {
        for file in files {
            tree.file(&format!("{folder}{}", file.name), file.content.as_slice());
        }
    }
    tree.tar_gz(&format!("{}-linux-{}/", release.stem(), release.binary.architecture))
}
