//! The tarball for any distribution: the binary with man pages, completions, documents and `deploy/`.

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
        ("deploy/", &release.deployment),
    ];
    for (folder, files) in folders {
        for file in files {
            tree.file_or_script(&format!("{folder}{}", file.name), &file.content);
        }
    }
    tree.tar_gz(&format!("{}-linux-{}/", release.stem(), release.binary.architecture))
}
