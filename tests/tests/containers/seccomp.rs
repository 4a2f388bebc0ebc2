//! The capability rules of containerd's default seccomp profile.

use serde_json::{Value, json};

/// System calls that the profile permits only with a capability: `contrib/seccomp/seccomp_default.go` of containerd
/// 1.6.9 and later.
const RULES: [(&str, &[&str]); 14] = [
    (
        "SYS_ADMIN",
        &[
            "bpf",
            "fanotify_init",
            "fsconfig",
            "fsmount",
            "fsopen",
            "fspick",
            "lookup_dcookie",
            "mount",
            "mount_setattr",
            "move_mount",
            "name_to_handle_at",
            "open_tree",
            "perf_event_open",
            "quotactl",
            "quotactl_fd",
            "setdomainname",
            "sethostname",
            "setns",
            "syslog",
            "umount",
            "umount2",
            "unshare",
        ],
    ),
    ("BPF", &["bpf"]),
    ("PERFMON", &["perf_event_open"]),
    ("SYSLOG", &["syslog"]),
    (
        "SYS_PTRACE",
        &["kcmp", "pidfd_getfd", "process_madvise", "process_vm_readv", "process_vm_writev", "ptrace"],
    ),
    ("DAC_READ_SEARCH", &["open_by_handle_at"]),
    ("SYS_BOOT", &["reboot"]),
    ("SYS_CHROOT", &["chroot"]),
    ("SYS_MODULE", &["delete_module", "init_module", "finit_module"]),
    ("SYS_PACCT", &["acct"]),
    ("SYS_RAWIO", &["iopl", "ioperm"]),
    ("SYS_TIME", &["settimeofday", "stime", "clock_settime", "clock_settime64"]),
    ("SYS_TTY_CONFIG", &["vhangup"]),
    ("SYS_NICE", &["get_mempolicy", "mbind", "set_mempolicy"]),
];

/// The `linux.seccomp` of the OCI runtime specification for a container with these capabilities: system calls that
/// need another one fail with EPERM.
pub(crate) fn profile(capabilities: &[String]) -> Value {
    let has = |name: &str| capabilities.iter().any(|capability| capability == name);
    let permitted: Vec<&str> = RULES
        .iter()
        .filter(|(capability, _)| has(capability))
        .flat_map(|(_, calls)| *calls)
        .copied()
        .collect();
    let mut refused: Vec<&str> = RULES.iter().flat_map(|(_, calls)| *calls).copied().collect();
    refused.retain(|call| !permitted.contains(call));
    refused.sort_unstable();
    refused.dedup();
    json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": refused, "action": "SCMP_ACT_ERRNO"}],
    })
}
