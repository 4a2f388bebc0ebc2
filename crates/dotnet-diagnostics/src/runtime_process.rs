//! A process with a .NET runtime, and why the runtime did not respond.

use std::{io, path::PathBuf, sync::Arc};

use profiler_processes::{
    Pid, Process, jit_file_directories, root_directory::RootDirectory, temporary_directories,
};
use profiler_profile::Reason;

/// The files that a runtime writes when a perf map is enabled.
#[derive(Clone, Debug)]
pub struct PerfMapPaths {
    /// Candidates in the target's root. The runtime writes some of them.
    pub paths: Vec<PathBuf>,
    /// The start of the process in nanoseconds since 1970-01-01 UTC.
    pub started_unix_ns: u64,
}

/// The data for finding the diagnostics socket of a process and verifying its owner.
#[derive(Clone, Debug)]
pub struct RuntimeProcess {
    /// Its root directory.
    pub root: Arc<RootDirectory>,
    /// The directories for temporary files, in the root of the process.
    pub directories: Vec<PathBuf>,
    /// In the profiler's pid namespace.
    pub pid: Pid,
    /// In the innermost pid namespace of the process.
    pub namespace_pid: u32,
    /// The owner of the socket.
    pub uid: u32,
    /// Clock ticks from boot to the start of the process.
    pub start_ticks: u64,
    /// The files of a perf map, if the runtime is to be asked for one.
    pub perf_map: Option<PerfMapPaths>,
    /// Whether it is looked up which methods the JIT compiled when.
    pub keeps_compilations: bool,
}

impl PerfMapPaths {
    /// The files of a process that is in the process table: the map, and up to .NET 8 a list of its images.
    pub fn of(process: &Process) -> Option<Self> {
        let identity = process.identity.as_deref()?;
        let names = ["perf", "perfinfo"].map(|kind| format!("{kind}-{}.map", identity.status.innermost_pid));
        let directories = jit_file_directories(&identity.environment);
        let paths =
            names.iter().flat_map(|name| directories.iter().map(move |directory| directory.join(name)));
        Some(Self { paths: paths.collect(), started_unix_ns: identity.started_unix_ns })
    }
}

impl RuntimeProcess {
    /// A process that is asked for nothing but events. `None` is a process whose root is not open.
    pub fn of(process: &Process) -> Option<Self> {
        let identity = process.identity.as_deref()?;
        Some(Self {
            root: identity.root.clone()?,
            directories: temporary_directories(&identity.environment),
            pid: process.pid,
            namespace_pid: identity.status.innermost_pid,
            uid: identity.status.uid,
            start_ticks: identity.start_ticks,
            perf_map: None,
            keeps_compilations: false,
        })
    }
}

/// The name of the socket of a [simulated](RuntimeProcess::simulated) runtime.
#[cfg(any(test, fuzzing, feature = "testing"))]
pub const SIMULATED_SOCKET_NAME: &str = "dotnet-diagnostic-1-77-socket";

#[cfg(any(test, fuzzing, feature = "testing"))]
impl RuntimeProcess {
    /// This process, as a process with a runtime whose socket is in a directory.
    pub fn simulated(directory: RootDirectory) -> Self {
        Self {
            root: Arc::new(directory),
            directories: vec!["/".into()],
            pid: Pid::own(),
            namespace_pid: 1,
            uid: rustix::process::geteuid().as_raw(),
            start_ticks: 77,
            perf_map: None,
            keeps_compilations: false,
        }
    }
}

/// Why a runtime did not report its methods.
pub(super) fn failure_reason(error: &io::Error) -> Reason {
    match error.kind() {
        io::ErrorKind::InvalidData => Reason::RuntimeRefused,
        io::ErrorKind::PermissionDenied => Reason::RuntimeNotReachable,
        io::ErrorKind::FileTooLarge => Reason::TooLarge,
        _ => Reason::RuntimeSilent,
    }
}
