//! What the processes of a service have in common.

use profiler_profile::{ProcessId, Profile};

/// The attribute with the systemd unit of a process.
const UNIT: &str = "systemd.unit";

/// The cgroup of a process, as far as a profile has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cgroup<'a> {
    container: Option<&'a str>,
    unit: Option<&'a str>,
}

/// What the processes of a service have in common: their cgroup and their name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServiceKey<'a> {
    pub(crate) cgroup: Cgroup<'a>,
    comm: &'a str,
}

impl<'a> ServiceKey<'a> {
    pub(crate) fn of(profile: &'a Profile, id: ProcessId) -> Self {
        let process = profile.process(id);
        let container = process.container.map(|container| profile.string(container));
        let cgroup = Cgroup { container, unit: profile.attribute(id, UNIT) };
        Self { cgroup, comm: profile.string(process.comm) }
    }
}
