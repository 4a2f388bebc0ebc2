//! Texts of remedies: the cause of an error and the command that removes it, for docker and Kubernetes.

use super::{Capability, Remedy, Situation};
use crate::error::{ErrorKind, Operation};

impl Situation {
    /// The cause of an error and what removes it, as the sentence that follows the error's message; `None` if no remedy is
    /// known.
    #[must_use]
    pub fn advice(&self, kind: ErrorKind) -> Option<String> {
        let remedy = self.remedy(kind)?;
        Some(format!("{}: {}", cause(kind, &remedy, self), remedy.instruction()))
    }
}

impl Remedy {
    /// The command or setting, followed by its equivalent in Kubernetes or the machine to use it on.
    #[must_use]
    pub fn instruction(&self) -> String {
        let equivalent = equivalent(self).map(|equivalent| format!(", {equivalent}")).unwrap_or_default();
        format!("{}{equivalent}", self.command())
    }

    /// The command or setting.
    #[must_use]
    pub fn command(&self) -> String {
        let fixed = match self {
            Remedy::Grant(capabilities) => {
                let flags: Vec<_> =
                    short_names(capabilities).map(|name| format!("--cap-add={name}")).collect();
                return format!("`docker run {}`", flags.join(" "));
            }
            Remedy::SetSysctl { name, value } => return format!("`sysctl -w kernel.{name}={value}`"),
            Remedy::AddDebugFile(file) => return format!("put `{file}.dbg` beside it"),
            Remedy::RunAsRoot => "run it with `sudo`",
            Remedy::LeaveUserNamespace => "`docker run --userns=host`",
            Remedy::RelaxSeccomp => "`docker run --security-opt seccomp=unconfined`",
            Remedy::LiftLockdown => "boot without `lockdown=confidentiality`",
            Remedy::AskSecurityModule => "`dmesg | grep -iE 'avc|apparmor|denied'`",
            Remedy::SharePidNamespace => "`docker run --pid=host`",
            Remedy::MountProc => "`mount -t proc proc /proc`",
            Remedy::MountCgroups => "`docker run -v /sys/fs/cgroup:/sys/fs/cgroup:ro`",
            Remedy::NewerKernel => "run Linux 5.10 or newer",
            Remedy::KernelWithBtf => "run a kernel built with `CONFIG_DEBUG_INFO_BTF=y`",
            Remedy::EnableDiagnostics => {
                "start it without `DOTNET_EnableDiagnostics=0` and with a writable temporary directory"
            }
            Remedy::WritePerfMap(instruction) => instruction,
        };
        fixed.to_owned()
    }
}

/// The equivalent in Kubernetes, or the machine to use the command on.
fn equivalent(remedy: &Remedy) -> Option<String> {
    let fixed = match remedy {
        Remedy::Grant(capabilities) => return Some(grant_in_kubernetes(capabilities)),
        Remedy::LeaveUserNamespace => "in Kubernetes `hostUsers: true`",
        Remedy::RelaxSeccomp => "in Kubernetes `securityContext: {seccompProfile: {type: Unconfined}}`",
        Remedy::SharePidNamespace => {
            "in Kubernetes `hostPID: true`, `shareProcessNamespace: true` or `kubectl debug --target=CONTAINER`"
        }
        Remedy::SetSysctl { .. } | Remedy::AskSecurityModule => "on the node",
        Remedy::MountCgroups => "in Kubernetes a `hostPath` volume of `/sys/fs/cgroup`",
        Remedy::RunAsRoot
        | Remedy::LiftLockdown
        | Remedy::MountProc
        | Remedy::NewerKernel
        | Remedy::KernelWithBtf
        | Remedy::EnableDiagnostics
        | Remedy::WritePerfMap(_)
        | Remedy::AddDebugFile(_) => return None,
    };
    Some(fixed.to_owned())
}

fn grant_in_kubernetes(capabilities: &[Capability]) -> String {
    let names: Vec<_> = short_names(capabilities).collect();
    // Two capabilities have an alternative.
    let alternative = match capabilities.first() {
        Some(Capability::SysAdmin) => ", or `sysctl -w kernel.perf_event_paranoid=2` on the node",
        Some(Capability::SysResource) => ", or `docker run --ulimit memlock=-1`",
        _ => "",
    };
    format!("in Kubernetes `securityContext: {{capabilities: {{add: [{}]}}}}`{alternative}", names.join(", "))
}

/// The names of capabilities for container runtimes: without `CAP_`.
fn short_names(capabilities: &[Capability]) -> impl Iterator<Item = &'static str> {
    capabilities.iter().map(|capability| capability.name().trim_start_matches("CAP_"))
}

