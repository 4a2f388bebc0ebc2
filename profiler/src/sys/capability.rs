//! The capabilities of this process.

/// The capabilities that a profiler can need, numbers as in `include/uapi/linux/capability.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub(crate) enum Capability {
    DacReadSearch = 2,
    SysPtrace = 19,
    SysAdmin = 21,
    SysResource = 24,
    Syslog = 34,
    Perfmon = 38,
    Bpf = 39,
    CheckpointRestore = 40,
}

impl Capability {
    pub(crate) const ALL: [Self; 8] = [
        Self::Bpf,
        Self::Perfmon,
        Self::SysPtrace,
        Self::Syslog,
        Self::DacReadSearch,
        Self::SysResource,
        Self::CheckpointRestore,
        Self::SysAdmin,
    ];

    /// The name as container runtimes and capsh take it.
    pub(crate) fn name(self) -> &'static str {
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

/// The effective capabilities of this process, a bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities(u64);

impl Capabilities {
    /// Reads them from the `CapEff` line of a `/proc/PID/status`; none where it has no such line.
    pub(crate) fn from_status(status: &str) -> Self {
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        Self(line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0))
    }

    /// Whether `capability` is there. `CAP_SYS_ADMIN` includes what was split off from it (capabilities(7)).
    pub(crate) fn has(self, capability: Capability) -> bool {
        let admin =
            matches!(capability, Capability::Bpf | Capability::Perfmon | Capability::CheckpointRestore)
                && self.bit(Capability::SysAdmin);
        admin || self.bit(capability)
    }

    fn bit(self, capability: Capability) -> bool {
        self.0 >> (capability as u32) & 1 == 1
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
    fn a_status_without_the_line_gives_none() {
        assert!(Capability::ALL.iter().all(|capability| !Capabilities::from_status("").has(*capability)));
    }
}
