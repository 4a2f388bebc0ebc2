//! Finds container ids in cgroup paths, in the notations of container runtimes and of both cgroup drivers.

use std::path::{Component, Path, PathBuf};

/// A shorter prefix is too ambiguous: it must be the whole id.
pub(super) const MIN_PREFIX_CHARS: usize = 4;

/// A name with at least this many hexadecimal digits is an id. Runtimes generate 64 digits and display 12.
const MIN_ID_CHARS: usize = 12;

/// Prefixes of the id in the name of a systemd scope or directory.
const RUNTIME_PREFIXES: [&str; 7] =
    ["cri-containerd-", "docker-", "crio-", "libpod-", "runc-", "crun-", "nerdctl-"];

/// Prefix of the id in the cgroup of a container's monitor process.
const MONITOR_PREFIX: &str = "conmon-";

/// Suffixes of systemd units. Of these units only a scope can be a container.
const UNIT_SUFFIXES: [&str; 6] = [".slice", ".service", ".mount", ".socket", ".swap", ".scope"];

/// The generated id of the innermost container that contains a cgroup. A name that a user chose does not count, because
/// it cannot be distinguished from the name of another cgroup.
pub(super) fn innermost_container_id(path: &Path) -> Option<&str> {
    path.components().rev().find_map(|component| match component {
        Component::Normal(name) => container_id(name.to_str()?),
        _ => None,
    })
}

/// The ids with a prefix of the containers that contain a cgroup, outermost first, with the cgroup path of each.
pub(super) fn matching_containers(path: &Path, id_prefix: &str) -> Vec<(String, PathBuf)> {
    let mut cgroup_path = PathBuf::new();
    let mut found = Vec::new();
    let mut components = path.components().peekable();
    while let Some(component) = components.next() {
        cgroup_path.push(component);
        let Component::Normal(name) = component else { continue };
        let Some(name) = name.to_str() else { continue };
        let id = container_id(name).or_else(|| chosen_name(name, id_prefix, components.peek().is_none()));
        if let Some(id) = id.filter(|id| matches_prefix(id, id_prefix)) {
            found.push((id.to_owned(), cgroup_path.clone()));
        }
    }
    found
}

fn matches_prefix(id: &str, prefix: &str) -> bool {
    id == prefix || (prefix.chars().count() >= MIN_PREFIX_CHARS && id.starts_with(prefix))
}

/// The id in a cgroup name that a container runtime generated.
fn container_id(name: &str) -> Option<&str> {
    let scope = name.strip_suffix(".scope");
    // The cgroupfs driver with a path in systemd notation: `kubepods-pod1.slice:cri-containerd:ID`.
    let name = scope.unwrap_or(name).rsplit(':').next()?;
    let rest = RUNTIME_PREFIXES.iter().find_map(|runtime| name.strip_prefix(runtime));
    if rest.is_some_and(|rest| rest.starts_with(MONITOR_PREFIX)) {
        return None;
    }
    let prefixed = rest.filter(|id| scope.is_some() || is_id(id));
    prefixed.or_else(|| name.rsplit('-').next().filter(|id| is_id(id) && (scope.is_some() || *id == name)))
}

/// A name that a user chose, as in `runc run NAME`.
fn chosen_name<'a>(name: &'a str, wanted: &str, last: bool) -> Option<&'a str> {
    let unit = UNIT_SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
    (!unit && (last || name == wanted)).then_some(name)
}

