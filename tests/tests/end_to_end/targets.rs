//! Tests invalid and unusual targets.

use std::{fs, process::Command};

use profiler::{ErrorKind, Profiler, Target};
use profiler_tests::{
    FoldedStacks, Outcome, Workload, profiler, run_beside_others, run_command, skip_on_this_machine,
    wait_until,
};

#[test]
fn a_missing_process_is_an_error_with_its_pid() {
    let Some(_lock) = run_beside_others() else { return };
    let run = run_command(&mut profiler(&["-p", "4194303", "-d", "1"]));
    assert_eq!(run.code(), 1);
    assert!(run.stderr.contains("process 4194303 does not exist"), "{}", run.stderr);
}

#[test]
fn a_thread_id_as_pid_is_an_error_that_names_the_process_and_the_thread_option() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("threads");
    let tid =
        wait_until("a second thread", || workload.tids().into_iter().find(|tid| *tid != workload.pid()));
    let run = run_command(&mut profiler(&["-p", &tid.to_string(), "-d", "1"]));
    assert_eq!(run.code(), 1);
    let said = format!("{tid} is a thread of process {}", workload.pid());
    assert!(run.stderr.contains(&said), "{}", run.stderr);
}

#[test]
fn a_zombie_is_an_error_with_that_reason() {
    let Some(_lock) = run_beside_others() else { return };
    let mut child = Command::new("true").spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    wait_until("a zombie", || fs::read_to_string(&status).ok()?.contains("Z (zombie)").then_some(()));
    let pid = child.id().to_string();
    let run = |options: &[&str]| run_command(profiler(&["-p", &pid, "-d", "1"]).args(options));
    let runs = [&[][..], &["--wall"], &["--off-cpu"]].map(run);
    child.wait().unwrap();
    for run in runs {
        assert_eq!(run.code(), 1);
        assert!(run.stderr.contains("has ended"), "{}", run.stderr);
    }
}

/// A script in a PID namespace of its own, whose `/proc` is that of the namespace around it. `$0` is the profiler.
fn in_pid_namespace(script: &str) -> Outcome {
    let mut command = Command::new("unshare");
    let profiler = profiler(&[]);
    command.args(["--pid", "--fork", "--mount", "sh", "-c", script]).arg(profiler.get_program());
    run_command(&mut command)
}

/// The workload of the scripts.
const SHARES: &str = "../target/workloads/shares";

#[test]
fn ids_mean_processes_of_the_own_pid_namespace_whatever_proc_is_mounted() {
    let Some(_lock) = run_beside_others() else { return };
    let shares = profiler_tests::file(SHARES);
    for mounts in ["true", "umount --lazy /proc"] {
        for target in ["-p $pid", "-t $pid", "--process shares", "-a"] {
            // Before it is ready, the workload can still be the shell that executes it.
            let output = tempfile::NamedTempFile::new().unwrap();
            let run = in_pid_namespace(&format!(
                "{mounts}; {} 600 < /dev/zero > {output} & pid=$!; until [ -s {output} ]; do sleep 0.01; done; \
                 $0 {target} -d 1; code=$?; kill $pid; exit $code",
                shares.display(),
                output = output.path().display(),
            ));
            assert_eq!(run.code(), 0, "{mounts}, {target}: {}", run.stderr);
            let stacks = FoldedStacks::parse(&run.stdout);
            assert!(stacks.count(|stack| stack.comm == "shares" && stack.has("alpha")) > 0, "{run:?}");
        }
    }
}

#[test]
fn a_proc_of_another_pid_namespace_that_cannot_be_replaced_is_an_error_with_the_remedy() {
    let Some(_lock) = run_beside_others() else { return };
    let without_mounts = "setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin $0";
    for (mounts, message) in [
        ("true", "`/proc` is of another pid namespace: ids mean other processes there"),
        ("umount --lazy /proc", "`/proc` is not mounted"),
    ] {
        for command in [
            "-p 1 -d 1",
            "-a -d 1",
            "record -p 1 --trigger 'cpu > 90%' -o /tmp/%n.profile",
            "agent --write-dir /tmp -d 1",
        ] {
            let run = in_pid_namespace(&format!("{mounts}; exec {without_mounts} {command}"));
            assert_eq!(run.code(), 1, "{command}: {run:?}");
            assert!(run.stderr.contains(message), "{command}: {}", run.stderr);
            assert!(run.stderr.contains("mount -t proc proc /proc"), "{command}: {}", run.stderr);
        }
    }
}

#[test]
fn a_kernel_thread_is_sampled() {
    let Some(_lock) = run_beside_others() else { return };
    let is_kernel_thread = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|line| line == "Kthread:\t1")
    };
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let Some(pid) = pids.find(is_kernel_thread) else {
        return skip_on_this_machine("this pid namespace has no kernel thread");
    };
    let session = Profiler::builder().target(Target::Pid(pid)).build().unwrap().start().unwrap();
    let profile = session.run_for(std::time::Duration::from_millis(200)).unwrap();
    assert!(profile.ledger().adds_up());
    assert_eq!(profile.first_ledger().unsymbolized_total(), 0, "{:?}", profile.ledger());
}

#[test]
fn a_session_ends_when_its_target_exits() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start_with("shares", &["0.01"]);
    match Profiler::builder().target(Target::Pid(workload.pid())).build().unwrap().start() {
        Ok(session) => assert!(session.run().unwrap().ledger().adds_up()),
        Err(error) => assert_eq!(error.kind(), ErrorKind::NoSuchTarget, "{error}"),
    }
}

#[test]
fn system_wide_samples_have_process_names() {
    let Some(_lock) = run_beside_others() else { return };
    let workloads = [Workload::start("shares"), Workload::start("syscalls")];
    let run = run_command(&mut profiler(&["-a", "-F", "499", "-d", "1", "--per-process"]));
    assert_eq!(run.code(), 0, "{}", run.stderr);
    for (workload, name) in workloads.iter().zip(["shares", "syscalls"]) {
        let frame = format!("{name};process {} ({name});", workload.pid());
        assert!(run.stdout.lines().any(|line| line.starts_with(&frame)), "{frame}\n{}", run.stdout);
    }
}
