//! Tests profiles of .NET processes in containers.

use std::{collections::HashSet, fs, path::PathBuf, time::Duration};

use profiler::{
    EventSet,
    profile::{FieldValue, RuntimeEventKind, SymbolSource},
};
use profiler_tests::{
    FoldedStacks, await_optimized, run_beside_others, sample, sample_pid, wait_until, workload_path,
};

use crate::{
    container::Container,
    container_builder::ContainerBuilder,
    sidecar::{sidecar, stacks},
};

const ALPHA_CHAIN: [&str; 3] =
    ["app!Workload.Cpu.Outer()", "app!Workload.Cpu.Middle()", "app!Workload.Cpu.Alpha()"];

fn builder(version: &str) -> ContainerBuilder {
    builder_for(version, "cpu")
}

/// A workload in a .NET runtime of the host, or as the single-file program of this name, with the libraries of the host.
pub(crate) fn builder_for(program: &str, mode: &str) -> ContainerBuilder {
    let single_file = format!("/dotnet/{program}");
    let arguments: &[&str] = match program.starts_with("single-file") {
        true => &[&single_file, mode, "300"],
        false => &["/dotnet/run", program, mode, "300"],
    };
    let folder = workload_path("dotnet");
    let mut builder = ContainerBuilder::new(arguments).bind_mount(&folder, "/dotnet");
    for libraries in ["/lib", "/lib64", "/usr/lib"] {
        builder = builder.bind_mount(&PathBuf::from(libraries).canonicalize().unwrap(), libraries);
    }
    builder
}

/// The same with the perf map as the only source of symbols.
fn perf_map_builder(version: &str) -> ContainerBuilder {
    builder(version).variable("COMPlus_EnableDiagnostics=0")
}

/// Starts it and waits until its methods have their final tier.
fn start(builder: &ContainerBuilder, map: &str) -> Container {
    let container = builder.start();
    await_optimized(&container.file(map));
    container
}

fn assert_named(stacks: &FoldedStacks) {
    assert!(stacks.percent(|stack| stack.has_chain(&ALPHA_CHAIN)) > 45.0, "{stacks:#?}");
}

#[test]
fn managed_methods_are_symbolized_from_the_host_and_from_a_sidecar() {
    let Some(_lock) = run_beside_others() else { return };
    let container = start(&perf_map_builder("9.0"), "/tmp/perf-1.map");
    assert_named(&FoldedStacks::from_profile(&sample(sample_pid(container.pid()), 2_000)));
    assert_named(&stacks(&sidecar(&container, &["-p", "1", "-F", "1999", "-d", "1"]).run()));
}

#[test]
fn a_perf_map_in_another_folder_is_found_from_the_host_and_from_a_sidecar() {
    let Some(_lock) = run_beside_others() else { return };
    for (version, variable) in [("3.1", "TMPDIR=/maps"), ("9.0", "DOTNET_PerfMapJitDumpPath=/maps")] {
        let builder = perf_map_builder(version).variable(variable).mount("/maps", "tmpfs", &["mode=1777"]);
        let container = start(&builder, "/maps/perf-1.map");
        assert!(!container.file("/tmp/perf-1.map").exists());
        assert_named(&FoldedStacks::from_profile(&sample(sample_pid(container.pid()), 2_000)));
        assert_named(&stacks(&sidecar(&container, &["-p", "1", "-F", "1999", "-d", "1"]).run()));
    }
}

#[test]
fn methods_are_symbolized_without_settings_from_the_host_and_from_a_sidecar() {
    let Some(_lock) = run_beside_others() else { return };
    for version in ["3.1", "9.0"] {
        let container = builder(version).variable("PERF_MAP=0").start();
        assert_named(&FoldedStacks::from_profile(&sample(sample_pid(container.pid()), 4_000)));
        assert_named(&stacks(&sidecar(&container, &["-p", "1", "-F", "1999", "-d", "1"]).run()));
        assert!(!container.file("/tmp/perf-1.map").exists());
    }
}

#[test]
fn methods_have_names_without_diagnostics_below_a_read_only_root() {
    let Some(_lock) = run_beside_others() else { return };
    let hardened = builder("9.0").variable("PERF_MAP=0").variable("DOTNET_EnableDiagnostics=0").read_only();
    let container = hardened.start();
    let profile = sample(sample_pid(container.pid()), 2_000);
    assert!(profile.first_ledger().symbolized.contains_key(&SymbolSource::RuntimeMemory));
    assert_named(&FoldedStacks::from_profile(&profile));
    assert_named(&stacks(&sidecar(&container, &["-p", "1", "-F", "1999", "-d", "1"]).run()));
}

/// The thread of a process with this id in its own PID namespace.
pub(crate) fn tid_of(pid: u32, own_id: u32) -> u32 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let is_it = |task: &fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        ids.and_then(|ids| ids.split_whitespace().last()?.parse().ok()) == Some(own_id)
    };
    tasks.filter(is_it).find_map(|task| task.file_name().to_str()?.parse().ok()).unwrap()
}

#[test]
fn owners_of_locks_have_the_ids_of_the_profilers_namespace_without_diagnostics() {
    let Some(_lock) = run_beside_others() else { return };
    let hardened = builder_for("9.0", "owner").variable("PERF_MAP=0").variable("DOTNET_EnableDiagnostics=0");
    let mut container = hardened.read_only().start();
    let pid = container.pid();
    let owner = container.line("owner ").trim().parse().unwrap();
    let wall = sample_pid(pid).wall_clock_hz(49).cpu_samples(false);
    let mut session = wall.build().unwrap().start().unwrap();
    let profile = wait_until("the owner of the lock", || {
        let profile = session.take_profile(Duration::from_secs(1)).unwrap();
        (!profile.lock_owners().is_empty()).then_some(profile)
    });
    let expected = tid_of(pid, owner);
    assert_ne!(expected, owner, "the container has its own ids");
    for lock in profile.lock_owners() {
        let thread = profile.thread(lock.owner);
        assert_eq!((thread.tid, profile.string(thread.comm)), (expected, "price computati"));
    }
}

#[test]
fn threads_of_runtime_events_have_the_ids_of_the_profilers_namespace() {
    let Some(_lock) = run_beside_others() else { return };
    for version in ["3.1", "9.0"] {
        let container = builder_for(version, "convoy").variable("PERF_MAP=0").start();
        let pid = container.pid();
        let builder = sample_pid(pid).runtime_events([EventSet::Contentions]);
        let mut session = builder.build().unwrap().start().unwrap();
        let profile = wait_until("contentions", || {
            let profile = session.take_profile(Duration::from_secs(1)).unwrap();
            let kinds = profile.runtime_events().iter().map(|event| event.kind);
            let contentions = kinds.filter(|kind| *kind == RuntimeEventKind::Contention).count();
            // On a busy machine, a thread that has the lock takes it again before another one runs.
            (contentions > 2).then_some(profile)
        });
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        let tids: HashSet<u32> = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
        let events: Vec<_> = profile
            .runtime_events()
            .iter()
            .filter(|event| event.kind == RuntimeEventKind::Contention)
            .collect();
        for event in events {
            let tid = event.thread.map(|thread| profile.thread(thread).tid);
            assert!(tid.is_some_and(|tid| tids.contains(&tid)), "{version}: {tid:?}");
            match event.field(&profile, "LockOwnerThreadID") {
                Some(FieldValue::Unsigned(owner)) => assert!(tids.contains(&u32::try_from(owner).unwrap())),
                // A runtime reports no owner if the lock was just released.
                owner => assert!(owner.is_none(), "{version}: {owner:?}"),
            }
        }
    }
}
