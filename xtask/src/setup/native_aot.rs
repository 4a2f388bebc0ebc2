//! Installs a library that NativeAOT compiled, as its package has it: without symbols.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::package::{Package, unpack_into};
use crate::{project, shell};

/// Reads and writes files with columns of fixed width. MIT.
const FIXED_WIDTH_PARSER: Package = Package {
    name: "fixedwidthparser==2.0.0",
    file: "fixedwidthparser-2.0.0-py3-none-manylinux_2_34_x86_64.whl",
    sha256: "b51ed6c6aceb03dbb58a4cce9a0b4d9b4156f8b5f75187e0075b8e10885bb1ff",
};

/// Where in the package the library is.
const FOLDER: &str = "fixedwidth/_lib";

/// The path of the library.
pub(crate) fn library() -> PathBuf {
    folder().join("FixedWidthParser.Native.so")
}

/// Installs it if it is not there.
pub(super) fn install() -> Result<()> {
    unpack_into(&folder(), "a library of NativeAOT", unpack)
}

fn folder() -> PathBuf {
    project::root().join("target/workloads/native-aot")
}

fn unpack(scratch: &Path) -> Result<PathBuf> {
    let wheel = FIXED_WIDTH_PARSER.download_wheel(&["--platform", "manylinux_2_34_x86_64"], scratch)?;
    shell::run_quietly(Command::new("python3").args(["-m", "zipfile", "-e"]).args([&wheel, scratch]))?;
    Ok(scratch.join(FOLDER))
}
