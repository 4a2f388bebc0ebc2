//! Names that the call tables of .NET runtimes and the tables of helpers give to native functions, compared with the symbol
//! table of a runtime that has one, and between runtimes.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "not a program for users")]

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
};

use object::{Object as _, ObjectSymbol as _, SymbolKind};
use profiler_addresses::ElfAddress;
use profiler_binary_reader::{Image, WorkBudget};
use profiler_dotnet_symbols::{
    call_tables::{RuntimeFile, read_call_tables},
    jit_helpers::{JitHelpers, find_jit_helpers, read_helper_names},
};
use profiler_elf_symbols::{Elf, FunctionRanges, demangle};

/// Methods whose implementation has another name, and that name.
const OTHER_NAMES: [(&str, &str); 19] = [
    ("System.ArgIterator..ctor", "Init"),
    ("System.Diagnostics.Debugger.get_IsAttached", "IsDebuggerAttached"),
    ("System.Enum.InternalGetUnderlyingType", "InternalGetEnumUnderlyingType"),
    ("System.Object.GetType", "GetClass"),
    ("System.Reflection.AssemblyName.ComputePublicKeyToken", "GetPublicKeyToken"),
    ("System.Runtime.InteropServices.CriticalHandle.ReleaseHandleFailed", "FireCustomerDebugProbe"),
    ("System.Runtime.InteropServices.Marshal.SizeOfHelper", "SizeOfClass"),
    ("System.Runtime.RuntimeImports.RhZeroMemory", "Clear"),
    ("System.RuntimeTypeHandle.CreateInstanceForAnotherGenericParameter", "CreateInstanceForGenericType"),
    ("System.String.get_Chars", "GetCharAt"),
    ("System.Threading.Monitor.IsEnteredNative", "IsLockHeld"),
    ("System.Threading.Monitor.ObjWait", "WaitTimeout"),
    ("System.Threading.Monitor.ReliableEnterTimeout", "JIT_MonTryEnter_Portable"),
    ("System.Threading.ThreadPool.NotifyWorkItemComplete", "NotifyRequestComplete"),
    ("System.Threading.ThreadPool.NotifyWorkItemProgressNative", "NotifyRequestProgress"),
    ("System.Threading.WaitHandle.WaitMultipleIgnoringSyncContext", "CorWaitMultipleNative"),
    ("System.Type.GetTypeFromHandleUnsafe", "GetRuntimeType"),
    ("System.Type.op_Equality", "TypeEQ"),
    ("System.Type.op_Inequality", "TypeNEQ"),
];

/// What managed names have in front of the name of their implementation, and what they have behind it.
const PREFIXES: [&str; 9] = ["get", "set", "internal", "raw", "is", "cor", "fcall", "do", "n"];
const SUFFIXES: [&str; 5] = ["internalcall", "internal", "native", "impl", "core"];

fn workload(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/workloads/dotnet").join(name);
    path.canonicalize()
        .unwrap_or_else(|_| panic!("{} is missing: run `cargo xtask workloads`", path.display()))
}

/// The native library of a runtime.
fn library(version: &str) -> PathBuf {
    let framework = workload(&format!("{version}/shared/Microsoft.NETCore.App"));
    let mut versions = fs::read_dir(framework).unwrap();
    versions.next().unwrap().unwrap().path().join("libcoreclr.so")
}

/// A file, and what its unwind information says about functions.
fn open(path: &Path) -> (Elf, FunctionRanges) {
    let elf = Elf::parse(Image::from_file(File::open(path).unwrap()).unwrap()).unwrap();
    let ranges = FunctionRanges::read(&elf, &mut { u64::MAX }).unwrap();
    (elf, ranges)
}

/// The functions that the call tables of a file name, by address.
fn named_functions(path: &Path) -> BTreeMap<u64, String> {
    let (elf, ranges) = open(path);
    read_within(&elf, &ranges, WorkBudget::default())
}

fn read_within(elf: &Elf, ranges: &FunctionRanges, budget: WorkBudget) -> BTreeMap<u64, String> {
    let budget = Arc::new(budget);
    let relocations = elf.relative_relocations(&budget).unwrap();
    let functions = read_call_tables(RuntimeFile {
        image: elf.loaded_image(budget).unwrap(),
        relocations: &relocations,
        is_function_start: &|address: ElfAddress| ranges.is_start(address),
    });
    functions.unwrap().into_iter().map(|function| (function.address.0, function.name)).collect()
}

/// The functions in the symbol table of a file, by address, without their classes and parameters.
fn symbols(path: &Path) -> HashMap<u64, Vec<String>> {
    let bytes = fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let mut found: HashMap<u64, Vec<String>> = HashMap::new();
    for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text) {
        let name = demangle(symbol.name_bytes().unwrap());
        let name = name.split('(').next().unwrap_or_default();
        found.entry(symbol.address()).or_default().push(last_part(name, "::").to_owned());
    }
    found
}

