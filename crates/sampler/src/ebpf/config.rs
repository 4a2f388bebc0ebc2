//! Computes the load-time constants of the BPF programs: filter, PID namespace, BTF offsets, stack depth.

use std::{
    fs,
    hash::{BuildHasher, Hasher, RandomState},
    os::unix::fs::MetadataExt,
    path::Path,
};

use profiler_common::{
    Config, MAX_FRAMES, OVERHEAD_SHARE_BITS, PidSource, ReturnProbeOffsets, TargetFilter,
    UserRegistersSource, VmaSearch,
    wall::{LINKED_WORDS, STATE_WORDS, WallOffsets},
};

use super::{
    btf::Btf,
    kernel_types::KernelTypes,
    map_sizes::MapSizes,
    object::{Helper, has_helper},
    programs::EventContext,
};
use crate::{
    error::{Error, ErrorKind, Operation, Result},
    plan::{Filter, Plan, Unwind},
    sys::read_number,
};

/// The inode of the initial PID namespace, `PROC_PID_INIT_INO` of `include/linux/proc_ns.h`.
pub const INITIAL_PID_NAMESPACE: u64 = 0xefff_fffc;

/// The depth limit of `bpf_get_stack`.
const MAX_STACK_SYSCTL: &str = "/proc/sys/kernel/perf_event_max_stack";

/// The offset of `pt_regs` in a task's kernel stack: at the very top (`task_pt_regs`,
/// `arch/x86/include/asm/processor.h`), with `THREAD_SIZE` bytes of stack and `struct pt_regs` of 21 words.
const STACK_PT_REGS: u32 = (16 << 10) - 21 * 8;

/// Computes the constants for a plan on this machine.
pub(super) fn configure(plan: &Plan, sizes: &MapSizes, context: &EventContext<'_>) -> Result<Config> {
    const PATH: &str = "/proc/self/ns/pid";
    let types = context.types;
    let namespace = fs::metadata(PATH).map_err(|error| {
        Error::from_io(Operation::ReadProcess, format!("failed to inspect `{PATH}`"), error)
    })?;
    let mut config = Config {
        filter: filter(&plan.filter) as u32,
        only_target: only_target(plan).unwrap_or(0),
        max_overhead: max_overhead(plan.max_overhead_percent),
        kernel_stacks: plan.stacks.kernel.into(),
        user_stacks: plan.stacks.user.into(),
        pid_namespace_dev: namespace.dev(),
        pid_namespace_inode: namespace.ino(),
        hash_seed: RandomState::new().build_hasher().finish(),
        wakeup_bytes: sizes.wakeup_bytes(),
        perf_event_max_stack: perf_event_max_stack(),
        ..Config::default()
    };
    let initial = namespace.ino() == INITIAL_PID_NAMESPACE;
    let hierarchy = match &plan.filter {
        Filter::CgroupV1 { directory, controller } => Some((directory, controller)),
        _ => None,
    };
    // BTF is parsed only where an offset is needed.
    let unwinds = plan.stacks.uses_unwinder();
    let registers_by_offset = unwinds && !has_helper(Helper::TaskPtRegs);
    let searches_vmas = unwinds && has_helper(Helper::Loop);
    let needs_btf =
        !initial || plan.children || hierarchy.is_some() || unwinds || plan.events.waits().is_some();
    let btf = if needs_btf { types.btf() } else { None };
    if unwinds {
        config.user_registers_source = UserRegistersSource::PtRegsHelper as u32;
    }
    if registers_by_offset {
        config.user_registers_source = UserRegistersSource::None as u32;
        if let Some(btf) = btf {
            config.user_registers_source = UserRegistersSource::TaskStack as u32;
            config.task_stack = member(btf, "task_struct", "stack")?;
            config.stack_pt_regs = STACK_PT_REGS;
        }
    }
    config.follow_children = plan.children.into();
    config.cfi_only = u32::from(plan.stacks.unwind == Unwind::Dwarf);
    config.pid_source = pid_source(initial, btf.is_some()) as u32;
    if let Some(btf) = btf {
        fill_pid_offsets(&mut config, btf)?;
        if searches_vmas {
            config.vma_search = vma_search(btf).unwrap_or_default();
        }
        if unwinds {
            config.return_probes = return_probes(btf).unwrap_or_default();
        }
    } else if plan.children {
        types.required_for("children can only be followed")?;
    }
    if let Some(waits) = plan.events.waits() {
        fill_wall_offsets(&mut config, types.required_for(waits.need)?, &plan.filter)?;
    }
    plan.events.kinds.iter().for_each(|kind| kind.configure(&mut config, context));
    if let Some((directory, controller)) = hierarchy {
        let btf = types.required_for("a cgroup v1 directory can only be sampled")?;
        config.cgroup_id = cgroup_id(directory)?;
        fill_cgroup_offsets(&mut config, btf, controller)?;
    }
    Ok(config)
}

