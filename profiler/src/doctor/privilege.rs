//! Checks of capabilities: the purpose of each, and what a profile lacks without it.

use super::{Finding, Situation};
use crate::sys::capability::Capability;

pub(super) fn findings(situation: &Situation) -> Vec<Finding> {
    Capability::ALL.iter().map(|capability| finding(situation, *capability)).collect()
}

fn finding(situation: &Situation, capability: Capability) -> Finding {
    let name = capability.name();
    if situation.has(capability) {
        return Finding::ok(name, "there");
    }
    let need = need(situation, capability);
    if need == Need::None {
        return Finding::ok(name, "not there, not needed here");
    }
    let observed = if situation.capabilities.has(capability) {
        "without effect inside a user namespace"
    } else {
        "not there"
    };
    let remedy = situation.remedy_for_missing(&[capability], &[]);
    match need {
        Need::None => Finding::ok(name, observed),
        Need::ForMore(lacks) => Finding::degraded(name, observed, lacks, remedy),
        Need::ForAnything => Finding::missing(name, observed, remedy),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    None,
    /// Profiles lack this without it.
    ForMore(&'static str),
    ForAnything,
}

fn need(situation: &Situation, capability: Capability) -> Need {
    match capability {
        Capability::Bpf | Capability::Perfmon => Need::ForAnything,
        Capability::SysPtrace => Need::ForMore("names in processes of other users"),
        Capability::Syslog => Need::ForMore("names of kernel functions"),
        Capability::DacReadSearch => Need::ForMore("names from files that only their owner may read"),
        Capability::CheckpointRestore => Need::ForMore("names from deleted and replaced files"),
        Capability::SysResource if situation.maps_are_locked_memory() => {
            Need::ForMore("BPF maps above the limit on locked memory")
        }
        Capability::SysAdmin if situation.is_very_paranoid() => Need::ForAnything,
        Capability::SysResource | Capability::SysAdmin => Need::None,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{KernelRelease, Remedy, Status, remedy::tests::root_with},
        *,
    };

    #[test]
    fn each_missing_capability_has_its_status() {
        let situation = root_with(&[]);
        for (capability, status) in [
            (Capability::Bpf, Status::Missing),
            (Capability::Perfmon, Status::Missing),
            (Capability::SysPtrace, Status::Degraded),
            (Capability::Syslog, Status::Degraded),
            (Capability::DacReadSearch, Status::Degraded),
            (Capability::CheckpointRestore, Status::Degraded),
            (Capability::SysResource, Status::Ok),
            (Capability::SysAdmin, Status::Ok),
        ] {
            let finding = finding(&situation, capability);
            assert_eq!(finding.status, status, "{finding:?}");
            let wanted = (status != Status::Ok).then(|| Remedy::Grant(vec![capability]));
            assert_eq!(finding.remedy, wanted);
        }
    }

    #[test]
    fn some_capabilities_are_needed_only_on_some_kernels() {
        let old = Situation {
            kernel: KernelRelease { major: 5, minor: 10 },
            locked_memory_limit_bytes: Some(1),
            ..root_with(&[])
        };
        assert_eq!(finding(&old, Capability::SysResource).status, Status::Degraded);
        let paranoid = Situation { perf_event_paranoid: Some(4), ..root_with(&[]) };
        assert_eq!(finding(&paranoid, Capability::SysAdmin).status, Status::Missing);
    }

    #[test]
    fn a_capability_of_a_user_namespace_has_no_effect() {
        let situation = Situation { in_user_namespace: true, ..root_with(&[Capability::Bpf]) };
        let finding = finding(&situation, Capability::Bpf);
        assert!(finding.observed.contains("user namespace"));
        assert_eq!(finding.remedy, Some(Remedy::LeaveUserNamespace));
    }
}
