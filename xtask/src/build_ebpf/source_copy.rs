//! Copies the sources of the BPF object, to build it at another path.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use fs_err::{self as fs, os::unix::fs::symlink};

use super::stamp::SOURCES;
use crate::project;

/// The packages of the BPF program.
const FOLDERS: [&str; 2] = ["profiler-common", "profiler-ebpf"];

/// The link through which the BPF program finds `profiler-common`.
const LINK: &str = "profiler-ebpf/common";

/// Makes `folder` a copy of what the stamp hashes, and of nothing else; its path. Files that are equal already keep their
/// times, so that a second build compiles nothing.
pub(super) fn create(folder: &Path) -> Result<PathBuf> {
    let mut copies = BTreeSet::from([folder.join(LINK)]);
    for source in SOURCES {
        let path = project::root().join(source);
        let files = if path.is_dir() { project::files_below(&path)? } else { vec![path] };
        for file in files {
            let to = folder.join(project::relative(&file));
            copy(&file, &to)?;
            copies.insert(to);
        }
    }
    link(&folder.join(LINK))?;
    for package in FOLDERS {
        for file in project::files_below(&folder.join(package))? {
            if !copies.contains(&file) {
                fs::remove_file(&file)?;
            }
        }
    }
    Ok(folder.to_owned())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let content = fs::read(from)?;
    if fs::read(to).is_ok_and(|copied| copied == content) {
        return Ok(());
    }
    fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
    Ok(fs::write(to, content)?)
}

fn link(path: &Path) -> Result<()> {
    let target =
        fs::read_link(project::root().join(LINK)).context("failed to read the link to profiler-common")?;
    match symlink(target, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_sources_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("ebpf-sources-{}", std::process::id()));
        let stale = folder.join("profiler-ebpf/src/stale.rs");
        fs::create_dir_all(stale.parent().unwrap()).unwrap();
        fs::write(&stale, "").unwrap();
        create(&folder).unwrap();
        assert!(!stale.exists());
        assert!(folder.join("profiler-ebpf/common/src/lib.rs").is_file());
        let copied = fs::metadata(folder.join("profiler-common/src/lib.rs")).unwrap().modified().unwrap();
        create(&folder).unwrap();
        assert_eq!(
            fs::metadata(folder.join("profiler-common/src/lib.rs")).unwrap().modified().unwrap(),
            copied
        );
        fs::remove_dir_all(&folder).unwrap();
    }
}
