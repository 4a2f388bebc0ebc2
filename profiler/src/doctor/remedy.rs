//! Derives the remedy for an error or a finding from the situation of the process.

use super::{KernelRelease, Situation};
use crate::{
    error::{ErrorKind, Operation},
    sys::capability::Capability,
};

/// The oldest supported kernel.
pub(super) const MIN_KERNEL: KernelRelease = KernelRelease { major: 5, minor: 10 };

/// The highest `kernel.kptr_restrict` at which `CAP_SYSLOG` shows kernel addresses.
pub(super) const KPTR_RESTRICT_FOR_SYSLOG: i64 = 1;

/// An action that repairs a finding or an error.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Run as root, which has the missing capabilities.
    RunAsRoot,
    /// Grant capabilities: the missing one first, then those that will be needed next.
    Grant(Vec<Capability>),
    /// Set `kernel.NAME`.
    SetSysctl {
        /// The name without `kernel.`.
        name: &'static str,
        /// The most restrictive value that is sufficient.
        value: i64,
    },
    /// Run outside of a user namespace.
    LeaveUserNamespace,
    /// Run without the seccomp filter, or with one that allows `bpf` and `perf_event_open`.
    RelaxSeccomp,
    /// Boot without lockdown to confidentiality.
    LiftLockdown,
    /// Find the rule of the security module (SELinux, AppArmor) that refuses.
    AskSecurityModule,
    /// Share the PID namespace of the target.
    SharePidNamespace,
    /// Mount the `/proc` of the profiler's PID namespace.
    MountProc,
    /// Mount the cgroup file system.
    MountCgroups,
    /// Run a newer kernel.
    NewerKernel,
    /// Run a kernel with BTF.
    KernelWithBtf,
    /// Start the .NET process with its diagnostics socket enabled.
    EnableDiagnostics,
    /// Have the runtime of the process write a perf map, in its own way.
    WritePerfMap(&'static str),
    /// Put the debug file of this file next to it.
    AddDebugFile(String),
}

impl Situation {
    /// The remedy for an error of this kind in this situation, if there is one.
    #[must_use]
    pub fn remedy(&self, kind: ErrorKind) -> Option<Remedy> {
        match kind {
            ErrorKind::PermissionDenied(operation) => {
                Some(self.remedy_for_refusal(operation, &self.recommended()))
            }
            ErrorKind::Unsupported if !self.proc_is_own => Some(Remedy::MountProc),
            ErrorKind::Unsupported if self.kernel < MIN_KERNEL => Some(Remedy::NewerKernel),
            ErrorKind::Unsupported if !self.btf => Some(Remedy::KernelWithBtf),
            ErrorKind::NoSuchTarget if !self.proc_is_own => Some(Remedy::MountProc),
            ErrorKind::NoSuchTarget if self.in_pid_namespace => Some(Remedy::SharePidNamespace),
            _ => None,
        }
    }

    /// The remedy for missing capabilities: `wanted` are needed now, `later` are added where capabilities are granted one
    /// by one.
    pub(super) fn remedy_for_missing(&self, wanted: &[Capability], later: &[Capability]) -> Remedy {
        if self.in_user_namespace {
            return Remedy::LeaveUserNamespace;
        }
        const ROOT: u32 = 0;
        // A process with some capabilities was given them on purpose, so root is no remedy for it.
        let has_none = !Capability::ALL.iter().any(|capability| self.has(*capability));
        let root_would_do = wanted.iter().all(|capability| self.bounding.has(*capability));
        if self.euid != ROOT && has_none && root_would_do {
            return Remedy::RunAsRoot;
        }
        let later = later.iter().filter(|capability| !self.has(**capability) && !wanted.contains(capability));
        Remedy::Grant(wanted.iter().chain(later).copied().collect())
    }

    /// The remedy for hidden kernel addresses, if this situation is what hides them.
    pub(super) fn remedy_for_hidden_addresses(&self) -> Option<Remedy> {
        if self.kptr_restrict.is_some_and(|level| level > KPTR_RESTRICT_FOR_SYSLOG) {
            return Some(Remedy::SetSysctl { name: "kptr_restrict", value: KPTR_RESTRICT_FOR_SYSLOG });
        }
        let missing = !self.has(Capability::Syslog);
        missing.then(|| self.remedy_for_missing(&[Capability::Syslog], &[]))
    }

