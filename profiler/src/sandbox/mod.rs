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
//! Landlock cannot confine a session: a confined process may not inspect processes outside of its domain
//! (`hook_ptrace_access_check`, `security/landlock/task.c`), and `/proc/PID/maps` is such an inspection.

mod rights;
mod system_calls;
mod written_files;

use std::{io, os::fd::BorrowedFd};

use self::system_calls::Job;
pub use self::{rights::restore_file_rights, written_files::landlock_version};
use crate::{
    error::{Error, ErrorKind, Result},
    session::Settings,
};

/// Drops the rights that a session with these settings does not need, in the calling thread and the threads that it
/// starts.
pub(crate) fn reduce_rights(settings: &Settings) -> Result<()> {
    rights::reduce(rights::of_session(settings), settings.writes_files_while_sampling())
        .map_err(|error| failed("reduce the rights of the session", error))
}

/// Refuses the system calls that a running session with these settings does not need, in all threads of the process.
pub(crate) fn filter_system_calls(settings: &Settings) -> Result<()> {
    let job = Job::Session { network: !settings.symbol_servers.is_empty() };
    system_calls::filter(job).map_err(|error| failed("install the system call filter", error))
}

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
    system_calls::filter(Job::Files { network })
        .map_err(|error| failed("install the system call filter", error))
}

fn failed(action: &str, error: io::Error) -> Error {
    Error::with_source(ErrorKind::Io, format!("failed to {action} (--no-sandbox does without)"), error)
}
