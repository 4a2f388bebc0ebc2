//! A process with a .NET runtime, and why the runtime did not respond.

use std::{io, path::PathBuf, sync::Arc};

use profiler_processes::root_directory::RootDirectory;
use profiler_profile::Reason;

/// The files that a runtime writes when a perf map is enabled.
#[derive(Clone, Debug)]
pub(crate) struct PerfMapPaths {
    /// Candidates in the target's root. The runtime writes some of them.
    pub(crate) paths: Vec<PathBuf>,
    /// The start of the process in nanoseconds since 1970-01-01 UTC.
    pub(crate) started_unix_ns: u64,
}

/// The data for finding the diagnostics socket of a process and verifying its owner.
#[derive(Clone, Debug)]
pub(crate) struct RuntimeProcess {
    pub(crate) root: Arc<RootDirectory>,
    /// The directories for temporary files, in the root of the process.
    pub(crate) directories: Vec<PathBuf>,
    /// In the profiler's pid namespace.
    pub(crate) pid: u32,
    /// In the innermost pid namespace of the process.
    pub(crate) namespace_pid: u32,
    pub(crate) uid: u32,
    /// Clock ticks from boot to the start of the process.
    pub(crate) start_ticks: u64,
    /// The files of a perf map, if the runtime is to be asked for one.
    pub(crate) perf_map: Option<PerfMapPaths>,
    /// Whether it is looked up which methods the JIT compiled when.
    pub(crate) keeps_compilations: bool,
}

/// The name of the socket of a [simulated](RuntimeProcess::simulated) runtime.
#[cfg(any(test, fuzzing))]
pub(crate) const SIMULATED_SOCKET_NAME: &str = "dotnet-diagnostic-1-77-socket";

#[cfg(any(test, fuzzing))]
impl RuntimeProcess {
    /// This process, as a process with a runtime whose socket is in a directory.
    pub(crate) fn simulated(directory: RootDirectory) -> Self {
        Self {
            root: Arc::new(directory),
            directories: vec!["/".into()],
            pid: std::process::id(),
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
