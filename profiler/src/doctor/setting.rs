//! Checks of sysctls, namespaces, cgroups, seccomp filters and lockdown.

use super::{Finding, Remedy, Situation, ability::KERNEL_STRUCTURES, remedy::KPTR_RESTRICT_FOR_SYSLOG};
use crate::sys::capability::Capability;
use profiler_processes::cgroup::{MountedVersions, mounted_versions};

/// The kernel's default of `kernel.perf_event_max_stack`.
const DEFAULT_MAX_STACK: i64 = 127;

/// The kernel's default of `kernel.perf_event_max_sample_rate`, and the default sampling frequency.
const DEFAULT_MAX_SAMPLE_RATE_HZ: i64 = 100_000;
const DEFAULT_FREQUENCY_HZ: i64 = 99;

pub(super) fn findings(situation: &Situation) -> Vec<Finding> {
    vec![
        paranoid(situation),
        kptr_restrict(situation),
        max_stack(situation),
        max_sample_rate(situation),
        Finding::ok("kernel.unprivileged_bpf_disabled", value(situation.unprivileged_bpf_disabled)),
        locked_memory(situation),
        pid_namespace(situation),
        proc(situation),
        user_namespace(situation),
        cgroups(mounted_versions()),
        seccomp(situation),
        lockdown(situation),
    ]
}

fn paranoid(situation: &Situation) -> Finding {
    const NAME: &str = "kernel.perf_event_paranoid";
    let observed = value(situation.perf_event_paranoid);
    if !situation.is_very_paranoid() || situation.has(Capability::SysAdmin) {
        return Finding::ok(NAME, observed);
    }
    const LEAST: i64 = super::situation::PARANOID_NEEDS_ADMIN - 1;
    Finding::missing(
        NAME,
        format!("{observed}, timer events need CAP_SYS_ADMIN"),
        Remedy::SetSysctl { name: "perf_event_paranoid", value: LEAST },
    )
}

fn kptr_restrict(situation: &Situation) -> Finding {
    const NAME: &str = "kernel.kptr_restrict";
    let observed = value(situation.kptr_restrict);
    if situation.kptr_restrict.is_none_or(|level| level <= KPTR_RESTRICT_FOR_SYSLOG) {
        return Finding::ok(NAME, observed);
    }
    let remedy = situation.remedy_for_hidden_addresses();
    Finding::degraded(
        NAME,
        format!("{observed}, hides addresses from everybody"),
        "names of kernel functions",
        remedy,
    )
}

fn max_stack(situation: &Situation) -> Finding {
    const NAME: &str = "kernel.perf_event_max_stack";
    let observed = format!("{} frames", value(situation.perf_event_max_stack));
    if situation.perf_event_max_stack.is_none_or(|frames| frames >= DEFAULT_MAX_STACK) {
        return Finding::ok(NAME, observed);
    }
    let remedy = Remedy::SetSysctl { name: "perf_event_max_stack", value: DEFAULT_MAX_STACK };
    Finding::degraded(NAME, observed, "outer frames of deep stacks", remedy)
}

fn max_sample_rate(situation: &Situation) -> Finding {
    const NAME: &str = "kernel.perf_event_max_sample_rate";
    let observed = format!("{} Hz", value(situation.perf_event_max_sample_rate_hz));
    if situation.perf_event_max_sample_rate_hz.is_none_or(|rate_hz| rate_hz >= DEFAULT_FREQUENCY_HZ) {
        return Finding::ok(NAME, observed);
    }
    let remedy = Remedy::SetSysctl { name: "perf_event_max_sample_rate", value: DEFAULT_MAX_SAMPLE_RATE_HZ };
    Finding::degraded(NAME, observed, "sampling at 99 Hz", remedy)
}

/// The limit alone is no problem: whether the maps fit is known when they are created.
fn locked_memory(situation: &Situation) -> Finding {
    const KIB: u64 = 1 << 10;
    let limit = match situation.locked_memory_limit_bytes {
        Some(bytes) => format!("{} KiB", bytes / KIB),
        None => "unlimited".to_owned(),
    };
    let counts = if situation.maps_are_locked_memory() { "BPF maps count" } else { "BPF maps do not count" };
    Finding::ok("locked memory", format!("{limit}, {counts}"))
}

fn pid_namespace(situation: &Situation) -> Finding {
    const NAME: &str = "pid namespace";
    if !situation.in_pid_namespace {
        return Finding::ok(NAME, "the machine's own");
    }
    Finding::degraded(NAME, "nested", "processes outside of this pid namespace", Remedy::SharePidNamespace)
}

fn proc(situation: &Situation) -> Finding {
    const NAME: &str = "/proc";
    if situation.proc_is_own {
        return Finding::ok(NAME, "of this pid namespace");
    }
    let observed = if situation.proc_is_mounted {
        "of another pid namespace, ids mean other processes there"
    } else {
        "not mounted"
    };
    Finding::missing(NAME, observed, Remedy::MountProc)
}

