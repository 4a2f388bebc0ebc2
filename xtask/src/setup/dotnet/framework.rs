//! Takes a self-contained .NET program apart: its frameworks become a folder from which `dotnet` starts others.
//!
//! Such a program has all assemblies in one folder, and a `.deps.json` that says which framework each is from.
//! `dotnet` wants them as `shared/FRAMEWORK/VERSION/`, each with a `.deps.json` of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use anyhow::{Context as _, Result};
use fs_err as fs;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::project;

/// The frameworks, in the order they build on each other, and how assemblies are named that the program's own
/// newer packages replaced in them: those are in no list and must be found by name.
const FRAMEWORKS: [(&str, &str); 2] =
    [("Microsoft.NETCore.App", "System."), ("Microsoft.AspNetCore.App", "Microsoft.Extensions.")];

/// Libraries of the program itself that are named like a framework's.
const NOT_OF_A_FRAMEWORK: [&str; 2] = ["Azure", "ClientModel"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Dependencies {
    runtime_target: RuntimeTarget,
    targets: BTreeMap<String, BTreeMap<String, Library>>,
}

#[derive(Deserialize)]
struct RuntimeTarget {
    name: String,
}

/// File name -> what the runtime wants to know of it, such as its assembly version.
type Files = BTreeMap<String, Value>;

#[derive(Default, Deserialize)]
struct Library {
    #[serde(default)]
    runtime: Files,
    #[serde(default)]
    native: Files,
}

/// Builds a folder like an installed .NET below `root` from the program in `program`, with `launcher` as `dotnet`.
pub(super) fn assemble(program: &Path, launcher: &Path, root: &Path) -> Result<()> {
    let mut files = project::files_below(program)?;
    files.retain(|file| file.parent() == Some(program));
    let list = files.iter().find(|file| file.to_string_lossy().ends_with(".deps.json"));
    let list = fs::read(list.context("the program has no .deps.json")?)?;
    let mut dependencies: Dependencies = serde_json::from_slice(&list)?;
    let target = dependencies.targets.remove(&dependencies.runtime_target.name);
    let mut libraries = target.context(".deps.json lacks its own target")?;

    let packs = |name: &str| name.starts_with("runtimepack.");
    let listed =
        libraries.iter().filter(|(name, _)| packs(name)).flat_map(|(_, library)| library.runtime.keys());
    let mut taken: BTreeSet<String> = listed.cloned().collect();
    for (framework, replaced) in FRAMEWORKS {
        let pack = format!("runtimepack.{framework}.Runtime.");
        let name = libraries.keys().find(|name| name.starts_with(&pack)).cloned();
        let name = name.with_context(|| format!("the program does not contain {framework}"))?;
        let mut library = libraries.remove(&name).unwrap_or_default();
        for file in files.iter().filter_map(|file| file.file_name()?.to_str()) {
            let own = NOT_OF_A_FRAMEWORK.iter().any(|part| file.contains(part));
            let wanted = file.starts_with(replaced) && file.ends_with(".dll") && !own;
            if wanted && taken.insert(file.to_owned()) {
                library.runtime.insert(file.to_owned(), json!({}));
            }
        }
        let version = name.rsplit('/').next().unwrap_or_default();
        write_framework(program, root, framework, version, &library)?;
    }
    fs::copy(launcher, root.join("dotnet"))?;
    Ok(project::make_executable(&root.join("dotnet"))?)
}

fn write_framework(
    program: &Path,
    root: &Path,
    framework: &str,
    version: &str,
    library: &Library,
) -> Result<()> {
    let folder = root.join("shared").join(framework).join(version);
    fs::create_dir_all(&folder)?;
    let copy = |name: &str, folder: &Path| fs::copy(program.join(name), folder.join(name));
    let native = library.native.keys().filter(|name| *name != "libhostfxr.so");
    for name in library.runtime.keys().chain(native) {
        copy(name, &folder)?;
    }
    if framework == FRAMEWORKS[0].0 {
        let resolver = root.join("host/fxr").join(version);
        fs::create_dir_all(&resolver)?;
        copy("libhostfxr.so", &resolver)?;
        copy("libhostpolicy.so", &folder)?;
    } else {
        let base = json!({ "name": FRAMEWORKS[0].0, "version": version });
        let config = json!({ "runtimeOptions": { "tfm": "net9.0", "framework": base } });
        fs::write(folder.join(format!("{framework}.runtimeconfig.json")), config.to_string())?;
    }
    let list = dependencies_of(framework, version, library);
    Ok(fs::write(folder.join(format!("{framework}.deps.json")), list.to_string())?)
}

fn dependencies_of(framework: &str, version: &str, library: &Library) -> Value {
    const GENERIC: &str = ".NETCoreApp,Version=v9.0";
    const TARGET: &str = ".NETCoreApp,Version=v9.0/linux-x64";
    let name = format!("{framework}.Runtime.linux-x64/{version}");
    json!({
        "runtimeTarget": { "name": TARGET, "signature": "" },
        "compilationOptions": {},
        "targets": {
            GENERIC: {},
            TARGET: { &name: { "runtime": &library.runtime, "native": &library.native } },
        },
        "libraries": { &name: { "type": "package", "serviceable": true, "sha512": "" } },
    })
}
