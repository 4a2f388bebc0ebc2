//! Starting a command that waits at the gate until it is let go.

use std::{
    ffi::OsString,
    io::{self, Read, Write},
    os::{fd::AsRawFd, unix::process::CommandExt},
    process::{Child, Command, Stdio},
    thread::JoinHandle,
};

/// A child process that exists, with its final process id, but does not run the command yet.
///
/// Dropped without [`release`](Self::release), the child ends without having run anything.
#[derive(Debug)]
pub(crate) struct GatedCommand {
    pid: u32,
    gate: io::PipeWriter,
    spawner: JoinHandle<io::Result<Child>>,
}

impl GatedCommand {
    /// Forks the child. It waits before it executes `program`. When it is silent it does not read from and write to
    /// where this process does.
    pub(crate) fn spawn(program: &OsString, arguments: &[OsString], is_silent: bool) -> io::Result<Self> {
        let (mut pid_reader, pid_writer) = io::pipe()?;
        let (gate_reader, gate) = io::pipe()?;
        let mut command = Command::new(program);
        command.args(arguments);
        if is_silent {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        }
        let gate_fd = gate.as_raw_fd();
        let hook = move || wait_at_gate(&pid_writer, &gate_reader, gate_fd);
        // SAFETY: the hook makes only async-signal-safe system calls (getpid, read, write, close).
        unsafe { command.pre_exec(hook) };
        // Command::spawn returns once the child has executed its program, so it waits in a thread.
        let spawner =
            std::thread::Builder::new().name("command".to_owned()).spawn(move || command.spawn())?;
        let mut pid = [0; 4];
        match pid_reader.read_exact(&mut pid) {
            Ok(()) => Ok(Self { pid: u32::from_ne_bytes(pid), gate, spawner }),
            // The child never came as far as its hook: the spawner knows why.
            Err(error) => {
                Err(spawner.join().map_or(error, |result| result.err().unwrap_or_else(unexpected_end)))
            }
        }
    }

    /// The child's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets the child execute its command.
    ///
    /// # Errors
    /// What kept the command from being executed: not found, not executable.
    pub(crate) fn release(mut self) -> io::Result<Child> {
        self.gate.write_all(&[1])?;
        self.spawner.join().unwrap_or_else(|_| Err(unexpected_end()))
    }
}

/// In the child, between fork and exec: says who it is and waits. An end of file means that the profiler is
/// gone or gave up.
fn wait_at_gate(mut pid: &io::PipeWriter, mut gate: &io::PipeReader, gate_writer: i32) -> io::Result<()> {
    // The child's own copy of the writing end would keep the end of file from ever coming.
    // SAFETY: the descriptor is this process's copy, and nothing in it uses it any more.
    unsafe { libc::close(gate_writer) };
    pid.write_all(&std::process::id().to_ne_bytes())?;
    let mut byte = [0];
    gate.read_exact(&mut byte)
}

fn unexpected_end() -> io::Error {
    io::Error::from(io::ErrorKind::UnexpectedEof)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> GatedCommand {
        GatedCommand::spawn(&"/bin/sh".into(), &["-c".into(), script.into()], true).unwrap()
    }

    #[test]
    fn the_command_runs_under_the_pid_that_was_announced_and_only_when_let_go() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid");
        let command = shell(&format!("echo $$ > {}", file.display()));
        let pid = command.pid();
        assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
        assert!(!file.exists());
        let status = command.release().unwrap().wait().unwrap();
        assert!(status.success());
        assert_eq!(std::fs::read_to_string(file).unwrap().trim(), pid.to_string());
    }

    #[test]
    fn a_silent_command_has_nowhere_to_read_from_and_write_to() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("links");
        let command = shell(&format!("readlink /proc/$$/fd/0 /proc/$$/fd/2 > {}", file.display()));
        assert!(command.release().unwrap().wait().unwrap().success());
        assert_eq!(std::fs::read_to_string(file).unwrap(), "/dev/null\n/dev/null\n");
    }

    #[test]
    fn a_command_that_is_not_let_go_never_runs() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ran");
        let GatedCommand { gate, spawner, .. } = shell(&format!("touch {}", file.display()));
        drop(gate);
        assert!(spawner.join().unwrap().is_err());
        assert!(!file.exists());
    }

    #[test]
    fn a_command_that_does_not_exist_says_so_when_let_go() {
        let command = GatedCommand::spawn(&"/no/such/program".into(), &[], false).unwrap();
        assert_eq!(command.release().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
