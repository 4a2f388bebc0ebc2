//! Load-time constants of the BPF programs: target filter, PID namespace, BTF offsets, unwind mode.

use crate::{event::EventConfig, off_cpu::OffCpuConfig, wall::WallOffsets};

/// Which tasks the BPF programs sample.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetFilter {
    /// Every task except the idle tasks.
    Everything = 0,
    /// Tasks whose process id is in the targets map.
    Processes = 1,
    /// Tasks whose thread id is in the targets map.
    Threads = 2,
    /// Tasks in or below the cgroup v2 directory in the cgroup map.
    CgroupV2 = 3,
    /// Tasks in or below the cgroup v1 directory whose id is [`Config::cgroup_id`].
    CgroupV1 = 4,
}

/// How the process and thread ids of a sample are determined.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PidSource {
    /// `bpf_get_current_pid_tgid`: the profiler runs in the initial PID namespace.
    Initial = 0,
    /// `task->thread_pid->numbers[]` at offsets from BTF: the profiler runs in another PID namespace. Resolves tasks of
    /// that namespace and of all namespaces below it.
    Task = 1,
    /// `bpf_get_ns_current_pid_tgid`, where there is no BTF. Resolves only tasks whose active PID namespace is exactly the
    /// profiler's.
    Helper = 2,
}

/// Where the user registers come from when a tick interrupts kernel mode.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserRegistersSource {
    /// They are not available: `bpf_get_stack` captures the user stack of such a tick.
    None = 0,
    /// The helper `bpf_task_pt_regs` (Linux 5.15).
    PtRegsHelper = 1,
    /// The `pt_regs` at the top of the task's kernel stack, at offsets from BTF.
    TaskStack = 2,
}

/// The load-time constants of the BPF programs. Offsets are bytes from the start of the structure; they come
/// from the running kernel's BTF and are 0 where they are not needed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct Config {
    /// A [`TargetFilter`].
    pub filter: u32,
    /// A [`PidSource`].
    pub pid_source: u32,
    /// The one process or thread that is sampled; 0 where the targets are in the targets map.
    pub only_target: u32,
    /// The run time of the sampling programs that is allowed on a CPU, see [`OVERHEAD_SHARE_BITS`](crate::OVERHEAD_SHARE_BITS).
    pub max_overhead: u32,
    /// 1: capture kernel stacks.
    pub kernel_stacks: u32,
    /// 1: capture user stacks.
    pub user_stacks: u32,
    /// Device of the profiler's `/proc/self/ns/pid`.
    pub pid_namespace_dev: u64,
    /// Inode of the profiler's `/proc/self/ns/pid`.
    pub pid_namespace_inode: u64,
    /// Initial value of the stack hash. It is random, so that a target cannot choose stacks whose ids collide.
    pub hash_seed: u64,
    /// Id of the cgroup v1 directory to sample below (its inode).
    pub cgroup_id: u64,
    /// Bytes in the ring buffer at which the reader is woken.
    pub wakeup_bytes: u64,
    /// The most frames that `bpf_get_stack` captures, `kernel.perf_event_max_stack`.
    pub perf_event_max_stack: u32,
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
    /// A [`UserRegistersSource`].
    pub user_registers_source: u32,
    /// `task_struct.stack`.
    pub task_stack: u32,
    /// Offset in a task's kernel stack of the `pt_regs` that were saved when the task entered the kernel.
    pub stack_pt_regs: u32,
    /// 1: the unwinder uses CFI alone, neither frame pointers nor epilogue scans.
    pub cfi_only: u32,
    /// 1: the children of a target become targets.
    pub follow_children: u32,
    /// How the mapping of an address is found in the kernel's structures.
    pub vma_search: VmaSearch,
    /// Where the kernel keeps the return addresses that return probes replace.
    pub return_probes: ReturnProbeOffsets,
    /// What passes of wall-clock samples read of tasks.
    pub wall: WallOffsets,
    /// What is recorded of off-CPU time.
    pub off_cpu: OffCpuConfig,
    /// What the program of an event records.
    pub event: EventConfig,
}

/// The offsets for a search among the VMAs of a process, in a maple tree (Linux 6.1). All are 0 where the kernel has none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct VmaSearch {
    /// 1: the search is possible.
    pub is_possible: u32,
    /// `task_struct.mm`.
    pub task_mm: u32,
    /// `mm_struct.mm_mt.ma_root`.
    pub mm_root: u32,
    /// `vm_area_struct.vm_start`.
    pub vma_start: u32,
    /// `vm_area_struct.vm_end`.
    pub vma_end: u32,
    /// `vm_area_struct.vm_flags`.
    pub vma_flags: u32,
    /// `vm_area_struct.vm_pgoff`.
    pub vma_page_offset: u32,
    /// `vm_area_struct.vm_file`.
    pub vma_file: u32,
    /// `file.f_inode`.
    pub file_inode: u32,
    /// `file.f_mode`.
    pub file_mode: u32,
    /// `backing_file.user_path.dentry`; 0 where the kernel has no such structure.
    pub backing_file_dentry: u32,
    /// `dentry.d_inode`.
    pub dentry_inode: u32,
    /// `inode.i_ino`.
    pub inode_number: u32,
    /// `inode.i_sb`.
    pub inode_superblock: u32,
    /// `super_block.s_dev`.
    pub superblock_device: u32,
    /// Seconds of the inode's change time.
    pub inode_changed_s: u32,
    /// Nanoseconds of the inode's change time.
    pub inode_changed_ns: u32,
    /// 0.
    pub reserved: u32,
}

/// The offsets for return addresses that return probes have replaced on the stack (`include/linux/uprobes.h`). All are 0 where the
/// kernel has no BTF or no uprobes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct ReturnProbeOffsets {
    /// 1: the return addresses can be read.
    pub is_possible: u32,
    /// `task_struct.mm`.
    pub task_mm: u32,
    /// `mm_struct.uprobes_state.xol_area`.
    pub mm_xol_area: u32,
    /// `xol_area.vaddr`.
    pub xol_area_address: u32,
    /// `task_struct.utask`.
    pub task_uprobe_task: u32,
    /// `uprobe_task.return_instances`.
    pub uprobe_task_instances: u32,
    /// `uprobe_task.active_uprobe`.
    pub uprobe_task_active: u32,
    /// `uprobe_task.xol_vaddr`.
    pub uprobe_task_copy: u32,
    /// `uprobe_task.vaddr`.
    pub uprobe_task_original: u32,
    /// `return_instance.stack`.
    pub instance_stack: u32,
    /// `return_instance.orig_ret_vaddr`.
    pub instance_return_address: u32,
    /// `return_instance.next`.
    pub instance_next: u32,
}

const _: () = assert!(
    size_of::<Config>()
        == 6 * 4
            + 5 * 8
            + 22 * 4
            + size_of::<VmaSearch>()
            + size_of::<ReturnProbeOffsets>()
            + size_of::<WallOffsets>()
            + size_of::<OffCpuConfig>()
            + size_of::<EventConfig>()
);
const _: () = assert!(size_of::<VmaSearch>().is_multiple_of(8));
const _: () = assert!(size_of::<ReturnProbeOffsets>().is_multiple_of(8));
