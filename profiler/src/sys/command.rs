//! Forks a command that waits on a pipe before its exec until it is released.

use std::{
    ffi::OsString,
    io::{self, Read, Write},
    os::{fd::AsRawFd, unix::process::CommandExt},
    process::{Child, Command, Stdio},
    thread::JoinHandle,
};

use profiler_processes::Pid;

use super::user::close_descriptors_on_exec;
use crate::command_user::CommandUser;

/// A forked child process that waits before it executes the command.
///
/// If dropped without [`release`](Self::release), the child exits without executing the command.
#[derive(Debug)]
pub(crate) struct GatedCommand {
    pid: Pid,
    gate: io::PipeWriter,
    spawner: JoinHandle<io::Result<Child>>,
}

impl GatedCommand {
    /// Forks the child, which waits before it executes `program`. If `is_silent`, its standard streams are `/dev/null`,
    /// otherwise those of this process. A child with another user than this process inherits no other descriptor.
    pub(crate) fn spawn(
        program: &OsString,
        arguments: &[OsString],
        is_silent: bool,
        user: Option<&CommandUser>,
    ) -> io::Result<Self> {
        let (mut pid_reader, pid_writer) = io::pipe()?;
        let (gate_reader, gate) = io::pipe()?;
        let mut command = Command::new(program);
        command.args(arguments);
        if is_silent {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        }
        let gate_fd = gate.as_raw_fd();
        command.envs(user.into_iter().flat_map(|user| user.environment.iter().cloned()));
        let credentials = user.map(|user| user.credentials.clone());
        let open_files = open_files_limit();
        let hook = move || {
            wait_at_gate(&pid_writer, &gate_reader, gate_fd)?;
            // After the wait: until then the child has the memory of the profiler, which its user may not see.
            credentials.as_ref().map_or(Ok(()), |credentials| {
                close_descriptors_on_exec(open_files)?;
                credentials.assume()
            })
        };
        // SAFETY: the hook makes only system calls and allocates no memory.
        unsafe { command.pre_exec(hook) };
        // Command::spawn returns after the exec, so it runs in a thread.
        let spawner =
            std::thread::Builder::new().name("command".to_owned()).spawn(move || command.spawn())?;
        let mut pid = [0; 4];
        match pid_reader.read_exact(&mut pid) {
            Ok(()) => Ok(Self { pid: Pid(u32::from_ne_bytes(pid)), gate, spawner }),
            // The child failed before the hook: the result of the spawner has the error.
            Err(error) => {
                Err(spawner.join().map_or(error, |result| result.err().unwrap_or_else(unexpected_end)))
            }
        }
    }

    /// The child's process id.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Lets the child execute the command.
    ///
    /// # Errors
    /// The error of the exec: the file does not exist or is not executable.
    pub(crate) fn release(mut self) -> io::Result<Child> {
        self.gate.write_all(&[1])?;
        self.spawner.join().unwrap_or_else(|_| Err(unexpected_end()))
    }
}

fn open_files_limit() -> u32 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(u32::MAX)
}

/// Runs in the child between fork and exec: sends its pid and waits. An end of file means that the command was dropped or
/// the profiler has exited.
fn wait_at_gate(mut pid: &io::PipeWriter, mut gate: &io::PipeReader, gate_writer: i32) -> io::Result<()> {
    // The read below would never see an end of file while the child has the writing end open.
    // SAFETY: the descriptor is the copy of the child, which does not use it elsewhere.
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
        GatedCommand::spawn(&"/bin/sh".into(), &["-c".into(), script.into()], true, None).unwrap()
    }

    #[test]
    fn the_command_runs_under_its_pid_after_it_is_released() {
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
    fn the_streams_of_a_silent_command_are_dev_null() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("links");
        let command = shell(&format!("readlink /proc/$$/fd/0 /proc/$$/fd/2 > {}", file.display()));
        assert!(command.release().unwrap().wait().unwrap().success());
        assert_eq!(std::fs::read_to_string(file).unwrap(), "/dev/null\n/dev/null\n");
    }

    #[test]
    fn a_dropped_command_never_runs() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ran");
        let GatedCommand { gate, spawner, .. } = shell(&format!("touch {}", file.display()));
        drop(gate);
        assert!(spawner.join().unwrap().is_err());
        assert!(!file.exists());
    }

    #[test]
    fn a_command_that_does_not_exist_fails_when_released() {
        let command = GatedCommand::spawn(&"/no/such/program".into(), &[], false, None).unwrap();
        assert_eq!(command.release().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
