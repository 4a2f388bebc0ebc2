//! Standard output and standard error that cannot be written: a full disk, and a pipe whose reader has gone.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use profiler_tests::{Workload, file, profiler, run_beside_others};
use tempfile::TempDir;

/// A stream whose reader has gone.
fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn full_disk() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

/// Each kind of stream that cannot be written.
const UNWRITABLE: [fn() -> Stdio; 2] = [closed_pipe, full_disk];

/// How a command ended: its exit code, or `None` if a signal ended it, and what could be read of it.
#[derive(Debug)]
struct End {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn end(command: &mut Command) -> End {
    let output = command.stdin(Stdio::null()).spawn().and_then(Child::wait_with_output).unwrap();
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    End { code: output.status.code(), stdout, stderr }
}

fn end_with(arguments: &[&str], stdout: Stdio, stderr: Stdio) -> End {
    end(profiler(arguments).stdout(stdout).stderr(stderr))
}

/// A recording, which needs no privileges.
struct Recording {
    folder: TempDir,
}

impl Recording {
    fn new() -> Self {
        let recording = Self { folder: tempfile::tempdir().unwrap() };
        let (capture, path) = (file("captures/jit"), recording.path());
        let replay = ["replay", "-q", capture.to_str().unwrap(), "-o", &path];
        assert_eq!(end_with(&replay, Stdio::null(), Stdio::null()).code, Some(0));
        recording
    }

    fn path(&self) -> String {
        self.folder.path().join("run.profile").to_str().unwrap().to_owned()
    }

    fn output(&self) -> PathBuf {
        self.folder.path().join("out.folded")
    }
}

#[test]
fn commands_whose_messages_cannot_be_written_do_what_they_do_otherwise() {
    let recording = Recording::new();
    let (path, output) = (recording.path(), recording.output());
    let capture = file("captures/jit");
    let (capture, to) = (capture.to_str().unwrap(), output.to_str().unwrap());
    for arguments in [
        &["replay", capture, "-o", to][..],
        &["replay", capture, "-vv", "-o", to],
        &["report", &path, "-o", to],
        &["report", "/no/such/file", "-o", to],
        &["diff", &path, &path, "-o", to],
        &["top", &path],
        &["doctor"],
        &["list", "faults"],
        &["--help"],
        &["--nope"],
        &["-p", "4194303", "-o", to],
    ] {
        let expected = end_with(arguments, Stdio::piped(), Stdio::piped());
        let content = fs::read(&output).ok();
        for unwritable in UNWRITABLE {
            let _ = fs::remove_file(&output);
            let run = end_with(arguments, Stdio::piped(), unwritable());
            assert_eq!(run.code, expected.code, "{arguments:?}\n{}", expected.stderr);
            assert_eq!(fs::read(&output).ok(), content, "{arguments:?}");
            // The table of abilities counts what is free.
            assert!(run.stdout == expected.stdout || arguments == ["doctor"], "{arguments:?}");
        }
        let _ = fs::remove_file(&output);
    }
}

#[test]
fn a_closed_pipe_at_standard_output_ends_a_command_quietly() {
    let recording = Recording::new();
    let path = recording.path();
    for arguments in [
        &["list"][..],
        &["doctor"],
        &["top", &path],
        &["report", &path, "-q"],
        &["report", &path, "-q", "-o", "-.pb.gz"],
        &["diff", &path, &path],
        &["--help"],
        &["--version"],
    ] {
        let expected = end_with(arguments, Stdio::piped(), Stdio::piped());
        let run = end_with(arguments, closed_pipe(), Stdio::piped());
        assert_eq!((run.code, &*run.stderr), (expected.code, ""), "{arguments:?}");
    }
}

#[test]
fn a_full_disk_at_standard_output_is_an_error() {
    let recording = Recording::new();
    let path = recording.path();
    for arguments in [
        &["list"][..],
        &["doctor"],
        &["top", &path],
        &["report", &path],
        // No new line ends them.
        &["report", &path, "-o", "-.pb.gz"],
        &["report", &path, "-o", "-.speedscope.json"],
        &["diff", &path, &path],
        &["--help"],
        &["--version"],
    ] {
        let run = end_with(arguments, full_disk(), Stdio::piped());
        assert_eq!(run.code, Some(1), "{arguments:?}\n{}", run.stderr);
        let message = "profiler: failed to write to standard output: No space left on device";
        assert!(run.stderr.contains(message), "{arguments:?}\n{}", run.stderr);
    }
}

#[test]
fn a_session_whose_messages_cannot_be_written_writes_its_outputs() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let (pid, folder) = (workload.pid().to_string(), tempfile::tempdir().unwrap());
    for (number, unwritable) in UNWRITABLE.into_iter().enumerate() {
        let output = folder.path().join(format!("{number}.folded"));
        let arguments = ["-p", &pid, "-F", "999", "-d", "0.5", "-v", "-o", output.to_str().unwrap()];
        let run = end_with(&arguments, Stdio::piped(), unwritable());
        assert_eq!(run.code, Some(0));
        assert!(fs::read_to_string(output).unwrap().contains("round_of_work"));
    }
    let check = ["record", "-p", &pid, "--trigger", "cpu > 1%", "--check"];
    let run = end_with(&check, closed_pipe(), Stdio::piped());
    assert_eq!((run.code, &*run.stderr), (Some(0), ""));
}
