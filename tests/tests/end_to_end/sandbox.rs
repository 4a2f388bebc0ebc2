//! Tests what code inside of a profiler can still do: threads that sample, and commands on recordings of strangers.

use std::{
    fs::{self, Permissions},
    io::{self, BufRead as _, BufReader},
    os::unix::fs::{PermissionsExt as _, chown},
    process::{Child, Command, Stdio},
    thread,
};

use profiler_tests::{Workload, file, profiler, run_beside_others, run_command, start_sampling, wait_until};
use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    process::{Pid, Signal, kill_process},
};
use tempfile::TempDir;

const CAP_DAC_OVERRIDE: u64 = 1 << 1;
const CAP_SYS_MODULE: u64 = 1 << 16;
const CAP_SYS_ADMIN: u64 = 1 << 21;
const CAP_SYS_RESOURCE: u64 = 1 << 24;
const CAP_SYSLOG: u64 = 1 << 34;

/// The fields of a `/proc/PID/task/TID/status` that tell the rights of a thread.
#[derive(Debug)]
struct Rights {
    name: String,
    file_user: u32,
    effective: u64,
    permitted: u64,
    seccomp: u32,
    no_new_privileges: u32,
}

impl Rights {
    fn of_threads(pid: u32) -> Vec<Self> {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let texts = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok());
        texts.map(|text| Self::parse(&text)).collect()
    }

    fn parse(status: &str) -> Self {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_else(|| panic!("no {name} in {status}")).trim()
        };
        let set = |name| u64::from_str_radix(field(name), 16).unwrap();
        Self {
            name: field("Name").to_owned(),
            file_user: field("Uid").split_ascii_whitespace().nth(3).unwrap().parse().unwrap(),
            effective: set("CapEff"),
            permitted: set("CapPrm"),
            seccomp: field("Seccomp").parse().unwrap(),
            no_new_privileges: field("NoNewPrivs").parse().unwrap(),
        }
    }
}

/// The rights of all threads of a profiler that samples.
fn rights_while_sampling(arguments: &[&str]) -> Vec<Rights> {
    let workload = Workload::start("shares");
    let pid = workload.pid().to_string();
    let run = start_sampling(
        profiler(&["-q", "-p", &pid, "--format", "folded", "-o", "/dev/null"]).args(arguments),
    );
    let threads = wait_until("the filter in all threads", || {
        let threads = Rights::of_threads(run.id());
        let is_filtered = |thread: &Rights| thread.seccomp == 2;
        let is_settled = arguments.contains(&"--no-sandbox") || threads.iter().all(is_filtered);
        (threads.iter().any(|thread| thread.name == "pipeline") && is_settled).then_some(threads)
    });
    kill_process(Pid::from_raw(run.id().cast_signed()).unwrap(), Signal::INT).unwrap();
    let outcome = run.wait_with_output().unwrap();
    // 3: it was stopped before the first sample.
    assert!([Some(0), Some(3)].contains(&outcome.status.code()), "{outcome:?}");
    threads
}

#[test]
fn threads_that_sample_have_no_right_to_write_files_and_a_system_call_filter() {
    let Some(_lock) = run_beside_others() else { return };
    for thread in rights_while_sampling(&[]) {
        assert_eq!((thread.seccomp, thread.no_new_privileges), (2, 1), "{thread:?}");
        assert_eq!(thread.permitted & (CAP_SYS_MODULE | CAP_SYS_ADMIN | CAP_SYS_RESOURCE), 0, "{thread:?}");
        assert_ne!(thread.permitted & CAP_SYSLOG, 0, "{thread:?}");
        assert_eq!(thread.effective & CAP_DAC_OVERRIDE, 0, "{thread:?}");
        assert_eq!(thread.file_user, 65534, "{thread:?}");
    }
    for thread in rights_while_sampling(&["--user-only"]) {
        assert_eq!(thread.permitted & CAP_SYSLOG, 0, "{thread:?}");
    }
    for thread in rights_while_sampling(&["--no-sandbox"]) {
        assert_eq!((thread.seccomp, thread.no_new_privileges, thread.file_user), (0, 0, 0), "{thread:?}");
        assert_ne!(thread.permitted & CAP_SYS_MODULE, 0, "{thread:?}");
    }
}

#[test]
fn unwind_tables_that_need_further_maps_are_installed_in_the_sandbox() {
    let Some(_lock) = run_beside_others() else { return };
    // The native libraries of the runtime have more rows than the first map of rows.
    let workload = Workload::run(Workload::dotnet_command("9.0", "cpu").env("PERF_MAP", "0"));
    let pid = workload.pid().to_string();
    let mut run = start_sampling(&mut profiler(&["-vv", "-p", &pid, "--format", "folded"]));
    let installed = format!("unwind tables of process {pid} are in place");
    let mut stderr = BufReader::new(run.stderr.take().unwrap());
    let mut log = String::new();
    while !log.contains(&installed) {
        assert!(stderr.read_line(&mut log).unwrap() > 0, "{log}");
    }
    kill_process(Pid::from_child(&run), Signal::INT).unwrap();
    let rest = thread::spawn(move || io::read_to_string(stderr));
    run.wait_with_output().unwrap();
    log += &rest.join().unwrap().unwrap();
    assert!(!log.contains("unwound by frame pointer:"), "{log}");
    assert!(!log.contains("single kernel addresses cannot be resolved"), "{log}");
}

