//! A program that runs in a folder of its own.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    process::{Child, Stdio},
};

use profiler::{Builder, ErrorKind, Profiler, Session, Target};
use profiler_tests::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::programs::{Program, Requests};

/// A running program. Dropping it ends it.
pub(super) struct Server {
    pub(super) folder: TempDir,
    pub(super) port: u16,
    child: Child,
}

impl Server {
    /// Starts a program and waits until it serves its port.
    pub(super) fn start(program: &Program) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Some programs drop their privileges.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let port = free_port();
        let mut command = (program.start)(folder.path(), port);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child =
            command.spawn().unwrap_or_else(|error| panic!("failed to start {}: {error}", program.name));
        if !matches!(program.requests, Requests::None) {
            wait_until(program.name, || TcpStream::connect(("127.0.0.1", port)).ok());
        }
        Self { folder, port, child }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// A session of a process and its descendants. One that was found can end before the session starts: then all are found again.
pub(super) fn start_with_descendants(pid: u32, configure: impl Fn(Builder) -> Builder) -> Session {
    wait_until("a session of all processes", || {
        let builder = Profiler::builder().target(Target::Pids(descendants(pid))).children(true);
        match configure(builder).build().unwrap().start() {
            Ok(session) => Some(session),
            Err(error) if error.kind() == ErrorKind::NoSuchTarget => None,
            Err(error) => panic!("{error}"),
        }
    })
}

/// The ids of a process and of its descendants.
fn descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        found.extend(children(pid));
        next += 1;
    }
    found
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.child);
        // It can have ended by itself.
        let _ = kill_process(pid, Signal::TERM);
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The children of a process that exist now.
fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let files = tasks.flatten().map(|task| task.path().join("children"));
    let texts: Vec<_> = files.filter_map(|file| fs::read_to_string(file).ok()).collect();
    texts.iter().flat_map(|text| text.split_whitespace()).filter_map(|pid| pid.parse().ok()).collect()
}
