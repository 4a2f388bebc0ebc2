//! Names of the .NET runtimes' own libraries, beside the runtimes' spelling of them. Both are what
//! `cargo xtask workloads` sets up; without them these tests say so and pass.

use std::{
    collections::HashSet,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{metadata::Table, readytorun::Method, *};
use crate::symbolize::managed;

const VERSIONS: [&str; 2] = ["3.1", "9.0"];

fn workload(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/workloads/dotnet").join(name);
    if !path.exists() {
        eprintln!("not tested: {} is missing: run `cargo xtask workloads`", path.display());
        return None;
    }
    path.canonicalize().ok()
}

/// The libraries of a runtime that have precompiled code.
fn libraries(version: &str) -> Vec<ReadyToRunModule> {
    let Some(shared) = workload(&format!("{version}/shared")) else { return Vec::new() };
    let folders =
        |of: &Path| fs::read_dir(of).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let files =
        folders(&shared).into_iter().flat_map(|name| folders(&name)).flat_map(|version| folders(&version));
    let files = files.filter(|file| file.extension().is_some_and(|extension| extension == "dll"));
    let modules =
        files.map(|file| ReadyToRunModule::open(Image::of_file(File::open(file).unwrap()).unwrap()));
    modules
        .map(Result::unwrap)
        .filter_map(|mut module| match module.symbolize(ElfAddress(0)) {
            Err(Reason::NoSymbolHere) => Some(module),
            other => {
                assert_eq!(other, Err(Reason::NoSymbols), "an image without code says so");
                None
            }
        })
        .collect()
}

impl ReadyToRunModule {
    fn name_of(&mut self, method: Method) -> String {
        let Some(Ok(code)) = &self.code else { unreachable!("the module was read") };
        self.pieces.begin();
        let (metadata, instances) = (&code.metadata, code.tables.instances);
        let mut names = Names { pieces: &mut self.pieces, metadata, instances, assembly: &code.assembly };
        names.method(method).unwrap()
    }

    fn precompiled(&mut self) -> Vec<String> {
        let Some(Ok(code)) = &self.code else { unreachable!("the module was read") };
        let methods: Vec<_> = code.tables.methods().collect();
        methods.into_iter().map(|method| self.name_of(method)).collect()
    }

    /// Those without precompiled code too; of generic types without their arguments.
    fn defined(&mut self) -> Vec<String> {
        let Some(Ok(code)) = &self.code else { unreachable!("the module was read") };
        let rows = code.metadata.rows(Table::MethodDef);
        (1..=rows).map(|row| self.name_of(Method::Definition(row))).collect()
    }
}

#[test]
fn every_function_of_the_runtimes_core_library_has_a_name() {
    for version in VERSIONS {
        for mut module in libraries(version) {
            let Some(Ok(code)) = &module.code else { unreachable!("the module was read") };
            if code.assembly != "System.Private.CoreLib" {
                continue;
            }
            let starts = code.tables.function_starts(&mut module.pieces);
            assert!(starts.len() > 25_000, "{version}: {}", starts.len());
            for start in starts {
                let named = module.symbolize(ElfAddress(start.into())).unwrap();
                assert!(named.functions[0].name.contains('!'), "{named:?}");
            }
        }
    }
}

/// The names that the runtime itself gives to what it compiles, when it compiles all.
fn names_of_the_runtime(version: &str, run: &Path) -> HashSet<String> {
    let folder = tempfile::tempdir().unwrap();
    let mut workload = Command::new(run)
        .args([version, "web", "1"])
        .env("COMPlus_ReadyToRun", "0")
        .env("TMPDIR", folder.path())
        .env("COMPlus_PerfMapJitDumpPath", folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let map = folder.path().join(format!("perf-{}.map", workload.id()));
    assert!(workload.wait().unwrap().success());
    let text = fs::read(map).unwrap();
    let text = String::from_utf8_lossy(&text);
    let names = text.lines().filter_map(|line| line.splitn(3, ' ').nth(2));
    names.map(|name| managed::normalise(name).name.into_owned()).collect()
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
fn a_precompiled_method_is_spelled_as_when_the_runtime_compiles_it() {
    let Some(run) = workload("run") else { return };
    for version in VERSIONS {
        let (mut precompiled, mut defined) = (HashSet::new(), HashSet::new());
        for mut module in libraries(version) {
            precompiled.extend(module.precompiled());
            defined.extend(module.defined());
        }
        let (mut equal, mut other) = (0, Vec::new());
        for name in names_of_the_runtime(version, &run) {
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
