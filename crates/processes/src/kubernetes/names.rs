//! The names that Kubernetes gives a container.

/// The names of a container of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerNames {
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub pod: String,
    /// The unique id of the pod, which is part of the path of its cgroup; empty where the runtime does not record it.
    pub pod_uid: String,
    /// The name of the container in the pod; `None` for the pod's sandbox, whose process `pause` holds the namespaces.
    pub container: Option<String>,
    /// The reference of the image: `docker.io/library/redis:7`; `None` where the runtime does not record it.
    pub image: Option<String>,
}
