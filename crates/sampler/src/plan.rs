//! What a session samples, and how.

use std::path::PathBuf;

use profiler_processes::{Pid, Tid};

use super::ebpf::events::EventPlan;

/// The default of [`Plan::max_overhead_percent`].
pub const DEFAULT_MAX_OVERHEAD_PERCENT: f64 = 2.0;

/// How user stacks are unwound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Unwind {
    /// By call frame information (`.eh_frame`); by frame pointer through code that has none.
    #[default]
    Auto,
    /// By frame pointer alone (`bpf_get_stack`): wrong wherever code was built without.
    FramePointer,
    /// By call frame information alone: a stack ends at code that has none.
    Dwarf,
}

/// Which stacks are sampled, and how user stacks are unwound.
#[derive(Clone, Copy, Debug)]
pub struct StackSettings {
    /// Stacks in the kernel.
    pub kernel: bool,
    /// Stacks in user space.
    pub user: bool,
    /// How user stacks are unwound.
    pub unwind: Unwind,
}

impl StackSettings {
    /// Whether the BPF unwinder captures user stacks, and not `bpf_get_stack`.
    pub fn uses_unwinder(&self) -> bool {
        self.user && self.unwind != Unwind::FramePointer
    }
}

impl Default for StackSettings {
    fn default() -> Self {
        Self { kernel: true, user: true, unwind: Unwind::Auto }
    }
}

/// Which tasks the BPF programs sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// All tasks.
    Everything,
    /// All threads of these processes.
    Processes(Vec<Pid>),
    /// These threads.
    Threads(Vec<Tid>),
    /// A directory of the cgroup v2 hierarchy, and everything below it.
    CgroupV2(PathBuf),
    /// A directory of a cgroup v1 hierarchy, and everything below it.
    CgroupV1 {
        /// The directory.
        directory: PathBuf,
        /// A controller of that hierarchy: `cpu`, `memory`.
        controller: String,
    },
}

impl Filter {
    /// The ids of its processes or threads, which the BPF programs compare with those of a task.
    pub(crate) fn ids(&self) -> Vec<u32> {
        match self {
            Self::Processes(pids) => pids.iter().map(|pid| pid.0).collect(),
            Self::Threads(tids) => tids.iter().map(|tid| tid.0).collect(),
            Self::Everything | Self::CgroupV2(_) | Self::CgroupV1 { .. } => Vec::new(),
        }
    }
}

/// What to sample, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The tasks.
    pub filter: Filter,
    /// What their samples are.
    pub events: EventPlan,
    /// Only these CPUs; `None` is every CPU that is online, now or later.
    pub cpus: Option<Vec<u32>>,
    /// The stacks of samples.
    pub stacks: StackSettings,
    /// Whether processes forked by a target process become targets.
    pub children: bool,
    /// The run time of the sampling programs that is allowed on each CPU, percent of its time.
    pub max_overhead_percent: f64,
}

impl Plan {
    /// CPU samples of these tasks on all CPUs, with kernel and user stacks.
    pub fn cpu_samples(filter: Filter, frequency_hz: u64) -> Self {
        Self {
            filter,
            events: EventPlan::cpu_samples(frequency_hz),
            cpus: None,
            stacks: StackSettings::default(),
            children: false,
            max_overhead_percent: DEFAULT_MAX_OVERHEAD_PERCENT,
        }
    }

    /// Whether the children of a sampled process are sampled.
    pub fn follows_forks(&self) -> bool {
        match self.filter {
            Filter::Processes(_) => self.children,
            Filter::Threads(_) => false,
            Filter::Everything | Filter::CgroupV2(_) | Filter::CgroupV1 { .. } => true,
        }
    }
}
