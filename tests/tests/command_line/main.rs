//! The command line: help texts, errors, exit codes, targets, outputs and signals.

mod signals;
mod standard_streams;
mod wrong_arguments;

use std::{
    fs::{self, File},
    io::Read,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use profiler_tests::{
    FoldedStacks, Outcome, Pane, Workload, profiler, run_beside_others, run_command, start_sampling,
    wait_until, workload_path,
};
use rustix::process::{Pid, Signal, kill_process};

fn run(arguments: &[&str]) -> Outcome {
    run_command(&mut profiler(arguments))
}

/// Checks the exit code, that standard output is empty and that standard error contains the words.
fn assert_refused(run: &Outcome, code: i32, words: &[&str]) {
    assert_eq!(run.code(), code, "{}", run.stderr);
    assert_eq!(run.stdout, "");
    for word in words {
        assert!(run.stderr.contains(word), "`{word}` is not in\n{}", run.stderr);
    }
}

fn own_pid() -> String {
    std::process::id().to_string()
}

#[test]
fn the_long_help_has_examples_and_the_short_one_says_where_they_are() {
    let long = run(&["--help"]);
    assert_eq!(long.code(), 0);
    assert!(long.stdout.contains("Examples:\n  profiler -p 1234 -F 99 -d 30 > folded"), "{}", long.stdout);
    assert!(long.stdout.contains("Exit codes:"));
    let short = run(&["-h"]);
    assert_eq!(short.code(), 0);
    assert!(short.stdout.contains("--help for examples"), "{}", short.stdout);
    assert!(!short.stdout.contains("Examples:"), "{}", short.stdout);
    assert!(short.stdout.lines().count() < long.stdout.lines().count());
    for help in [long, short] {
        assert_eq!(help.stderr, "");
        assert!(help.stdout.lines().all(|line| line.chars().count() <= 100), "{}", help.stdout);
    }
}

#[test]
fn completions_and_man_pages_are_printed() {
    for (arguments, beginning) in [
        (&["completions", "bash"][..], "_profiler() {"),
        (&["completions", "zsh"], "#compdef profiler"),
        (&["completions", "fish"], "# Print an optspec"),
        (&["man"], ".ie "),
        (&["man", "record"], ".ie "),
    ] {
        let printed = run(arguments);
        assert_eq!((printed.code(), &*printed.stderr), (0, ""), "{arguments:?}");
        assert!(printed.stdout.starts_with(beginning), "{arguments:?}: {:.80}", printed.stdout);
        assert!(printed.stdout.contains("trigger"), "{arguments:?}");
    }
}

#[test]
fn the_version_is_printed() {
    let run = run(&["--version"]);
    let beginning = concat!("profiler ", env!("CARGO_PKG_VERSION"), " (OTLP ");
    assert!(run.code() == 0 && run.stdout.starts_with(beginning), "{}", run.stdout);
}

#[test]
fn without_a_target_the_targets_are_listed() {
    let run = run(&[]);
    assert_eq!((run.code(), &*run.stdout), (2, ""));
    for target in
        ["-p PID", "--process", "-t TID", "-a", "--cgroup", "--container", "--pod", "-- COMMAND", "--help"]
    {
        assert!(run.stderr.contains(target), "{}", run.stderr);
    }
}

#[test]
fn a_frequency_above_the_kernels_limit_is_refused_with_the_limit() {
    let limit = fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").unwrap();
    let above = (limit.trim().parse::<u64>().unwrap() + 1).to_string();
    assert_refused(
        &run(&["-p", &own_pid(), "-F", &above]),
        2,
        &[&above, limit.trim(), "perf_event_max_sample_rate"],
    );
}

#[test]
fn an_output_that_cannot_be_created_is_an_error_before_sampling() {
    // Without a duration, sampling would never end.
    let run = run(&["-p", &own_pid(), "-o", "/no/such/folder/flame.svg"]);
    assert_refused(&run, 1, &["/no/such/folder/flame.svg", "No such file"]);
}

#[test]
fn an_unknown_extension_is_an_error_that_lists_the_known_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flame.pdf");
    let run = run(&["-p", &own_pid(), "-o", path.to_str().unwrap()]);
    assert_refused(&run, 2, &["flame.pdf", ".folded", ".svg"]);
    assert!(!path.exists());
}

