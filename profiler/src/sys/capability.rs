//! The capabilities of this process.

/// The capabilities that a profiler can need, numbers as in `include/uapi/linux/capability.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Capability {
    /// Reading files whatever their mode.
    DacReadSearch = 2,
    /// Looking into processes of other users.
    SysPtrace = 19,
    /// Everything that has no capability of its own, and what was split off from it since.
    SysAdmin = 21,
    /// Raising limits.
    SysResource = 24,
    /// Seeing kernel addresses.
    Syslog = 34,
    /// Opening perf events and reading kernel memory from BPF programs.
    Perfmon = 38,
    /// Creating BPF maps and loading BPF programs.
    Bpf = 39,
    /// Opening the files behind mappings, deleted ones too.
    CheckpointRestore = 40,
}

impl Capability {
    /// All of them, the ones that nothing works without first.
    pub const ALL: [Self; 8] = [
        Self::Bpf,
        Self::Perfmon,
        Self::SysPtrace,
        Self::Syslog,
        Self::DacReadSearch,
        Self::SysResource,
        Self::CheckpointRestore,
        Self::SysAdmin,
    ];

    /// The name as capabilities(7) has it.
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

/// A set of capabilities, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    /// Reads the effective ones from a `/proc/PID/status`; none where it has no such line.
    pub(crate) fn from_status(status: &str) -> Self {
        Self::from_line(status, "CapEff:")
    }

    /// Reads the bounding set, which no `exec` leads out of, from a `/proc/PID/status`.
    pub(crate) fn bounding_from_status(status: &str) -> Self {
        Self::from_line(status, "CapBnd:")
    }

    fn from_line(status: &str, name: &str) -> Self {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        Self(line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0))
    }

    /// Whether `capability` is there. `CAP_SYS_ADMIN` includes what was split off from it (capabilities(7)).
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
    fn sys_admin_includes_what_was_split_off_from_it() {
        let capabilities = Capabilities::from_status("CapEff:\t0000000000200000\n");
        assert!(capabilities.has(Capability::Bpf));
        assert!(!capabilities.has(Capability::Syslog));
    }

    #[test]
    fn a_set_has_what_it_was_made_of() {
        let set: Capabilities = [Capability::Syslog].into_iter().collect();
        assert!(set.has(Capability::Syslog) && !set.has(Capability::Bpf));
        assert_eq!(set, Capabilities::bounding_from_status("CapEff:\t0\nCapBnd:\t0000000400000000\n"));
    }

    #[test]
    fn a_status_without_the_line_gives_none() {
        assert!(Capability::ALL.iter().all(|capability| !Capabilities::from_status("").has(*capability)));
    }
}
