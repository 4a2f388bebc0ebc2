//! Examines a process: its kind, and the symbol sources of each kind of its frames.

use std::{path::Path, sync::Arc};

use super::{Finding, Remedy, Situation};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::kernel_names;
use profiler_dotnet_symbols::managed::NameStyle;
use profiler_processes::{
    Pid, ProcFs, Process, ProcessFilter, ProcessTable, Tid, root_directory::RootDirectory,
};
use profiler_profile::{LanguageRuntime, Reason, SymbolSource, UnsymbolizedFrames};
use profiler_symbolize::{
    NativeOptions, Symbolizer,
    debug_file::DebugDirectories,
    lookup_error_reason,
    symbol_sources::{NativeFile, ProcessSymbolSources, Runtime, RuntimeKind},
};

/// The most file names in a list; the rest is counted.
const MAX_LISTED: usize = 3;

/// Examines a process, by its id in the profiler's PID namespace.
pub(super) fn findings(pid: Pid) -> Result<Vec<Finding>> {
    let failed = |what: String, error| Error::with_source(ErrorKind::NoSuchTarget, what, error);
    let proc = Arc::new(ProcFs::live());
    if !proc.exists(Tid::leader_of(pid)) {
        return Err(Error::new(ErrorKind::NoSuchTarget, format!("there is no process {pid}")));
    }
    let host = RootDirectory::open(Path::new("/"))
        .map_err(|error| failed("failed to open `/`".to_owned(), error))?;
    let mut processes = ProcessTable::new(Arc::clone(&proc), ProcessFilter::All);
    let key = processes.prefetch(pid);
    let places = Arc::new(DebugDirectories::with_host(host));
    let mut symbolizer = Symbolizer::new(
        Arc::clone(&proc),
        places,
        NativeOptions::default(),
        NameStyle::default(),
        kernel_names::load,
    );
    let Some(process) = processes.get(key) else { return Ok(Vec::new()) };
    let name = format!("{pid} ({})", process.comm);
    Ok(match process.check_readable() {
        Ok(()) => {
            about(&name, &symbolizer.symbol_sources(&processes, process), is_memory_readable(&proc, process))
        }
        Err(error) => vec![unreadable(&name, lookup_error_reason(error))],
    })
}

/// Whether the memory of a process can be read, which the names of helpers of a .NET runtime need.
fn is_memory_readable(proc: &ProcFs, process: &Process) -> bool {
    const POINTER_BYTES: usize = 8;
    let first = process.mappings().next();
    first.is_some_and(|mapping| proc.read_memory(process, mapping.start, POINTER_BYTES).is_ok())
}

fn unreadable(process: &str, reason: Reason) -> Finding {
    let refused = ErrorKind::PermissionDenied(Operation::ReadProcess);
    let is_refused = reason == Reason::ProcessNotReadable;
    let remedy = is_refused.then(|| Situation::current().remedy(refused)).flatten();
    Finding::missing("process", format!("{process}: {reason}"), remedy)
}

fn about(process: &str, sources: &ProcessSymbolSources, is_memory_readable: bool) -> Vec<Finding> {
    let kind = match &sources.runtime {
        Some(found) => runtime(found),
        None if sources.native.is_empty() => "no code of its own".to_owned(),
        None => sources.language.map_or("native code", LanguageRuntime::name).to_owned(),
    };
    let mut findings = vec![Finding::ok("process", format!("{process}, {kind}"))];
    findings.extend(jit(sources));
    findings.extend(interpreted(sources));
    findings.extend(precompiled(sources));
    findings.extend(native(&sources.native, is_memory_readable && has_diagnostics(sources)));
    findings.extend(closed(sources));
    findings
}

fn runtime(runtime: &Runtime) -> String {
    let version = runtime.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
    match (runtime.kind, runtime.bundled_assemblies) {
        (RuntimeKind::CoreClr, _) => format!(".NET{version} in {}", runtime.path),
        (RuntimeKind::SingleFile, Some((plain, compressed))) => format!(
            ".NET{version}, a single-file program with {plain} assemblies as they are and {compressed} compressed"
        ),
        (RuntimeKind::SingleFile, None) => format!(".NET{version} in {}", runtime.path),
        (RuntimeKind::NativeAot, _) => format!(
            ".NET compiled ahead of time (NativeAOT) in {}: native code with the symbols of the file or of its .dbg file",
            runtime.path
        ),
        (RuntimeKind::Mono, _) => format!("Mono in {}", runtime.path),
    }
}