#[test]
fn a_session_that_does_not_start_leaves_no_output_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flame.svg");
    let run = run(&["-p", "4194303", "-o", path.to_str().unwrap()]);
    assert_eq!(run.code(), 1);
    assert!(!path.exists());
}

#[test]
fn a_closed_pipe_at_standard_output_is_not_an_error() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let mut command = profiler(&["-p", &workload.pid().to_string(), "-F", "999", "-d", "0.5"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    drop(command);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_profile_without_samples_has_exit_code_three() {
    let Some(_lock) = run_beside_others() else { return };
    let run = run(&["-p", &own_pid(), "-F", "1", "-d", "10ms"]);
    assert_refused(&run, 3, &["0 samples"]);
}

#[test]
fn standard_output_has_only_the_profile_and_quiet_has_no_messages() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let pid = workload.pid().to_string();
    let verbose = run(&["-p", &pid, "-F", "999", "-d", "0.5", "-v"]);
    assert_eq!(verbose.code(), 0, "{}", verbose.stderr);
    assert!(FoldedStacks::parse(&verbose.stdout).0.iter().all(|stack| stack.comm == "shares"));
    assert!(verbose.stderr.contains("0 lost"), "{}", verbose.stderr);
    assert!(!verbose.stderr.contains("flame.html"), "{}", verbose.stderr);
    let quiet = run(&["-p", &pid, "-F", "999", "-d", "0.5", "-q"]);
    assert!(FoldedStacks::parse(&quiet.stdout).total() > 0);
    assert_eq!(quiet.stderr, "");
}

#[test]
fn several_outputs_are_written_at_once() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let folder = tempfile::tempdir().unwrap();
    let (svg, folded) = (folder.path().join("a.svg"), folder.path().join("a.folded"));
    let pid = workload.pid().to_string();
    let outputs = ["-o", svg.to_str().unwrap(), "-o", folded.to_str().unwrap(), "-o", "-"];
    let run = run(&[&["-p", &pid, "-F", "999", "-d", "0.5"][..], &outputs[..]].concat());
    assert_eq!(run.code(), 0, "{}", run.stderr);
    assert_eq!(fs::read_to_string(folded).unwrap(), run.stdout);
    assert!(fs::read_to_string(svg).unwrap().contains("round_of_work"));
}

fn interrupt(child: &Child) {
    send(child, Signal::INT);
}

fn send(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Waits until a busy workload has run for so long that it has samples.
fn await_samples(workload: &Workload) {
    const CPU_TIME_NS: u64 = 200_000_000;
    let path = format!("/proc/{}/schedstat", workload.pid());
    let ran_ns = || -> Option<u64> { fs::read_to_string(&path).ok()?.split(' ').next()?.parse().ok() };
    let start_ns = ran_ns().unwrap();
    wait_until("the target to run", || (ran_ns()? > start_ns + CPU_TIME_NS).then_some(()));
}

#[test]
fn ctrl_c_stops_sampling_and_writes_the_profile() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let command = &mut profiler(&["-p", &workload.pid().to_string(), "-F", "999"]);
    let child = start_sampling(command);
    await_samples(&workload);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let stacks = FoldedStacks::parse(&String::from_utf8(output.stdout).unwrap());
    assert!(stacks.count(|stack| stack.has("round_of_work")) > 20, "{stacks:#?}");
}

#[test]
fn a_second_ctrl_c_exits_at_once() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("full.folded");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    // The pipe is full and no process reads it: writing the profile blocks.
    let mut reader = File::options().read(true).write(true).open(&fifo).unwrap();
    let size = rustix::pipe::fcntl_setpipe_size(&reader, 4_096).unwrap();
    std::io::Write::write_all(&mut reader, &vec![b' '; size]).unwrap();
    let pid = workload.pid().to_string();
    let mut child = start_sampling(&mut profiler(&["-p", &pid, "-F", "999", "-o", fifo.to_str().unwrap()]));
    await_samples(&workload);
    interrupt(&child);
    wait_until("the first signal to end sampling", || {
        let state = fs::read_to_string(format!("/proc/{}/wchan", child.id())).ok()?;
        state.contains("pipe_write").then_some(())
    });
    interrupt(&child);
    let status = child.wait().unwrap();
    assert!(status.code() == Some(130) || status.signal() == Some(2), "{status:?}");
    let mut start = [0; 1];
    reader.read_exact(&mut start).unwrap();
}

