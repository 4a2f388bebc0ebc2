//! Names the sources of samples: from a process of a profile to its resource.
//!
//! A container is a resource. Outside of containers, the processes of a systemd service are one, and else those of a program.
//! `docs/design/resources.md` has the order in which a service gets its name, and what a hostile process can do.

mod containers;
mod kubelet;
mod label;
mod most_sampled;
#[cfg(test)]
mod tests;
mod text;
mod workload;

use std::{collections::BTreeMap, fs, io, sync::Arc};

use profiler_profile::{ProcessId, Profile};

#[cfg(fuzzing)]
pub use self::kubelet::check_pod_list;
use self::{
    containers::{Container, Containers},
    kubelet::{Owner, Pod, Pods},
    most_sampled::keep_most_sampled,
    workload::workload_name,
};
pub use self::{
    kubelet::{Kubelet, KubeletError, KubeletOptions},
    label::{InvalidLabel, Label},
};
use crate::{Resource, Window};

/// The attributes of a resource: Pyroscope accepts 30 labels of a series, and the encoder adds the kind of profile and the
/// state of the thread.
const MAX_ATTRIBUTES: usize = 28;

/// The attributes that a resource has besides the labels of the user.
const MAX_OWN_ATTRIBUTES: usize = 12;

/// The service of the resources that are left out.
const OTHER: &str = "other";

/// The service of processes that ended before they were read.
const UNKNOWN: &str = "unknown";

/// The characters of the id of a container that container runtimes show.
const SHOWN_ID_CHARS: usize = 12;

/// What all resources of a node have in common, and their number.
#[derive(Clone, Debug)]
pub struct NamingOptions {
    /// The name of the host: `host.name`.
    pub host: String,
    /// The name of the node in Kubernetes: `k8s.node.name`.
    pub node: Option<String>,
    /// Labels for all resources. They do not replace attributes that a resource has anyway.
    pub labels: Vec<Label>,
    /// Most resources in a window. The ones with the fewest samples become one resource with `service.name=other`.
    pub max_resources: usize,
}

impl NamingOptions {
    /// Those of the node on which the calling process runs. `node` is the value of `NODE_NAME`, which the DaemonSet sets from
    /// `spec.nodeName`, if there is one: in a pod the host name can be that of the pod.
    ///
    /// # Errors
    /// When the host name cannot be read.
    pub fn of_node(node: Option<String>) -> io::Result<Self> {
        const HOST_NAME: &str = "/proc/sys/kernel/hostname";
        let host = match &node {
            Some(node) => node.clone(),
            None => fs::read_to_string(HOST_NAME)?.trim_end().to_owned(),
        };
        Ok(Self { host, node, labels: Vec::new(), max_resources: 200 })
    }
}

/// More labels than a series can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{labels} labels are too many: give at most {}", MAX_ATTRIBUTES - MAX_OWN_ATTRIBUTES)]
pub struct TooManyLabels {
    labels: usize,
}

/// Names the resources of the windows of a node.
#[derive(Debug)]
pub struct Naming {
    /// The name of the node, or of the host.
    node: String,
    /// The attributes of all resources.
    common: BTreeMap<String, String>,
    max_resources: usize,
    containers: Containers,
    kubelet: Option<Kubelet>,
    /// The pods that the kubelet knew at the beginning of the window.
    pods: Arc<Pods>,
}

impl Naming {
    /// # Errors
    /// When there are more labels than backends accept.
    pub fn new(options: NamingOptions) -> Result<Self, TooManyLabels> {
        let NamingOptions { host, node, labels, max_resources } = options;
        if labels.len() > MAX_ATTRIBUTES - MAX_OWN_ATTRIBUTES {
            return Err(TooManyLabels { labels: labels.len() });
        }
        let mut common: BTreeMap<_, _> =
            labels.into_iter().map(|Label { name, value }| (name, value)).collect();
        let of_node = [("host.name", Some(&host)), ("k8s.node.name", node.as_ref())];
        for (name, value) in of_node {
            if let Some(value) = value.and_then(|value| text::value(value)) {
                common.insert(name.to_owned(), value);
            }
        }
        Ok(Self {
            node: node.unwrap_or(host),
            common,
            max_resources,
            containers: Containers::default(),
            kubelet: None,
            pods: Arc::default(),
        })
    }

