//! Profiles a process whose program, folder, comm and environment contain terminal escape sequences.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt, path::PathBuf, process::Command};

use profiler_tests::{Outcome, Workload, profiler, run_beside_others, run_command, workload_path};
use tempfile::TempDir;

/// Sets the title of the terminal, deletes the screen, begins a line, is not UTF-8.
const HOSTILE: &[u8] = b"\x1b]0;x\x07\x1b[2J\nforged \xff\xc2\x9b1m";

/// A copy of a workload in a folder and under a name of hostile bytes.
struct HostileProgram {
    _folder: TempDir,
    path: PathBuf,
}

impl HostileProgram {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join(OsStr::from_bytes(HOSTILE));
        fs::create_dir(&inner).unwrap();
        let path = inner.join(OsStr::from_bytes(HOSTILE));
        fs::copy(workload_path("shares"), &path).unwrap();
        Self { _folder: folder, path }
    }

    fn start(&self) -> Workload {
        Workload::run(Command::new(&self.path).arg("600").env("TMPDIR", OsStr::from_bytes(HOSTILE)))
    }
}

fn assert_harmless(run: &Outcome, what: &str) {
    for text in [&run.stdout, &run.stderr] {
        let is_harmful = |c: char| c != '\n' && (c.is_control() || ('\u{80}'..'\u{a0}').contains(&c));
        assert!(!text.contains(is_harmful), "{what}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with("forged")), "{what}: {text}");
    }
}

#[test]
fn the_report_of_the_doctor_on_a_process_is_escaped() {
    let Some(_lock) = run_beside_others() else { return };
    let program = HostileProgram::new();
    let workload = program.start();
    let run = run_command(&mut profiler(&["doctor", "-p", &workload.pid().to_string()]));
    assert!(run.stdout.contains("native code"), "{}", run.stdout);
    assert_harmless(&run, "doctor");
}

#[test]
fn log_lines_and_the_summary_of_a_profile_are_escaped() {
    let Some(_lock) = run_beside_others() else { return };
    let program = HostileProgram::new();
    let workload = program.start();
    let pid = workload.pid().to_string();
    for format in ["folded", "top", "perf-script"] {
        let arguments = ["-p", &pid, "-F", "999", "-d", "1", "-vv", "--format", format, "--per-process"];
        let run = run_command(&mut profiler(&arguments));
        assert_eq!(run.code(), 0, "{}", run.stderr);
        assert!(run.stderr.contains("[2J forg"), "the summary names the target: {}", run.stderr);
        // The columns of `perf script` begin with a tab.
        assert_harmless(&Outcome { stdout: run.stdout.replace('\t', " "), ..run }, format);
    }
}

#[test]
fn errors_about_a_command_are_escaped() {
    let Some(_lock) = run_beside_others() else { return };
    let program = HostileProgram::new();
    fs::remove_file(&program.path).unwrap();
    let run = run_command(profiler(&["-d", "1", "-vv", "--"]).arg(&program.path));
    assert_eq!(run.code(), 1);
    assert!(run.stderr.contains("failed to execute"), "{}", run.stderr);
    assert_harmless(&run, "error");
}
