//! Confines the process to what profiling needs.
//!
//! The profiler runs as root and reads what hostile processes wrote. A defect must not give them the node. Three limits hold
//! beside each other:
//!
//! | limit | while sampling | while a recording or capture is read |
//! |---|---|---|
//! | capabilities | those of the session's options | those for files |
//! | file permissions | only files that every user may write, until the outputs are written | Landlock: the directories of the outputs |
//! | system calls | no programs, no BPF programs, no network | also no BPF, no perf events, no sockets |
//!
//! Threads that send profiles read responses of servers. They start with [`start_confined`], without capabilities and with Landlock.
//!
//! Landlock cannot confine a session: a confined process may not inspect processes outside of its domain
//! (`hook_ptrace_access_check`, `security/landlock/task.c`), and `/proc/PID/maps` is such an inspection.

mod limits;
mod rights;
mod session;
mod system_calls;
mod written_files;

use std::{io, os::fd::BorrowedFd, thread};

use rustix::thread::CapabilitySet;

use self::system_calls::{Job, Network};
pub(crate) use self::{
    limits::describe_limits,
    session::{SandboxSettings, SessionSandbox},
};
pub use self::{rights::restore_file_rights, written_files::landlock_version};
use crate::error::{Error, ErrorKind, Result};

/// Confines a process that reads recordings or captures and writes into these directories. `network`: it also asks
/// symbol servers, and writes their files into the cache.
///
/// # Errors
/// The kernel has the interfaces, and refuses them.
pub fn confine_to_files(written: &[BorrowedFd<'_>], network: bool) -> Result<()> {
    if !network {
        written_files::confine(written).map_err(|error| failed("restrict the written files", error))?;
    }
    rights::reduce(rights::OF_FILES, true).map_err(|error| failed("reduce the rights", error))?;
    let network = if network { Network::Client } else { Network::None };
    system_calls::filter(Job::Files { network })
        .map_err(|error| failed("install the system call filter", error))
}

/// Runs `start` in a thread that has no capability and can write below these directories alone, as the threads that it starts.
/// Their system calls are those of the session, once it has started.
///
/// # Errors
/// The kernel has the interfaces, and refuses them; or `start` panicked.
pub fn start_confined<T: Send>(written: &[BorrowedFd<'_>], start: impl FnOnce() -> T + Send) -> Result<T> {
    let confine = || -> Result<T> {
        written_files::confine(written).map_err(|error| failed("restrict the written files", error))?;
        rights::reduce(CapabilitySet::empty(), true).map_err(|error| failed("reduce the rights", error))?;
        Ok(start())
    };
    let panicked = |_| Err(Error::new(ErrorKind::Io, "a thread panicked while it started"));
    thread::scope(|scope| scope.spawn(confine).join().unwrap_or_else(panicked))
}

fn failed(action: &str, error: io::Error) -> Error {
    Error::with_source(ErrorKind::Io, format!("failed to {action} (--no-sandbox does without)"), error)
}
