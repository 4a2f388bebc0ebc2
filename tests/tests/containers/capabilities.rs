//! Tests that the minimal capabilities suffice, and that each missing one is reported.

use std::process::Command;

use profiler_tests::{
    FoldedStack, FoldedStacks, Outcome, hide_kernel_addresses, measure_alone, profiler, run_beside_others,
    run_command, workload_path,
};

use crate::{
    HOT_CHAIN, assert_jit_named,
    container::Container,
    container_builder::{ContainerBuilder, LEAST_CAPABILITIES, is_grantable},
    sidecar::{sidecar, stacks},
};

/// A user id without a user name.
const USER: u32 = 65_534;

/// The command as root with these capabilities alone.
pub(crate) fn with_capabilities(names: &[&str], command: &Command) -> Command {
    let bounds = names.iter().filter(|name| is_grantable(name));
    let bounds: String = bounds.map(|name| format!(",+{}", name.to_lowercase())).collect();
    let mut setpriv = Command::new("setpriv");
    setpriv.args(["--inh-caps=-all", &format!("--bounding-set=-all{bounds}")]);
    setpriv.arg(command.get_program()).args(command.get_args());
    setpriv
}

fn all_but(missing: &str) -> Vec<&'static str> {
    LEAST_CAPABILITIES.iter().copied().filter(|name| *name != missing).collect()
}

/// A target with JIT code and system calls, half of its time each.
fn start() -> Container {
    let script = "syscalls-static 300 & exec jit-static 300";
    let builder = ContainerBuilder::new(&["sh", "-c", script]);
    builder.program(&workload_path("jit-static")).program(&workload_path("syscalls-static")).start()
}

/// Runs the profiler in a sidecar, as an unprivileged user with all capabilities but one.
fn run_without(missing: &str) -> Outcome {
    let target = start();
    let arguments = ["-a", "-F", "1999", "-d", "1"];
    sidecar(&target, &arguments).user(USER).capabilities(&all_but(missing)).run()
}

fn assert_hot_named(stacks: &FoldedStacks) {
    let own = |stack: &&FoldedStack| stack.comm == "jit-static";
    let own = FoldedStacks(stacks.0.iter().filter(own).cloned().collect());
    assert_jit_named(&own);
}

fn has_kernel_names(stacks: &FoldedStacks) -> bool {
    stacks.count(|stack| stack.frames.iter().any(|frame| frame.contains("sys_read"))) > 0
}

#[test]
fn the_minimal_capabilities_suffice_for_all_features() {
    let Some(_lock) = run_beside_others() else { return };
    let run = run_without("nothing");
    let stacks = stacks(&run);
    assert_hot_named(&stacks);
    assert!(has_kernel_names(&stacks), "{stacks:#?}");
}

#[test]
fn without_bpf_or_perfmon_profiling_fails_and_the_error_names_the_capability() {
    let Some(_lock) = run_beside_others() else { return };
    for missing in ["BPF", "PERFMON"] {
        let run = run_without(missing);
        assert_eq!(run.code(), 1, "{missing}: {}", run.stderr);
        assert!(run.stderr.contains(&format!("needs CAP_{missing}: ")), "{missing}: {}", run.stderr);
        assert!(run.stderr.contains(&format!("--cap-add={missing}`")), "{missing}: {}", run.stderr);
        assert!(run.stderr.contains(&format!("add: [{missing}]")), "{missing}: {}", run.stderr);
    }
}

#[test]
fn without_sys_ptrace_processes_of_other_users_are_unsymbolized_and_the_capability_is_reported() {
    let Some(_lock) = run_beside_others() else { return };
    let run = run_without("SYS_PTRACE");
    let stacks = stacks(&run);
    assert_eq!(stacks.count(|stack| stack.has(HOT_CHAIN[2])), 0, "{stacks:#?}");
    assert!(run.stderr.contains("CAP_SYS_PTRACE"), "{}", run.stderr);
}

#[test]
fn without_access_to_map_files_symbols_come_from_the_paths_of_the_target() {
    let Some(_lock) = run_beside_others() else { return };
    for missing in ["DAC_READ_SEARCH", "CHECKPOINT_RESTORE", "SYS_RESOURCE"] {
        let stacks = stacks(&run_without(missing));
        assert_hot_named(&stacks);
        assert!(has_kernel_names(&stacks), "{missing}: {stacks:#?}");
    }
}

#[test]
fn the_error_for_root_without_capabilities_lists_all_that_are_missing() {
    let Some(_lock) = run_beside_others() else { return };
    let target = ContainerBuilder::workload("jit-static", &["300"]).start();
    let pid = target.pid().to_string();
    let run = run_command(&mut with_capabilities(&[], &profiler(&["-p", &pid, "-d", "0.5"])));
    assert_eq!(run.code(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("--cap-add=PERFMON"), "{}", run.stderr);
    assert!(run.stderr.contains("--cap-add=BPF"), "{}", run.stderr);
}

/// With kernel settings that hold for the whole machine.
mod measured {
    use super::*;

    #[test]
    fn without_syslog_kernel_frames_are_unsymbolized_and_the_capability_is_reported() {
        let Some(_lock) = measure_alone() else { return };
        let _settings = hide_kernel_addresses();
        let run = run_without("SYSLOG");
        let stacks = stacks(&run);
        assert_hot_named(&stacks);
        assert!(!has_kernel_names(&stacks), "{stacks:#?}");
        assert!(run.stderr.contains("CAP_SYSLOG"), "{}", run.stderr);
    }
}
