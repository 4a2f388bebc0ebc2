//! `cargo xtask fresh-machine`: runs the tests on a machine that has what the project installs, and nothing else.
//!
//! The machine is a minimal Debian made by debootstrap, in a mount namespace of its own: the kernel, the network and the Rust
//! toolchain are those of this machine. A program that the tests need and `cargo xtask setup` does not install fails them.

#![cfg(feature = "commands")]

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use fs_err as fs;

use crate::{
    project,
    setup::{self, Purpose},
    shell,
};

/// Run the tests in a minimal Debian, with nothing but what the project installs.
#[derive(Args)]
pub(crate) struct FreshMachine {
    /// The command to run there, in a clone of the last commit. Without one: the tests.
    #[arg(last = true)]
    command: Vec<String>,
}

/// The release of Debian that `cargo xtask setup` installs packages of.
const RELEASE: &str = "bookworm";

/// What a machine has on which the project's commands start: a linker for Rust, git, and trust in package servers.
const PACKAGES: &str = "ca-certificates,gcc,libc6-dev,git,sudo";

/// Files that say where packages come from, and the names of hosts, which an installed machine has.
const CLIENT_SETTINGS: [&str; 6] = [
    "/etc/hosts",
    "/etc/apt/sources.list",
    "/etc/apt/sources.list.d",
    "/etc/pip.conf",
    "/etc/resolv.conf",
    "/etc/ssl/certs/ca-certificates.crt",
];

/// The same in the home folder.
const USER_SETTINGS: [&str; 2] = [".npmrc", ".cargo/config.toml"];

/// The name by which a program finds the toolchain's programs: each is a link to rustup.
const TOOLCHAIN_PROGRAMS: [&str; 6] = ["cargo", "rustc", "rustdoc", "rustfmt", "cargo-fmt", "cargo-clippy"];

impl FreshMachine {
    pub(crate) fn run(&self) -> Result<()> {
        let words = self.command.iter().map(String::as_str);
        let words: Vec<_> =
            if self.command.is_empty() { vec!["cargo", "xtask", "test"] } else { words.collect() };
        let root = make()?;
        let script = project::root().join("xtask/src/fresh_machine/enter.sh");
        let mut enter = shell::as_root("unshare");
        enter.args(["--mount", "sh"]).arg(script).arg(root).arg(shell::home().join(".rustup"));
        shell::run(enter.args(words))
    }
}

/// The step of `cargo xtask prove`.
pub(crate) fn test() -> Result<()> {
    FreshMachine { command: Vec::new() }.run()
}

/// Makes the root file system, with a clone of the last commit in it. The folder of an earlier run is removed.
fn make() -> Result<PathBuf> {
    setup::install(&[Purpose::FreshMachine])?;
    let root = project::root().join("target/fresh-machine");
    if root.exists() {
        shell::run(shell::as_root("rm").args(["--recursive", "--one-file-system"]).arg(&root))?;
    }
    let include = format!("--include={PACKAGES}");
    shell::run_quietly(
        shell::as_root("debootstrap").args(["--variant=minbase", &include, RELEASE]).arg(&root),
    )?;
    for path in CLIENT_SETTINGS.map(PathBuf::from) {
        copy(&path, &root)?;
    }
    for path in USER_SETTINGS {
        copy_to(&shell::home().join(path), &root.join("build").join(path))?;
    }
    let programs = root.join("build/.cargo/bin");
    fs::create_dir_all(&programs)?;
    let rustup = shell::find("rustup").context("there is no rustup whose toolchain could be used")?;
    fs::copy(rustup, programs.join("rustup"))?;
    for program in TOOLCHAIN_PROGRAMS {
        symlink("rustup", programs.join(program))?;
    }
    let mut clone = Command::new("git");
    shell::run(clone.args(["clone", "--quiet"]).arg(project::root()).arg(root.join("build/project")))?;
    Ok(root)
}

/// Copies a file or folder of this machine to the same place of another root.
fn copy(path: &Path, root: &Path) -> Result<()> {
    copy_to(path, &root.join(path.strip_prefix("/")?))
}

fn copy_to(from: &Path, to: &Path) -> Result<()> {
    if !from.exists() {
        return Ok(());
    }
    let parent = to.parent().context("a path of a file has a folder")?;
    fs::create_dir_all(parent)?;
    // `-T`: a folder replaces what is there, instead of going into it.
    shell::run_quietly(Command::new("cp").args(["-a", "-L", "-T"]).arg(from).arg(to))?;
    ensure!(to.exists(), "{} was not copied", from.display());
    Ok(())
}
