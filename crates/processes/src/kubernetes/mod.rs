//! Kubernetes pods and the names of their containers, from the files of the container runtime on the node.
//!
//! Neither the API server nor a socket of the runtime is contacted: the cgroup path of a process contains the id of its
//! container, and the runtime's configuration of the container, a file whose path contains the id, has the names.

#[cfg(feature = "pods")]
mod configuration;
#[cfg(feature = "pods")]
mod known_names;
mod names;
#[cfg(feature = "pods")]
mod pod;
#[cfg(feature = "pods")]
mod runtime_files;

#[cfg(all(fuzzing, feature = "pods"))]
pub use self::configuration::check_configurations;
#[cfg(feature = "pods")]
pub(crate) use self::known_names::KnownNames;
pub use self::names::ContainerNames;
#[cfg(feature = "pods")]
pub use self::pod::{Pod, PodSelector, find_pod};