fn user_namespace(situation: &Situation) -> Finding {
    const NAME: &str = "user namespace";
    if !situation.in_user_namespace {
        return Finding::ok(NAME, "the machine's own");
    }
    Finding::missing(NAME, "nested, its capabilities do not count", Remedy::LeaveUserNamespace)
}

fn cgroups(mounted: MountedVersions) -> Finding {
    const NAME: &str = "cgroups";
    match mounted {
        MountedVersions { v1: true, v2: true } => Finding::ok(NAME, "version 1 and 2"),
        MountedVersions { v1: true, v2: false } => Finding::ok(NAME, "version 1"),
        MountedVersions { v1: false, v2: true } => Finding::ok(NAME, "version 2"),
        MountedVersions { v1: false, v2: false } => {
            Finding::degraded(NAME, "not mounted here", "sampling of a cgroup", Remedy::MountCgroups)
        }
    }
}

/// A filter alone is no problem: the other checks show what it refuses.
fn seccomp(situation: &Situation) -> Finding {
    Finding::ok("seccomp", if situation.seccomp_filter { "a filter" } else { "off" })
}

fn lockdown(situation: &Situation) -> Finding {
    const NAME: &str = "kernel lockdown";
    if !situation.locked_down {
        return Finding::ok(NAME, "off, or integrity only");
    }
    Finding::degraded(NAME, "confidentiality", KERNEL_STRUCTURES, Remedy::LiftLockdown)
}

fn value(setting: Option<i64>) -> String {
    setting.map_or_else(|| "unknown".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::{
        super::{KernelRelease, Status, remedy::tests::root_with},
        *,
    };

    fn remedy_of(finding: &Finding) -> (Status, Option<Remedy>) {
        (finding.status, finding.remedy.clone())
    }

    fn sysctl(name: &'static str, value: i64) -> Option<Remedy> {
        Some(Remedy::SetSysctl { name, value })
    }

    #[test]
    fn permissive_settings_are_ok() {
        let situation = Situation {
            perf_event_max_stack: Some(127),
            perf_event_max_sample_rate_hz: Some(100_000),
            ..root_with(Capability::ALL)
        };
        for finding in findings(&situation).iter().filter(|finding| finding.name != "cgroups") {
            assert_eq!(remedy_of(finding), (Status::Ok, None), "{finding:?}");
        }
    }

    #[test]
    fn each_restrictive_setting_names_its_sysctl() {
        let situation = Situation {
            perf_event_paranoid: Some(4),
            kptr_restrict: Some(2),
            perf_event_max_stack: Some(64),
            perf_event_max_sample_rate_hz: Some(50),
            ..root_with(&[Capability::Syslog])
        };
        for (finding, status, name, value) in [
            (paranoid(&situation), Status::Missing, "perf_event_paranoid", 2),
            (kptr_restrict(&situation), Status::Degraded, "kptr_restrict", 1),
            (max_stack(&situation), Status::Degraded, "perf_event_max_stack", 127),
            (max_sample_rate(&situation), Status::Degraded, "perf_event_max_sample_rate", 100_000),
        ] {
            assert_eq!(remedy_of(&finding), (status, sysctl(name, value)), "{finding:?}");
        }
    }

    #[test]
    fn sys_admin_overrides_a_paranoid_kernel() {
        let situation = Situation { perf_event_paranoid: Some(4), ..root_with(&[Capability::SysAdmin]) };
        assert_eq!(paranoid(&situation).status, Status::Ok);
    }

    #[test]
    fn nested_namespaces_have_a_remedy() {
        let nested = Situation {
            in_pid_namespace: true,
            in_user_namespace: true,
            proc_is_mounted: true,
            proc_is_own: false,
            ..root_with(Capability::ALL)
        };
        assert_eq!(remedy_of(&pid_namespace(&nested)), (Status::Degraded, Some(Remedy::SharePidNamespace)));
        assert_eq!(remedy_of(&user_namespace(&nested)), (Status::Missing, Some(Remedy::LeaveUserNamespace)));
        assert_eq!(remedy_of(&proc(&nested)), (Status::Missing, Some(Remedy::MountProc)));
    }

    #[test]
    fn the_cgroup_versions_are_listed() {
        let seen = |v1, v2| cgroups(MountedVersions { v1, v2 });
        assert_eq!(seen(true, true).observed, "version 1 and 2");
        assert_eq!(seen(false, true).observed, "version 2");
        assert_eq!(seen(true, false).observed, "version 1");
        assert_eq!(remedy_of(&seen(false, false)), (Status::Degraded, Some(Remedy::MountCgroups)));
    }

    #[test]
    fn the_locked_memory_limit_has_its_unit() {
        let limited = Situation { locked_memory_limit_bytes: Some(64 << 10), ..root_with(&[]) };
        assert_eq!(locked_memory(&limited).observed, "64 KiB, BPF maps do not count");
        let old = Situation { kernel: KernelRelease { major: 5, minor: 10 }, ..limited };
        assert_eq!(locked_memory(&old).observed, "64 KiB, BPF maps count");
    }
}