fn filter(filter: &Filter) -> TargetFilter {
    match filter {
        Filter::Everything => TargetFilter::Everything,
        Filter::Processes(_) => TargetFilter::Processes,
        Filter::Threads(_) => TargetFilter::Threads,
        Filter::CgroupV2(_) => TargetFilter::CgroupV2,
        Filter::CgroupV1 { .. } => TargetFilter::CgroupV1,
    }
}

/// The target, if there is one and it stays the only one.
fn only_target(plan: &Plan) -> Option<u32> {
    match *plan.filter.ids() {
        [id] if !plan.children => Some(id),
        _ => None,
    }
}

/// A share of a CPU in the unit of the constant, at least one unit.
fn max_overhead(percent: f64) -> u32 {
    (percent / 100.0 * f64::from(1 << OVERHEAD_SHARE_BITS)).clamp(1.0, f64::from(1 << OVERHEAD_SHARE_BITS))
        as u32
}

fn pid_source(initial: bool, btf: bool) -> PidSource {
    match (initial, btf) {
        (true, _) => PidSource::Initial,
        (false, true) => PidSource::Task,
        (false, false) => PidSource::Helper,
    }
}

/// The depth limit of `bpf_get_stack`, 127 where the sysctl is not readable.
fn perf_event_max_stack() -> u32 {
    const DEFAULT: u64 = 127;
    let depth = read_number(MAX_STACK_SYSCTL).unwrap_or(DEFAULT);
    u32::try_from(depth.clamp(1, MAX_FRAMES as u64)).unwrap_or(MAX_FRAMES as u32)
}

fn fill_pid_offsets(config: &mut Config, btf: &Btf) -> Result<()> {
    config.task_thread_pid = member(btf, "task_struct", "thread_pid")?;
    config.task_group_leader = member(btf, "task_struct", "group_leader")?;
    config.task_signal = member(btf, "task_struct", "signal")?;
    config.signal_live = member(btf, "signal_struct", "live")?;
    config.pid_level = member(btf, "pid", "level")?;
    config.pid_numbers = member(btf, "pid", "numbers")?;
    config.upid_nr = member(btf, "upid", "nr")?;
    config.upid_ns = member(btf, "upid", "ns")?;
    config.upid_size = btf.size("upid").ok_or_else(|| missing_type("upid", ""))?;
    config.pid_namespace_inum = member(btf, "pid_namespace", "ns")? + member(btf, "ns_common", "inum")?;
    Ok(())
}

/// Whether this kernel's types allow a search among VMAs.
pub(super) fn has_vma_search(types: &KernelTypes) -> bool {
    types.btf().is_some_and(|btf| vma_search(btf).is_some())
}