    /// The remedy for a refused operation; `later` as in [`remedy_for_missing`](Self::remedy_for_missing).
    pub(super) fn remedy_for_refusal(&self, operation: Operation, later: &[Capability]) -> Remedy {
        let wanted: Vec<_> =
            self.needed(operation).into_iter().filter(|capability| !self.has(*capability)).collect();
        if !wanted.is_empty() {
            return self.remedy_for_missing(&wanted, later);
        }
        // All capabilities are present, so another mechanism refused.
        let kernel_wide = matches!(operation, Operation::OpenPerfEvent | Operation::LoadProgram);
        match () {
            () if self.seccomp_filter => Remedy::RelaxSeccomp,
            () if self.locked_down && kernel_wide => Remedy::LiftLockdown,
            () => Remedy::AskSecurityModule,
        }
    }

    /// The least capabilities for an operation.
    fn needed(&self, operation: Operation) -> Vec<Capability> {
        match operation {
            Operation::OpenPerfEvent if self.is_very_paranoid() => vec![Capability::SysAdmin],
            Operation::OpenPerfEvent => vec![Capability::Perfmon],
            Operation::CreateMap if self.maps_are_locked_memory() => {
                vec![Capability::Bpf, Capability::SysResource]
            }
            Operation::CreateMap => vec![Capability::Bpf],
            Operation::LoadProgram => vec![Capability::Bpf, Capability::Perfmon],
            Operation::ReadProcess => vec![Capability::SysPtrace],
            Operation::OpenTargetFile => vec![Capability::SysPtrace, Capability::DacReadSearch],
            // `OpenFile`: other operations open files as well.
            _ => vec![Capability::DacReadSearch],
        }
    }