    /// Also uses labels and owners that the kubelet knows.
    #[must_use]
    pub fn with_kubelet(self, kubelet: Kubelet) -> Self {
        Self { kubelet: Some(kubelet), ..self }
    }

    /// The window of a profile, in which each process has its resource. The profiles of a node are given in the order of
    /// their time, because what is known of a container is remembered.
    pub fn window(&mut self, profile: Profile) -> Window {
        self.pods = self.kubelet.as_ref().map(Kubelet::pods).unwrap_or_default();
        self.containers.add_window(&profile);
        let resources = profile.process_ids().map(|id| self.resource(&profile, id)).collect();
        let other = self.resource_named(OTHER, []);
        let resources = keep_most_sampled(&profile, resources, self.max_resources, &other);
        Window::new(profile, |_, id| resources[id.index()].clone())
    }

    fn resource(&self, profile: &Profile, process: ProcessId) -> Resource {
        let Some(id) = profile.process(process).container else {
            return self.resource_of_host(profile, process);
        };
        let id = profile.string(id);
        let Some(container) = self.containers.get(id) else { return self.resource_named(OTHER, []) };
        let pod = container.attributes.get("k8s.pod.uid").and_then(|uid| self.pods.get(uid));
        let owner = pod.and_then(|pod| pod.owner.as_ref());
        let service = self.service_of_container(container, pod, id);
        let attributes = container.attributes.iter().map(|(name, value)| (*name, value.clone()));
        let of_owner = owner.map(|Owner { attribute, name }| (*attribute, name.clone()));
        self.resource_named(&service, attributes.chain(of_owner))
    }

    fn service_of_container(&self, container: &Container, pod: Option<&Pod>, id: &str) -> String {
        let attribute = |name| container.attributes.get(name).cloned();
        // The name of a Job can contain the time at which a CronJob started it.
        let of_owner = || {
            let owner = pod?.owner.as_ref().filter(|owner| owner.attribute != "k8s.job.name")?;
            Some(owner.name.clone())
        };
        let of_pod_name = || {
            let pod = container.attributes.get("k8s.pod.name")?;
            Some(workload_name(pod, &self.node).to_owned())
        };
        let claimed = container.claimed_service.clone();
        claimed
            .or_else(|| pod?.service.clone())
            .or_else(of_owner)
            .or_else(of_pod_name)
            .or_else(|| attribute("k8s.container.name"))
            .or_else(|| container.program.clone())
            .or_else(|| text::value(&id.chars().take(SHOWN_ID_CHARS).collect::<String>()))
            .unwrap_or_else(|| UNKNOWN.to_owned())
    }

    /// The resource of a process outside of containers. The program keeps a process that claims the name of a service apart
    /// from the service.
    fn resource_of_host(&self, profile: &Profile, process: ProcessId) -> Resource {
        let attribute = |name| profile.attribute(process, name).and_then(text::value);
        let claimed = attribute("service.name");
        if claimed.is_none()
            && let Some(unit) = attribute("systemd.unit")
        {
            return self.resource_named(unit_stem(&unit), []);
        }
        let program = attribute("process.executable.name").unwrap_or_else(|| UNKNOWN.to_owned());
        let service = claimed.unwrap_or_else(|| program.clone());
        self.resource_named(&service, [("process.executable.name", program)])
    }

    fn resource_named(
        &self,
        service: &str,
        attributes: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Resource {
        let mut all = self.common.clone();
        all.extend(attributes.into_iter().map(|(name, value)| (name.to_owned(), value)));
        all.insert("service.name".to_owned(), service.to_owned());
        Resource { attributes: all }
    }
}

/// The name of a unit without its type and instance: `getty` for `getty@tty1.service`.
fn unit_stem(unit: &str) -> &str {
    let stem = unit.strip_suffix(".service").unwrap_or(unit);
    stem.split('@').next().filter(|stem| !stem.is_empty()).unwrap_or(stem)
}
