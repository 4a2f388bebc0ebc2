//! Installs Debian packages, or downloads them.

use std::{path::Path, process::Command};

use anyhow::{Result, bail};

use crate::shell;

/// Installs `packages`.
pub(super) fn install(packages: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    let names = packages.join(" ");
    if shell::find("apt-get").is_none() {
        bail!(
            "missing: {names} (Debian's names). This command knows apt-get alone: install the packages of this distribution"
        );
    }
    if !shell::is_root() {
        bail!("missing here: {names}. As root: apt-get install --no-install-recommends {names}");
    }
    println!("apt-get install {names}");
    shell::run_quietly(apt_get().arg("update"))?;
    shell::run_quietly(apt_get().args(["install", "--yes", "--no-install-recommends"]).args(packages))
}

/// Downloads a package into `folder` and installs nothing.
pub(super) fn download(package: &str, folder: &Path) -> Result<()> {
    if shell::find("apt-get").is_none() {
        bail!("{package} is a package of Debian's, and there is no apt-get here");
    }
    if shell::is_root() {
        shell::run_quietly(apt_get().arg("update"))?;
    }
    shell::run_quietly(apt_get().args(["download", package]).current_dir(folder))
}

/// `apt-get` without questions; it waits until other runs of apt have ended.
fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command
        .args(["--quiet=2", "--option", "DPkg::Lock::Timeout=300"])
        .env("DEBIAN_FRONTEND", "noninteractive");
    command
}