fn last_part<'a>(name: &'a str, separator: &str) -> &'a str {
    name.rsplit(separator).next().unwrap_or(name)
}

fn letters(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
}

/// Whether a managed method and the function of a symbol have the same name, but for prefixes and suffixes.
fn agree(method: &str, function: &str) -> bool {
    let (method, function) = (letters(last_part(method, ".")), letters(function));
    let same = |one: &str, other: &str| one.contains(other) || other.contains(one);
    let without_suffix = SUFFIXES.iter().find_map(|suffix| method.strip_suffix(suffix)).unwrap_or(&method);
    let without_prefixes = PREFIXES.iter().filter_map(|prefix| without_suffix.strip_prefix(prefix));
    [&*method, without_suffix].into_iter().chain(without_prefixes).any(|name| same(name, &function))
}

fn is_known(method: &str, function: &str) -> bool {
    OTHER_NAMES.iter().any(|(known, other)| *known == method && function.starts_with(other))
}

#[test]
fn every_name_agrees_with_the_symbol_at_its_address() {
    let path = library("3.1");
    let (named, symbols) = (named_functions(&path), symbols(&path));
    assert!(named.len() > 600, "{}", named.len());
    let none = Vec::new();
    let at = |address: &u64| symbols.get(address).unwrap_or(&none);
    let differences: Vec<_> = named
        .iter()
        .filter(|(address, name)| {
            !at(address).iter().any(|symbol| agree(name, symbol) || is_known(name, symbol))
        })
        .map(|(address, name)| (name, at(address)))
        .collect();
    assert!(differences.is_empty(), "{differences:#?}");
    // The comparison distinguishes names: each with the symbol of the next function.
    let shifted = named.values().zip(named.keys().skip(1));
    let alike = shifted.filter(|(name, address)| at(address).iter().any(|symbol| agree(name, symbol)));
    let (alike, all) = (alike.count(), named.len());
    assert!(alike < all / 5, "{alike} of {all} agree with the symbol of another function");
    // A name that is in the list for nothing hides a difference.
    for (method, function) in OTHER_NAMES {
        assert!(named.values().any(|name| name == method) && !agree(method, function), "{method}");
    }
}

#[test]
fn runtimes_of_other_versions_have_the_names_of_their_calls() {
    let host = workload("host-10.0/singlefilehost");
    for (path, least, calls) in [
        (
            library("8.0"),
            600,
            ["System.Threading.Thread.SpinWaitInternal", "System.Threading.Monitor.ObjWait"],
        ),
        (host, 1_000, ["ThreadNative_SpinWait", "Monitor_Wait"]),
    ] {
        let named = named_functions(&path);
        assert!(named.len() > least, "{}: {}", path.display(), named.len());
        for call in calls.iter().chain(&["GCInterface_Collect", "RuntimeMethodHandle_Destroy"]) {
            assert!(named.values().any(|name| name == call), "{}: {call}", path.display());
        }
    }
}

#[test]
fn reading_the_tables_takes_megabytes_of_reads_and_kilobytes_of_memory() {
    /// Bytes that are read. More end the reading with an error.
    const MAX_WORK: u64 = 3 << 20;
    const MAX_NAME_BYTES: usize = 128 << 10;
    for path in [library("3.1"), library("8.0"), library("9.0"), workload("host-10.0/singlefilehost")] {
        let (elf, ranges) = open(&path);
        let named = read_within(&elf, &ranges, WorkBudget::with_work_limit(MAX_WORK));
        let bytes = named.values().map(String::len).sum::<usize>();
        println!("{}: {bytes} bytes", path.display());
        assert!(!named.is_empty() && bytes < MAX_NAME_BYTES, "{}: {bytes} bytes", path.display());
    }
}

