//! Tests the profiler as an unprivileged user, with few capabilities or none.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use profiler_tests::{
    FoldedStacks, Outcome, Workload, hide_kernel_addresses, measure_alone, profiler, run_beside_others,
    run_command,
};

/// Capabilities that suffice if `kernel.perf_event_paranoid` is at most 2 and BPF maps need no locked memory.
const SUFFICIENT_CAPABILITIES: [&str; 5] = ["bpf", "perfmon", "sys_ptrace", "syslog", "dac_read_search"];

fn run_unprivileged(capabilities: &[&str], arguments: &[&str]) -> Outcome {
    // Other users may not enter the build folder, so a copy of the program is placed where they may.
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("profiler");
    fs::copy(profiler(&[]).get_program(), &program).unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    let list: Vec<String> = capabilities.iter().map(|capability| format!("+{capability}")).collect();
    if !list.is_empty() {
        let list = list.join(",");
        command.arg(format!("--inh-caps={list}")).arg(format!("--ambient-caps={list}"));
    }
    run_command(command.arg("--").arg(program).args(arguments).current_dir("/"))
}

#[test]
fn a_missing_capability_is_an_error_with_a_remedy() {
    let Some(_lock) = run_beside_others() else { return };
    let run = run_unprivileged(&[], &["-a", "-d", "0.2"]);
    assert_eq!((run.code(), run.stdout.as_str()), (1, ""));
    let remedies = ["CAP_PERFMON", "perf_event_paranoid", "sudo"];
    assert!(remedies.iter().any(|remedy| run.stderr.contains(remedy)), "{}", run.stderr);
}

mod measured {
    use super::*;

    #[test]
    fn capabilities_without_root_suffice_for_a_process_of_another_user() {
        let Some(_lock) = measure_alone() else { return };
        let _settings = hide_kernel_addresses();
        let workload = Workload::start("syscalls");
        let run = run_unprivileged(
            &SUFFICIENT_CAPABILITIES,
            &["-p", &workload.pid().to_string(), "-F", "999", "-d", "0.5"],
        );
        assert_eq!(run.code(), 0, "{}", run.stderr);
        let stacks = FoldedStacks::parse(&run.stdout);
        assert!(
            stacks.percent(|stack| stack.has_chain(&["main", "run", "read_zeros", "read"])) > 90.0,
            "{stacks:#?}"
        );
        assert!(stacks.percent(|stack| stack.has("vfs_read")) > 80.0, "{stacks:#?}");
    }

    #[test]
    fn unsymbolized_kernel_frames_are_reported_with_a_remedy() {
        let Some(_lock) = measure_alone() else { return };
        let _settings = hide_kernel_addresses();
        let workload = Workload::start("syscalls");
        let capabilities: Vec<&str> =
            SUFFICIENT_CAPABILITIES.into_iter().filter(|capability| *capability != "syslog").collect();
        let run =
            run_unprivileged(&capabilities, &["-p", &workload.pid().to_string(), "-F", "999", "-d", "0.5"]);
        assert_eq!(run.code(), 0, "{}", run.stderr);
        assert!(run.stderr.contains("CAP_SYSLOG") && run.stderr.contains("kptr_restrict"), "{}", run.stderr);
        let stacks = FoldedStacks::parse(&run.stdout);
        assert!(stacks.percent(|stack| stack.has("[kernel]")) > 80.0, "{stacks:#?}");
        assert!(
            stacks.percent(|stack| stack.has_chain(&["main", "run", "read_zeros", "read"])) > 90.0,
            "{stacks:#?}"
        );
    }
}
