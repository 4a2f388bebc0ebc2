//! Names of a small image, right and wrong, and of the .NET runtimes' own libraries, beside the runtimes' spelling of
//! them. The runtimes are what `cargo xtask workloads` sets up; without them their tests say so and pass.

use profiler_binary_reader::{Image, ParseError};
use std::{
    collections::HashSet,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{metadata::Table, readytorun::Method, *};
use crate::managed;

const VERSIONS: [&str; 2] = ["3.1", "9.0"];

fn workload(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/workloads/dotnet").join(name);
    if !path.exists() {
        let is_required = std::env::var_os("PROFILER_REQUIRE_PRIVILEGED").is_some();
        assert!(!is_required, "{} is missing: run `cargo xtask workloads`", path.display());
        eprintln!("not tested: {} is missing: run `cargo xtask workloads`", path.display());
        return None;
    }
    path.canonicalize().ok()
}

fn open_at(path: &Path) -> ReadyToRunModule {
    let image = Image::from_file(File::open(path).unwrap()).unwrap();
    ReadyToRunModule::open(image, Home::beside(path), &Arc::default()).unwrap()
}

/// The files below a root.
pub(super) struct Below(pub(super) PathBuf);

impl AssemblyFiles for Below {
    fn open(&self, path: &Path) -> Option<Image> {
        Image::from_file(File::open(self.0.join(path.strip_prefix("/").ok()?)).ok()?).ok()
    }
}

fn files() -> Below {
    Below("/".into())
}

/// Fewer than `limit` random bytes.
pub(super) fn random_bytes(random: &mut fastrand::Rng, limit: usize) -> Vec<u8> {
    let length = random.usize(..limit);
    std::iter::repeat_with(|| random.u8(..)).take(length).collect()
}

/// The libraries of a runtime that have precompiled code.
fn libraries(version: &str) -> Vec<ReadyToRunModule> {
    let Some(shared) = workload(&format!("{version}/shared")) else { return Vec::new() };
    let folders =
        |of: &Path| fs::read_dir(of).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let files =
        folders(&shared).into_iter().flat_map(|name| folders(&name)).flat_map(|version| folders(&version));
    let files = files.filter(|file| file.extension().is_some_and(|extension| extension == "dll"));
    files
        .map(|file| open_at(&file))
        .filter_map(|mut module| match module.symbolize(ElfAddress(0), &self::files()) {
            Err(NameError::NoMethod) => Some(module),
            other => {
                assert_eq!(other, Err(NameError::NotPrecompiled), "an image without code says so");
                None
            }
        })
        .collect()
}

impl ReadyToRunModule {
    fn code(&self) -> &PrecompiledCode {
        self.code.as_ref().unwrap().as_ref().unwrap()
    }

    fn assembly(&mut self) -> String {
        let Some(Ok(code)) = &mut self.code else { unreachable!("the module was read") };
        code.assemblies.get(assemblies::OWN, &mut self.pieces, &files()).unwrap().name.to_owned()
    }

    fn name_of(&mut self, method: Method) -> Result<String, NameError> {
        let Some(Ok(code)) = &mut self.code else { unreachable!("the module was read") };
        code.names(&mut self.pieces, &files()).method(method)
    }

    fn precompiled(&mut self) -> Vec<Result<String, NameError>> {
        let methods: Vec<_> = self.code().tables.methods().collect();
        methods.into_iter().map(|method| self.name_of(method)).collect()
    }

    /// Those without precompiled code too; of generic types without their arguments.
    fn defined(&mut self) -> Vec<String> {
        let Some(Ok(code)) = &mut self.code else { unreachable!("the module was read") };
        let own = code.assemblies.get(assemblies::OWN, &mut self.pieces, &files()).unwrap();
        let rows = own.metadata.rows(Table::MethodDef);
        let method = |row| Method::Definition { assembly: 0, row };
        (1..=rows).map(|row| self.name_of(method(row)).unwrap()).collect()
    }

    fn function_starts(&mut self) -> Vec<u32> {
        let Some(Ok(code)) = &self.code else { unreachable!("the module was read") };
        code.tables.function_starts(&mut self.pieces)
    }
}

/// A method of two functions at 0x1100, and one of a generic type at 0x1130.
pub(super) const SMALL: &[u8] = include_bytes!("../../../../tests/fuzz/seeds/readytorun/small");

fn name_at(bytes: &[u8], address: u64) -> Result<String, NameError> {
    let home = Home::beside(Path::new("/app/Test.dll"));
    let mut module = ReadyToRunModule::open(Image::Memory(bytes.to_vec()), home, &Arc::default())?;
    let named = module.symbolize(ElfAddress(address), &files())?;
    Ok(named.name.into_owned())
}

fn changed(position: usize, bytes: &[u8]) -> Vec<u8> {
    let mut image = SMALL.to_vec();
    image[position..position + bytes.len()].copy_from_slice(bytes);
    image
}

#[test]
#[cfg(target_arch = "x86_64")]
fn an_address_is_named_by_the_method_whose_function_it_is_in() {
    let name = |address| name_at(SMALL, address);
    let run = "Test!N.Outer.Run(int32)";
    assert_eq!(name(0x1100).unwrap(), run);
    assert_eq!(name(0x111f).unwrap(), run);
    assert_eq!(name(0x1127).unwrap(), run, "the handler of an exception is its method's");
    let get = "Test!N.Outer+Inner`1[System.Int32].Get(!0,class N.Other)";
    assert_eq!(name(0x1130).unwrap(), get);
    assert_eq!(name(0x10e4).unwrap(), "stub DelayLoadThunk");
    for nowhere in [0, 0x10ff, 0x1128, 0x112f, 0x1140, u64::MAX] {
        assert_eq!(name(nowhere), Err(NameError::NoMethod));
    }
}

#[test]
fn the_offset_in_the_file_says_where_in_the_image_an_address_is() {
    let home = Home::beside(Path::new("/app/Test.dll"));
    let module = ReadyToRunModule::open(Image::Memory(SMALL.to_vec()), home, &Arc::default()).unwrap();
    let address = |offset, distance: u64| {
        module.address(RuntimeAddress(0x7000), FileOffset(offset), RuntimeAddress(0x7000 + distance))
    };
    assert_eq!(address(0, 0x310), Some(ElfAddress(0x1110)));
    assert_eq!(address(0x200, 0x110), Some(ElfAddress(0x1110)));
    assert_eq!(address(0, 0x1ff), None, "no section's");
    assert_eq!(address(0x600, 0), None);
    assert_eq!(module.address(RuntimeAddress(0x7000), FileOffset(0), RuntimeAddress(0x6fff)), None);
    assert_eq!(address(u64::MAX, 1), None);
}

#[test]
fn an_image_without_code_for_this_machine_has_no_symbols() {
    assert_eq!(
        name_at(&changed(0x44, &[0x64, 0x86]), 0x1100),
        Err(NameError::NotPrecompiled),
        "for another system"
    );
    assert_eq!(name_at(&changed(0x240, &[0; 8]), 0x1100), Err(NameError::NotPrecompiled), "not precompiled");
    assert_eq!(name_at(&changed(0x250, b"NGEN"), 0x1100), Err(NameError::NotPrecompiled), "not as is known");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn an_image_that_contradicts_itself_is_a_reason() {
    for (position, bytes) in [
        (0x40, &b"XX"[..]),      // no PE header
        (0x3c, &[0xff; 4]),      // it is beyond the end
        (0x138, &[0xff; 4]),     // so is the managed header
        (0x25c, &[0xff; 4]),     // tables without end
        (0x400, b"none"),        // no metadata
        (0x4a8 + 8, &[0xff; 2]), // a name outside of the heap
        (0x460, &[0xff; 4]),     // rows without end
    ] {
        let found = name_at(&changed(position, bytes), 0x1100).unwrap_err();
        assert!(
            matches!(
                found,
                NameError::ParseError(ParseError::Malformed) | NameError::ParseError(ParseError::TooLarge)
            ),
            "{position:x}: {found:?}"
        );
    }
    // A type within itself.
    assert_eq!(
        name_at(&changed(0x4ee, &[3, 0, 3, 0]), 0x1130),
        Err(NameError::ParseError(ParseError::TooLarge))
    );
}

#[test]
fn an_image_that_ends_or_differs_anywhere_is_an_answer_and_no_panic() {
    for length in 0..SMALL.len() {
        let _ = name_at(&SMALL[..length], 0x1130);
    }
    for position in 0..SMALL.len() {
        for value in [0, 1, 2, 0x7f, 0x80, 0xff] {
            for address in [0x1104, 0x1130] {
                let _ = name_at(&changed(position, &[value]), address);
            }
        }
    }
}

#[test]
fn every_function_of_the_runtimes_libraries_has_a_name() {
    for version in VERSIONS {
        let mut functions = 0;
        for mut module in libraries(version) {
            let starts = module.function_starts();
            functions += starts.len();
            for start in starts {
                let named = module.symbolize(ElfAddress(start.into()), &files());
                let named =
                    named.unwrap_or_else(|reason| panic!("{} {start:x}: {reason}", module.assembly()));
                assert!(named.name.contains('!'), "{named:?}");
            }
        }
        eprintln!("{version}: {functions} functions");
        assert!(functions == 0 || functions > 100_000, "{version}: {functions}");
    }
}

#[test]
fn each_library_has_an_identifier_of_its_own() {
    for version in VERSIONS {
        let mut modules = libraries(version);
        let mut mvids = HashSet::new();
        for module in &mut modules {
            let Some(Ok(code)) = &mut module.code else { unreachable!("the module was read") };
            let own = code.assemblies.get(assemblies::OWN, &mut module.pieces, &files()).unwrap();
            let mvid = own.metadata.mvid(own.pieces).unwrap();
            assert_eq!(mvid[7] >> 4, 4, "the kind of identifier that compilers make: {mvid:x?}");
            mvids.insert(mvid);
        }
        assert_eq!(mvids.len(), modules.len());
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
            precompiled.extend(module.precompiled().into_iter().map(Result::unwrap));
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

#[test]
fn every_precompiled_method_of_the_runtimes_libraries_reads_as_in_a_program() {
    const RUNTIMES_OWN: [&str; 10] =
        ["`", "+", "class ", "unsigned ", "int32", "!!", "!0", ">d__", ">b__", ">g__"];
    for mut module in VERSIONS.into_iter().flat_map(libraries) {
        for name in module.precompiled().into_iter().map(Result::unwrap) {
            let readable = managed::readable(&name);
            assert!(!RUNTIMES_OWN.iter().any(|mark| readable.contains(mark)), "{name} is {readable}");
        }
    }
}

#[test]
fn ten_thousand_names_from_all_libraries_of_a_runtime_take_little_memory() {
    const NAMES: usize = 10_000;
    const MAX_BYTES: usize = 32 << 20;
    for version in VERSIONS {
        let mut modules = libraries(version);
        let names_of_each = NAMES.div_ceil(modules.len().max(1));
        let mut kept_bytes = 0;
        for module in &mut modules {
            let starts = module.function_starts();
            kept_bytes += module.code().tables.methods().count() * size_of::<(u32, Method)>();
            for start in starts.iter().step_by((starts.len() / names_of_each).max(1)) {
                module.symbolize(ElfAddress((*start).into()), &files()).unwrap();
            }
            kept_bytes += module.pieces.cached_bytes();
        }
        assert!(kept_bytes < MAX_BYTES, "{version}: {kept_bytes}");
    }
}
