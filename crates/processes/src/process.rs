//! A process between its fork or exec and its end: name, attributes and executable mappings.

use std::{path::PathBuf, sync::Arc};

use profiler_addresses::{MonotonicTime, RuntimeAddress};

use crate::{
    AddressSpace, Backing, LookupError, Mapping, Pid, Status, ancestors::SeenFork,
    kubernetes::ContainerNames, root_directory::RootDirectory, table::Watch,
};

/// Identifies a [`Process`] in a [`ProcessTable`](crate::ProcessTable). A process has another key after an exec, and so
/// has a new process with a reused PID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessKey(pub(crate) u64);

/// A process from its fork or exec to its next exec or the exit of its last thread.
#[derive(Debug)]
pub struct Process {
    /// Identifies it in the table.
    pub key: ProcessKey,
    /// Process id in the profiler's PID namespace.
    pub pid: Pid,
    /// Name of the leader thread.
    pub comm: String,
    /// Attributes from `/proc`; `None` when the process ended before they were read, or they cannot be read.
    pub identity: Option<Arc<Identity>>,
    /// The executable mappings, as far as they are known from sideband events and `/proc`.
    pub(crate) space: AddressSpace,
    pub(crate) completeness: Completeness,
    /// The process that forked it.
    pub(crate) parent: Option<ProcessKey>,
    /// The forks since the last exec that the session saw, the latest first.
    pub(crate) forks: Vec<SeenFork>,
    /// Time of the fork or exec; zero when the profiler did not see it.
    pub(crate) since: MonotonicTime,
    /// Time of the last thread's exit or the next exec.
    pub(crate) until: Option<MonotonicTime>,
    /// Threads that have not exited; `None` when the number is unknown.
    pub(crate) threads: Option<u32>,
    /// Whether its attributes were read from `/proc`, or it ended before.
    pub(crate) is_read: bool,
    /// The number of the interval in which it was last sampled.
    pub(crate) sampled_in: u64,
    /// The name of its service in its process context, as far as it was read.
    pub(crate) published: PublishedName,
    /// The number of losses of sideband events after which it was last compared with `/proc`.
    pub(crate) losses_seen: u64,
    /// Whether and how its mappings are reported.
    pub(crate) watch: Option<Watch>,
}

/// The name of its service that a process publishes, usually some time after its start.
#[derive(Debug, Default)]
pub(crate) struct PublishedName {
    pub(crate) name: Option<String>,
    /// The intervals with samples of the process.
    pub(crate) sampled_intervals: u64,
}

impl PublishedName {
    /// Counts an interval with samples. Returns whether to read the name in it. An unknown name is read with exponential backoff:
    /// in the intervals 2, 4, 8 and so on. Most processes and sessions have one interval, and are not read.
    pub(crate) fn begin_interval(&mut self) -> bool {
        self.sampled_intervals += 1;
        self.name.is_none() && self.sampled_intervals > 1 && self.sampled_intervals.is_power_of_two()
    }
}

/// Attributes of a process that are read from `/proc` once, at its first sample.
#[derive(Debug)]
pub struct Identity {
    /// From `/proc/PID/status`.
    pub status: Status,
    /// Start time, clock ticks since boot.
    pub start_ticks: u64,
    /// Start time, nanoseconds since 1970-01-01 UTC, with the resolution of a clock tick.
    pub started_unix_ns: u64,
    /// The path of the program, as `/proc/PID/exe` shows it.
    pub executable: Option<PathBuf>,
    /// The name of the program, as its user calls it: that of a link by which it was started, else that of the file.
    pub program: Option<String>,
    /// The variables of the initial environment in [`JIT_DIRECTORY_VARIABLES`] (`NAME=VALUE`, each terminated by a zero
    /// byte), with absolute paths; empty when it cannot be read.
    pub environment: Vec<u8>,
    /// The name of its service in the initial environment, at most 200 bytes: a claim of the process. `None` in a
    /// capture, and without the feature `pods`. [`Process::service_name`] has the name that counts.
    pub service_name: Option<String>,
    /// The systemd service that contains it: `ssh.service`.
    pub unit: Option<String>,
    /// Id of the container, when the path of the cgroup contains one.
    pub container: Option<String>,
    /// The names of the container in Kubernetes; `None` outside of a pod, where they cannot be read, in a capture, and
    /// without the feature `pods`.
    pub kubernetes: Option<Arc<ContainerNames>>,
    /// The root directory; `None` when it cannot be opened.
    pub root: Option<Arc<RootDirectory>>,
}

impl Identity {
    /// Whether both are of one process that has not executed another program in between, as far as is known.
    pub(crate) fn is_same_program(&self, later: &Self) -> bool {
        let executables = self.executable.as_ref().zip(later.executable.as_ref());
        self.start_ticks == later.start_ticks && executables.is_none_or(|(before, after)| before == after)
    }
}