/// The cause of the error.
fn cause(kind: ErrorKind, remedy: &Remedy, situation: &Situation) -> String {
    let fixed = match remedy {
        Remedy::Grant(capabilities) => return missing_capability(kind, capabilities, situation),
        Remedy::SetSysctl { name, .. } => return format!("`kernel.{name}` forbids it"),
        Remedy::RunAsRoot => "this user lacks the capabilities",
        Remedy::LeaveUserNamespace => "capabilities in a user namespace do not suffice",
        Remedy::RelaxSeccomp => "the capabilities are present, but a seccomp filter denies it",
        Remedy::LiftLockdown => "the capabilities are present, but the kernel is locked down",
        Remedy::AskSecurityModule => {
            "the capabilities are present, but a security module (SELinux, AppArmor) denies it"
        }
        Remedy::SharePidNamespace => {
            "only processes in the PID namespace of the profiler are visible, by their ids in it"
        }
        Remedy::MountProc if !situation.proc_is_mounted => "no proc file system is mounted",
        Remedy::MountProc => "`/proc` belongs to another PID namespace",
        Remedy::MountCgroups => "no cgroup file system is mounted",
        Remedy::NewerKernel => "this kernel is too old",
        Remedy::KernelWithBtf => "this kernel has no BTF",
        Remedy::EnableDiagnostics | Remedy::WritePerfMap(_) => "there is no symbol source for its JIT code",
        Remedy::AddDebugFile(_) => "the file has no symbols",
    };
    fixed.to_owned()
}