/// The offsets for a search among VMAs; `None` where the kernel has no maple tree of them (before 6.1), or another one.
fn vma_search(btf: &Btf) -> Option<VmaSearch> {
    /// The layout of `struct maple_node`, as the BPF program has it.
    const MAPLE_NODE: [(&str, &str, u32); 4] = [
        ("maple_range_64", "pivot", 8),
        ("maple_range_64", "slot", 128),
        ("maple_arange_64", "pivot", 8),
        ("maple_arange_64", "slot", 80),
    ];
    let mut layout = MAPLE_NODE.iter();
    if !layout.all(|(structure, member, offset)| btf.member(structure, member) == Some(*offset)) {
        return None;
    }
    let backing_file = btf.member("backing_file", "user_path");
    let dentry_in_path = btf.member("path", "dentry")?;
    // `i_ctime` and `__i_ctime` are a `struct timespec64`, of two words.
    let changed = btf.member("inode", "i_ctime").or_else(|| btf.member("inode", "__i_ctime"));
    let changed = changed.map(|offset| (offset, offset + 8));
    let (inode_changed_s, inode_changed_ns) = match changed {
        Some(offsets) => offsets,
        None => (btf.member("inode", "i_ctime_sec")?, btf.member("inode", "i_ctime_nsec")?),
    };
    Some(VmaSearch {
        is_possible: 1,
        task_mm: btf.member("task_struct", "mm")?,
        mm_root: btf.member("mm_struct", "mm_mt")? + btf.member("maple_tree", "ma_root")?,
        vma_start: btf.member("vm_area_struct", "vm_start")?,
        vma_end: btf.member("vm_area_struct", "vm_end")?,
        vma_flags: btf.member("vm_area_struct", "vm_flags")?,
        vma_page_offset: btf.member("vm_area_struct", "vm_pgoff")?,
        vma_file: btf.member("vm_area_struct", "vm_file")?,
        file_inode: btf.member("file", "f_inode")?,
        file_mode: btf.member("file", "f_mode")?,
        backing_file_dentry: backing_file.map_or(0, |offset| offset + dentry_in_path),
        dentry_inode: btf.member("dentry", "d_inode")?,
        inode_number: btf.member("inode", "i_ino")?,
        inode_superblock: btf.member("inode", "i_sb")?,
        superblock_device: btf.member("super_block", "s_dev")?,
        inode_changed_s,
        inode_changed_ns,
        reserved: 0,
    })
}

/// The offsets for return addresses that return probes have replaced; `None` where the kernel has no uprobes.
fn return_probes(btf: &Btf) -> Option<ReturnProbeOffsets> {
    Some(ReturnProbeOffsets {
        is_possible: 1,
        task_mm: btf.member("task_struct", "mm")?,
        mm_xol_area: btf.member("mm_struct", "uprobes_state")? + btf.member("uprobes_state", "xol_area")?,
        xol_area_address: btf.member("xol_area", "vaddr")?,
        task_uprobe_task: btf.member("task_struct", "utask")?,
        uprobe_task_instances: btf.member("uprobe_task", "return_instances")?,
        uprobe_task_active: btf.member("uprobe_task", "active_uprobe")?,
        uprobe_task_copy: btf.member("uprobe_task", "xol_vaddr")?,
        uprobe_task_original: btf.member("uprobe_task", "vaddr")?,
        instance_stack: btf.member("return_instance", "stack")?,
        instance_return_address: btf.member("return_instance", "orig_ret_vaddr")?,
        instance_next: btf.member("return_instance", "next")?,
    })
}

fn fill_cgroup_offsets(config: &mut Config, btf: &Btf, controller: &str) -> Result<()> {
    const POINTER_BYTES: u32 = 8;
    let subsystem = btf
        .enumerator("cgroup_subsys_id", &format!("{controller}_cgrp_id"))
        .ok_or_else(|| missing_type("cgroup_subsys_id", controller))?;
    config.task_cgroups = member(btf, "task_struct", "cgroups")?;
    config.css_set_subsys = member(btf, "css_set", "subsys")? + subsystem * POINTER_BYTES;
    config.css_cgroup = member(btf, "cgroup_subsys_state", "cgroup")?;
    fill_kernfs_offsets(config, btf)
}

