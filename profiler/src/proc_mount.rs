//! Checks that `/proc` shows the processes of this PID namespace: in another one, an id is that of another process.

use std::{fs, path::Path};

use crate::error::{Error, ErrorKind, Result};
use crate::sys::mount_namespace;

/// The processes that `/proc` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcMount {
    /// Those of this PID namespace.
    Own,
    /// Those of another PID namespace (pid_namespaces(7), "/proc and PID namespaces").
    Foreign,
    /// None: no proc file system is mounted there.
    Missing,
}

impl ProcMount {
    /// What is mounted now.
    pub(crate) fn current() -> Self {
        let own_pid = rustix::process::getpid().as_raw_pid().to_string();
        match fs::read_link("/proc/self") {
            Ok(link) if link == Path::new(&own_pid) => Self::Own,
            Ok(_) => Self::Foreign,
            // The link of a process that the PID namespace of the mount does not have.
            Err(_) if Path::new("/proc/version").exists() => Self::Foreign,
            Err(_) => Self::Missing,
        }
    }
}

/// Mounts the `/proc` of this PID namespace for this process alone, where another one or none is mounted and the
/// privileges permit it. For a process with one thread.
pub fn mount_own() {
    if ProcMount::current() == ProcMount::Own {
        return;
    }
    match mount_namespace::mount_own_proc() {
        Ok(()) => log::info!("mounted the `/proc` of this pid namespace for this process alone"),
        Err(error) => log::debug!("failed to mount `/proc`: {error}"),
    }
}

/// Checks that ids mean the same processes here and in `/proc`.
///
/// # Errors
/// They do not.
pub fn check() -> Result<()> {
    let message = match ProcMount::current() {
        ProcMount::Own => return Ok(()),
        ProcMount::Foreign => "`/proc` is of another pid namespace: ids mean other processes there",
        ProcMount::Missing => "`/proc` is not mounted",
    };
    Err(Error::new(ErrorKind::Unsupported, message))
}
