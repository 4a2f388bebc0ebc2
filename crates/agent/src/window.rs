//! Windows: the profile of one interval, and the resource of each of its processes.

use std::collections::BTreeMap;

use profiler_profile::{ProcessId, Profile};

use crate::Resource;

/// What a node did in one interval.
#[derive(Clone, Debug)]
pub struct Window {
    profile: Profile,
    resources: Vec<Resource>,
    /// The index of the resource of each process, by the index of the process.
    resource_of: Vec<usize>,
}

impl Window {
    /// A window whose processes have these resources.
    pub fn new(profile: Profile, mut resource_of: impl FnMut(&Profile, ProcessId) -> Resource) -> Self {
        let mut indices = BTreeMap::new();
        let of_processes = profile
            .process_ids()
            .map(|id| {
                let next = indices.len();
                *indices.entry(resource_of(&profile, id)).or_insert(next)
            })
            .collect();
        let mut resources: Vec<_> = indices.into_iter().collect();
        resources.sort_by_key(|(_, index)| *index);
        let resources = resources.into_iter().map(|(resource, _)| resource).collect();
        Self { profile, resources, resource_of: of_processes }
    }

    /// The window with the value of each sample times `weight`. The ledger stays that of the measurement, and nothing is copied.
    #[must_use]
    pub fn weighted(mut self, weight: u64) -> Self {
        self.profile.multiply_values(weight);
        self
    }

    /// The profile of the interval.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The distinct resources.
    #[must_use]
    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// The index of the resource of a process in [`Window::resources`].
    #[must_use]
    pub fn resource_of(&self, process: ProcessId) -> usize {
        self.resource_of[process.index()]
    }
}
