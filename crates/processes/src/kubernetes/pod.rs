//! Finds a pod of this node by its name, and what selects its processes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{ContainerNames, runtime_files::RuntimeFiles};
use crate::{
    FindError, Pid, ProcFs,
    cgroup::{Cgroup, ContainerScope, FoundContainer, FoundContainers, running_containers},
};

/// Pods or containers that an error lists.
const MAX_LISTED_NAMES: usize = 8;

/// Selects a pod, or one of its containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSelector {
    /// The name of the pod, or a prefix that only one pod has.
    pub name: String,
    /// The namespace of the pod; `None` for any.
    pub namespace: Option<String>,
    /// The name of the container; `None` for all of the pod.
    pub container: Option<String>,
}

/// A pod of this node, or one of its containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// The namespace.
    pub namespace: String,
    /// The whole name.
    pub name: String,
    /// The name of the container; `None` for all containers.
    pub container: Option<String>,
    /// What selects the processes: the cgroup of the pod, with the containers that start later, or that of the container;
    /// processes by id where the cgroup is not visible.
    pub scope: ContainerScope,
}

/// Namespace and name of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PodName {
    namespace: String,
    name: String,
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A running container of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    names: ContainerNames,
    found: FoundContainer,
}

/// The pods with visible processes.
#[derive(Debug, Default)]
struct Pods {
    members: BTreeMap<PodName, Vec<Member>>,
    /// Containers whose configuration could not be read, and the last error.
    unreadable: usize,
    error: Option<String>,
}

/// Finds a pod with a visible process: the container ids in the cgroup paths of all visible processes, then the names of
/// these containers in the files of containerd, CRI-O or docker, in the root directory of the calling process or of
/// process 1. A name that a pod has is preferred to a prefix of it.
///
/// # Errors
/// When no pod matches, several match, the pod has no such container, or `/proc` cannot be read.
pub fn find_pod(proc: &ProcFs, selector: &PodSelector) -> Result<Pod, FindError> {
    Pods::of(running_containers(proc)?, &RuntimeFiles::of_node(proc)).find(selector)
}

impl Pods {
    fn of(running: FoundContainers, files: &RuntimeFiles) -> Self {
        let mut pods = Self::default();
        for (id, found) in running {
            match files.names(&id) {
                Ok(Some(names)) => {
                    let pod = PodName { namespace: names.namespace.clone(), name: names.pod.clone() };
                    pods.members.entry(pod).or_default().push(Member { names, found });
                }
                Ok(None) => {}
                Err(error) => {
                    log::info!("the names of container {id} are unknown: {error}");
                    pods.unreadable += 1;
                    pods.error = Some(error.to_string());
                }
            }
        }
        pods
    }

    fn find(mut self, selector: &PodSelector) -> Result<Pod, FindError> {
        let pod = self.choose(selector)?;
        let members = self.members.remove(&pod).unwrap_or_default();
        let scope = match &selector.container {
            None => scope_of_pod(&members),
            Some(container) => scope_of_container(members, &pod, container)?,
        };
        let PodName { namespace, name } = pod;
        Ok(Pod { namespace, name, container: selector.container.clone(), scope })
    }

    fn choose(&self, selector: &PodSelector) -> Result<PodName, FindError> {
        let is_in_namespace =
            |pod: &&PodName| selector.namespace.as_ref().is_none_or(|namespace| *namespace == pod.namespace);
        let pods = || self.members.keys().filter(is_in_namespace);
        let mut matching: Vec<_> = pods().filter(|pod| pod.name == selector.name).collect();
        if matching.is_empty() && !selector.name.is_empty() {
            matching = pods().filter(|pod| pod.name.starts_with(&selector.name)).collect();
        }
        match &*matching {
            [pod] => Ok((*pod).clone()),
            [] => Err(self.not_found(selector)),
            several => {
                let message = format!(
                    "{} pods match `{}`, choose one by its whole name and namespace: {}",
                    several.len(),
                    selector.name,
                    list(several.iter())
                );
                Err(FindError::Invalid(message))
            }
        }
    }