/// Whether this is a .NET runtime with a diagnostics socket.
fn has_diagnostics(sources: &ProcessSymbolSources) -> bool {
    let kind = sources.runtime.as_ref().map(|runtime| runtime.kind);
    matches!(kind, Some(RuntimeKind::CoreClr | RuntimeKind::SingleFile))
}

/// The functions that an interpreter runs; `None` for a process of compiled code.
fn interpreted(sources: &ProcessSymbolSources) -> Option<Finding> {
    const NAME: &str = "interpreted functions";
    let language = sources.language.filter(|language| language.is_interpreter())?;
    if let Some(path) = &sources.jit_file {
        return Some(Finding::ok(NAME, format!("{}: named by `{}`", language.name(), path.display())));
    }
    let remedy = language.shown_by().map(Remedy::WritePerfMap);
    let lacks = "frames of the functions that it interprets";
    Some(Finding::degraded(NAME, format!("{} is an interpreter", language.name()), lacks, remedy))
}

/// JIT code; `None` for a process without any.
fn jit(sources: &ProcessSymbolSources) -> Option<Finding> {
    const NAME: &str = "JIT frames";
    const LACKS: &str = "names of JIT code";
    let reason = sources.language.map_or(Reason::NoJitMap, LanguageRuntime::reason_without_map);
    // An interpreter that compiles nothing has such memory for callbacks of libffi.
    let compiles = sources.language.is_none() || reason != Reason::NoJitMap;
    let has_jit_code = sources.jit_mappings > 0 && compiles;
    if !has_jit_code && !has_diagnostics(sources) {
        return None;
    }
    let file = sources.jit_file.as_ref().map(|path| path.display());
    let runtime_can_tell = has_diagnostics(sources);
    Some(match (sources.socket, file) {
        (Some(Ok(())), _) if sources.has_method_memory => Finding::ok(
            NAME,
            "named from the runtime's memory; what it frees, and tiers: by its events, at its diagnostics socket",
        ),
        (Some(Ok(())), _) => {
            let why = sources.memory_lack.map_or_else(String::new, |lack| format!(": {lack}"));
            Finding::ok(NAME, format!("named by the runtime's events, at its diagnostics socket{why}"))
        }
        (_, None) if sources.has_method_memory => {
            Finding::ok(NAME, "named from the runtime's memory: it has no diagnostics socket that responds")
        }
        (Some(Err(reason)), None) => Finding::degraded(NAME, reason.to_string(), LACKS, None),
        (_, Some(file)) => Finding::ok(NAME, format!("named by `{file}`")),
        (None, None) if runtime_can_tell => {
            Finding::degraded(NAME, "no diagnostics socket and no perf map", LACKS, Remedy::EnableDiagnostics)
        }
        (None, None) => Finding::degraded(NAME, "no perf map and no jitdump", LACKS, write_perf_map(reason)),
    })
}

/// What names the JIT code of the runtime with this reason: the text of the profile's remedy.
fn write_perf_map(reason: Reason) -> Option<Remedy> {
    match (UnsymbolizedFrames { module: String::new(), reason }.remedy()) {
        Some(profiler_profile::Remedy::WritePerfMap(instruction)) => Some(Remedy::WritePerfMap(instruction)),
        _ => None,
    }
}

/// Precompiled (ReadyToRun) code.
fn precompiled(sources: &ProcessSymbolSources) -> Option<Finding> {
    const NAME: &str = "precompiled frames";
    let images = &sources.images;
    let runtime = sources.runtime.as_ref().filter(|_| has_diagnostics(sources))?;
    let in_memory = runtime.bundled_assemblies.map_or(0, |(_, compressed)| compressed);
    let composite = match images.composite {
        0 => String::new(),
        count => format!(", {count} of them composite"),
    };
    let from_images = match images.count {
        0 => String::new(),
        count => format!("named from {count} mapped images{composite}; "),
    };
    Some(match (images.count, in_memory, sources.socket) {
        (0, 0, _) => Finding::ok(NAME, "none are mapped"),
        (_, 0, _) => Finding::ok(NAME, from_images.trim_end_matches("; ")),
        _ if sources.has_method_memory => Finding::ok(
            NAME,
            format!("{from_images}what is unpacked into memory is named from the runtime's memory"),
        ),
        (.., Some(Ok(()))) => {
            Finding::ok(NAME, format!("{from_images}what is unpacked into memory is named by the runtime"))
        }
        _ => Finding::degraded(
            NAME,
            format!("{from_images}{in_memory} assemblies are unpacked into memory"),
            "names of the methods in them",
            Remedy::EnableDiagnostics,
        ),
    })
}