#[test]
fn a_command_gets_the_ctrl_c_of_its_profiler() {
    let Some(_lock) = run_beside_others() else { return };
    // A test runner can ignore the signal, and commands inherit that.
    let mut command = Command::new("env");
    command.arg("--default-signal=INT").arg(profiler(&[]).get_program());
    command.args(["-F", "999", "--", "sleep", "60"]);
    let child = start_sampling(&mut command);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A shell script that runs the workload as `first` and `second` in a pipeline and then computes in the shell itself.
fn pipeline(folder: &Path) -> String {
    for name in ["first", "second"] {
        fs::copy(workload_path("shortlived"), folder.join(name)).unwrap();
    }
    let folder = folder.display();
    format!("{folder}/first 1 | {folder}/second 1 >&2; i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done")
}

#[test]
fn a_command_is_sampled_with_its_descendants_unless_they_are_left_out() {
    let Some(_lock) = run_beside_others() else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = pipeline(folder.path());
    for (options, has_descendants) in [(&[][..], true), (&["--children"], true), (&["--no-children"], false)]
    {
        let run = run(&[&["-F", "999"], options, &["--", "sh", "-c", &script]].concat());
        assert_eq!(run.code(), 0, "{}", run.stderr);
        let stacks = FoldedStacks::parse(&run.stdout);
        assert!(stacks.count(|stack| stack.comm == "sh") > 0, "{stacks:#?}");
        for name in ["first", "second"] {
            let samples =
                stacks.count(|stack| stack.comm == name && stack.has_chain(&["main", "run", "burn"]));
            assert_eq!(samples > 0, has_descendants, "{options:?} {name}: {samples}\n{}", run.stderr);
        }
    }
}

#[test]
fn without_btf_a_command_is_sampled_alone_and_a_warning_says_so() {
    let Some(_lock) = run_beside_others() else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = pipeline(folder.path());
    let hide_btf = "mount --bind /dev/null /sys/kernel/btf/vmlinux && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", hide_btf, "sh"]).arg(profiler(&[]).get_program());
    let run = run_command(command.args(["-F", "999", "--", "sh", "-c", &script]));
    assert_eq!(run.code(), 0, "{}", run.stderr);
    assert!(run.stderr.contains("only the command is sampled, not its descendants"), "{}", run.stderr);
    let stacks = FoldedStacks::parse(&run.stdout);
    assert!(stacks.total() > 0 && stacks.0.iter().all(|stack| stack.comm == "sh"), "{stacks:#?}");
}

#[test]
fn on_a_terminal_the_output_is_the_table_and_into_a_pipe_folded_stacks() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let folder = tempfile::tempdir().unwrap();
    let pane = Pane::open(folder.path(), 110, 200);
    let program = profiler(&[]).get_program().to_str().unwrap().to_owned();
    let command = format!("{program} -p {} -F 999 -d 0.5", workload.pid());
    pane.type_text(&format!("{command}; echo ended with $?\n"));
    pane.wait_for("ended with 0");
    let text = pane.text();
    let hint = text.lines().position(|line| line.contains("-o flame.html"));
    let function = text.lines().position(|line| line.contains("round_of_work") && line.contains('%'));
    assert!(function.is_some() && function < hint, "{text}");
    assert!(!text.contains("main;round_of_work"), "{text}");

    let folded = folder.path().join("stacks");
    pane.type_text(&format!("clear; {command} | cat > {}; echo done with $?\n", folded.display()));
    pane.wait_for("done with 0");
    assert!(!pane.text().contains("flame.html"), "{}", pane.text());
    let stacks = FoldedStacks::parse(&fs::read_to_string(folded).unwrap());
    assert!(stacks.count(|stack| stack.has("round_of_work")) > 0, "{stacks:#?}");
}
