//! The constants that the loader writes before the program is loaded.

use profiler_common::Config;

/// Set by the loader under this name. The kernel freezes it, so that the verifier knows each value and
/// drops the branches that this machine does not need, with the helpers in them that it may not have.
#[unsafe(no_mangle)]
static CONFIG: Config = Config {
    filter: 0,
    pid_source: 0,
    kernel_stacks: 1,
    user_stacks: 1,
    pid_namespace_dev: 0,
    pid_namespace_inode: 0,
    hash_seed: 0,
    cgroup_id: 0,
    wakeup_bytes: 0,
    max_depth: 127,
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
    user_registers: 0,
    task_stack: 0,
    task_registers: 0,
    tables_only: 0,
    children: 0,
};

/// Reads one field as the loader left it, not as this file initialises it.
macro_rules! get {
    ($field:ident) => {{
        // SAFETY: the address is that of an initialised field of a static that nothing writes after load.
        unsafe { core::ptr::read_volatile(&raw const $crate::config::raw().$field) }
    }};
}
pub(crate) use get;

/// For [`get`] alone.
#[inline(always)]
pub(crate) fn raw() -> &'static Config {
    &CONFIG
}
