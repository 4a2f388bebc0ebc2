//! The settings of a session, in groups.

use std::{ffi::OsString, path::PathBuf};

use profiler_sampler::{DEFAULT_MAX_OVERHEAD_PERCENT, EventSettings, StackSettings};

use profiler_dotnet_diagnostics::EventRequest;
use profiler_symbolize::{MethodEventRequests, RuntimeRequests, symbol_server::Server};

use crate::{command_user::CommandUser, sandbox::SandboxSettings};

/// The settings of a session.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) target: TargetSettings,
    pub(crate) events: EventSettings,
    pub(crate) stacks: StackSettings,
    pub(crate) names: NameSettings,
    pub(crate) dotnet: DotnetSettings,
    /// `None` is every CPU that is online.
    pub(crate) cpus: Option<Vec<u32>>,
    pub(crate) max_overhead_percent: f64,
    pub(crate) sandbox: SandboxSettings,
    /// The new directory of a capture that is recorded.
    pub(crate) capture: Option<PathBuf>,
    /// The directory of the capture that is replayed.
    pub(crate) replay: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            target: TargetSettings::default(),
            events: EventSettings::default(),
            stacks: StackSettings::default(),
            names: NameSettings::default(),
            dotnet: DotnetSettings::default(),
            cpus: None,
            max_overhead_percent: DEFAULT_MAX_OVERHEAD_PERCENT,
            sandbox: SandboxSettings::default(),
            capture: None,
            replay: None,
        }
    }
}

/// The target of a session. Process and thread ids are those of the profiler's PID namespace.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A process with all its present and future threads.
    Pid(u32),
    /// Several processes.
    Pids(Vec<u32>),
    /// The only process with a name: that of its leader thread (`/proc/PID/comm`), the file name of its program as the first
    /// word of its command line has it, or, where that is `dotnet`, the file name of the assembly with or without `.dll`.
    /// The calling process and kernel threads are left out. Several processes with the name are an error that lists them.
    ProcessName(String),
    /// One thread.
    Tid(u32),
    /// Several threads.
    Tids(Vec<u32>),
    /// All processes on this host that are visible in the profiler's PID namespace.
    Everything,
    /// The processes in a cgroup and its descendants: a directory of the cgroup file system, or a path as
    /// `/proc/PID/cgroup` shows it.
    Cgroup(PathBuf),
    /// The processes of a container, by a prefix of its id in the cgroup path.
    Container(String),
    /// The processes of a Kubernetes pod that runs on this node, found in the files of its container runtime. Needs the
    /// feature `pods`.
    #[cfg(feature = "pods")]
    Pod {
        /// The name of the pod, or a prefix that only one pod has.
        name: String,
        /// The namespace of the pod; `None` for any.
        namespace: Option<String>,
        /// The name of a container of the pod; `None` for all.
        container: Option<String>,
    },
    /// A command to start, with its arguments. Its descendants are sampled too, unless
    /// [`Builder::children`](crate::Builder::children) turns that off.
    Command(Vec<OsString>),
}

/// What is sampled.
#[derive(Clone, Debug)]
pub(crate) struct TargetSettings {
    pub(crate) target: Target,
    /// `None` is the default of the target.
    pub(crate) children: Option<bool>,
    pub(crate) silent_command: bool,
    /// `None` is the user of this process.
    pub(crate) command_user: Option<CommandUser>,
}

impl Default for TargetSettings {
    fn default() -> Self {
        Self { target: Target::Everything, children: None, silent_command: false, command_user: None }
    }
}

impl TargetSettings {
    pub(crate) fn is_command(&self) -> bool {
        matches!(self.target, Target::Command(_))
    }

    /// Whether processes that a target process forks are targets.
    pub(crate) fn follows_children(&self) -> bool {
        self.children.unwrap_or(self.is_command())
    }
}

/// Where names come from, and how they are spelled.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameSettings {
    pub(crate) inlines: bool,
    pub(crate) lines: bool,
    pub(crate) raw: bool,
    pub(crate) debug_directories: Vec<PathBuf>,
    pub(crate) symbol_servers: Vec<Server>,
    pub(crate) symbol_cache: Option<PathBuf>,
}

/// Where the names of the methods that a .NET runtime compiles come from, besides perf maps and jitdumps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DotnetNames {
    /// From the memory of the process, and from the events of the runtime for what is not there: before .NET 9, once the runtime
    /// frees code, and where tiers, compilations, a perf map or runtime events are requested.
    #[default]
    Auto,
    /// From the runtime's data structures in the memory of the process, which .NET 9 and 10 describe. The runtime is not
    /// contacted for them. Names have no tier, and code that the runtime frees has a name from a tenth of a second after its
    /// first sample on.
    Memory,
    /// From the events of the runtime alone.
    Events,
}

/// What .NET runtimes are asked for.
#[derive(Clone, Debug)]
pub(crate) struct DotnetSettings {
    pub(crate) names: DotnetNames,
    pub(crate) tiers: bool,
    /// Whether runtimes may be asked for the events of their methods.
    pub(crate) contacts_runtimes: bool,
    pub(crate) perf_map: bool,
    pub(crate) compilations: bool,
    pub(crate) runtime_events: EventRequest,
}

impl Default for DotnetSettings {
    fn default() -> Self {
        Self {
            names: DotnetNames::default(),
            tiers: false,
            contacts_runtimes: true,
            perf_map: false,
            compilations: false,
            runtime_events: EventRequest::default(),
        }
    }
}

impl DotnetSettings {
    /// Whether runtimes are asked for the events of their methods.
    pub(crate) fn has_method_events(&self) -> bool {
        self.contacts_runtimes && self.names != DotnetNames::Memory
    }

    /// What runtimes are asked for to name their methods. `frames`: what describes their frames is read as well.
    pub(crate) fn requests(&self, frames: bool) -> RuntimeRequests {
        RuntimeRequests {
            events: self.method_events(),
            memory: self.names != DotnetNames::Events,
            frames,
            perf_maps: self.perf_map,
            compilations: self.compilations,
        }
    }

    /// When runtimes are asked for the events of their methods. Memory has no tier, and a runtime that is contacted for other
    /// events reports its methods as well.
    fn method_events(&self) -> MethodEventRequests {
        let requests_events =
            self.tiers || self.perf_map || self.compilations || !self.runtime_events.is_empty();
        match self.names {
            _ if !self.has_method_events() => MethodEventRequests::Never,
            DotnetNames::Auto if !requests_events => MethodEventRequests::WhereMemoryLacks,
            _ => MethodEventRequests::Always,
        }
    }
}
