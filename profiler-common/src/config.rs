//! The constants that user space sets in the kernel object before it is loaded.

/// What the kernel side lets through.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetFilter {
    /// Every task but the idle ones.
    Everything = 0,
    /// Tasks whose process id is in the targets.
    Processes = 1,
    /// Tasks whose thread id is in the targets.
    Threads = 2,
    /// Tasks in or below the cgroup v2 directory in the cgroup map.
    CgroupV2 = 3,
    /// Tasks in or below the cgroup v1 directory with the configured id.
    CgroupV1 = 4,
}

/// Where the process and thread ids of samples come from.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PidSource {
    /// The profiler runs in the initial pid namespace: the kernel's own ids.
    Initial = 0,
    /// The profiler runs in another one: read from the task with offsets from BTF, which also gives the ids
    /// of tasks in namespaces below.
    Task = 1,
    /// As `Task` but without BTF: a helper that only knows tasks of exactly this namespace.
    Helper = 2,
}

/// Where the user registers come from when a tick hits the kernel.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserRegisters {
    /// Nowhere: such stacks are taken by the kernel's own walk.
    None = 0,
    /// From a helper of 5.15 and later.
    Helper = 1,
    /// From the top of the task's kernel stack, where they were saved.
    TaskStack = 2,
}

/// The load-time constants of the kernel side. Offsets are bytes from the start of the structure; they come
/// from the running kernel's BTF and are 0 where they are not needed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct Config {
    /// A [`TargetFilter`].
    pub filter: u32,
    /// A [`PidSource`].
    pub pid_source: u32,
    /// 1: take kernel stacks.
    pub kernel_stacks: u32,
    /// 1: take user stacks.
    pub user_stacks: u32,
    /// Device of the profiler's `/proc/self/ns/pid`.
    pub pid_namespace_dev: u64,
    /// Inode of the profiler's `/proc/self/ns/pid`.
    pub pid_namespace_inode: u64,
    /// Starts the hash of a stack, so that a target cannot choose stacks that collide.
    pub hash_seed: u64,
    /// Id of the cgroup v1 directory to sample below (its inode).
    pub cgroup_id: u64,
    /// Bytes in the ring buffer at which the reader is woken.
    pub wakeup_bytes: u64,
    /// The depth at which the kernel's frame-pointer walk ends, `kernel.perf_event_max_stack`.
    pub max_depth: u32,
    /// `task_struct.thread_pid`.
    pub task_thread_pid: u32,
    /// `task_struct.group_leader`.
    pub task_group_leader: u32,
    /// `task_struct.cgroups`.
    pub task_cgroups: u32,
    /// `pid.level`.
    pub pid_level: u32,
    /// `pid.numbers`.
    pub pid_numbers: u32,
    /// `upid.nr`.
    pub upid_nr: u32,
    /// `upid.ns`.
    pub upid_ns: u32,
    /// Size of `upid`.
    pub upid_size: u32,
    /// `pid_namespace.ns.inum`.
    pub pid_namespace_inum: u32,
    /// `css_set.subsys[subsystem]`, of the hierarchy that the cgroup directory belongs to.
    pub css_set_subsys: u32,
    /// `cgroup_subsys_state.cgroup`.
    pub css_cgroup: u32,
    /// `cgroup.kn`.
    pub cgroup_kn: u32,
    /// `kernfs_node.id`.
    pub kernfs_id: u32,
    /// `kernfs_node.parent` (`__parent` in newer kernels).
    pub kernfs_parent: u32,
    /// `task_struct.signal`.
    pub task_signal: u32,
    /// `signal_struct.live`.
    pub signal_live: u32,
    /// A [`UserRegisters`].
    pub user_registers: u32,
    /// `task_struct.stack`.
    pub task_stack: u32,
    /// Where in a task's kernel stack the registers are that it entered the kernel with.
    pub task_registers: u32,
    /// 1: a walk does not follow frame pointers.
    pub tables_only: u32,
    /// 1: a target's children become targets.
    pub children: u32,
}

const _: () = assert!(size_of::<Config>() == 4 * 4 + 5 * 8 + 22 * 4);
