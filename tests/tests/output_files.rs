//! Output files: who can read them, and what planted links, pipes and failures do to them.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use profiler_tests::{OUTPUT_FILES, Outcome, Workload, file, profiler, run_beside_others, run_command};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

const OTHER_USER: u32 = 65_534;

/// Replays a capture, which needs no privileges, with output files.
fn replay(outputs: &[&Path]) -> Outcome {
    let mut command = profiler(&["replay", "-q"]);
    command.arg(file("captures/jit"));
    for path in outputs {
        command.arg("-o").arg(path);
    }
    run_command(&mut command)
}

/// A folder where every user can create files, as `/tmp`.
fn shared_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o1777)).unwrap();
    folder
}

fn names(folder: &TempDir) -> Vec<PathBuf> {
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into()).collect();
    names.sort();
    names
}

#[test]
fn no_other_user_can_read_an_output_file() {
    let folder = tempfile::tempdir().unwrap();
    let paths = OUTPUT_FILES.map(|name| folder.path().join(name));
    // The first file exists already, with mode 0666.
    fs::write(&paths[0], "old").unwrap();
    fs::set_permissions(&paths[0], PermissionsExt::from_mode(0o666)).unwrap();
    let run = replay(&paths.each_ref().map(PathBuf::as_path));
    assert_eq!(run.code(), 0, "{}", run.stderr);
    for path in &paths {
        let status = fs::symlink_metadata(path).unwrap();
        assert_eq!(status.mode() & 0o7777, 0o600, "{}", path.display());
        // The capture has no runtime events.
        let is_empty = path.extension().is_some_and(|extension| extension == "jsonl");
        assert!(status.is_file() && (status.len() > 3) != is_empty, "{}", path.display());
    }
    assert_eq!(names(&folder).len(), OUTPUT_FILES.len(), "a temporary file remains");
}

#[test]
fn with_sudo_an_output_file_belongs_to_the_caller() {
    let Some(_lock) = run_beside_others() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.svg");
    let mut command = profiler(&["replay", "-q"]);
    command.arg(file("captures/jit")).arg("-o").arg(&path);
    let other = OTHER_USER.to_string();
    let run = run_command(command.env("SUDO_UID", &other).env("SUDO_GID", &other));
    assert_eq!(run.code(), 0, "{}", run.stderr);
    let status = fs::metadata(&path).unwrap();
    assert_eq!((status.uid(), status.gid(), status.mode() & 0o7777), (OTHER_USER, OTHER_USER, 0o600));
}

#[test]
fn planted_links_are_replaced_and_what_they_lead_to_is_not_written() {
    let folder = shared_folder();
    let secret = tempfile::tempdir().unwrap();
    for plant in
        [|from: &Path, to: &Path| symlink(from, to), |from: &Path, to: &Path| fs::hard_link(from, to)]
    {
        let (victim, output) = (secret.path().join("victim"), folder.path().join("a.folded"));
        fs::write(&victim, "kept").unwrap();
        plant(&victim, &output).unwrap();
        let run = replay(&[&output]);
        assert_eq!(run.code(), 0, "{}", run.stderr);
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
        let status = fs::symlink_metadata(&output).unwrap();
        assert!(status.is_file() && status.nlink() == 1 && status.len() > 4, "{status:?}");
        fs::remove_file(&output).unwrap();
    }
    let dangling = folder.path().join("b.folded");
    symlink(secret.path().join("created"), &dangling).unwrap();
    assert_eq!(replay(&[&dangling]).code(), 0);
    assert!(!secret.path().join("created").exists());
}

#[test]
fn a_pipe_that_another_user_planted_is_refused() {
    let Some(_lock) = run_beside_others() else { return };
    let folder = shared_folder();
    let pipe = folder.path().join("a.folded");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    chown(&pipe, Some(OTHER_USER), Some(OTHER_USER)).unwrap();
    let _reader = fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let run = replay(&[&pipe]);
    assert_eq!(run.code(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("another user") && run.stderr.contains("a.folded"), "{}", run.stderr);
}

#[test]
fn what_is_neither_a_file_nor_a_stream_is_refused_before_the_profile_is_made() {
    let folder = tempfile::tempdir().unwrap();
    for (path, word) in [(folder.path(), "directory"), (Path::new("/no/such/folder/a.svg"), "No such file")] {
        let mut command = profiler(&["replay", "/no/such/capture", "--format", "svg", "-o"]);
        let run = run_command(command.arg(path));
        assert_eq!(run.code(), 1);
        let path = path.to_str().unwrap();
        assert!(run.stderr.contains(word) && run.stderr.contains(path), "{}", run.stderr);
    }
}

#[test]
fn standard_output_pipes_and_devices_are_written_directly() {
    let expected = replay(&[Path::new("-")]).stdout;
    assert!(expected.contains(';'));
    for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let mut command = profiler(&["replay", "-q", "--format", "folded", "-o", name]);
        let run = run_command(command.arg(file("captures/jit")));
        assert_eq!((run.code(), run.stdout.as_str()), (0, expected.as_str()), "{name}: {}", run.stderr);
    }
    let mut command = profiler(&["replay", "-q", "--format", "folded", "-o", "/dev/null"]);
    let run = run_command(command.arg(file("captures/jit")));
    assert_eq!((run.code(), run.stdout.as_str()), (0, ""), "{}", run.stderr);
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("a.folded");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read_to_string(pipe).unwrap()
    });
    assert_eq!(replay(&[&pipe]).code(), 0);
    assert_eq!(reader.join().unwrap(), expected);
    assert_eq!(names(&folder), [PathBuf::from("a.folded")]);
}

