//! Linux capabilities (capabilities(7)) of this process.

/// A capability that a profiler can need; numbers of `include/uapi/linux/capability.h`.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Capability {
    /// Reading files regardless of their mode.
    DacReadSearch = 2,
    /// Inspecting processes of other users.
    SysPtrace = 19,
    /// Operations without a capability of their own; includes capabilities that were split off from it.
    SysAdmin = 21,
    /// Exceeding resource limits.
    SysResource = 24,
    /// Seeing kernel addresses.
    Syslog = 34,
    /// Opening perf events and reading kernel memory from BPF programs.
    Perfmon = 38,
    /// Creating BPF maps and loading BPF programs.
    Bpf = 39,
    /// Opening mapped files, including deleted ones, through `/proc/PID/map_files`.
    CheckpointRestore = 40,
}

impl Capability {
    /// All capabilities, the most important first.
    pub const ALL: &'static [Self] = &[
        Self::Bpf,
        Self::Perfmon,
        Self::SysPtrace,
        Self::Syslog,
        Self::DacReadSearch,
        Self::SysResource,
        Self::CheckpointRestore,
        Self::SysAdmin,
    ];

    /// The name in capabilities(7): `CAP_BPF`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DacReadSearch => "CAP_DAC_READ_SEARCH",
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::SysResource => "CAP_SYS_RESOURCE",
            Self::Syslog => "CAP_SYSLOG",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
            Self::CheckpointRestore => "CAP_CHECKPOINT_RESTORE",
        }
    }
}

/// A set of capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    /// The effective set in the text of a `/proc/PID/status`; empty if it has no such line.
    pub(crate) fn from_status(status: &str) -> Self {
        Self::from_line(status, "CapEff:")
    }

    /// The bounding set in the text of a `/proc/PID/status`.
    pub(crate) fn bounding_from_status(status: &str) -> Self {
        Self::from_line(status, "CapBnd:")
    }

    fn from_line(status: &str, name: &str) -> Self {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        Self(line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0))
    }

    /// Whether the set contains `capability`. `CAP_SYS_ADMIN` includes those that were split off from it
    /// (capabilities(7)).
    #[must_use]
    pub fn has(self, capability: Capability) -> bool {
        let admin =
            matches!(capability, Capability::Bpf | Capability::Perfmon | Capability::CheckpointRestore)
                && self.bit(Capability::SysAdmin);
        admin || self.bit(capability)
    }

    fn bit(self, capability: Capability) -> bool {
        self.0 >> (capability as u32) & 1 == 1
    }
}

impl FromIterator<Capability> for Capabilities {
    fn from_iter<I: IntoIterator<Item = Capability>>(capabilities: I) -> Self {
        Self(capabilities.into_iter().fold(0, |bits, capability| bits | 1 << (capability as u32)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effective_capabilities_are_read_from_the_status() {
        let capabilities =
            Capabilities::from_status("Name:\tx\nCapPrm:\tffffffffffffffff\nCapEff:\t000000c000000000\n");
        assert!(capabilities.has(Capability::Bpf));
        assert!(capabilities.has(Capability::Perfmon));
        assert!(!capabilities.has(Capability::SysPtrace));
    }

    #[test]
    fn sys_admin_includes_the_capabilities_split_off_from_it() {
        let capabilities = Capabilities::from_status("CapEff:\t0000000000200000\n");
        assert!(capabilities.has(Capability::Bpf));
        assert!(!capabilities.has(Capability::Syslog));
    }

    #[test]
    fn a_set_contains_its_elements() {
        let set: Capabilities = [Capability::Syslog].into_iter().collect();
        assert!(set.has(Capability::Syslog) && !set.has(Capability::Bpf));
        assert_eq!(set, Capabilities::bounding_from_status("CapEff:\t0\nCapBnd:\t0000000400000000\n"));
    }

    #[test]
    fn a_status_without_the_line_gives_an_empty_set() {
        assert!(Capability::ALL.iter().all(|capability| !Capabilities::from_status("").has(*capability)));
    }
}
