//! Tests profiles of .NET processes in containers.

use std::path::PathBuf;

use profiler_tests::{Stacks, await_optimized, built, privileged, sample, sample_pid};

use crate::{
    container::Container,
    recipe::Recipe,
    sidecar::{sidecar, stacks},
};

const ALPHA_CHAIN: [&str; 3] =
    ["app!Workload.Cpu.Outer()", "app!Workload.Cpu.Middle()", "app!Workload.Cpu.Alpha()"];

fn recipe(version: &str) -> Recipe {
    recipe_for(version, "cpu")
}

/// A workload in a .NET runtime of the host, with the libraries of the host.
pub(crate) fn recipe_for(version: &str, mode: &str) -> Recipe {
    let folder = built("dotnet");
    let mut recipe = Recipe::new(&["/dotnet/run", version, mode, "60"]).shows(&folder, "/dotnet");
    for libraries in ["/lib", "/lib64", "/usr/lib"] {
        recipe = recipe.shows(&PathBuf::from(libraries).canonicalize().unwrap(), libraries);
    }
    recipe
}

/// The same with the perf map as the only source of symbols.
fn map_recipe(version: &str) -> Recipe {
    recipe(version).variable("COMPlus_EnableDiagnostics=0")
}

/// Starts it and waits until its methods have their final tier.
fn start(recipe: &Recipe, map: &str) -> Container {
    let container = recipe.start();
    await_optimized(&container.file(map));
    container
}

fn assert_named(stacks: &Stacks) {
    assert!(stacks.percent(|stack| stack.has_chain(&ALPHA_CHAIN)) > 45.0, "{stacks:#?}");
}

#[test]
fn managed_methods_are_symbolized_from_the_host_and_from_a_sidecar() {
    let Some(_turn) = privileged() else { return };
    let container = start(&map_recipe("9.0"), "/tmp/perf-1.map");
    assert_named(&Stacks::of(&sample(sample_pid(container.pid()), 2_000)));
    assert_named(&stacks(&sidecar(&container, &["-p", "1", "-F", "1999", "-d", "1"]).run()));
}

#[test]
fn a_perf_map_in_another_folder_is_found_from_the_host_and_from_a_sidecar() {
    let Some(_turn) = privileged() else { return };
    for (version, variable) in [("3.1", "TMPDIR=/maps"), ("9.0", "DOTNET_PerfMapJitDumpPath=/maps")] {
        let recipe = map_recipe(version).variable(variable).mounts("/maps", "tmpfs", &["mode=1777"]);
        let container = start(&recipe, "/maps/perf-1.map");
        assert!(!container.file("/tmp/perf-1.map").exists());
        assert_named(&Stacks::of(&sample(sample_pid(container.pid()), 2_000)));
        assert_named(&stacks(&sidecar(&container, &["-p", "1", "-F", "1999", "-d", "1"]).run()));
    }
}

#[test]
fn methods_are_symbolized_without_settings_from_the_host_and_from_a_sidecar() {
    let Some(_turn) = privileged() else { return };
    for version in ["3.1", "9.0"] {
        let container = recipe(version).variable("PERF_MAP=0").start();
        assert_named(&Stacks::of(&sample(sample_pid(container.pid()), 4_000)));
        assert_named(&stacks(&sidecar(&container, &["-p", "1", "-F", "1999", "-d", "1"]).run()));
        assert!(!container.file("/tmp/perf-1.map").exists());
    }
}