fn fill_wall_offsets(config: &mut Config, btf: &Btf, filter: &Filter) -> Result<()> {
    let task = |field| member(btf, "task_struct", field);
    let cpu = member(btf, "thread_info", "cpu").and_then(|offset| Ok(task("thread_info")? + offset));
    let (task_last_arrival, task_run_delay) = run_queue_times(btf).unwrap_or_default();
    config.wall = WallOffsets {
        task_pid: task("pid")?,
        task_tgid: task("tgid")?,
        task_mm: task("mm")?,
        task_state: task("__state").or_else(|_| task("state"))?,
        task_exit_state: task("exit_state")?,
        task_on_cpu: task("on_cpu")?,
        task_switches: task("nvcsw")?,
        task_start_time: task("start_time")?,
        task_comm: task("comm")?,
        task_cpu: cpu.or_else(|_| task("cpu"))?,
        task_last_arrival,
        task_run_delay,
        task_run_time: task("se")? + member(btf, "sched_entity", "sum_exec_runtime")?,
        vma_end: member(btf, "vm_area_struct", "vm_end")?,
        vma_file: member(btf, "vm_area_struct", "vm_file")?,
        vma_userfaultfd: btf.member("vm_area_struct", "vm_userfaultfd_ctx").unwrap_or_default(),
        ..WallOffsets::default()
    };
    if let Some((task_run_queue, throttle_count)) = throttling(btf) {
        config.wall.task_run_queue = task_run_queue;
        config.wall.run_queue_throttle_count = throttle_count;
    }
    if let Some((task_thread_node, signal_thread_head)) = thread_list(btf) {
        config.wall.task_thread_node = task_thread_node;
        config.wall.signal_thread_head = signal_thread_head;
        if let (Some(task), Some(cast)) =
            (btf.structure_id("task_struct"), btf.function_id("bpf_rdonly_cast"))
        {
            config.wall.task_type = task;
            config.wall.rdonly_cast = cast;
        }
    }
    if let Filter::CgroupV2(directory) = filter {
        config.cgroup_id = cgroup_id(directory)?;
        config.task_cgroups = task("cgroups")?;
        config.wall.css_set_default_cgroup = member(btf, "css_set", "dfl_cgrp")?;
        fill_kernfs_offsets(config, btf)?;
    }
    Ok(())
}

/// The offsets of the time at which a task arrived on its CPU, and of its time in run queues; `None` where the time at which it was
/// queued does not follow the first.
fn run_queue_times(btf: &Btf) -> Option<(u32, u32)> {
    let [arrival, queued] = ["last_arrival", "last_queued"].map(|time| btf.member("sched_info", time));
    let arrival = arrival.filter(|arrival| queued == Some(arrival + size_of::<u64>() as u32))?;
    let times = btf.member("task_struct", "sched_info")?;
    Some((times + arrival, times + btf.member("sched_info", "run_delay")?))
}

/// The offsets of a task's run queue and of the count that says whether it is throttled; `None` without CPU quotas
/// (`CONFIG_CFS_BANDWIDTH`).
fn throttling(btf: &Btf) -> Option<(u32, u32)> {
    let run_queue = btf.member("task_struct", "se")? + btf.member("sched_entity", "cfs_rq")?;
    Some((run_queue, btf.member("cfs_rq", "throttle_count")?))
}

/// The offsets of the list of a process's threads; `None` where the task iterator cannot visit a single thread (before Linux
/// 6.1), or the fields are not where the scan reads them.
fn thread_list(btf: &Btf) -> Option<(u32, u32)> {
    btf.enumerator("bpf_iter_task_type", "BPF_TASK_ITER_TID")?;
    let task = |field| btf.member("task_struct", field);
    let is_read = |field, first: u32, words: usize| {
        let bytes = 0..(words * size_of::<u64>()) as u32;
        task(field)
            .and_then(|offset: u32| offset.checked_sub(first))
            .is_some_and(|offset| bytes.contains(&offset))
    };
    let (node, state) = (task("thread_node")?, task("__state")?);
    let fields = ["nvcsw", "nivcsw", "start_time"];
    let are_read = fields.iter().all(|field| is_read(field, node, LINKED_WORDS));
    let head = btf.member("signal_struct", "thread_head")?;
    (are_read && is_read("on_cpu", state, STATE_WORDS)).then_some((node, head))
}