/// Native code. `has_helpers`: helpers of a runtime are named from the memory of the process.
fn native(files: &[NativeFile], has_helpers: bool) -> Option<Finding> {
    const NAME: &str = "native frames";
    if files.is_empty() {
        return None;
    }
    let has_all = |file: &&NativeFile| {
        matches!(
            file.source,
            Some(
                SymbolSource::SymbolTable
                    | SymbolSource::DebugFile
                    | SymbolSource::MiniDebugInfo
                    | SymbolSource::GoFunctionTable
            )
        )
    };
    let (whole, mut exports): (Vec<_>, Vec<_>) = files.iter().partition(has_all);
    let from_debug_files = whole.iter().filter(|file| file.source == Some(SymbolSource::DebugFile)).count();
    let observed = format!("{} of {} files have all symbols", whole.len(), files.len());
    let observed = match from_debug_files {
        0 => observed,
        count => format!("{observed} ({count} in debug files)"),
    };
    // The runtime's own file matters most.
    exports.sort_by_key(|file| !file.is_runtime);
    let Some(first) = exports.first() else { return Some(Finding::ok(NAME, observed)) };
    let lacks = if first.is_runtime {
        "names of most of the runtime's own functions"
    } else {
        "names of functions that files do not export"
    };
    let remedy = Remedy::AddDebugFile(file_name(&first.path).to_owned());
    let has_call_tables = |file: &&NativeFile| file.source == Some(SymbolSource::RuntimeCallTable);
    let (runtimes, exports): (Vec<_>, Vec<_>) = exports.into_iter().partition(has_call_tables);
    let of_runtimes = if has_helpers {
        "exports, runtime call tables and runtime helpers"
    } else {
        "exports and runtime call tables"
    };
    let kinds = [(of_runtimes, runtimes), ("exports only", exports)];
    let kinds = kinds.iter().filter(|(_, files)| !files.is_empty()).map(|(kind, files)| {
        let names: Vec<_> = files.iter().map(|file| file_name(&file.path)).collect();
        format!("; {kind}: {}", list(&names))
    });
    Some(Finding::degraded(NAME, observed + &kinds.collect::<String>(), lacks, remedy))
}

fn closed(sources: &ProcessSymbolSources) -> Option<Finding> {
    let (first, reason) = sources.unopened.first()?;
    let others = match sources.unopened.len() - 1 {
        0 => String::new(),
        count => format!(" and {count} more mappings"),
    };
    Some(Finding::degraded(
        "mapped files",
        format!("{}{others}: {reason}", file_name(first)),
        "names of the code in them",
        None,
    ))
}

