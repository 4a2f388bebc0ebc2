//! Load-time constants: the loader writes them into `.rodata` before it loads the programs.

use profiler_common::{
    Config, ReturnProbeOffsets, VmaSearch,
    event::{Condition, EventConfig, Field, MAX_CONDITIONS},
    off_cpu::OffCpuConfig,
    wall::WallOffsets,
};

const NO_FIELD: Field = Field { bytes: 0, is_signed: 0, context_offset: 0, place: 0, offset: 0, reserved: 0 };
const NO_CONDITION: Condition = Condition { number: 0, field: NO_FIELD, comparison: 0, reserved: 0 };

/// Set by the loader under this name. The map is frozen, so that the verifier knows each value and removes the
/// branches that this machine does not need, with the helpers in them that its kernel may not have.
#[unsafe(no_mangle)]
static CONFIG: Config = Config {
    filter: 0,
    pid_source: 0,
    only_target: 0,
    max_overhead: 0,
    kernel_stacks: 1,
    user_stacks: 1,
    pid_namespace_dev: 0,
    pid_namespace_inode: 0,
    hash_seed: 0,
    cgroup_id: 0,
    wakeup_bytes: 0,
    perf_event_max_stack: 127,
    task_thread_pid: 0,
    task_group_leader: 0,
    task_cgroups: 0,
    pid_level: 0,
    pid_numbers: 0,
    upid_nr: 0,
    upid_ns: 0,
    upid_size: 0,
    pid_namespace_inum: 0,
    css_set_subsys: 0,
    css_cgroup: 0,
    cgroup_kn: 0,
    kernfs_id: 0,
    kernfs_parent: 0,
    task_signal: 0,
    signal_live: 0,
    user_registers_source: 0,
    task_stack: 0,
    stack_pt_regs: 0,
    cfi_only: 0,
    follow_children: 0,
    vma_search: VmaSearch {
        is_possible: 0,
        task_mm: 0,
        mm_root: 0,
        vma_start: 0,
        vma_end: 0,
        vma_flags: 0,
        vma_page_offset: 0,
        vma_file: 0,
        file_inode: 0,
        file_mode: 0,
        backing_file_dentry: 0,
        dentry_inode: 0,
        inode_number: 0,
        inode_superblock: 0,
        superblock_device: 0,
        inode_changed_s: 0,
        inode_changed_ns: 0,
        reserved: 0,
    },
    return_probes: ReturnProbeOffsets {
        is_possible: 0,
        task_mm: 0,
        mm_xol_area: 0,
        xol_area_address: 0,
        task_uprobe_task: 0,
        uprobe_task_instances: 0,
        uprobe_task_active: 0,
        uprobe_task_copy: 0,
        uprobe_task_original: 0,
        instance_stack: 0,
        instance_return_address: 0,
        instance_next: 0,
    },
    wall: WallOffsets {
        task_pid: 0,
        task_tgid: 0,
        task_mm: 0,
        task_state: 0,
        task_exit_state: 0,
        task_on_cpu: 0,
        task_switches: 0,
        task_start_time: 0,
        task_comm: 0,
        task_cpu: 0,
        css_set_default_cgroup: 0,
        task_last_arrival: 0,
        task_run_queue: 0,
        run_queue_throttle_count: 0,
        task_thread_node: 0,
        signal_thread_head: 0,
        task_type: 0,
        rdonly_cast: 0,
        vma_end: 0,
        vma_file: 0,
        vma_userfaultfd: 0,
        task_run_delay: 0,
        task_run_time: 0,
        reserved: 0,
    },
    off_cpu: OffCpuConfig { min_block_ns: 0, wakers: 0, only_state: 0, copies_per_cpu: 1, reserved: 0 },
    event: EventConfig {
        occurrences_per_run: 1,
        runs_per_sample: 1,
        index: 0,
        needs_duration: 0,
        system_call: 0,
        thread_status: 0,
        thread_start_time: 0,
        reserved: 0,
        weight: NO_FIELD,
        conditions: [NO_CONDITION; MAX_CONDITIONS],
    },
};

/// Reads one field of [`CONFIG`] as the loader set it, not as this file initialises it.
macro_rules! get {
    ($($field:ident).+) => {
        $crate::bpf::config::get!(@ $($field).+)
    };
    // A field of an element of an array, by a constant index.
    ($($array:ident).+ [$index:ident] . $($field:ident).+) => {
        $crate::bpf::config::get!(@ $($array).+[$index].$($field).+)
    };
    (@ $($place:tt)+) => {{
        // SAFETY: the address is that of an initialised field of a static that nothing writes after load.
        unsafe { core::ptr::read_volatile(&raw const $crate::bpf::config::config().$($place)+) }
    }};
}
pub(crate) use get;

/// The constants, for [`get`] alone.
#[inline(always)]
pub(crate) fn config() -> &'static Config {
    &CONFIG
}
