//! Tests names of native functions of stripped .NET runtimes, in programs that spend their time in one service of the
//! runtime each.

use std::{collections::BTreeMap, time::Duration};

use profiler::{
    Profile,
    profile::{FoundBy, Frame, FrameKind, Reason, StackEnd, SymbolSource, Symbolization},
};
use profiler_tests::{
    Workload, run_beside_others, sample_pid, sample_pid_often, sample_settled, settle, wait_for_samples,
    wait_until,
};

const SAMPLES: u64 = 1_000;

/// A mode of the workload, and the beginnings of the names of the functions that managed code calls in it: QCalls as the
/// runtime's source names them, FCalls by their methods.
struct Service {
    mode: &'static str,
    functions: &'static [&'static str],
}

const SERVICES: [Service; 10] = [
    Service {
        mode: "spin",
        functions: &["ThreadNative_SpinWait", "System.Threading.Thread.SpinWaitInternal"],
    },
    Service {
        mode: "sleep",
        functions: &[
            "ThreadNative_Sleep",
            "ThreadNative_YieldThread",
            "System.Threading.Thread.SleepInternal",
        ],
    },
    Service { mode: "lock", functions: &["Monitor_", "System.Threading.Monitor."] },
    Service { mode: "collect", functions: &["GCInterface_Collect"] },
    Service { mode: "alloc", functions: &[] },
    Service {
        mode: "exceptions",
        functions: &[
            "SfiInit",
            "SfiNext",
            "EHEnum",
            "AppendExceptionStackFrame",
            "CallCatchFunclet",
            "READYTORUN_HELPER_Throw",
            "CORINFO_HELP_THROW",
            // A new exception takes a lock.
            "System.Threading.Monitor.",
        ],
    },
    Service {
        mode: "dynamic",
        functions: &[
            "GCInterface_",
            "RuntimeMethodHandle_Destroy",
            "ModuleHandle_GetDynamicMethod",
            "System.ModuleHandle.GetDynamicMethod",
            "Delegate_",
            "System.Delegate.",
            "System.RuntimeMethodHandle.",
            "System.RuntimeTypeHandle.",
        ],
    },
    Service {
        mode: "reflection",
        functions: &[
            "Array_CreateInstance",
            "CustomAttribute_",
            "MetadataImport_",
            "ModuleHandle_",
            "RuntimeMethodHandle_",
            "RuntimeTypeHandle_",
            "TypeHandle_",
            "System.Array.InternalCreate",
            "System.ModuleHandle.",
            "System.Object.GetType",
            "System.Reflection.",
            "System.RuntimeMethodHandle.",
            "System.RuntimeTypeHandle.",
            "READYTORUN_HELPER_CheckedWriteBarrier",
            "READYTORUN_HELPER_PInvoke",
            "CORINFO_HELP_CHECKED_ASSIGN_REF",
            "CORINFO_HELP_INIT_PINVOKE_FRAME",
            "CORINFO_HELP_JIT_PINVOKE_",
        ],
    },
    Service {
        mode: "interop",
        functions: &[
            "access",
            "__GI___access",
            "getppid",
            "__GI___getppid",
            "malloc",
            "cfree",
            "SystemNative_",
        ],
    },
    Service { mode: "casts", functions: &[] },
];

/// What managed code calls in all modes: the clock, allocations, and calls of methods without code.
const COMMON: [&str; 6] = [
    "SystemNative_GetTimestamp",
    "READYTORUN_HELPER_New",
    "READYTORUN_FIXUP_New",
    "CORINFO_HELP_NEW",
    "READYTORUN_HELPER_DelayLoad_",
    "ThePreStub",
];

/// The least share of samples whose first native frame below managed code has a right name.
const LEAST_PERCENT: f64 = 97.0;

fn is_managed(frame: &Frame) -> bool {
    matches!(frame.kind, FrameKind::Jit | FrameKind::Precompiled)
}

/// Starts the workload with code that changes little: on a busy machine, the first code of a method runs for a minute. Its
/// instrumentation for profile-guided optimization calls counters, which are in no table of symbols, and its loops call the helper
/// that replaces them.
fn start(program: &str, mode: &str) -> Workload {
    let mut command = Workload::dotnet_program_command(program, mode);
    Workload::run(command.env("DOTNET_TieredPGO", "0").env("DOTNET_TC_QuickJitForLoops", "0"))
}

/// Samples once the unwind tables are loaded, until the methods have names.
fn sample_calls(pid: u32) -> Profile {
    let mut session = sample_pid_often(pid).build().unwrap().start().unwrap();
    settle(&mut session);
    // On a busy machine, the runtime can report a method that it has just compiled after the end of a profile.
    wait_until("names of all methods", || {
        wait_for_samples(&mut session, SAMPLES);
        let profile = session.take_profile(Duration::ZERO).unwrap();
        has_names_of_methods(&profile).then_some(profile)
    })
}