    /// The least capabilities for a whole profile.
    fn recommended(&self) -> Vec<Capability> {
        let is_needed = |capability: &Capability| match capability {
            Capability::SysAdmin => self.is_very_paranoid(),
            Capability::SysResource => self.maps_are_locked_memory(),
            _ => true,
        };
        Capability::ALL.iter().copied().filter(is_needed).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    use Capability::{
        Bpf, CheckpointRestore, DacReadSearch, Perfmon, SysAdmin, SysPtrace, SysResource, Syslog,
    };
    use Operation::{CreateMap, LoadProgram, OpenPerfEvent, OpenTargetFile, ReadProcess};

    /// Root with these capabilities in a container on a recent kernel.
    pub(in crate::doctor) fn root_with(capabilities: &[Capability]) -> Situation {
        let capabilities = capabilities.iter().copied().collect();
        Situation {
            kernel: KernelRelease { major: 6, minor: 12 },
            capabilities,
            bounding: capabilities,
            proc_is_mounted: true,
            proc_is_own: true,
            btf: true,
            perf_event_paranoid: Some(2),
            kptr_restrict: Some(1),
            ..Situation::default()
        }
    }

    const NEARLY_ALL: [Capability; 6] = [Bpf, Perfmon, SysPtrace, Syslog, DacReadSearch, CheckpointRestore];

    #[test]
    fn each_operation_lists_its_capability_first() {
        let rows: [(Operation, &[Capability]); 5] = [
            (OpenPerfEvent, &[Perfmon, Bpf, SysPtrace, Syslog, DacReadSearch, CheckpointRestore]),
            (CreateMap, &[Bpf, Perfmon, SysPtrace, Syslog, DacReadSearch, CheckpointRestore]),
            (LoadProgram, &[Bpf, Perfmon, SysPtrace, Syslog, DacReadSearch, CheckpointRestore]),
            (ReadProcess, &[SysPtrace, Bpf, Perfmon, Syslog, DacReadSearch, CheckpointRestore]),
            (OpenTargetFile, &[SysPtrace, DacReadSearch, Bpf, Perfmon, Syslog, CheckpointRestore]),
        ];
        for (operation, wanted) in rows {
            let remedy = root_with(&[]).remedy(ErrorKind::PermissionDenied(operation));
            assert_eq!(remedy, Some(Remedy::Grant(wanted.to_vec())), "{operation:?}");
        }
    }

    #[test]
    fn only_missing_capabilities_are_granted() {
        for left_out in [Bpf, Perfmon] {
            let rest: Vec<_> = NEARLY_ALL.into_iter().filter(|capability| *capability != left_out).collect();
            let remedy = root_with(&rest).remedy(ErrorKind::PermissionDenied(LoadProgram));
            assert_eq!(remedy, Some(Remedy::Grant(vec![left_out])));
        }
        let without_mode = [Bpf, Perfmon, SysPtrace, Syslog, CheckpointRestore];
        let remedy = root_with(&without_mode).remedy(ErrorKind::PermissionDenied(OpenTargetFile));
        assert_eq!(remedy, Some(Remedy::Grant(vec![DacReadSearch])));
    }

    #[test]
    fn a_paranoid_level_of_three_needs_sys_admin() {
        for (level, wanted) in [(2, Remedy::AskSecurityModule), (3, Remedy::Grant(vec![SysAdmin]))] {
            let situation = Situation { perf_event_paranoid: Some(level), ..root_with(&NEARLY_ALL) };
            assert_eq!(situation.remedy(ErrorKind::PermissionDenied(OpenPerfEvent)), Some(wanted));
        }
    }

    #[test]
    fn maps_of_an_old_kernel_need_sys_resource_unless_memory_is_unlimited() {
        let limited = Situation {
            kernel: KernelRelease { major: 5, minor: 10 },
            locked_memory_limit_bytes: Some(64 << 10),
            ..root_with(&NEARLY_ALL)
        };
        let kind = ErrorKind::PermissionDenied(CreateMap);
        assert_eq!(limited.remedy(kind), Some(Remedy::Grant(vec![SysResource])));
        let unlimited = Situation { locked_memory_limit_bytes: None, ..limited };
        assert_eq!(unlimited.remedy(kind), Some(Remedy::AskSecurityModule));
    }

    #[test]
    fn root_is_the_remedy_if_it_has_the_missing_capabilities() {
        let user = Situation { euid: 1000, capabilities: [].into_iter().collect(), ..root_with(&NEARLY_ALL) };
        let kind = ErrorKind::PermissionDenied(OpenPerfEvent);
        assert_eq!(user.remedy(kind), Some(Remedy::RunAsRoot));
        let has_some = Situation { capabilities: [Bpf].into_iter().collect(), ..user };
        assert!(matches!(has_some.remedy(kind), Some(Remedy::Grant(missing)) if missing.contains(&Perfmon)));
        let confined = Situation { euid: 1000, ..root_with(&[]) };
        assert!(matches!(confined.remedy(kind), Some(Remedy::Grant(_))));
    }

    #[test]
    fn no_capability_helps_inside_a_user_namespace() {
        let situation = Situation { in_user_namespace: true, ..root_with(&NEARLY_ALL) };
        for operation in [OpenPerfEvent, CreateMap, LoadProgram, ReadProcess, OpenTargetFile] {
            let remedy = situation.remedy(ErrorKind::PermissionDenied(operation));
            assert_eq!(remedy, Some(Remedy::LeaveUserNamespace));
        }
    }

    #[test]
    fn with_all_capabilities_another_mechanism_refused() {
        let kind = ErrorKind::PermissionDenied(LoadProgram);
        let all = root_with(&NEARLY_ALL);
        assert_eq!(all.remedy(kind), Some(Remedy::AskSecurityModule));
        let filtered = Situation { seccomp_filter: true, locked_down: true, ..all.clone() };
        assert_eq!(filtered.remedy(kind), Some(Remedy::RelaxSeccomp));
        let locked = Situation { locked_down: true, ..all };
        assert_eq!(locked.remedy(kind), Some(Remedy::LiftLockdown));
        assert_eq!(locked.remedy(ErrorKind::PermissionDenied(ReadProcess)), Some(Remedy::AskSecurityModule));
    }

    #[test]
    fn a_missing_kernel_feature_needs_another_kernel() {
        let recent = root_with(&NEARLY_ALL);
        assert_eq!(recent.remedy(ErrorKind::Unsupported), None);
        let typeless = Situation { btf: false, ..recent };
        assert_eq!(typeless.remedy(ErrorKind::Unsupported), Some(Remedy::KernelWithBtf));
        let old = Situation { kernel: KernelRelease { major: 4, minor: 19 }, ..typeless };
        assert_eq!(old.remedy(ErrorKind::Unsupported), Some(Remedy::NewerKernel));
    }

    #[test]
    fn a_target_can_be_in_another_pid_namespace() {
        let outside = root_with(&NEARLY_ALL);
        assert_eq!(outside.remedy(ErrorKind::NoSuchTarget), None);
        let inside = Situation { in_pid_namespace: true, ..outside };
        assert_eq!(inside.remedy(ErrorKind::NoSuchTarget), Some(Remedy::SharePidNamespace));
        assert_eq!(inside.remedy(ErrorKind::NoSuchFile), None);
        let foreign = Situation { proc_is_own: false, ..inside };
        assert_eq!(foreign.remedy(ErrorKind::NoSuchTarget), Some(Remedy::MountProc));
        assert_eq!(foreign.remedy(ErrorKind::Unsupported), Some(Remedy::MountProc));
    }

    #[test]
    fn errors_of_the_user_have_no_remedy() {
        for kind in [ErrorKind::InvalidInput, ErrorKind::NoSuchFile, ErrorKind::InvalidData, ErrorKind::Io] {
            assert_eq!(root_with(&[]).remedy(kind), None);
        }
    }
}