/// The environment variables with the directory in which a runtime writes files about its JIT code, most specific first:
/// those of new and of old .NET versions, and that of all programs.
pub const JIT_DIRECTORY_VARIABLES: [&str; 3] =
    ["DOTNET_PerfMapJitDumpPath=", "COMPlus_PerfMapJitDumpPath=", "TMPDIR="];

/// How much of the mappings is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completeness {
    /// Those that sideband events reported.
    Unread,
    All,
    /// `/proc` did not show them.
    Unavailable(LookupError),
}

impl Process {
    /// The name of its service, at most 200 bytes: a claim of the process. That in its process context (OpenTelemetry
    /// specification, OTEP 4719) precedes that in its initial environment.
    pub fn service_name(&self) -> Option<&str> {
        let of_environment = || self.identity.as_ref()?.service_name.as_deref();
        self.published.name.as_deref().or_else(of_environment)
    }

    /// Finds the mapping that contains an address at a time.
    ///
    /// # Errors
    /// When the process has no mapping there or its mappings could not be read.
    pub fn find_mapping(
        &self,
        address: RuntimeAddress,
        time: MonotonicTime,
    ) -> Result<&Arc<Mapping>, LookupError> {
        match self.completeness {
            Completeness::All => self.space.find(address, time).ok_or(LookupError::NoMapping),
            Completeness::Unavailable(error) => Err(error),
            Completeness::Unread => Err(LookupError::NoMapping),
        }
    }

    /// The generation of the mappings at a time, as [`AddressSpace::generation`].
    pub fn mapping_generation(&self, time: MonotonicTime) -> usize {
        self.space.generation(time)
    }

    /// The time of the mappings from which the unwind tables in use at `time` were made, if mappings of files had been
    /// replaced since then. See
    /// [`ProcessTable::note_installation`](crate::ProcessTable::note_installation).
    pub fn unwind_tables_outdated_since(&self, time: MonotonicTime) -> Option<MonotonicTime> {
        let since = self.watch.as_ref()?.installation_at(time)?.as_of;
        self.space.were_files_replaced(since..time).then_some(since)
    }

    /// The time of the call frame information of JIT code that was in use at `time`
    /// ([`Installation::jit_code_as_of`](crate::Installation::jit_code_as_of)); `None` if none was.
    pub fn jit_code_as_of(&self, time: MonotonicTime) -> Option<MonotonicTime> {
        self.watch.as_ref()?.jit_code_as_of(time)
    }

    /// Whether the mapping of a file that contained an address was replaced after `since` and before `time`.
    pub fn was_file_replaced(
        &self,
        address: RuntimeAddress,
        since: MonotonicTime,
        time: MonotonicTime,
    ) -> bool {
        self.space.was_file_replaced(address, since..time)
    }

    /// Drops the mappings that were replaced by a time, but for those that the unwind tables in use at that time were made of:
    /// only later times are looked up from now on.
    pub(crate) fn retire_replaced(&mut self, until: MonotonicTime) {
        let installation = self.watch.as_ref().and_then(|watch| watch.installation_at(until));
        let as_of = installation.map_or(until, |installation| installation.as_of);
        self.space.retire_replaced(until.min(as_of));
        if let Some(watch) = &mut self.watch {
            watch.retire_jit_code(until);
        }
    }

    /// Whether its mappings are known, from `/proc` or from its exec on.
    pub(crate) fn has_mappings(&self) -> bool {
        self.completeness == Completeness::All
    }

    /// Checks that the mappings were read.
    ///
    /// # Errors
    /// When the process ended before, or the profiler had no permission.
    pub fn check_readable(&self) -> Result<(), LookupError> {
        match self.completeness {
            Completeness::All => Ok(()),
            Completeness::Unavailable(error) => Err(error),
            Completeness::Unread => Err(LookupError::ProcessGone),
        }
    }

    /// The current executable mappings, by address.
    pub fn mappings(&self) -> impl Iterator<Item = &Mapping> {
        self.space.current()
    }

    /// The paths of the files that are mapped executable.
    pub fn mapped_files(&self) -> impl Iterator<Item = &str> {
        self.mappings().filter_map(|mapping| match &mapping.backing {
            Backing::File { path, .. } => Some(&**path),
            _ => None,
        })
    }

    /// Its root directory, if it was read and can be opened.
    pub fn root(&self) -> Option<&RootDirectory> {
        self.identity.as_ref()?.root.as_deref()
    }

    /// Whether the process has exited or executed another program.
    pub fn has_ended(&self) -> bool {
        self.until.is_some()
    }
}
