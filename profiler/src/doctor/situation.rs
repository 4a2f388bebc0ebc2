//! Facts about the process and the kernel that decide which operations are permitted.

use std::{fs, os::unix::fs::MetadataExt};

use profiler_sampler::{INITIAL_PID_NAMESPACE, abilities::has_kernel_types, sysctl};

use crate::{
    kernel_release::KernelRelease,
    proc_mount::ProcMount,
    sys::capability::{Capabilities, Capability},
};

/// The inode of the initial user namespace, `PROC_USER_INIT_INO` of `include/linux/proc_ns.h`.
const INITIAL_USER_NAMESPACE: u64 = 0xefff_fffd;

/// The first kernel that does not count BPF maps as locked memory.
const MAPS_NOT_LOCKED: KernelRelease = KernelRelease { major: 5, minor: 11 };

/// The lowest `kernel.perf_event_paranoid` at which Debian's and Ubuntu's kernels refuse `CAP_PERFMON`.
pub(crate) const PARANOID_NEEDS_ADMIN: i64 = 3;

/// Facts about the process and the kernel that decide which operations are permitted.
///
/// The default is an unknown kernel and no privilege.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Situation {
    /// The release of the kernel (`uname -r`).
    pub kernel: KernelRelease,
    /// Effective user.
    pub euid: u32,
    /// Effective capabilities. In a user namespace they count only inside it: see [`has`](Self::has).
    pub capabilities: Capabilities,
    /// The bounding set: the capabilities that this process can have as root.
    pub bounding: Capabilities,
    /// Whether the process is inside a user namespace.
    pub in_user_namespace: bool,
    /// Whether the process is inside a nested PID namespace.
    pub in_pid_namespace: bool,
    /// Whether a proc file system is mounted on `/proc`.
    pub proc_is_mounted: bool,
    /// Whether `/proc` belongs to the process's PID namespace.
    pub proc_is_own: bool,
    /// Whether a seccomp filter decides on system calls.
    pub seccomp_filter: bool,
    /// Whether the kernel is locked down to confidentiality (kernel_lockdown(7)).
    pub locked_down: bool,
    /// Whether the kernel has BTF.
    pub btf: bool,
    /// The soft limit on locked memory; `None` is no limit.
    pub locked_memory_limit_bytes: Option<u64>,
    /// `kernel.perf_event_paranoid`.
    pub perf_event_paranoid: Option<i64>,
    /// `kernel.kptr_restrict`.
    pub kptr_restrict: Option<i64>,
    /// `kernel.perf_event_max_stack`.
    pub perf_event_max_stack: Option<i64>,
    /// `kernel.perf_event_max_sample_rate`.
    pub perf_event_max_sample_rate_hz: Option<i64>,
    /// `kernel.unprivileged_bpf_disabled`.
    pub unprivileged_bpf_disabled: Option<i64>,
}

impl Situation {
    /// The situation of this process. Facts that cannot be read have their default.
    #[must_use]
    pub fn current() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let proc = ProcMount::current();
        let locked = rustix::process::getrlimit(rustix::process::Resource::Memlock);
        let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
        Self {
            kernel: KernelRelease::current(),
            euid: rustix::process::geteuid().as_raw(),
            capabilities: Capabilities::from_status(&status),
            bounding: Capabilities::bounding_from_status(&status),
            in_user_namespace: is_other_namespace("user", INITIAL_USER_NAMESPACE),
            in_pid_namespace: is_other_namespace("pid", INITIAL_PID_NAMESPACE),
            proc_is_mounted: proc != ProcMount::Missing,
            proc_is_own: proc == ProcMount::Own,
            seccomp_filter: has_seccomp_filter(&status),
            locked_down: lockdown.contains("[confidentiality]"),
            btf: has_kernel_types(),
            locked_memory_limit_bytes: locked.current,
            perf_event_paranoid: sysctl("perf_event_paranoid"),
            kptr_restrict: sysctl("kptr_restrict"),
            perf_event_max_stack: sysctl("perf_event_max_stack"),
            perf_event_max_sample_rate_hz: sysctl("perf_event_max_sample_rate"),
            unprivileged_bpf_disabled: sysctl("unprivileged_bpf_disabled"),
        }
    }

    /// Whether the process has a capability that is effective in the initial user namespace.
    #[must_use]
    pub fn has(&self, capability: Capability) -> bool {
        !self.in_user_namespace && self.capabilities.has(capability)
    }

    /// Whether perf events need `CAP_SYS_ADMIN`, not only `CAP_PERFMON`.
    #[must_use]
    pub fn is_very_paranoid(&self) -> bool {
        self.perf_event_paranoid.is_some_and(|level| level >= PARANOID_NEEDS_ADMIN)
    }

    /// Whether the limit on locked memory applies to BPF maps.
    #[must_use]
    pub fn maps_are_locked_memory(&self) -> bool {
        self.kernel < MAPS_NOT_LOCKED && self.locked_memory_limit_bytes.is_some()
    }
}

fn has_seccomp_filter(status: &str) -> bool {
    const FILTER: &str = "2";
    status.lines().find_map(|line| line.strip_prefix("Seccomp:")).is_some_and(|mode| mode.trim() == FILTER)
}

fn is_other_namespace(name: &str, initial_inode: u64) -> bool {
    fs::metadata(format!("/proc/self/ns/{name}")).is_ok_and(|namespace| namespace.ino() != initial_inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_filter_counts_as_seccomp() {
        assert!(has_seccomp_filter("Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n"));
        assert!(!has_seccomp_filter("Seccomp:\t0\n"));
        assert!(!has_seccomp_filter(""));
    }

    #[test]
    fn capabilities_of_a_user_namespace_do_not_count() {
        let root =
            Situation { capabilities: [Capability::Bpf].into_iter().collect(), ..Situation::default() };
        assert!(root.has(Capability::Bpf));
        assert!(!Situation { in_user_namespace: true, ..root }.has(Capability::Bpf));
    }

    #[test]
    fn maps_are_locked_memory_before_5_11_where_that_is_limited() {
        let old = Situation {
            kernel: KernelRelease { major: 5, minor: 10 },
            locked_memory_limit_bytes: Some(64 << 10),
            ..Situation::default()
        };
        assert!(old.maps_are_locked_memory());
        assert!(!Situation { locked_memory_limit_bytes: None, ..old.clone() }.maps_are_locked_memory());
        assert!(!Situation { kernel: KernelRelease { major: 6, minor: 1 }, ..old }.maps_are_locked_memory());
    }

    #[test]
    fn this_process_has_a_situation() {
        let situation = Situation::current();
        assert!(situation.kernel.major > 0 && situation.proc_is_own);
        assert_eq!(situation.euid, rustix::process::geteuid().as_raw());
    }
}