#[test]
fn a_stripped_runtime_and_the_host_of_single_file_programs_have_the_same_names() {
    let (library, host) =
        (named_functions(&library("9.0")), named_functions(&workload("host/singlefilehost")));
    assert!(library.len() > 600, "{}", library.len());
    let names_of_host: Vec<_> = host.values().collect();
    let missing: Vec<_> = library.values().filter(|name| !names_of_host.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    for name in ["ThreadNative_SpinWait", "GCInterface_Collect", "System.Threading.Monitor.ReliableEnter"] {
        assert!(names_of_host.iter().any(|found| *found == name), "{name}");
    }
    // The native libraries that are linked into the host.
    for prefix in ["SystemNative_", "CompressionNative_", "CryptoNative_", "GlobalizationNative_"] {
        let count = names_of_host.iter().filter(|name| name.starts_with(prefix)).count();
        assert!(count >= 5, "{count} names with {prefix}");
    }
}

/// The helpers of a runtime with the JIT compiler in another file.
fn jit_helpers(compiler: &Path, runtime: &Path) -> JitHelpers {
    jit_helpers_within(compiler, runtime, WorkBudget::default)
}

/// The same with a budget for each of the two files.
fn jit_helpers_within(compiler: &Path, runtime: &Path, budget: fn() -> WorkBudget) -> JitHelpers {
    let compiler = Elf::parse(Image::from_file(File::open(compiler).unwrap()).unwrap()).unwrap();
    let of_compiler = Arc::new(budget());
    let relocations = compiler.relative_relocations(&of_compiler).unwrap();
    let names = read_helper_names(compiler.loaded_image(of_compiler).unwrap(), &relocations).unwrap();
    assert!((150..300).contains(&names.len()), "{names:?}");
    let (elf, ranges) = open(runtime);
    let of_runtime = Arc::new(budget());
    let relocations = elf.relative_relocations(&of_runtime).unwrap();
    let file = RuntimeFile {
        image: elf.loaded_image(of_runtime).unwrap(),
        relocations: &relocations,
        is_function_start: &|address: ElfAddress| ranges.is_start(address),
    };
    find_jit_helpers(file, &names).unwrap()
}

/// The files of the JIT compiler and the runtime of each version.
fn compilers_and_runtimes() -> Vec<(PathBuf, PathBuf)> {
    let libraries = ["3.1", "8.0", "9.0"].map(|version| {
        let runtime = library(version);
        (runtime.with_file_name("libclrjit.so"), runtime)
    });
    let hosts = ["host", "host-10.0"].map(|host| {
        let host = workload(&format!("{host}/singlefilehost"));
        (host.clone(), host)
    });
    libraries.into_iter().chain(hosts).collect()
}

#[test]
fn helpers_agree_with_the_symbols_of_a_runtime() {
    let runtime = library("3.1");
    let found = jit_helpers(&runtime.with_file_name("libclrjit.so"), &runtime);
    let bytes = fs::read(&runtime).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let pointers = file.symbols().find(|symbol| symbol.name() == Ok("hlpDynamicFuncTable")).unwrap();
    let addresses: Vec<_> = found.pointers.iter().map(|pointer| pointer.address.0).collect();
    let expected: Vec<_> = (pointers.address()..pointers.address() + pointers.size()).step_by(8).collect();
    assert_eq!(addresses, expected);
    let symbols = symbols(&runtime);
    let agrees = |name: &str, address: u64| {
        let name = letters(name.strip_prefix("CORINFO_HELP_").unwrap());
        symbols[&address].iter().any(|symbol| {
            let symbol = letters(symbol);
            symbol.ends_with(&name) || name.ends_with(symbol.strip_prefix("jit").unwrap_or(&symbol))
        })
    };
    let functions = &found.functions;
    let all = functions.len();
    let agree = functions.iter().filter(|function| agrees(&function.name, function.address.0)).count();
    let shifted = functions.iter().zip(&functions[1..]);
    let shifted = shifted.filter(|(function, next)| agrees(&function.name, next.address.0)).count();
    println!("{agree} of {all} agree, {shifted} with the next one");
    assert!(all > 100 && agree * 2 > all && shifted * 10 < all, "{agree} and {shifted} of {all}");
}

#[test]
fn runtimes_of_all_versions_have_the_helpers_that_their_jit_compiler_names() {
    for (compiler, runtime) in compilers_and_runtimes() {
        let JitHelpers { functions, pointers } = jit_helpers(&compiler, &runtime);
        println!("{}: {} functions, {} pointers", runtime.display(), functions.len(), pointers.len());
        assert!(functions.len() > 50 && pointers.len() >= 20, "{}", runtime.display());
        let is_named = |wanted: &str| {
            let names = functions.iter().map(|function| &function.name);
            names.chain(pointers.iter().map(|pointer| &pointer.name)).any(|name| name == wanted)
        };
        for name in ["NEWFAST", "NEWSFAST", "INIT_PINVOKE_FRAME", "ASSIGN_REF", "THROW", "RETHROW"] {
            assert!(is_named(&format!("CORINFO_HELP_{name}")), "{}: {name}", runtime.display());
        }
        assert!(!is_named("CORINFO_HELP_UNDEF") && !is_named("CORINFO_HELP_READYTORUN_NEW"));
    }
}

#[test]
fn the_helpers_of_a_runtime_are_named_by_its_own_jit_compiler_alone() {
    let compiler = library("8.0").with_file_name("libclrjit.so");
    assert_eq!(jit_helpers(&compiler, &library("9.0")), JitHelpers::default());
}

#[test]
fn reading_the_helpers_takes_megabytes_of_reads() {
    /// Bytes that are read of each file. More end the reading with an error.
    const MAX_WORK: u64 = 16 << 20;
    for (compiler, runtime) in compilers_and_runtimes() {
        let found = jit_helpers_within(&compiler, &runtime, || WorkBudget::with_work_limit(MAX_WORK));
        assert_ne!(found, JitHelpers::default(), "{}", runtime.display());
    }
}
