//! The command line: help, refusals, exit codes, what goes where.

use std::{fs::File, io::Read, os::unix::process::ExitStatusExt, process::Stdio};

use profiler_tests::{
    FoldedStacks, Outcome, Workload, lock_privileged, profiler, run_command, start_sampling, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

fn run(arguments: &[&str]) -> Outcome {
    run_command(&mut profiler(arguments))
}

/// Checks that nothing was done, and that standard error says why in one line.
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
    assert!(short.stdout.len() < long.stdout.len());
    for help in [long, short] {
        assert_eq!(help.stderr, "");
        assert!(help.stdout.lines().all(|line| line.chars().count() <= 100), "{}", help.stdout);
    }
}

#[test]
fn the_version_is_said() {
    let run = run(&["--version"]);
    assert_eq!((run.code(), run.stdout.as_str()), (0, concat!("profiler ", env!("CARGO_PKG_VERSION"), "\n")));
}

#[test]
fn wrong_arguments_end_with_two_and_a_sentence() {
    for (arguments, word) in [
        (&["-p", "x"][..], "invalid value 'x'"),
        (&["--nope"], "'--nope'"),
        (&["-p", "1", "-a"], "cannot be used with"),
        (&["-p", "1", "-d", "soon"], "500ms"),
        (&["-p", "1", "-C", "3-1"], "3-1"),
        (&["-p", "1", "--format", "pdf"], "folded, svg"),
        (&["-p", "1", "-U", "-K"], "cannot be used with"),
    ] {
        assert_refused(&run(arguments), 2, &[word]);
    }
}

#[test]
fn without_a_target_the_targets_are_listed() {
    let run = run(&[]);
    assert!([1, 2].contains(&run.code()));
    assert_eq!(run.stdout, "");
    for way in ["-p PID", "-t TID", "-a", "--cgroup", "--container", "-- COMMAND", "--help"] {
        assert!(run.stderr.contains(way), "{}", run.stderr);
    }
}

#[test]
fn a_frequency_of_zero_and_one_above_the_kernels_limit_are_refused_with_the_limit() {
    assert_refused(&run(&["-p", &own_pid(), "-F", "0"]), 1, &["0 Hz"]);
    let limit = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").unwrap();
    let above = (limit.trim().parse::<u64>().unwrap() + 1).to_string();
    assert_refused(
        &run(&["-p", &own_pid(), "-F", &above]),
        1,
        &[&above, limit.trim(), "perf_event_max_sample_rate"],
    );
}

#[test]
fn an_output_that_cannot_be_written_is_told_before_sampling() {
    let begin = std::time::Instant::now();
    let run = run(&["-p", &own_pid(), "-d", "50", "-o", "/no/such/folder/flame.svg"]);
    assert_refused(&run, 1, &["/no/such/folder/flame.svg", "No such file"]);
    assert!(begin.elapsed().as_secs() < 40);
}

#[test]
fn an_unknown_extension_is_told_with_the_known_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flame.pdf");
    let run = run(&["-p", &own_pid(), "-o", path.to_str().unwrap()]);
    assert_refused(&run, 1, &["flame.pdf", ".folded", ".svg"]);
    assert!(!path.exists());
}

#[test]
fn a_refused_session_leaves_no_output_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flame.svg");
    let run = run(&["-p", "4194303", "-o", path.to_str().unwrap()]);
    assert_eq!(run.code(), 1);
    assert!(!path.exists());
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let Some(_lock) = lock_privileged() else { return };
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
fn no_sample_is_an_exit_code_of_its_own() {
    let Some(_lock) = lock_privileged() else { return };
    let run = run(&["-p", &own_pid(), "-F", "1", "-d", "10ms"]);
    assert_refused(&run, 3, &["0 samples"]);
}

#[test]
fn standard_output_is_data_alone_and_quiet_is_quiet() {
    let Some(_lock) = lock_privileged() else { return };
    let workload = Workload::start("shares");
    let pid = workload.pid().to_string();
    let talking = run(&["-p", &pid, "-F", "999", "-d", "0.5", "-v"]);
    assert_eq!(talking.code(), 0, "{}", talking.stderr);
    assert!(FoldedStacks::parse(&talking.stdout).0.iter().all(|stack| stack.comm == "shares"));
    assert!(talking.stderr.contains("0 lost"), "{}", talking.stderr);
    let quiet = run(&["-p", &pid, "-F", "999", "-d", "0.5", "-q"]);
    assert!(FoldedStacks::parse(&quiet.stdout).total() > 0);
    assert_eq!(quiet.stderr, "");
}

#[test]
fn several_outputs_are_written_at_once() {
    let Some(_lock) = lock_privileged() else { return };
    let workload = Workload::start("shares");
    let folder = tempfile::tempdir().unwrap();
    let (svg, folded) = (folder.path().join("a.svg"), folder.path().join("a.folded"));
    let pid = workload.pid().to_string();
    let outputs = ["-o", svg.to_str().unwrap(), "-o", folded.to_str().unwrap(), "-o", "-"];
    let run = run(&[&["-p", &pid, "-F", "999", "-d", "0.5"][..], &outputs[..]].concat());
    assert_eq!(run.code(), 0, "{}", run.stderr);
    assert_eq!(std::fs::read_to_string(folded).unwrap(), run.stdout);
    assert!(std::fs::read_to_string(svg).unwrap().contains("round_of_work"));
}

fn interrupt(child: &std::process::Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, Signal::INT).unwrap();
}

/// Waits until a busy workload has run for so long that it was sampled.
fn await_samples(workload: &Workload) {
    const ENOUGH_NS: u64 = 200_000_000;
    let path = format!("/proc/{}/schedstat", workload.pid());
    let ran_ns = || -> Option<u64> { std::fs::read_to_string(&path).ok()?.split(' ').next()?.parse().ok() };
    let start_ns = ran_ns().unwrap();
    wait_until("the target to run", || (ran_ns()? > start_ns + ENOUGH_NS).then_some(()));
}

#[test]
fn ctrl_c_stops_sampling_and_writes_what_there_is() {
    let Some(_lock) = lock_privileged() else { return };
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
fn a_second_ctrl_c_leaves_at_once() {
    let Some(_lock) = lock_privileged() else { return };
    let workload = Workload::start("shares");
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("full.folded");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    // Nobody reads from the other end: the profile cannot be written, and that is where it waits.
    let mut reader = File::options().read(true).write(true).open(&fifo).unwrap();
    let size = rustix::pipe::fcntl_setpipe_size(&reader, 4_096).unwrap();
    std::io::Write::write_all(&mut reader, &vec![b' '; size]).unwrap();
    let pid = workload.pid().to_string();
    let mut child = start_sampling(&mut profiler(&["-p", &pid, "-F", "999", "-o", fifo.to_str().unwrap()]));
    await_samples(&workload);
    interrupt(&child);
    wait_until("the first to be heard", || {
        let state = std::fs::read_to_string(format!("/proc/{}/wchan", child.id())).ok()?;
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
    let Some(_lock) = lock_privileged() else { return };
    // Whoever started the tests may have had them ignore the signal, and what is ignored stays so in commands.
    let mut command = std::process::Command::new("env");
    command.arg("--default-signal=INT").arg(profiler(&[]).get_program());
    command.args(["-F", "999", "--", "sleep", "60"]);
    let child = start_sampling(&mut command);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
}