fn list(names: &[&str]) -> String {
    let shown = names.iter().take(MAX_LISTED).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use profiler_profile::EventSessionCause;

    use super::*;
    use crate::doctor::Status;
    use profiler_symbolize::symbol_sources::ReadyToRunImages;

    fn core_clr(kind: RuntimeKind, bundled_assemblies: Option<(usize, usize)>) -> ProcessSymbolSources {
        let runtime = Runtime {
            kind,
            version: Some("9.0.1".to_owned()),
            path: "/d/libcoreclr.so".into(),
            bundled_assemblies,
        };
        let images = ReadyToRunImages { count: 31, composite: 1 };
        ProcessSymbolSources {
            runtime: Some(runtime),
            jit_mappings: 7,
            images,
            ..ProcessSymbolSources::default()
        }
    }

    fn file(path: &str, source: Option<SymbolSource>, is_runtime: bool) -> NativeFile {
        NativeFile { path: path.into(), source, is_runtime }
    }

    #[test]
    fn a_runtime_with_diagnostics_names_jit_frames_before_its_perf_map() {
        let map = Some("/tmp/perf-1.map".into());
        let asked = ProcessSymbolSources { socket: Some(Ok(())), ..core_clr(RuntimeKind::CoreClr, None) };
        assert!(jit(&asked).unwrap().observed.starts_with("named by the runtime's events"));
        let unreadable =
            ProcessSymbolSources { memory_lack: Some(EventSessionCause::MemoryNotReadable), ..asked };
        assert!(jit(&unreadable).unwrap().observed.ends_with("socket: its memory cannot be read"));
        let both = ProcessSymbolSources { memory_lack: None, has_method_memory: true, ..unreadable };
        assert!(jit(&both).unwrap().observed.starts_with("named from the runtime's memory; what it frees"));
        let refused = || Some(Err(Reason::RuntimeRefused));
        let both = ProcessSymbolSources {
            socket: refused(),
            jit_file: map.clone(),
            ..core_clr(RuntimeKind::CoreClr, None)
        };
        assert_eq!(jit(&both).unwrap().observed, "named by `/tmp/perf-1.map`");
        let neither = ProcessSymbolSources { socket: refused(), ..core_clr(RuntimeKind::CoreClr, None) };
        assert_eq!(jit(&neither).unwrap().status, Status::Degraded);
        let memory = ProcessSymbolSources { has_method_memory: true, ..core_clr(RuntimeKind::CoreClr, None) };
        assert!(jit(&memory).unwrap().observed.starts_with("named from the runtime's memory"));
    }

    #[test]
    fn the_remedy_for_unsymbolized_jit_code_depends_on_the_runtime() {
        let off = core_clr(RuntimeKind::SingleFile, None);
        assert_eq!(jit(&off).unwrap().remedy, Some(Remedy::EnableDiagnostics));
        let remedy = |language| {
            let sources =
                ProcessSymbolSources { jit_mappings: 1, language, ..ProcessSymbolSources::default() };
            match jit(&sources)?.remedy? {
                Remedy::WritePerfMap(instruction) => Some(instruction),
                other => panic!("{other:?}"),
            }
        };
        for (language, word) in [
            (Some(LanguageRuntime::Mono), "--jitmap"),
            (Some(LanguageRuntime::Java), "Compiler.perfmap"),
            (Some(LanguageRuntime::Node), "--perf-basic-prof"),
            (None, "as its manual says"),
        ] {
            assert!(remedy(language).unwrap().contains(word), "{language:?}");
        }
        assert_eq!(remedy(Some(LanguageRuntime::Perl)), None, "Perl has no JIT compiler");
        assert_eq!(jit(&ProcessSymbolSources::default()), None);
        let ahead_of_time =
            ProcessSymbolSources { jit_mappings: 0, ..core_clr(RuntimeKind::NativeAot, None) };
        assert_eq!((jit(&ahead_of_time), precompiled(&ahead_of_time)), (None, None));
    }

    #[test]
    fn an_interpreter_has_functions_that_are_not_visible() {
        let of = |language| ProcessSymbolSources { language, ..ProcessSymbolSources::default() };
        let python = interpreted(&of(Some(LanguageRuntime::CPython))).unwrap();
        assert!(
            python.status == Status::Degraded && python.observed == "CPython is an interpreter",
            "{python:?}"
        );
        assert!(matches!(python.remedy, Some(Remedy::WritePerfMap(text)) if text.contains("-X perf")));
        let map = Some("/tmp/perf-1.map".into());
        let named = ProcessSymbolSources { jit_file: map, ..of(Some(LanguageRuntime::CPython)) };
        assert_eq!(interpreted(&named).unwrap().status, Status::Ok);
        assert_eq!(interpreted(&of(Some(LanguageRuntime::Perl))).unwrap().remedy, None);
        assert_eq!((interpreted(&of(Some(LanguageRuntime::Java))), interpreted(&of(None))), (None, None));
        let native = vec![file("/usr/bin/python3.11", None, false)];
        let sources = ProcessSymbolSources { native, ..of(Some(LanguageRuntime::CPython)) };
        assert_eq!(about("7 (python3)", &sources, false)[0].observed, "7 (python3), CPython");
    }

    #[test]
    fn compressed_assemblies_need_the_diagnostics_socket_or_the_memory() {
        let plain = core_clr(RuntimeKind::SingleFile, Some((160, 0)));
        let observed = precompiled(&plain).unwrap().observed;
        assert_eq!(observed, "named from 31 mapped images, 1 of them composite");
        let compressed = || core_clr(RuntimeKind::SingleFile, Some((2, 158)));
        assert_eq!(precompiled(&compressed()).unwrap().status, Status::Degraded);
        let asked = ProcessSymbolSources { socket: Some(Ok(())), ..compressed() };
        assert_eq!(precompiled(&asked).unwrap().status, Status::Ok);
        let memory = ProcessSymbolSources { has_method_memory: true, ..compressed() };
        assert!(precompiled(&memory).unwrap().observed.ends_with("named from the runtime's memory"));
    }

    #[test]
    fn the_runtime_is_the_first_file_without_symbols() {
        let symbols = Some(SymbolSource::SymbolTable);
        assert_eq!(native(&[file("/a", symbols, false)], false).unwrap().status, Status::Ok);
        assert_eq!(native(&[], false), None);
        let exports = Some(SymbolSource::DynamicSymbols);
        let files = [
            file("/lib/libc.so.6", exports, false),
            file("/app/main", Some(SymbolSource::DebugFile), false),
            file("/d/libcoreclr.so", exports, true),
        ];
        let finding = native(&files, false).unwrap();
        let observed =
            "1 of 3 files have all symbols (1 in debug files); exports only: libcoreclr.so, libc.so.6";
        assert_eq!(finding.observed, observed);
        assert_eq!(finding.remedy, Some(Remedy::AddDebugFile("libcoreclr.so".to_owned())));
        let call_tables = Some(SymbolSource::RuntimeCallTable);
        let files = [file("/lib/libc.so.6", exports, false), file("/d/libcoreclr.so", call_tables, true)];
        let observed = "0 of 2 files have all symbols; exports and runtime call tables: libcoreclr.so; exports \
                        only: libc.so.6";
        assert_eq!(native(&files, false).unwrap().observed, observed);
    }

    #[test]
    fn helpers_of_a_stripped_runtime_need_the_memory_of_the_process() {
        let runtime = || vec![file("/d/libcoreclr.so", Some(SymbolSource::RuntimeCallTable), true)];
        let with_images = ProcessSymbolSources { native: runtime(), ..core_clr(RuntimeKind::CoreClr, None) };
        let without_images = ProcessSymbolSources {
            images: ReadyToRunImages::default(),
            native: runtime(),
            ..core_clr(RuntimeKind::CoreClr, None)
        };
        let has_helpers = |sources: &ProcessSymbolSources, is_memory_readable| {
            let findings = about("7 (dotnet)", sources, is_memory_readable);
            let native = findings.iter().find(|finding| finding.name == "native frames").unwrap();
            native.observed.ends_with("; exports, runtime call tables and runtime helpers: libcoreclr.so")
        };
        for sources in [with_images, without_images] {
            assert!(has_helpers(&sources, true));
            assert!(!has_helpers(&sources, false));
        }
    }

    #[test]
    fn a_runtime_is_described_by_version_and_path() {
        let describe = |kind, carried| runtime(core_clr(kind, carried).runtime.as_ref().unwrap());
        assert_eq!(describe(RuntimeKind::CoreClr, None), ".NET 9.0.1 in /d/libcoreclr.so");
        assert!(
            describe(RuntimeKind::SingleFile, Some((3, 4)))
                .ends_with("3 assemblies as they are and 4 compressed")
        );
    }

    #[test]
    fn the_running_test_is_native_code() {
        let found = findings(Pid::own()).unwrap();
        let names: Vec<_> = found.iter().map(|finding| finding.name).collect();
        assert_eq!(names, ["process", "native frames"]);
        assert!(found[0].observed.ends_with("native code"), "{found:?}");
    }

    #[test]
    fn a_process_that_cannot_be_read_has_a_remedy() {
        let finding = unreadable("7 (x)", Reason::ProcessGone);
        assert_eq!((finding.status, finding.remedy), (Status::Missing, None));
        assert!(unreadable("7 (x)", Reason::ProcessNotReadable).remedy.is_some());
        let kernel_thread = about("2 (kthreadd)", &ProcessSymbolSources::default(), false);
        assert_eq!(kernel_thread, [Finding::ok("process", "2 (kthreadd), no code of its own")]);
    }

    #[test]
    fn a_process_that_does_not_exist_is_an_error() {
        assert_eq!(findings(Pid(u32::MAX)).unwrap_err().kind(), ErrorKind::NoSuchTarget);
    }
}
