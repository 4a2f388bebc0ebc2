//! What is known of containers, from all of their processes and from one window to the next.

use std::collections::{BTreeMap, HashMap};

use profiler_profile::{KubernetesNames, ProcessId, Profile};

use super::text;

/// Containers that are remembered. A node has some hundred.
const MAX_CONTAINERS: usize = 4096;

/// The containers of a node by id.
#[derive(Debug, Default)]
pub(super) struct Containers {
    by_id: HashMap<String, Container>,
    /// The number of the last window.
    window: u64,
}

/// A container.
#[derive(Debug, Default)]
pub(super) struct Container {
    /// Attributes that are the same for all processes of the container.
    pub(super) attributes: BTreeMap<&'static str, String>,
    /// The service name in the environment of the first sampled process that has one.
    pub(super) claimed_service: Option<String>,
    /// The program of the first sampled process.
    pub(super) program: Option<String>,
    last_window: u64,
}

impl Containers {
    /// Adds what the processes of a window show.
    pub(super) fn add_window(&mut self, profile: &Profile) {
        self.window += 1;
        for id in profile.process_ids() {
            if let Some(container) = profile.process(id).container {
                self.add_process(profile, id, profile.string(container));
            }
        }
    }

    /// The container with an id, if it is remembered.
    pub(super) fn get(&self, id: &str) -> Option<&Container> {
        self.by_id.get(id)
    }

    fn add_process(&mut self, profile: &Profile, process: ProcessId, id: &str) {
        if !self.by_id.contains_key(id) && !self.has_space() {
            return;
        }
        let container = self.by_id.entry(id.to_owned()).or_default();
        container.last_window = self.window;
        container.add(profile, process, id);
    }

    /// Whether another container can be remembered. Those without a process in this window are forgotten when there are too
    /// many.
    fn has_space(&mut self) -> bool {
        if self.by_id.len() >= MAX_CONTAINERS {
            let window = self.window;
            self.by_id.retain(|_, container| container.last_window == window);
        }
        self.by_id.len() < MAX_CONTAINERS
    }
}

impl Container {
    fn add(&mut self, profile: &Profile, process: ProcessId, id: &str) {
        let attribute = |name| profile.attribute(process, name).and_then(text::value);
        let names = profile.process(process).kubernetes;
        let of_pod = |name: fn(KubernetesNames) -> _| text::value(profile.string(names.and_then(name)?));
        let found = [
            ("container.id", text::value(id)),
            ("container.image.name", attribute("container.image.name")),
            ("k8s.container.name", of_pod(|names| names.container)),
            ("k8s.namespace.name", of_pod(|names| Some(names.namespace))),
            ("k8s.pod.name", of_pod(|names| Some(names.pod))),
            ("k8s.pod.uid", attribute("k8s.pod.uid")),
        ];
        for (name, value) in found.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            self.attributes.entry(name).or_insert(value);
        }
        self.claimed_service = self.claimed_service.take().or_else(|| attribute("service.name"));
        self.program = self.program.take().or_else(|| attribute("process.executable.name"));
    }
}

#[cfg(test)]
mod tests {
    use profiler_profile::{Header, ProfileBuilder};

    use super::*;

    fn window(ids: impl Iterator<Item = String>) -> Profile {
        let mut builder = ProfileBuilder::default();
        for id in ids {
            let process = builder.process(1, "app");
            builder.set_container(process, &id);
        }
        builder.finish(Header::default())
    }

    #[test]
    fn the_number_of_remembered_containers_is_bounded() {
        let mut containers = Containers::default();
        for start in [0, MAX_CONTAINERS] {
            containers
                .add_window(&window((start..start + MAX_CONTAINERS + 5).map(|number| number.to_string())));
            assert_eq!(containers.by_id.len(), MAX_CONTAINERS);
        }
        assert!(containers.get("3").is_none());
        assert!(containers.get(&(MAX_CONTAINERS + 3).to_string()).is_some());
    }
}