    fn not_found(&self, selector: &PodSelector) -> FindError {
        let namespace =
            selector.namespace.as_ref().map(|namespace| format!(" in the namespace `{namespace}`"));
        let wanted = format!("`{}`{}", selector.name, namespace.unwrap_or_default());
        let known = if self.members.is_empty() {
            "no container of a visible process has a configuration of containerd, CRI-O or docker that names a pod (in a \
             pod, `hostPID: true` shows the processes and these files of the node)"
                .to_owned()
        } else {
            format!("the pods of this node are {}", list(self.members.keys()))
        };
        let unreadable = self.error.as_ref().map(|error| {
            format!(
                "; {} configurations cannot be read ({error}), which needs root or `CAP_DAC_READ_SEARCH`",
                self.unreadable
            )
        });
        let message = format!("found no running pod {wanted}: {known}{}", unreadable.unwrap_or_default());
        FindError::NotFound(message)
    }
}

/// The cgroup of the pod; where it is not visible, the cgroup of the only container or the processes of all containers.
fn scope_of_pod(members: &[Member]) -> ContainerScope {
    if let Some(cgroup) = cgroup_of_pod(members) {
        return ContainerScope::Cgroup(cgroup);
    }
    // The sandbox only waits.
    let (containers, sandboxes): (Vec<_>, Vec<_>) =
        members.iter().partition(|member| member.names.container.is_some());
    scope_of_members(if containers.is_empty() { &sandboxes } else { &containers })
}

fn scope_of_container(
    mut members: Vec<Member>,
    pod: &PodName,
    container: &str,
) -> Result<ContainerScope, FindError> {
    let names: BTreeSet<_> = members.iter().filter_map(|member| member.names.container.clone()).collect();
    members.retain(|member| member.names.container.as_deref() == Some(container));
    if members.is_empty() {
        let others = if names.is_empty() { String::new() } else { format!(", but {}", list(names.iter())) };
        let message = format!("the pod `{pod}` has no running container `{container}`{others}");
        return Err(FindError::NotFound(message));
    }
    Ok(scope_of_members(&members.iter().collect::<Vec<_>>()))
}

/// The cgroup of the only container, or the processes of several.
fn scope_of_members(members: &[&Member]) -> ContainerScope {
    if let [Member { found: FoundContainer { cgroup: Some(cgroup), .. }, .. }] = members {
        return ContainerScope::Cgroup(cgroup.clone());
    }
    let pids: BTreeSet<Pid> = members.iter().flat_map(|member| &member.found.pids).copied().collect();
    ContainerScope::Processes(pids.into_iter().collect())
}

/// The cgroup that contains those of all containers of a pod, if it has the name that the kubelet gives it.
fn cgroup_of_pod(members: &[Member]) -> Option<Cgroup> {
    let mut parents = members.iter().map(|Member { names, found }| {
        let Cgroup { directory, version } = found.cgroup.as_ref()?;
        let parent = directory.parent()?;
        let is_of_pod = is_cgroup_of_pod(parent.file_name()?.to_str()?, &names.pod_uid);
        is_of_pod.then(|| Cgroup { directory: parent.to_owned(), version: version.clone() })
    });
    let first = parents.next()??;
    parents.all(|parent| parent.as_ref() == Some(&first)).then_some(first)
}

/// Whether a cgroup has the name of a pod's: `podUID` with the driver `cgroupfs`, `kubepods-burstable-podUID.slice` with
/// `systemd`, whose names have `_` in place of `-` (`pkg/kubelet/cm/cgroup_manager_linux.go` of Kubernetes).
fn is_cgroup_of_pod(name: &str, pod_uid: &str) -> bool {
    let of_cgroupfs = format!("pod{pod_uid}");
    let of_systemd = format!("-{}.slice", of_cgroupfs.replace('-', "_"));
    !pod_uid.is_empty() && (name == of_cgroupfs || name.ends_with(&of_systemd))
}

/// The first names, separated by commas.
fn list<T: fmt::Display>(names: impl ExactSizeIterator<Item = T>) -> String {
    let more = names.len().saturating_sub(MAX_LISTED_NAMES);
    let mut listed: Vec<_> = names.take(MAX_LISTED_NAMES).map(|name| name.to_string()).collect();
    if more > 0 {
        listed.push(format!("{more} more"));
    }
    listed.join(", ")
}

#[cfg(test)]
mod tests;