fn is_id(name: &str) -> bool {
    name.len() >= MIN_ID_CHARS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4f1c3ab99a0e6b7a1d5d2f3e4c5b6a79808f7e6d5c4b3a29180f7e6d5c4b3a29";

    fn ids(path: &str, prefix: &str) -> Vec<String> {
        matching_containers(Path::new(path), prefix).into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn the_id_is_found_in_the_paths_of_every_runtime_and_cgroup_driver() {
        for path in [
            "/docker/ID",
            "/system.slice/docker-ID.scope",
            "/docker/ID/init.scope",
            // The kubelet's cgroups of the three classes of pods, by cgroup driver and runtime. Guaranteed pods have no
            // directory of a class (`pkg/kubelet/cm/pod_container_manager_linux.go` of Kubernetes).
            "/kubepods/pod0d4b8f4e-52f1-4a0c-9c0e-0d2c3c2e5a3e/ID",
            "/kubepods/burstable/pod0d4b8f4e-52f1-4a0c-9c0e-0d2c3c2e5a3e/ID",
            "/kubepods/besteffort/pod0d4b8f4e-52f1-4a0c-9c0e-0d2c3c2e5a3e/ID",
            "/kubepods/pod0d4b8f4e-52f1-4a0c-9c0e-0d2c3c2e5a3e/crio-ID",
            "/kubepods/burstable/pod0d4b8f4e-52f1-4a0c-9c0e-0d2c3c2e5a3e/crio-ID",
            "/kubepods.slice/kubepods-pod0d4b8f4e_52f1.slice/cri-containerd-ID.scope",
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0d4b8f4e.slice/cri-containerd-ID.scope",
            "/kubepods.slice/kubepods-pod0d4b8f4e_52f1.slice/crio-ID.scope",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0d4b8f4e.slice/crio-ID.scope",
            "/kubepods.slice/kubepods-pod0d4b8f4e_52f1.slice/docker-ID.scope",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0d4b8f4e.slice/docker-ID.scope",
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod1.slice/cri-containerd-ID.scope",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0d4b8f4e.slice/cri-containerd-ID.scope",
            "/system.slice/containerd.service/kubepods-besteffort-pod0d4b8f4e.slice:cri-containerd:ID",
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice/crio-ID.scope",
            "/kubepods/besteffort/pod1/crio-ID",
            "/k8s.io/ID",
            "/default/ID",
            "/machine.slice/libpod-ID.scope/container",
            "/libpod_parent/libpod-ID",
            "/user.slice/user-1000.slice/user@1000.service/user.slice/nerdctl-ID.scope",
            "/../ID",
            "/../cri-containerd-ID.scope",
        ] {
            assert_eq!(ids(&path.replace("ID", ID), "4f1c3a"), [ID], "{path}");
        }
    }

    #[test]
    fn monitors_units_and_pods_are_not_containers() {
        for path in [
            "/machine.slice/crio-conmon-ID.scope",
            "/machine.slice/libpod-conmon-ID.scope",
            "/system.slice/4f1c3a.service",
            "/kubepods/pod4f1c3a/x",
            "/4f1c3a.slice/session-3.scope",
            "/",
        ] {
            assert_eq!(ids(&path.replace("ID", ID), "4f1c3a"), [""; 0], "{path}");
        }
    }

    #[test]
    fn a_container_inside_another_belongs_to_both() {
        let inner = "/docker/4f1c3a4f1c3a/docker/4f1c3b4f1c3b/app";
        let found = matching_containers(Path::new(inner), "4f1c");
        assert_eq!(found[0].1, Path::new("/docker/4f1c3a4f1c3a"));
        assert_eq!(found[1].1, Path::new("/docker/4f1c3a4f1c3a/docker/4f1c3b4f1c3b"));
    }

    #[test]
    fn the_innermost_container_of_a_path_is_found() {
        let id_in = |path: &'static str| innermost_container_id(Path::new(path));
        assert_eq!(id_in("/docker/4f1c3a4f1c3a/kubepods/pod1/4f1c3b4f1c3b/app"), Some("4f1c3b4f1c3b"));
        assert_eq!(id_in("/system.slice/docker-4f1c3a4f1c3a.scope/init.scope"), Some("4f1c3a4f1c3a"));
        assert_eq!(id_in("/../crio-4f1c3a4f1c3a.scope"), Some("4f1c3a4f1c3a"));
        for outside in ["/", "/user.slice/user-0.slice/session-3.scope", "/system.slice/ssh.service", "/web"]
        {
            assert_eq!(id_in(outside), None, "{outside}");
        }
    }

    #[test]
    fn chosen_names_match_as_a_whole_or_by_a_long_prefix() {
        assert_eq!(ids("/t1", "t1"), ["t1"]);
        assert_eq!(ids("/t1/worker", "t1"), ["t1"]);
        assert_eq!(ids("/system.slice/runc-t1.scope", "t1"), ["t1"]);
        assert_eq!(ids("/t10", "t1"), [""; 0]);
        assert_eq!(ids("/web-frontend", "web-"), ["web-frontend"]);
    }
}
