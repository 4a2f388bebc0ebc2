//! The workloads in C# that need the newest compiler: it is built first, out of its libraries.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::compile_with_mcs;
use crate::{make::make, project, setup};

/// What the compiler's program uses of its runtime.
const ASSEMBLIES: [&str; 7] = [
    "System.Collections",
    "System.Console",
    "System.IO.FileSystem",
    "System.Linq",
    "System.Private.CoreLib",
    "System.Runtime",
    "System.Runtime.Extensions",
];

/// Builds the ASP.NET Core workload into `folder`. `old_framework` is what Mono's compiler can read, `config` says which
/// runtime its programs want.
pub(super) fn build(folder: &Path, old_framework: &Path, config: &Path) -> Result<()> {
    let compiler = build_compiler(folder, old_framework)?;
    let source = project::root().join("tests/dotnet/Web.cs");
    let program = folder.join("web.dll");
    let mut compile = Command::new(setup::dotnet_runtime("9.0").join("dotnet"));
    compile.arg("exec").arg("--runtimeconfig").arg(config).arg(&compiler);
    compile.arg(setup::dotnet_compiler()).args([&program, &source]).args(references()?);
    make(&program, &[&source, &compiler], &mut compile)
}

fn build_compiler(folder: &Path, framework: &Path) -> Result<PathBuf> {
    let source = project::root().join("tests/dotnet/Compile.cs");
    let program = folder.join("compile.dll");
    compile_with_mcs(&[source], framework, &ASSEMBLIES, &program)?;
    Ok(program)
}

/// The folders with the assemblies of both frameworks: `FRAMEWORK/VERSION`.
fn references() -> Result<BTreeSet<PathBuf>> {
    let files = project::files_below(&setup::dotnet_runtime("9.0").join("shared"))?;
    Ok(files.iter().filter_map(|file| file.parent()).map(Path::to_owned).collect())
}
