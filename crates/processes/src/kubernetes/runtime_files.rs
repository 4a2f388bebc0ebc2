//! Reads the names of containers from the files that container runtimes keep on a node.

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

use super::{
    ContainerNames,
    configuration::{parse_docker, parse_runtime_specification},
};
use crate::{Pid, ProcFs, root_directory::RootDirectory};

/// Bytes read of the configuration of a container. That of a container with many mounts has some 100 KiB.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Length of the ids that containerd's CRI plugin, CRI-O and docker generate, in hexadecimal digits.
const ID_CHARS: usize = 64;

/// Directories of containerd's state (`state` in its configuration): the default, that of k3s and RKE2, of k0s, and of
/// MicroK8s.
const CONTAINERD_STATES: [&str; 4] = [
    "/run/containerd",
    "/run/k3s/containerd",
    "/run/k0s/containerd",
    "/var/snap/microk8s/common/run/containerd",
];

/// Parses a configuration.
type Parser = fn(&[u8]) -> serde_json::Result<Option<ContainerNames>>;

/// The root directories below which the files of container runtimes are.
#[derive(Debug)]
pub(crate) struct RuntimeFiles {
    roots: Vec<RootDirectory>,
}

impl RuntimeFiles {
    /// Those of the calling process's root, and of process 1: in a pod with `hostPID`, its root is that of the node.
    pub(crate) fn of_node(proc: &ProcFs) -> Self {
        let own = RootDirectory::open(Path::new("/")).ok();
        let of_init = proc.root(Pid(1)).ok();
        let is_other =
            |root: &RootDirectory| own.as_ref().is_none_or(|own| own.id().is_none() || own.id() != root.id());
        let of_init = of_init.filter(is_other);
        Self { roots: own.into_iter().chain(of_init).collect() }
    }

    /// The names of a container; `None` where no runtime knows it as one of a pod.
    ///
    /// # Errors
    /// A file of the container exists, and cannot be read or has another content than a runtime writes.
    pub(crate) fn names(&self, id: &str) -> io::Result<Option<ContainerNames>> {
        // A process may choose the name of its cgroup, but not the path of a file.
        if id.len() != ID_CHARS || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(None);
        }
        let mut failed = None;
        for root in &self.roots {
            for (path, parse) in configurations(id) {
                match read(root, &path) {
                    Ok(json) => return Ok(parse(&json)?),
                    Err(error) if is_missing(&error) => {}
                    Err(error) => failed = Some(error),
                }
            }
        }
        failed.map_or(Ok(None), Err)
    }
}

/// The paths at which runtimes keep the configuration of a container.
fn configurations(id: &str) -> impl Iterator<Item = (PathBuf, Parser)> {
    let of_containerd = CONTAINERD_STATES.map(|state| {
        let path = format!("{state}/io.containerd.runtime.v2.task/k8s.io/{id}/config.json");
        (PathBuf::from(path), parse_runtime_specification as Parser)
    });
    let of_crio = format!("/run/containers/storage/overlay-containers/{id}/userdata/config.json");
    let of_docker = format!("/var/lib/docker/containers/{id}/config.v2.json");
    let others: [(PathBuf, Parser); 2] =
        [(of_crio.into(), parse_runtime_specification), (of_docker.into(), parse_docker)];
    of_containerd.into_iter().chain(others)
}

