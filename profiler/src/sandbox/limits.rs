//! What the kernel offers for the sandbox, in words for `profiler doctor`.

use std::fs;

use super::landlock_version;

/// What confines the profiler on this kernel.
pub(crate) fn describe_limits() -> Option<String> {
    Some(describe(has_seccomp(), landlock_version()))
}

fn describe(has_seccomp: bool, landlock: Option<u32>) -> String {
    let filter =
        if has_seccomp { "system call filter" } else { "no system call filter: the kernel has no seccomp" };
    let landlock = landlock.map_or_else(
        || "no Landlock for commands on recordings".to_owned(),
        |version| format!("Landlock {version} for commands on recordings"),
    );
    format!("dropped capabilities, {filter}, {landlock}")
}

/// Whether system calls can be filtered (`Documentation/userspace-api/seccomp_filter.rst`, "Sysctls").
fn has_seccomp() -> bool {
    fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail")
        .is_ok_and(|actions| actions.contains("errno"))
}
