//! Names of all methods in the libraries of the .NET runtimes that `cargo xtask workloads` installs, compared with the
//! names that the runtimes give them.

use std::{
    collections::HashSet,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use profiler_addresses::ElfAddress;
use profiler_binary_reader::Image;
use profiler_dotnet_symbols::{
    managed::{csharp_name, normalize_name},
    readytorun::{AssemblyFiles, AssemblyLocation, NameError, ReadyToRunModule},
};

const VERSIONS: [&str; 2] = ["3.1", "9.0"];

/// A file or folder of the .NET workload.
fn workload(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/workloads/dotnet").join(name);
    path.canonicalize()
        .unwrap_or_else(|_| panic!("{} is missing: run `cargo xtask workloads`", path.display()))
}

/// The files of this machine.
struct HostFiles;

impl AssemblyFiles for HostFiles {
    fn open(&self, path: &Path) -> Option<Image> {
        Image::from_file(File::open(path).ok()?).ok()
    }
}

fn open(path: &Path) -> ReadyToRunModule {
    let image = Image::from_file(File::open(path).unwrap()).unwrap();
    ReadyToRunModule::open(image, AssemblyLocation::from_image_path(path), &Arc::default()).unwrap()
}

/// The libraries of a runtime that have precompiled code.
fn libraries(version: &str) -> Vec<ReadyToRunModule> {
    let shared = workload(&format!("{version}/shared"));
    let entries =
        |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let frameworks = entries(&shared).into_iter().flat_map(|framework| entries(&framework));
    let files = frameworks.flat_map(|version| entries(&version));
    let files = files.filter(|file| file.extension().is_some_and(|extension| extension == "dll"));
    let libraries: Vec<_> = files
        .map(|file| open(&file))
        .filter_map(|mut module| match module.symbolize(ElfAddress(0), &HostFiles) {
            Err(NameError::NoMethod) => Some(module),
            other => {
                assert_eq!(other, Err(NameError::NotPrecompiled), "the library has no precompiled code");
                None
            }
        })
        .collect();
    assert!(!libraries.is_empty(), "{} has no precompiled libraries", shared.display());
    libraries
}

#[test]
fn every_function_of_the_runtimes_libraries_has_a_name() {
    for version in VERSIONS {
        let mut functions = 0;
        for mut module in libraries(version) {
            let addresses = module.function_addresses().unwrap();
            functions += addresses.len();
            for address in addresses {
                let method = module.symbolize(ElfAddress(address.into()), &HostFiles);
                let method = method.unwrap_or_else(|error| panic!("{version} {address:x}: {error}"));
                assert!(method.name.contains('!'), "{method:?}");
            }
        }
        assert!(functions > 100_000, "{version}: {functions}");
    }
}

#[test]
fn each_library_has_a_module_version_id_of_its_own() {
    for version in VERSIONS {
        let mut modules = libraries(version);
        let mut ids = HashSet::new();
        for module in &mut modules {
            let id = module.module_version_id(&HostFiles).unwrap();
            assert_eq!(id[7] >> 4, 4, "compilers emit GUIDs of version 4: {id:x?}");
            ids.insert(id);
        }
        assert_eq!(ids.len(), modules.len());
    }
}

/// The names in the perf map of a runtime that compiles all methods itself.
fn names_of_the_runtime(version: &str) -> HashSet<String> {
    let folder = tempfile::tempdir().unwrap();
    let mut process = Command::new(workload("run"))
        .args([version, "web", "1"])
        .env("COMPlus_ReadyToRun", "0")
        .env("TMPDIR", folder.path())
        .env("COMPlus_PerfMapJitDumpPath", folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let map = folder.path().join(format!("perf-{}.map", process.id()));
    assert!(process.wait().unwrap().success());
    let text = fs::read(map).unwrap();
    let text = String::from_utf8_lossy(&text);
    let names = text.lines().filter_map(|line| line.splitn(3, ' ').nth(2));
    names.map(|name| normalize_name(name).name.into_owned()).collect()
}

/// `Type`1.Method()` for `Type`1[System.Int32].Method()`.
fn without_type_arguments(name: &str) -> String {
    match name.find('[').zip(name.find("].")) {
        Some((open, close)) if name.find('(').is_some_and(|arguments| close < arguments) => {
            format!("{}{}", &name[..open], &name[close + 1..])
        }
        _ => name.to_owned(),
    }
}

#[test]
fn a_precompiled_method_has_the_name_that_its_jit_compiled_code_has() {
    for version in VERSIONS {
        let (mut precompiled, mut defined) = (HashSet::new(), HashSet::new());
        for mut module in libraries(version) {
            precompiled.extend(module.precompiled_methods(&HostFiles).unwrap());
            defined.extend(module.defined_methods(&HostFiles).unwrap());
        }
        let (mut equal, mut other) = (0, Vec::new());
        for name in names_of_the_runtime(version) {
            let is_of_the_framework = name.starts_with("System.") && name.contains('!');
            if !is_of_the_framework || name.contains("!dynamicClass.") {
                continue;
            }
            if precompiled.contains(&name) {
                equal += 1;
            } else if !defined.contains(&without_type_arguments(&name)) {
                other.push(name);
            }
        }
        assert!(equal > 1_000, "{version}: {equal}");
        assert!(other.len() * 200 <= equal, "{version}: {equal} equal, not {other:#?}");
    }
}

#[test]
fn every_precompiled_method_of_the_runtimes_libraries_is_spelled_as_csharp() {
    const RUNTIME_SPELLINGS: [&str; 13] = [
        "`",
        "+",
        "class ",
        "unsigned ",
        "int32",
        "!!",
        "!0",
        ">d__",
        ">b__",
        ">g__",
        "fnptr ",
        "_modifier ",
        "refany",
    ];
    for mut module in VERSIONS.into_iter().flat_map(libraries) {
        for name in module.precompiled_methods(&HostFiles).unwrap() {
            let converted = csharp_name(&name);
            let is_converted = !RUNTIME_SPELLINGS.iter().any(|mark| converted.contains(mark));
            assert!(is_converted, "{name} is {converted}");
        }
    }
}

#[test]
fn ten_thousand_names_from_all_libraries_of_a_runtime_take_little_memory() {
    const NAMES: usize = 10_000;
    const MAX_BYTES: usize = 32 << 20;
    for version in VERSIONS {
        let mut modules = libraries(version);
        let names_per_module = NAMES.div_ceil(modules.len());
        let mut memory_bytes = 0;
        for module in &mut modules {
            let addresses = module.function_addresses().unwrap();
            for address in addresses.iter().step_by((addresses.len() / names_per_module).max(1)) {
                module.symbolize(ElfAddress((*address).into()), &HostFiles).unwrap();
            }
            memory_bytes += module.memory_bytes();
        }
        assert!(memory_bytes < MAX_BYTES, "{version}: {memory_bytes}");
    }
}