#[test]
fn an_output_that_fails_does_not_keep_others_from_being_written() {
    let folder = tempfile::tempdir().unwrap();
    let (full, recording) = (Path::new("/dev/full"), folder.path().join("a.profile"));
    assert_eq!(replay(&[&recording]).code(), 0);
    let recording = recording.to_str().unwrap();
    for command in [
        &["replay", file("captures/jit").to_str().unwrap()][..],
        &["report", recording],
        &["diff", recording, recording],
    ] {
        let written = folder.path().join("b.folded");
        let mut command = profiler(&[command, &["--format", "folded"]].concat());
        let run = run_command(command.arg("-o").arg(full).arg("-o").arg(&written).args(["-o", "-"]));
        assert_eq!(run.code(), 1, "{}", run.stderr);
        assert!(
            run.stderr.contains("failed to write `/dev/full`: No space left on device"),
            "{}",
            run.stderr
        );
        assert!(run.stdout.contains(';'), "{}", run.stderr);
        assert_eq!(fs::read_to_string(&written).unwrap(), run.stdout);
        fs::remove_file(&written).unwrap();
    }
}

#[test]
fn each_output_that_fails_is_named() {
    let mut command = profiler(&["replay", "-q", "--format", "folded", "-o", "/dev/full", "-o", "-"]);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    command.arg(file("captures/jit")).stdout(full).stderr(Stdio::piped());
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("`/dev/full`") && stderr.contains("standard output"), "{stderr}");
}

/// The program in a shell that limits the size of files to a number of 512 bytes.
fn with_file_size_limit(blocks: u32, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -f {blocks}; exec \"$@\""), "sh"]);
    command.arg(profiler(&[]).get_program()).args(arguments);
    command
}

#[test]
fn a_file_beyond_the_limit_of_file_sizes_is_an_error_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let (page, folded) = (folder.path().join("a.html"), folder.path().join("a.folded"));
    let (page, folded) = (page.to_str().unwrap(), folded.to_str().unwrap());
    let capture = file("captures/jit");
    let arguments = ["replay", "-q", capture.to_str().unwrap(), "-o", page, "-o", folded];
    let run = run_command(&mut with_file_size_limit(16, &arguments));
    assert_eq!(run.code(), 1, "{}", run.stderr);
    assert!(
        run.stderr.contains("a.html`: File too large") && run.stderr.contains("ulimit -f"),
        "{}",
        run.stderr
    );
    assert_eq!(names(&folder), [PathBuf::from("a.folded")]);
}

#[test]
fn the_profile_of_a_session_none_of_whose_outputs_can_be_written_is_saved() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let (folder, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let pid = workload.pid().to_string();
    let arguments = ["-p", &pid, "-F", "999", "-d", "0.5", "--format", "folded", "-o", "/dev/full"];
    let session = |directory: &Path| {
        let run = run_command(profiler(&arguments).current_dir(directory).env("TMPDIR", temporary.path()));
        assert_eq!((run.code(), &*run.stdout), (1, ""), "{}", run.stderr);
        assert!(run.stderr.contains("`/dev/full`") && run.stderr.contains("is saved as"), "{}", run.stderr);
    };
    // No file can be created in /proc.
    for (directory, saved_in) in [(folder.path(), &folder), (Path::new("/proc"), &temporary)] {
        session(directory);
        let [saved] = &names(saved_in)[..] else { panic!("{:?}", names(saved_in)) };
        let report = run_command(profiler(&["report", "-q"]).arg(saved_in.path().join(saved)));
        assert!(report.stdout.contains("round_of_work"), "{}", report.stderr);
    }
    let picture = folder.path().join("a.svg");
    let arguments = [&arguments[..6], &["-o", picture.to_str().unwrap()]].concat();
    let run = run_command(&mut with_file_size_limit(0, &arguments));
    assert_eq!(run.code(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("ulimit -f") && run.stdout.contains("round_of_work"), "{}", run.stderr);
}

#[test]
fn an_unknown_event_does_not_drop_what_a_session_has_measured() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let pid = workload.pid().to_string();
    let run = run_command(&mut profiler(&["-p", &pid, "-F", "999", "-d", "0.5", "--event", "none"]));
    assert_eq!(run.code(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("no event `none` (known: cpu-clock)"), "{}", run.stderr);
    assert!(run.stdout.contains("round_of_work"), "{}", run.stderr);
}
