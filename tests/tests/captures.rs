//! Captures: who can read them, and captures of a stranger whose links lead outside.

use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use profiler_tests::{Outcome, Workload, file, profiler, run_beside_others, run_command, workload_path};
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// All paths below a folder, itself included.
fn paths(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            found.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        next += 1;
    }
    found
}

fn record(workload: &Workload, folder: &Path) -> Outcome {
    let pid = workload.pid().to_string();
    run_command(profiler(&["-p", &pid, "-F", "999", "-d", "0.5", "-q", "--capture"]).arg(folder))
}

#[test]
fn no_other_user_can_read_a_capture_and_it_has_no_other_variable_of_the_environment() {
    let Some(_lock) = run_beside_others() else { return };
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture");
    let mut command = Command::new(workload_path("shares"));
    let workload = Workload::run(command.arg("60").env("API_TOKEN", "s3cr3t").env("TMPDIR", "/tmp"));
    let run = record(&workload, &capture);
    assert_eq!(run.code(), 0, "{}", run.stderr);
    for path in paths(&capture) {
        let status = fs::symlink_metadata(&path).unwrap();
        let expected = if status.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(status.mode() & 0o7777, expected, "{}", path.display());
    }
    let environment = fs::read(capture.join(format!("proc/{}/environ", workload.pid()))).unwrap();
    assert_eq!(String::from_utf8(environment).unwrap(), "TMPDIR=/tmp\0");
}

#[test]
fn a_directory_that_exists_is_not_used_for_a_capture() {
    let Some(_lock) = run_beside_others() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (victim, link) = (folder.path().join("victim"), folder.path().join("link"));
    fs::create_dir_all(victim.join("proc")).unwrap();
    symlink(&victim, &link).unwrap();
    let workload = Workload::start("shares");
    for path in [&victim, &link] {
        let run = record(&workload, path);
        assert_eq!(run.code(), 1, "{}", run.stderr);
        assert!(
            run.stderr.contains("exists") && run.stderr.contains(path.to_str().unwrap()),
            "{}",
            run.stderr
        );
        assert_eq!(paths(&victim).len(), 2);
    }
}

#[test]
fn a_session_that_does_not_start_leaves_no_capture() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture");
    let run = run_command(profiler(&["-p", "4194303", "--capture"]).arg(&capture));
    assert_eq!(run.code(), 1, "{}", run.stderr);
    assert!(!capture.exists());
}

/// A copy of a capture, beside a folder that does not belong to it.
struct StrangersCapture {
    folder: tempfile::TempDir,
}

impl StrangersCapture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("outside")).unwrap();
        let copy = Command::new("cp").arg("-r").arg(file("captures/jit")).arg(folder.path()).status();
        assert!(copy.unwrap().success());
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("jit").join(name)
    }

    /// Moves a file or folder of the capture out of it, and leaves a link.
    fn move_outside(&self, name: &str) {
        let to = self.folder.path().join("outside/moved");
        fs::rename(self.path(name), &to).unwrap();
        symlink(&to, self.path(name)).unwrap();
    }

    fn replay(&self) -> Outcome {
        run_command(profiler(&["replay", "-q", "--annotate"]).arg(self.folder.path().join("jit")))
    }
}

#[test]
fn links_out_of_a_capture_are_not_followed() {
    let expected = fs::read_to_string(file("captures/jit/expected.folded")).unwrap();
    let whole = StrangersCapture::new().replay();
    assert_eq!((whole.code(), whole.stdout.as_str()), (0, expected.as_str()), "{}", whole.stderr);
    let process = file("captures/jit/proc/5777");
    let relative = |path: PathBuf| {
        let inside = path.strip_prefix(file("captures/jit")).unwrap().to_str().unwrap().to_owned();
        (!inside.ends_with("program.c")).then_some(inside)
    };
    let entries = paths(&process).into_iter().filter_map(relative);
    // What a replay of this capture reads.
    let is_read = |name: &String| {
        ["/maps", "/map_files", "/root", "5777", "/tmp", ".map"].iter().any(|end| name.ends_with(end))
    };
    let mut tested = 0;
    for name in entries.filter(is_read).chain(["proc".to_owned(), "events.jsonl".to_owned()]) {
        let capture = StrangersCapture::new();
        capture.move_outside(&name);
        let run = capture.replay();
        assert!(run.stdout != expected, "{name} was read outside of the capture");
        tested += 1;
    }
    assert!(tested >= 6, "{tested}");
}

#[test]
fn a_pipe_in_a_capture_does_not_block_its_replay() {
    for name in ["events.jsonl", "proc/5777/maps", "proc/5777/status", "proc/vdso"] {
        let capture = StrangersCapture::new();
        let path = capture.path(name);
        if path.exists() {
            fs::remove_file(&path).unwrap();
        }
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        // It ends by the deadline of the test.
        let run = capture.replay();
        assert_eq!(run.code() == 0, name != "events.jsonl", "{name}: {}", run.stderr);
    }
}