fn read(root: &RootDirectory, path: &Path) -> io::Result<Vec<u8>> {
    let mut json = Vec::new();
    root.open_file(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut json)?;
    if json.len() as u64 > MAX_FILE_BYTES {
        let message = format!("`{}` has more than {MAX_FILE_BYTES} bytes", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(json)
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    pub(crate) const ID: &str = "4f1c3ab99a0e6b7a1d5d2f3e4c5b6a79808f7e6d5c4b3a29180f7e6d5c4b3a29";

    /// A directory tree with the files of container runtimes.
    pub(crate) struct TestNode {
        directory: TempDir,
    }

    impl TestNode {
        pub(crate) fn new() -> Self {
            Self { directory: tempfile::tempdir().unwrap() }
        }

        pub(crate) fn files(&self) -> RuntimeFiles {
            RuntimeFiles { roots: vec![RootDirectory::open(self.directory.path()).unwrap()] }
        }

        pub(crate) fn write(&self, path: &str, content: &str) {
            let path = self.directory.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }

        /// Writes the configuration that containerd writes for a container of a pod.
        pub(crate) fn add(&self, id: &str, names: &ContainerNames) {
            let mut annotations = json!({
                "io.kubernetes.cri.sandbox-name": names.pod,
                "io.kubernetes.cri.sandbox-namespace": names.namespace,
                "io.kubernetes.cri.sandbox-uid": names.pod_uid,
            });
            if let Some(name) = &names.container {
                annotations["io.kubernetes.cri.container-name"] = json!(name);
            }
            let path = format!("/run/containerd/io.containerd.runtime.v2.task/k8s.io/{id}/config.json");
            self.write(&path, &json!({"annotations": annotations}).to_string());
        }
    }

    /// The kubelet's labels of a container, as JSON.
    fn labels(pod: &str) -> serde_json::Value {
        json!({"io.kubernetes.pod.name": pod, "io.kubernetes.pod.namespace": "shop", "io.kubernetes.container.name": "app"})
    }

    #[test]
    fn the_files_of_every_runtime_are_found() {
        for (path, _) in configurations(ID) {
            let node = TestNode::new();
            let json = if path.starts_with("/var/lib/docker") {
                json!({"Config": {"Labels": labels("web-0")}})
            } else {
                json!({"annotations": labels("web-0")})
            };
            node.write(path.to_str().unwrap(), &json.to_string());
            let names = node.files().names(ID).unwrap().unwrap();
            assert_eq!((&*names.namespace, &*names.pod), ("shop", "web-0"), "{}", path.display());
            assert_eq!(node.files().names(&ID.replace('4', "5")).unwrap(), None);
        }
    }

    #[test]
    fn the_root_of_process_1_is_searched_after_the_own_one() {
        let (own, host) = (TestNode::new(), TestNode::new());
        let both = || RuntimeFiles {
            roots: [&own, &host].map(|node| RootDirectory::open(node.directory.path()).unwrap()).into(),
        };
        let path = format!("/var/lib/docker/containers/{ID}/config.v2.json");
        host.write(&path, &json!({"Config": {"Labels": labels("of-host")}}).to_string());
        assert_eq!(both().names(ID).unwrap().unwrap().pod, "of-host");
        own.write(&path, &json!({"Config": {"Labels": labels("of-own")}}).to_string());
        assert_eq!(both().names(ID).unwrap().unwrap().pod, "of-own");
    }

    #[test]
    fn an_id_cannot_lead_to_another_directory() {
        let node = TestNode::new();
        for id in ["..", "x", &ID[..12], &format!("{}/..", &ID[..61])] {
            node.write(
                &format!("/var/lib/docker/containers/{id}/config.v2.json"),
                &json!({"Config": {"Labels": labels("web")}}).to_string(),
            );
            assert_eq!(node.files().names(id).unwrap(), None, "{id}");
        }
    }

    #[test]
    fn files_that_are_too_large_malformed_or_no_files_are_errors() {
        let path = format!("/run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json");
        let content = json!({"annotations": labels("web")}).to_string();
        let large = format!("{content}{}", " ".repeat(usize::try_from(MAX_FILE_BYTES).unwrap()));
        for content in [&*large, "{", ""] {
            let node = TestNode::new();
            node.write(&path, content);
            assert!(node.files().names(ID).is_err());
        }
        let node = TestNode::new();
        node.write(&format!("{path}/x"), "");
        assert_eq!(node.files().names(ID).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
