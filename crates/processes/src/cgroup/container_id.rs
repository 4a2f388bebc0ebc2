//! Ids of containers in cgroup paths, as the runtimes and both cgroup drivers write them.

use std::path::{Component, Path, PathBuf};

/// Shorter prefixes fit too much: they must be the whole name.
pub(super) const MIN_PREFIX_CHARS: usize = 4;

/// From this length on, a name of hexadecimal digits is taken for the id of a container: runtimes make 64, and
/// show 12.
const MIN_ID_CHARS: usize = 12;

/// What runtimes put before the id in the name of a systemd scope, or of a directory.
const RUNTIMES: [&str; 7] = ["cri-containerd-", "docker-", "crio-", "libpod-", "runc-", "crun-", "nerdctl-"];

/// What such a name has before the id when it is not the container but its monitor.
const MONITOR: &str = "conmon-";

/// Systemd's units that are no containers; a scope can be one.
const UNIT_SUFFIXES: [&str; 6] = [".slice", ".service", ".mount", ".socket", ".swap", ".scope"];

/// The innermost container around a cgroup, by the id that a runtime made. A name that somebody gave is no such id:
/// nothing tells it from that of any other cgroup.
pub(super) fn innermost(path: &Path) -> Option<&str> {
    path.components().rev().find_map(|component| match component {
        Component::Normal(name) => container_id(name.to_str()?),
        _ => None,
    })
}

/// The containers around a cgroup whose ids match, outermost first, with the cgroup of each.
pub(super) fn matches(path: &Path, id_prefix: &str) -> Vec<(String, PathBuf)> {
    let mut place = PathBuf::new();
    let mut found = Vec::new();
    let mut components = path.components().peekable();
    while let Some(component) = components.next() {
        place.push(component);
        let Component::Normal(name) = component else { continue };
        let Some(name) = name.to_str() else { continue };
        let id = container_id(name).or_else(|| plain_name(name, id_prefix, components.peek().is_none()));
        if let Some(id) = id.filter(|id| fits(id, id_prefix)) {
            found.push((id.to_owned(), place.clone()));
        }
    }
    found
}

fn fits(id: &str, prefix: &str) -> bool {
    id == prefix || (prefix.chars().count() >= MIN_PREFIX_CHARS && id.starts_with(prefix))
}

/// The id in a name that a container runtime has made.
fn container_id(name: &str) -> Option<&str> {
    let scope = name.strip_suffix(".scope");
    // Where systemd's naming is handed to a runtime without systemd: `kubepods-pod1.slice:cri-containerd:ID`.
    let name = scope.unwrap_or(name).rsplit(':').next()?;
    let rest = RUNTIMES.iter().find_map(|runtime| name.strip_prefix(runtime));
    if rest.is_some_and(|rest| rest.starts_with(MONITOR)) {
        return None;
    }
    let of_runtime = rest.filter(|id| scope.is_some() || is_id(id));
    of_runtime.or_else(|| name.rsplit('-').next().filter(|id| is_id(id) && (scope.is_some() || *id == name)))
}

/// A name that somebody gave, as `runc run NAME` makes it.
fn plain_name<'a>(name: &'a str, wanted: &str, last: bool) -> Option<&'a str> {
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
        matches(Path::new(path), prefix).into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn every_runtime_and_cgroup_driver_shows_the_id() {
        for path in [
            "/docker/ID",
            "/system.slice/docker-ID.scope",
            "/docker/ID/init.scope",
            "/kubepods/besteffort/pod0d4b8f4e-52f1-4a0c-9c0e-0d2c3c2e5a3e/ID",
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
    fn monitors_units_and_pods_are_no_containers() {
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
        let found = matches(Path::new(inner), "4f1c");
        assert_eq!(found[0].1, Path::new("/docker/4f1c3a4f1c3a"));
        assert_eq!(found[1].1, Path::new("/docker/4f1c3a4f1c3a/docker/4f1c3b4f1c3b"));
    }

    #[test]
    fn the_innermost_container_is_the_one_that_a_process_is_in() {
        let of = |path: &'static str| innermost(Path::new(path));
        assert_eq!(of("/docker/4f1c3a4f1c3a/kubepods/pod1/4f1c3b4f1c3b/app"), Some("4f1c3b4f1c3b"));
        assert_eq!(of("/system.slice/docker-4f1c3a4f1c3a.scope/init.scope"), Some("4f1c3a4f1c3a"));
        assert_eq!(of("/../crio-4f1c3a4f1c3a.scope"), Some("4f1c3a4f1c3a"));
        for outside in ["/", "/user.slice/user-0.slice/session-3.scope", "/system.slice/ssh.service", "/web"]
        {
            assert_eq!(of(outside), None, "{outside}");
        }
    }

    #[test]
    fn given_names_are_found_by_the_whole_of_them_or_a_long_prefix() {
        assert_eq!(ids("/t1", "t1"), ["t1"]);
        assert_eq!(ids("/t1/worker", "t1"), ["t1"]);
        assert_eq!(ids("/system.slice/runc-t1.scope", "t1"), ["t1"]);
        assert_eq!(ids("/t10", "t1"), [""; 0]);
        assert_eq!(ids("/web-frontend", "web-"), ["web-frontend"]);
    }
}