/// The operation that needs the first of the capabilities, and when.
fn missing_capability(kind: ErrorKind, capabilities: &[Capability], situation: &Situation) -> String {
    let first = capabilities.first().map_or("a capability", |capability| capability.name());
    let action = match kind {
        ErrorKind::PermissionDenied(Operation::OpenPerfEvent) => "opening a timer event",
        ErrorKind::PermissionDenied(Operation::CreateMap) => "creating a BPF map",
        ErrorKind::PermissionDenied(Operation::LoadProgram) => "loading a BPF program",
        ErrorKind::PermissionDenied(Operation::ReadProcess) => "reading a process of another user",
        ErrorKind::PermissionDenied(Operation::OpenTargetFile) => {
            "opening a file of a process of another user"
        }
        ErrorKind::PermissionDenied(Operation::OpenFile) => "opening a file of another user",
        _ => "this",
    };
    match capabilities.first() {
        Some(Capability::SysAdmin) => {
            let level = situation.perf_event_paranoid.unwrap_or_default();
            format!("{action} needs {first} where `kernel.perf_event_paranoid` is {level}")
        }
        Some(Capability::SysResource) => format!("{action} needs {first} before Linux 5.11"),
        _ => format!("{action} needs {first}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{Capabilities, KernelRelease};
    use Capability::{Bpf, CheckpointRestore, DacReadSearch, Perfmon, SysPtrace, Syslog};

    const NEARLY_ALL: [Capability; 6] = [Bpf, Perfmon, SysPtrace, Syslog, DacReadSearch, CheckpointRestore];

    /// Root in a container on a recent kernel, with all capabilities but `missing`.
    fn without(missing: &[Capability]) -> Situation {
        let present: Capabilities =
            NEARLY_ALL.into_iter().filter(|capability| !missing.contains(capability)).collect();
        Situation {
            kernel: KernelRelease { major: 6, minor: 12 },
            capabilities: present,
            bounding: present,
            proc_is_mounted: true,
            proc_is_own: true,
            btf: true,
            perf_event_paranoid: Some(2),
            ..Situation::default()
        }
    }

    fn denied(operation: Operation, situation: &Situation) -> String {
        situation.advice(ErrorKind::PermissionDenied(operation)).unwrap()
    }

    #[test]
    fn a_denied_operation_is_named_with_its_capability_and_the_command_that_grants_it() {
        for (operation, missing, action, name) in [
            (Operation::OpenPerfEvent, Perfmon, "opening a timer event", "PERFMON"),
            (Operation::CreateMap, Bpf, "creating a BPF map", "BPF"),
            (Operation::LoadProgram, Bpf, "loading a BPF program", "BPF"),
            (Operation::LoadProgram, Perfmon, "loading a BPF program", "PERFMON"),
            (Operation::ReadProcess, SysPtrace, "reading a process of another user", "SYS_PTRACE"),
            (Operation::OpenTargetFile, SysPtrace, "opening a file", "SYS_PTRACE"),
            (Operation::OpenTargetFile, DacReadSearch, "opening a file", "DAC_READ_SEARCH"),
        ] {
            let text = denied(operation, &without(&[missing]));
            assert!(text.starts_with(action), "{text}");
            assert!(text.contains(&format!("needs CAP_{name}: `docker run --cap-add={name}`")), "{text}");
            assert!(
                text.ends_with(&format!("`securityContext: {{capabilities: {{add: [{name}]}}}}`")),
                "{text}"
            );
        }
    }

    #[test]
    fn all_missing_capabilities_are_granted_in_one_command() {
        let text = denied(Operation::CreateMap, &without(&[Bpf, Perfmon]));
        assert!(text.contains("docker run --cap-add=BPF --cap-add=PERFMON"), "{text}");
        assert!(text.contains("add: [BPF, PERFMON]"), "{text}");
    }

    #[test]
    fn a_paranoid_kernel_is_reported_with_its_level_and_its_sysctl() {
        let mut situation = without(&[]);
        situation.perf_event_paranoid = Some(4);
        let text = denied(Operation::OpenPerfEvent, &situation);
        assert!(text.contains("needs CAP_SYS_ADMIN where `kernel.perf_event_paranoid` is 4"), "{text}");
        assert!(text.contains("sysctl -w kernel.perf_event_paranoid=2"), "{text}");
    }

    #[test]
    fn an_old_kernel_needs_sys_resource_or_a_limit() {
        let mut situation = without(&[]);
        situation.kernel = KernelRelease { major: 5, minor: 10 };
        situation.locked_memory_limit_bytes = Some(64 << 10);
        let text = denied(Operation::CreateMap, &situation);
        assert!(text.contains("needs CAP_SYS_RESOURCE before Linux 5.11"), "{text}");
        assert!(text.contains("--ulimit memlock=-1"), "{text}");
    }

    #[test]
    fn a_user_is_advised_to_run_as_root() {
        let mut situation = without(&[]);
        situation.capabilities = Capabilities::default();
        situation.euid = 1000;
        assert_eq!(
            denied(Operation::OpenPerfEvent, &situation),
            "this user lacks the capabilities: run it with `sudo`"
        );
    }

    #[test]
    fn filters_namespaces_and_security_modules_are_named() {
        let mut filtered = without(&[]);
        filtered.seccomp_filter = true;
        assert!(denied(Operation::LoadProgram, &filtered).contains("seccomp=unconfined"));
        let mut nested = without(&[]);
        nested.in_user_namespace = true;
        assert!(denied(Operation::CreateMap, &nested).contains("--userns=host"));
        let mut locked = without(&[]);
        locked.locked_down = true;
        assert!(denied(Operation::LoadProgram, &locked).contains("lockdown=confidentiality"));
        assert!(denied(Operation::LoadProgram, &without(&[])).contains("SELinux"));
    }

    #[test]
    fn a_target_in_another_pid_namespace_has_advice() {
        let mut inside = without(&[]);
        inside.in_pid_namespace = true;
        assert!(inside.advice(ErrorKind::NoSuchTarget).unwrap().contains("--pid=host"));
        inside.proc_is_own = false;
        assert!(inside.advice(ErrorKind::NoSuchTarget).unwrap().contains("mount -t proc"));
        assert_eq!(without(&[]).advice(ErrorKind::NoSuchTarget), None);
    }

    #[test]
    fn an_unsupported_kernel_has_advice_with_its_requirement() {
        let mut situation = without(&[]);
        assert_eq!(situation.advice(ErrorKind::Unsupported), None);
        situation.btf = false;
        assert!(situation.advice(ErrorKind::Unsupported).unwrap().contains("CONFIG_DEBUG_INFO_BTF"));
        situation.kernel = KernelRelease { major: 4, minor: 19 };
        assert!(situation.advice(ErrorKind::Unsupported).unwrap().contains("5.10"));
    }

    #[test]
    fn settings_are_given_as_commands() {
        let remedy = Remedy::SetSysctl { name: "kptr_restrict", value: 1 };
        assert_eq!(remedy.instruction(), "`sysctl -w kernel.kptr_restrict=1`, on the node");
        assert!(Remedy::MountCgroups.instruction().contains("/sys/fs/cgroup"));
    }

    #[test]
    fn errors_of_the_user_have_no_advice() {
        for kind in [ErrorKind::InvalidInput, ErrorKind::InvalidData, ErrorKind::Io] {
            assert_eq!(without(&NEARLY_ALL).advice(kind), None);
        }
    }
}