/// Whether 99 % of the samples have no managed frame without a name at their leaf. Frames above it do not count: a runtime that
/// collects all the time does not report its methods.
fn has_names_of_methods(profile: &Profile) -> bool {
    let functions = called_functions(profile);
    let unnamed = functions.get(&(String::new(), None)).copied().unwrap_or(0);
    unnamed * 100 <= functions.values().sum()
}

/// The first native function below managed code, with the number of samples and the source of its name. An empty name is
/// managed code itself, or the kernel.
fn called_functions(profile: &Profile) -> BTreeMap<(String, Option<SymbolSource>), usize> {
    let mut functions = BTreeMap::new();
    for sample in profile.samples() {
        let frames: Vec<_> =
            profile.stack(sample.stack).frames.iter().map(|frame| profile.frame(*frame)).collect();
        // The runtime describes its event sources when a session begins, by reflection.
        if frames.iter().any(|frame| profile.string(frame.name).contains("System.Diagnostics.Tracing.")) {
            continue;
        }
        let Some(managed) = frames.iter().position(|frame| is_managed(frame)) else { continue };
        let called = managed.checked_sub(1).map(|called| frames[called]);
        let called = called.filter(|called| called.kind != FrameKind::Kernel);
        let (name, symbolization) = match called {
            Some(called) => (profile.string(called.name).to_owned(), called.symbolization),
            None => (String::new(), frames[managed].symbolization),
        };
        let source = match symbolization {
            Symbolization::Symbol(source) => Some(source),
            Symbolization::Address(_) => None,
        };
        *functions.entry((name, source)).or_default() += 1;
    }
    functions
}

/// The number of the services of threads and memory, which are the first ones.
const OF_THREADS: usize = 5;

/// Checks the functions that managed code of a program calls: a version of the framework-dependent workload, or a
/// single-file program.
fn assert_services_named(program: &str, services: &[Service]) {
    let Some(_lock) = run_beside_others() else { return };
    for service in services {
        assert_named(program, service);
    }
}

fn assert_named(program: &str, Service { mode, functions: right }: &Service) {
    let workload = start(program, mode);
    let profile = sample_calls(workload.pid());
    let functions = called_functions(&profile);
    let is_right = |name: &str| right.iter().chain(&COMMON).any(|right| name.starts_with(right));
    let count = |is_counted: &dyn Fn(&str, Option<SymbolSource>) -> bool| {
        let counted = functions.iter().filter(|((name, source), _)| is_counted(name, *source));
        counted.map(|(_, count)| count).sum::<usize>()
    };
    let all = count(&|_, _| true);
    let native = count(&|name, _| !name.is_empty());
    let right = count(&|name, source| is_right(name) && source.is_some());
    let managed = count(&|name, source| name.is_empty() && source.is_some());
    let percent = |count: usize, all: usize| 100.0 * count as f64 / all as f64;
    let (of_all, of_native) = (percent(right + managed, all), percent(right, native));
    println!("{program} {mode}: {of_native:.1} % of {native} native ones, {of_all:.1} % of {all}");
    assert!(of_all >= LEAST_PERCENT, "{program} {mode}: {of_all} % are right: {functions:#?}");
    // Casts are managed code.
    let calls_functions = native * 50 > all;
    assert!(
        !calls_functions || of_native >= LEAST_PERCENT,
        "{program} {mode}: {of_native} % are right: {functions:#?}"
    );
    assert!(profile.ledger().adds_up(), "{program} {mode}: {:?}", profile.ledger());
}

// Two tests for each program: they run at the same time.
#[test]
fn functions_of_threads_and_memory_that_managed_code_calls_have_the_right_names_on_8_0() {
    assert_services_named("8.0", &SERVICES[..OF_THREADS]);
}

#[test]
fn functions_of_types_that_managed_code_calls_have_the_right_names_on_8_0() {
    assert_services_named("8.0", &SERVICES[OF_THREADS..]);
}

#[test]
fn functions_of_threads_and_memory_that_managed_code_calls_have_the_right_names_on_9_0() {
    assert_services_named("9.0", &SERVICES[..OF_THREADS]);
}

#[test]
fn functions_of_types_that_managed_code_calls_have_the_right_names_on_9_0() {
    assert_services_named("9.0", &SERVICES[OF_THREADS..]);
}

#[test]
fn functions_of_threads_and_memory_that_managed_code_calls_have_the_right_names_in_a_single_file() {
    assert_services_named("single-file", &SERVICES[..OF_THREADS]);
}

#[test]
fn functions_of_types_that_managed_code_calls_have_the_right_names_in_a_single_file() {
    assert_services_named("single-file", &SERVICES[OF_THREADS..]);
}

#[test]
fn functions_of_threads_and_memory_that_managed_code_calls_have_the_right_names_in_a_single_file_of_10_0() {
    assert_services_named("single-file-10.0", &SERVICES[..OF_THREADS]);
}

#[test]
fn functions_of_types_that_managed_code_calls_have_the_right_names_in_a_single_file_of_10_0() {
    assert_services_named("single-file-10.0", &SERVICES[OF_THREADS..]);
}

