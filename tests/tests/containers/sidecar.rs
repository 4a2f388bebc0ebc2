//! Tests the profiler in a sidecar container that shares only the PID namespace with its target.

use profiler_tests::{FoldedStacks, Outcome, Workload, run_beside_others, workload_path};

use crate::{
    assert_jit_named, cgroups,
    container::Container,
    container_builder::{ContainerBuilder, LEAST_CAPABILITIES},
};

/// The profiler in a sidecar of a target, without `/sys`.
pub(crate) fn bare_sidecar(of: &Container, arguments: &[&str]) -> ContainerBuilder {
    let words = [&["profiler"], arguments].concat();
    let builder =
        ContainerBuilder::new(&words).program(&workload_path("profiler")).capabilities(LEAST_CAPABILITIES);
    builder.in_pid_namespace_of(of.pid())
}

/// The profiler in a sidecar of a target.
pub(crate) fn sidecar(of: &Container, arguments: &[&str]) -> ContainerBuilder {
    bare_sidecar(of, arguments).mount("/sys", "sysfs", &["ro"])
}

/// The stacks of a successful run.
pub(crate) fn stacks(run: &Outcome) -> FoldedStacks {
    assert_eq!(run.code(), 0, "{}", run.stderr);
    assert!(run.stderr.contains(", 0 lost"), "{}", run.stderr);
    FoldedStacks::parse(&run.stdout)
}

#[test]
fn a_sidecar_symbolizes_its_target_by_the_files_of_the_target() {
    let Some(_lock) = run_beside_others() else { return };
    let target = ContainerBuilder::workload("jit-static", &["300"]).start();
    let run = sidecar(&target, &["-p", "1", "-F", "1999", "-d", "1"]).run();
    assert_jit_named(&stacks(&run));
    assert!(run.stderr.contains("of pid 1 (jit-static)"), "{}", run.stderr);
}

#[test]
fn samples_have_the_pids_of_the_sidecars_namespace() {
    let Some(_lock) = run_beside_others() else { return };
    // It computes all the time in the namespace of the host.
    let _outside = Workload::start("shares");
    let script = "shares-static 300 & jit-static 300";
    let target = ContainerBuilder::new(&["sh", "-c", script]);
    let target =
        target.program(&workload_path("jit-static")).program(&workload_path("shares-static")).start();
    let shares = pid_inside(target.wait_for("shares-static"));
    let run = sidecar(&target, &["-a", "-F", "1999", "-d", "1", "--per-process"]).run();
    let stacks = stacks(&run);
    let name = format!("process {shares} (shares-static)");
    // Of three fifths, whatever time it had beside the others.
    let of_shares = stacks.count(|stack| stack.has(&name));
    let in_alpha = stacks.count(|stack| stack.has(&name) && stack.has("alpha"));
    assert!(in_alpha > 0 && in_alpha * 3 > of_shares, "{stacks:#?}");
    // Processes outside are not sampled, neither under their own names nor under that of a process with the same pid
    // inside: that of the workload outside, and all that tests beside this one have started.
    let inside = ["(shares-static)", "(jit-static)", "(profiler)", "(sh)", "(runc:[2:INIT])"];
    let outside = stacks.count(|stack| !inside.iter().any(|name| stack.frames[0].ends_with(name)));
    assert_eq!(outside, 0, "{stacks:#?}");
    assert!(target.pids().len() >= 2);
}

#[test]
fn without_kernel_btf_processes_of_the_same_namespace_are_sampled() {
    let Some(_lock) = run_beside_others() else { return };
    let target = ContainerBuilder::workload("jit-static", &["300"]).start();
    let run = bare_sidecar(&target, &["-p", "1", "-F", "1999", "-d", "1"]).run();
    assert_jit_named(&stacks(&run));
}

#[test]
fn a_sidecar_finds_a_container_by_its_id() {
    let Some(_lock) = run_beside_others() else { return };
    let id = cgroups::id();
    let place = format!("kubepods/besteffort/pod0d4b8f4e/{id}");
    let target = ContainerBuilder::workload("jit-static", &["300"]).cgroup(&place).start();
    let run = sidecar(&target, &["--container", &id[..12], "-F", "1999", "-d", "1"]).run();
    assert_jit_named(&stacks(&run));
    assert!(run.stderr.contains(&format!("of container {id}")), "{}", run.stderr);
}

#[test]
fn target_and_sidecar_work_with_read_only_roots() {
    let Some(_lock) = run_beside_others() else { return };
    let target = ContainerBuilder::workload("jit-static", &["300"]).read_only().start();
    let run = sidecar(&target, &["-p", "1", "-F", "1999", "-d", "0.5"]).read_only().run();
    assert_jit_named(&stacks(&run));
}

#[test]
fn the_error_in_a_user_namespace_names_the_option_against_it() {
    let Some(_lock) = run_beside_others() else { return };
    let words = ["profiler", "-a", "-d", "0.5"];
    let builder =
        ContainerBuilder::new(&words).program(&workload_path("profiler")).capabilities(LEAST_CAPABILITIES);
    let run = builder.user_namespace(100_000).run();
    assert_eq!(run.code(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("--userns=host"), "{}", run.stderr);
}

#[test]
fn a_process_of_another_pid_namespace_is_an_invalid_target() {
    let Some(_lock) = run_beside_others() else { return };
    let target = ContainerBuilder::workload("jit-static", &["300"]).start();
    let outside = std::process::id().to_string();
    let run = sidecar(&target, &["-p", &outside, "-d", "0.5"]).run();
    assert_eq!(run.code(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("does not exist in the profiler's pid namespace"), "{}", run.stderr);
}

/// The pid of a process in the PID namespace one level below the host's.
pub(crate) fn pid_inside(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap();
    ids.split_whitespace().nth(1).expect("a process of a container").to_owned()
}