/// A directory with a file of root and one of another user.
fn directory_with_files() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    for (name, user) in [("own", 0), ("foreign", 1)] {
        let path = directory.path().join(name);
        fs::write(&path, name).unwrap();
        chown(&path, Some(user), None).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }
    directory
}

/// The output of the program that tries everything.
fn attempts(arguments: &[&str]) -> String {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("sandboxed");
    let output = run_command(Command::new(program).args(arguments));
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

fn assert_refused(text: &str, place: &str) {
    for attempt in [
        "start a program",
        "write a foreign file",
        "write an own file",
        "create a file",
        "remove a file",
        "listen",
        "send",
        "load a BPF program",
    ] {
        assert!(text.contains(&format!("{place}: {attempt}: refused")), "{attempt}: {text}");
    }
    assert!(text.contains(&format!("{place}: read a foreign file: done")), "{text}");
}

#[test]
fn code_in_a_session_cannot_start_a_program_or_write_a_file_of_others() {
    let Some(_lock) = run_beside_others() else { return };
    let directory = directory_with_files();
    let workload = Workload::start("shares");
    let text = attempts(&["session", &workload.pid().to_string(), directory.path().to_str().unwrap()]);
    for place in ["main", "thread"] {
        assert_refused(&text, place);
    }
    assert!(text.contains("restored: write an own file: done"), "{text}");
    let later = text.lines().find_map(|line| line.strip_prefix("at 49 Hz: ")?.strip_suffix(" samples"));
    assert!(later.unwrap().parse::<u64>().unwrap() > 0, "{text}");
    let samples = text.lines().last().and_then(|line| line.strip_suffix(" samples"));
    assert!(samples.unwrap().parse::<u64>().unwrap() > 0, "{text}");
}

#[test]
fn code_that_reads_recordings_can_write_into_the_directories_of_its_outputs_alone() {
    let Some(_lock) = run_beside_others() else { return };
    let (directory, outputs) = (directory_with_files(), tempfile::tempdir().unwrap());
    let text = attempts(&["files", directory.path().to_str().unwrap(), outputs.path().to_str().unwrap()]);
    assert_refused(&text, "files");
    assert!(text.contains("files: write an output: done"), "{text}");
}

#[test]
fn code_that_sends_can_write_into_its_directory_alone() {
    let Some(_lock) = run_beside_others() else { return };
    let (directory, outputs) = (directory_with_files(), tempfile::tempdir().unwrap());
    let text = attempts(&["sending", directory.path().to_str().unwrap(), outputs.path().to_str().unwrap()]);
    for attempt in [
        "start a program",
        "write a foreign file",
        "write an own file",
        "create a file",
        "remove a file",
        "read a foreign file",
    ] {
        assert!(text.contains(&format!("sending: {attempt}: refused")), "{attempt}: {text}");
    }
    for attempt in ["sending: read an own file", "sending: write an output", "outside: write an own file"] {
        assert!(text.contains(&format!("{attempt}: done")), "{attempt}: {text}");
    }
}

/// A command that waits. It is killed where the test fails before it is taken out.
struct Waiting(Option<Child>);

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(command) = &mut self.0 {
            // It may have ended.
            let _ = command.kill().and_then(|()| command.wait());
        }
    }
}

/// Starts a command that waits for its input or output, and checks that it is confined by then.
fn start_confined(arguments: &[&str]) -> Child {
    let command = profiler(&["-q"]).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let pid = command.id();
    let mut command = Waiting(Some(command));
    let rights =
        wait_until("the filter", || Rights::of_threads(pid).into_iter().find(|thread| thread.seccomp == 2));
    assert_eq!(rights.permitted & (CAP_SYS_ADMIN | CAP_SYS_MODULE), 0, "{arguments:?}: {rights:?}");
    command.0.take().unwrap()
}

#[test]
fn commands_on_recordings_are_confined_before_they_read_one() {
    let Some(_lock) = run_beside_others() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (recording, pipe, folded) = (path("run.profile"), path("pipe.profile"), path("output.folded"));
    let workload = Workload::start("shares");
    let pid = workload.pid().to_string();
    run_command(&mut profiler(&["-q", "-p", &pid, "-F", "999", "-d", "1", "-o", &recording]));
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let commands: [&[&str]; 3] =
        [&["report", &pipe, "-o", &folded], &["top", &pipe], &["diff", &pipe, &recording, "-o", &folded]];
    for arguments in commands {
        // It waits for the content of the recording.
        let command = start_confined(arguments);
        fs::copy(&recording, &pipe).unwrap();
        let output = command.wait_with_output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        let written = if arguments.contains(&"-o") { fs::read(&folded).unwrap() } else { output.stdout };
        assert!(!written.is_empty(), "{arguments:?}");
        let _ = fs::remove_file(&folded);
    }
}

/// A capture cannot be a pipe. A page is larger than the pipe at standard output, so that a replay waits for its reader.
#[test]
fn a_replay_is_confined() {
    let Some(_lock) = run_beside_others() else { return };
    let capture = file("captures/jit");
    let replay = start_confined(&["replay", capture.to_str().unwrap(), "--format", "html"]);
    let output = replay.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    assert!(output.stdout.starts_with(b"<!"), "{} bytes", output.stdout.len());
}