#[test]
fn functions_that_ended_with_a_jump_have_frames() {
    let Some(_lock) = run_beside_others() else { return };
    for program in ["8.0", "9.0"] {
        let workload = start(program, "reflection");
        let profile = sample_calls(workload.pid());
        let mut names = BTreeMap::<&str, usize>::new();
        for sample in profile.samples() {
            let stack = profile.stack(sample.stack);
            let inferred = stack.found_by.iter().position(|found| *found == FoundBy::CallInstruction);
            let Some(inferred) = inferred else { continue };
            let frame = |index: usize| profile.frame(stack.frames[index]);
            let (callee, caller) = (frame(inferred - 1), frame(inferred + 1));
            let is_unsymbolized = matches!(callee.symbolization, Symbolization::Address(_));
            assert!(is_unsymbolized && callee.module == frame(inferred).module, "{program}: {callee:?}");
            assert!(is_managed(caller), "{program}: {caller:?}");
            *names.entry(profile.string(frame(inferred).name)).or_default() += 1;
        }
        println!("{program}: {names:#?}");
        assert!(!names.is_empty(), "{program}: no function ended with a jump");
    }
}

#[test]
fn stubs_have_the_names_of_their_kinds() {
    let Some(_lock) = run_beside_others() else { return };
    for (program, mode) in [
        ("3.1", "generic"),
        ("8.0", "generic"),
        ("9.0", "dynamic"),
        ("9.0", "generic"),
        ("single-file-10.0", "dynamic"),
    ] {
        let profile = sample_settled(sample_pid(Workload::dotnet_program(program, mode).pid()), SAMPLES);
        let stacks = profile.samples().iter().map(|sample| profile.stack(sample.stack));
        let frames = stacks.flat_map(|stack| &stack.frames).map(|frame| profile.frame(*frame));
        let (mut kinds, mut unknown) = (BTreeMap::<&str, usize>::new(), 0);
        for frame in frames {
            match frame.symbolization {
                Symbolization::Symbol(SymbolSource::StubCode) => {
                    *kinds.entry(profile.string(frame.name)).or_default() += 1;
                }
                Symbolization::Address(Reason::RuntimeStub | Reason::NoJitEntry) => unknown += 1,
                _ => {}
            }
        }
        let known: usize = kinds.values().sum();
        assert!(
            known > 20 && unknown * 20 <= known,
            "{program} {mode}: {unknown} of {} unknown, {kinds:?}",
            known + unknown
        );
        assert!(kinds.keys().all(|name| name.starts_with("[stub ")), "{program} {mode}: {kinds:?}");
    }
}

/// Modes of the workload, the names of threads of the runtime that run in them, and what these threads do.
const ROLES: [(&str, &str, &str); 4] = [
    ("async", ".NET TP Worker", "thread pool worker"),
    ("collect", ".NET Server GC", "garbage collection"),
    ("dynamic", ".NET Finalizer", "finalizer"),
    ("dynamic", ".NET Tiered Com", "tiered compilation"),
];

/// The number of whole stacks of threads with this name in a view of a profile, and of those with a frame of this name.
fn stacks_with_frame(profile: &Profile, thread: &str, name: &str) -> (usize, usize) {
    let view = profile.with_merged_unsymbolized_frames();
    let of_threads =
        view.samples().iter().filter(|sample| view.string(view.thread(sample.thread).comm) == thread);
    let stacks = of_threads.map(|sample| view.stack(sample.stack));
    let whole: Vec<_> = stacks.filter(|stack| stack.end == StackEnd::Root).collect();
    let is_named = |frame: &Frame| view.string(frame.name) == name;
    let found = whole.iter().filter(|stack| stack.frames.iter().any(|frame| is_named(view.frame(*frame))));
    (whole.len(), found.count())
}

#[test]
fn pictures_show_what_threads_of_the_runtime_do() {
    const LEAST_STACKS: usize = 10;
    let Some(_lock) = run_beside_others() else { return };
    for (mode, thread, role) in ROLES {
        let has_server_gc = if mode == "collect" { "1" } else { "0" };
        let mut command = Workload::dotnet_command("9.0", mode);
        let workload = Workload::run(command.env("PERF_MAP", "0").env("DOTNET_gcServer", has_server_gc));
        // From the start of the process: later, nothing is left to compile.
        let mut session = sample_pid(workload.pid()).build().unwrap().start().unwrap();
        let (mut all, mut found) = (0, 0);
        wait_until("stacks of a thread of the runtime", || {
            wait_for_samples(&mut session, SAMPLES);
            let profile = session.take_profile(Duration::ZERO).unwrap();
            let stacks = stacks_with_frame(&profile, thread, &format!("[libcoreclr.so: {role}]"));
            (all, found) = (all + stacks.0, found + stacks.1);
            (all >= LEAST_STACKS).then_some(())
        });
        println!("{mode}: {found} of {all} stacks of {thread}");
        assert!(found * 10 >= all * 9, "{mode}: {found} of {all} stacks of {thread}");
    }
}
