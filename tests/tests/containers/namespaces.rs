//! Tests targets in PID, user and mount namespaces of their own, from the host and from sidecars.

use profiler::{Profile, profile::SymbolSource};
use profiler_tests::{FoldedStacks, run_beside_others, sample, sample_pid, workload_path};

use crate::{
    assert_jit_named,
    container::Container,
    container_builder::ContainerBuilder,
    sidecar::{pid_inside, sidecar, stacks},
};

/// Starts `jit` in a PID namespace below the container's, as process 1 of it, with the files of the container.
pub(crate) fn start_nested(look: &str) -> (Container, u32) {
    let words = ["unshare", "-p", "-f", "jit-static", "300", look];
    let builder =
        ContainerBuilder::new(&words).program(&workload_path("jit-static")).capabilities(&["SYS_ADMIN"]);
    let container = builder.start();
    let pid = container.wait_for("jit-static");
    (container, pid)
}

fn assert_named(profile: &Profile) {
    let ledger = profile.first_ledger();
    assert!(ledger.adds_up() && ledger.lost_total() == 0, "{ledger:?}");
    for source in [SymbolSource::PerfMap, SymbolSource::SymbolTable] {
        assert!(ledger.symbolized.contains_key(&source), "{ledger:?}");
    }
    assert_jit_named(&FoldedStacks::from_profile(profile));
}

#[test]
fn a_container_is_symbolized_by_its_own_files_from_the_host() {
    let Some(_lock) = run_beside_others() else { return };
    let container = ContainerBuilder::workload("jit-static", &["300"]).start();
    assert_named(&sample(sample_pid(container.pid()), 2_000));
}

#[test]
fn a_target_with_a_read_only_root_is_symbolized() {
    let Some(_lock) = run_beside_others() else { return };
    let container = ContainerBuilder::workload("jit-static", &["300"]).read_only().start();
    assert_named(&sample(sample_pid(container.pid()), 2_000));
}

#[test]
fn the_perf_map_of_a_user_namespace_belongs_to_a_user_of_the_host_with_another_id() {
    use std::os::unix::fs::MetadataExt;
    let Some(_lock) = run_beside_others() else { return };
    const FIRST_HOST_ID: u32 = 100_000;
    let container = ContainerBuilder::workload("jit-static", &["300"]).user_namespace(FIRST_HOST_ID).start();
    assert_eq!(container.file("/tmp/perf-1.map").metadata().unwrap().uid(), FIRST_HOST_ID);
    assert_named(&sample(sample_pid(container.pid()), 2_000));
}

#[test]
fn the_host_finds_a_perf_map_by_the_innermost_pid_of_a_nested_namespace() {
    let Some(_lock) = run_beside_others() else { return };
    let (_container, pid) = start_nested("lower");
    assert_named(&sample(sample_pid(pid), 2_000));
}

#[test]
fn a_sidecar_finds_a_perf_map_by_the_innermost_pid_of_a_nested_namespace() {
    let Some(_lock) = run_beside_others() else { return };
    let (container, pid) = start_nested("lower");
    let run = sidecar(&container, &["-p", &pid_inside(pid), "-F", "1999", "-d", "1"]).run();
    assert_jit_named(&stacks(&run));
}
