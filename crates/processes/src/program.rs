//! The name of the program of a process, as its user calls it.

use std::path::Path;

/// The longest `comm`, bytes: the kernel cuts a longer name (`TASK_COMM_LEN` in `include/linux/sched.h`).
const MAX_COMM_BYTES: usize = 15;

/// The name of a program: that under which it was started, where `comm` and the first word of the command line agree on it, else
/// that of its file. Debian's `redis-server` is a link to `redis-check-rdb`, and each applet of busybox one to `busybox`.
///
/// `command_line` is read only where `comm` is not the name of the file. A thread can change `comm`, and a process the words of
/// its command line, so that one of them alone is no name.
pub(crate) fn program_name(
    executable: Option<&Path>,
    comm: &str,
    command_line: impl FnOnce() -> Vec<u8>,
) -> Option<String> {
    let file = executable?.file_name()?.to_string_lossy();
    // The mark of the kernel for a deleted file.
    let file = file.strip_suffix(" (deleted)").unwrap_or(&file);
    if comm.is_empty() || is_comm_of(comm, file) {
        return Some(file.to_owned());
    }
    let called = first_word(&command_line());
    Some(if is_comm_of(comm, &called) { called } else { file.to_owned() })
}

/// Whether the kernel gives this `comm` to a process that executes a file with this name.
fn is_comm_of(comm: &str, name: &str) -> bool {
    let cut = name.as_bytes().get(..MAX_COMM_BYTES).unwrap_or(name.as_bytes());
    comm.as_bytes() == cut
}

/// The file name in the first word of a command line. A login shell has a hyphen before it, and titles that programs write there
/// (setproctitle(3)) go on after a colon or a blank: `redis-server *:6379`, `nginx: worker process`.
fn first_word(command_line: &[u8]) -> String {
    let is_end = |byte: &u8| matches!(byte, 0 | b' ' | b':');
    let word = command_line.split(is_end).next().unwrap_or_default();
    let name = word.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    String::from_utf8_lossy(name.strip_prefix(b"-").unwrap_or(name)).into_owned()
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read as _,
        process::{Command, Stdio},
    };

    use super::*;
    use crate::{Pid, ProcFs};

    fn name(executable: &str, comm: &str, command_line: &str) -> String {
        program_name(Some(Path::new(executable)), comm, || command_line.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn a_program_that_was_started_by_a_link_has_the_name_of_the_link() {
        for (executable, comm, command_line, expected) in [
            ("/usr/bin/redis-check-rdb", "redis-server", "/usr/bin/redis-server\0*:6379\0", "redis-server"),
            ("/usr/bin/redis-check-rdb", "redis-server", "/usr/bin/redis-server *:6379", "redis-server"),
            ("/bin/busybox", "httpd", "httpd\0-f\0", "httpd"),
            ("/usr/bin/python3.11", "python3", "python3\0app.py\0", "python3"),
            ("/usr/bin/dash", "sh", "-sh\0", "sh"),
            ("/usr/sbin/exim4-daemon-heavy", "a-link-with-a-lo", "x", "exim4-daemon-heavy"),
            ("/opt/a", "a-link-with-a-l", "/opt/a-link-with-a-long-name\0", "a-link-with-a-long-name"),
        ] {
            assert_eq!(name(executable, comm, command_line), expected, "{command_line:?}");
        }
    }

    #[test]
    fn a_running_program_has_the_name_of_its_link() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("called");
        std::os::unix::fs::symlink("/bin/sh", &link).unwrap();
        // The program prints when it runs: the kernel sets comm and command line after the parent goes on.
        let mut command = Command::new(&link);
        command.args(["-c", "echo ready; read line"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        let (proc, pid) = (ProcFs::live(), Pid(child.id()));
        let (executable, comm) = (proc.executable(pid), proc.read(pid, "comm"));
        let comm = String::from_utf8(comm.unwrap()).unwrap();
        let command_line = || proc.read(pid, "cmdline").unwrap();
        let name = program_name(executable.ok().as_deref(), comm.trim_end(), command_line);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(name.as_deref(), Some("called"));
    }

    #[test]
    fn a_name_that_only_the_process_itself_claims_does_not_replace_that_of_the_file() {
        for (executable, comm, command_line, expected) in [
            ("/srv/node", "MainThread", "node\0app.js\0", "node"),
            ("/usr/bin/bash", "run.sh", "/bin/bash\0./run.sh\0", "bash"),
            ("/srv/miner", "worker", "sshd: root\0", "miner"),
            ("/srv/app", "", "other\0", "app"),
            ("/srv/app (deleted)", "app", "", "app"),
            ("/srv/app", "app2", "", "app"),
        ] {
            assert_eq!(name(executable, comm, command_line), expected, "{executable}");
        }
        assert_eq!(program_name(None, "comm", || b"comm\0".to_vec()), None);
    }

    #[test]
    fn the_command_line_is_not_read_without_need() {
        let file = Path::new("/srv/a-program-with-a-long-name");
        let name = program_name(Some(file), "a-program-with-", || panic!("it is read"));
        assert_eq!(name.as_deref(), Some("a-program-with-a-long-name"));
    }
}