/// The id of a cgroup: the inode of its directory.
fn cgroup_id(directory: &Path) -> Result<u64> {
    let metadata = fs::metadata(directory).map_err(|error| {
        let message = format!("failed to inspect the cgroup `{}`", directory.display());
        Error::from_target_io(Operation::ReadProcess, message, error)
    })?;
    Ok(metadata.ino())
}

fn fill_kernfs_offsets(config: &mut Config, btf: &Btf) -> Result<()> {
    config.cgroup_kn = member(btf, "cgroup", "kn")?;
    config.kernfs_id = member(btf, "kernfs_node", "id")?;
    config.kernfs_parent =
        member(btf, "kernfs_node", "__parent").or_else(|_| member(btf, "kernfs_node", "parent"))?;
    Ok(())
}

fn member(btf: &Btf, structure: &str, member: &str) -> Result<u32> {
    btf.member(structure, member).ok_or_else(|| missing_type(structure, member))
}

fn missing_type(structure: &str, member: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("this kernel's BTF has no `{structure}.{member}`"))
}

#[cfg(test)]
mod tests {
    use profiler_processes::{Pid, Tid};

    use super::*;
    use crate::{ebpf::map_sizes::CpuCounts, plan::StackSettings};

    fn plan(filter: Filter, children: bool) -> Plan {
        let plan = Plan::cpu_samples(filter, 99);
        Plan { stacks: StackSettings { user: false, ..plan.stacks }, children, ..plan }
    }

    #[test]
    fn the_plan_sets_the_constants() {
        let configure = |plan: &Plan| {
            let types = KernelTypes::default();
            let context =
                EventContext { types: &types, possible_cpus: 2, uses_unwinder: plan.stacks.uses_unwinder() };
            let sizes = MapSizes::new(plan, CpuCounts { sampled: 2, possible: 2 }, &context);
            configure(plan, &sizes, &context).unwrap()
        };
        let config = configure(&plan(Filter::Processes(vec![Pid(1)]), false));
        assert_eq!(config.filter, TargetFilter::Processes as u32);
        assert_eq!((config.kernel_stacks, config.user_stacks), (1, 0));
        assert!(config.perf_event_max_stack > 0 && config.perf_event_max_stack as usize <= MAX_FRAMES);
        assert_ne!(config.hash_seed, configure(&plan(Filter::Everything, false)).hash_seed);
    }

    #[test]
    fn a_single_target_is_a_constant_unless_its_children_are_followed() {
        let single = Filter::Processes(vec![Pid(7)]);
        assert_eq!(only_target(&plan(single.clone(), false)), Some(7));
        assert_eq!(only_target(&plan(Filter::Threads(vec![Tid(8)]), false)), Some(8));
        for several in [
            plan(single, true),
            plan(Filter::Threads(vec![Tid(7), Tid(8)]), false),
            plan(Filter::Everything, false),
        ] {
            assert_eq!(only_target(&several), None);
        }
    }

    #[test]
    fn the_overhead_limit_is_a_share_of_a_cpu() {
        assert_eq!([2.0, 100.0, 1000.0, 0.0].map(max_overhead), [20_971, 1 << 20, 1 << 20, 1]);
    }

    #[test]
    fn ids_come_from_the_task_outside_the_initial_pid_namespace() {
        assert_eq!(pid_source(true, false), PidSource::Initial);
        assert_eq!(pid_source(false, true), PidSource::Task);
        assert_eq!(pid_source(false, false), PidSource::Helper);
    }

    #[test]
    fn the_error_names_a_cgroup_controller_that_does_not_exist() {
        let types = KernelTypes::default();
        let Some(btf) = types.btf() else { return };
        let error = fill_cgroup_offsets(&mut Config::default(), btf, "nonsense").unwrap_err();
        assert!(error.to_string().contains("nonsense"));
        let mut config = Config::default();
        fill_cgroup_offsets(&mut config, btf, "memory").unwrap();
        assert!(config.css_set_subsys > 0 && config.kernfs_id > 0);
    }
}
