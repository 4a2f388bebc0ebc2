//! Finds cgroups (version 1, version 2 and hybrid setups) by path, and containers by id.

mod container;
mod container_id;
mod hierarchy;
mod mounts;
mod unit;

#[cfg(fuzzing)]
use std::path::Component;
use std::{
    collections::VecDeque,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

pub use self::container::{Container, ContainerScope, find_container};
#[cfg(feature = "pods")]
pub(crate) use self::container::{FoundContainer, FoundContainers, running_containers};
use self::hierarchy::{Hierarchy, HierarchyKind, parse_memberships, parse_mountinfo};
pub use self::mounts::CgroupMounts;
use crate::{FindError, Pid};

/// A cgroup: a directory of a mounted cgroup hierarchy. As a target it selects its tasks and those of its descendants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// Absolute path of the directory.
    pub directory: PathBuf,
    /// The version of the hierarchy.
    pub version: Version,
}

/// The cgroup version of a hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Version {
    /// Version 1, with controllers.
    V1 {
        /// A controller of the hierarchy, by its name in the kernel's `enum cgroup_subsys_id`: `cpu`, `memory`, `io`.
        controller: String,
    },
    /// Version 2, the unified hierarchy.
    V2,
}

/// The cgroup versions that are mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountedVersions {
    /// Whether a version 1 hierarchy with a controller is mounted.
    pub v1: bool,
    /// Whether the version 2 hierarchy is mounted.
    pub v2: bool,
}

/// Directories of a hierarchy that are searched. A node with many pods has some thousands.
const MAX_DIRECTORIES: usize = 1 << 16;

/// The file that lists the processes of a cgroup.
const PROCESS_LIST: &str = "cgroup.procs";

/// Files that list the members of a cgroup: its processes, and the threads of a threaded version 2 cgroup.
const MEMBER_LISTS: [&str; 2] = [PROCESS_LIST, "cgroup.threads"];

/// Finds the cgroup with a path that a user gave: a directory of a mounted cgroup file system, or a path inside the
/// hierarchies as in `/proc/PID/cgroup`.
///
/// # Errors
/// When no such cgroup exists, its hierarchy has no controller, or `/proc/self/mountinfo` cannot be read.
pub fn resolve(path: &Path) -> Result<Cgroup, FindError> {
    resolve_in(&mounted_hierarchies()?, path)
}

/// The cgroup versions that are mounted and that a BPF program can filter by.
pub fn mounted_versions() -> MountedVersions {
    let hierarchies = mounted_hierarchies().unwrap_or_default();
    let any = |is_wanted: fn(&HierarchyKind) -> bool| {
        hierarchies.iter().any(|hierarchy| is_wanted(&hierarchy.kind))
    };
    MountedVersions {
        v1: any(|kind| matches!(kind, HierarchyKind::V1 { .. })),
        v2: any(|kind| *kind == HierarchyKind::V2),
    }
}

/// The id of the innermost container in the text of `/proc/PID/cgroup`.
pub fn container_id_of(text: &[u8]) -> Option<String> {
    let memberships = parse_memberships(text);
    memberships
        .iter()
        .find_map(|membership| container_id::innermost_container_id(&membership.path))
        .map(str::to_owned)
}

/// The systemd service that contains a process, in the text of `/proc/PID/cgroup`: `ssh.service`.
pub fn service_of(text: &[u8]) -> Option<String> {
    let memberships = parse_memberships(text);
    memberships.iter().find_map(|membership| unit::service_of(&membership.path)).map(str::to_owned)
}

/// The processes in a cgroup and its descendants, by their ids in the profiler's PID namespace, `limit` at most. Those of a
/// threaded cgroup are listed by its closest ancestor that is not threaded (cgroups(7)).
pub fn processes_in(directory: &Path, limit: usize) -> Vec<Pid> {
    let lists =
        directories_below(directory).filter_map(|directory| fs::read(directory.join(PROCESS_LIST)).ok());
    let parse = |list: Vec<u8>| -> Vec<Pid> {
        String::from_utf8_lossy(&list).lines().filter_map(|id| id.parse().ok().map(Pid)).collect()
    };
    let pids = lists.flat_map(parse);
    // A process of another PID namespace has the id 0.
    pids.filter(|pid| *pid != Pid(0)).take(limit).collect()
}

/// Parses the same text as `/proc/PID/mountinfo` and as `/proc/PID/cgroup`. Checks that the path of a cgroup leads to no
/// directory outside of the mount point.
#[cfg(fuzzing)]
pub fn check_paths(text: &[u8], id_prefix: &str) {
    const MAX_LINES: usize = 16;
    let _ = (container_id_of(text), service_of(text));
    let hierarchies = parse_mountinfo(text);
    for membership in parse_memberships(text).iter().take(MAX_LINES) {
        for (_, path) in container_id::matching_containers(&membership.path, id_prefix) {
            assert!(membership.path.starts_with(path));
        }
        for hierarchy in hierarchies.iter().take(MAX_LINES) {
            let Some(directory) = hierarchy.directory(&membership.path) else { continue };
            let is_normal = |component: Component<'_>| matches!(component, Component::Normal(_));
            let inside = directory.strip_prefix(&hierarchy.mount_point);
            assert!(inside.is_ok_and(|inside| inside.components().all(is_normal)));
            assert_eq!(hierarchy.path(&directory).as_ref(), Some(&membership.path));
        }
    }
}

fn mounted_hierarchies() -> Result<Vec<Hierarchy>, FindError> {
    const PATH: &str = "/proc/self/mountinfo";
    let text = fs::read(PATH)
        .map_err(|error| FindError::Io { action: format!("failed to read `{PATH}`"), source: error })?;
    Ok(parse_mountinfo(&text))
}

fn resolve_in(hierarchies: &[Hierarchy], path: &Path) -> Result<Cgroup, FindError> {
    let given = containing(hierarchies, path);
    if let Some((hierarchy, directory)) = &given
        && let Some(version) = version(&hierarchy.kind)
    {
        return Ok(Cgroup { directory: directory.clone(), version });
    }
    // The directories of a hierarchy without controllers have the same paths in the other hierarchies.
    let inside = given.as_ref().and_then(|(hierarchy, directory)| hierarchy.path(directory));
    let inside = inside.unwrap_or_else(|| Path::new("/").join(path));
    let mut found: Vec<Cgroup> =
        hierarchies.iter().filter_map(|hierarchy| open(hierarchy, &inside)).collect();
    // One hierarchy can have an empty directory at the path of a cgroup in another hierarchy.
    found.sort_by_cached_key(|cgroup| (!has_members(&cgroup.directory), cgroup.version != Version::V2));
    found.into_iter().next().ok_or_else(|| not_found(hierarchies, path, given.is_some()))
}

/// The hierarchy that contains the directory `path`, and the path without symbolic links.
fn containing<'a>(hierarchies: &'a [Hierarchy], path: &Path) -> Option<(&'a Hierarchy, PathBuf)> {
    let directory = path.is_absolute().then(|| path.canonicalize().ok())??;
    let metadata = directory.metadata().ok().filter(fs::Metadata::is_dir)?;
    // Mounts on the same mount point have different devices.
    let hierarchy = hierarchies
        .iter()
        .filter(|hierarchy| {
            directory.starts_with(&hierarchy.mount_point) && hierarchy.device == metadata.dev()
        })
        .max_by_key(|hierarchy| hierarchy.mount_point.as_os_str().len())?;
    Some((hierarchy, directory))
}

/// The cgroup at a path inside a hierarchy, when the directory exists and the hierarchy is not one without controllers.
fn open(hierarchy: &Hierarchy, path: &Path) -> Option<Cgroup> {
    let version = version(&hierarchy.kind)?;
    let directory = hierarchy.directory(path)?;
    directory.is_dir().then_some(Cgroup { directory, version })
}

fn version(kind: &HierarchyKind) -> Option<Version> {
    match kind {
        HierarchyKind::V2 => Some(Version::V2),
        HierarchyKind::V1 { controllers } => {
            Some(Version::V1 { controller: (*controllers.first()?).to_owned() })
        }
        HierarchyKind::WithoutController => None,
    }
}

fn not_found(hierarchies: &[Hierarchy], path: &Path, in_cgroup_file_system: bool) -> FindError {
    let path = path.display();
    if hierarchies.is_empty() {
        let message = format!("failed to find the cgroup `{path}`: no cgroup file system is mounted here");
        return FindError::NotFound(message);
    }
    if in_cgroup_file_system {
        let message = format!(
            "the cgroup `{path}` is in a hierarchy without controllers, which cannot be filtered by, and no other \
             hierarchy has a cgroup of this path"
        );
        return FindError::Invalid(message);
    }
    let message = format!(
        "failed to find the cgroup `{path}`: it is neither a directory of a cgroup file system nor a path that \
         `/proc/PID/cgroup` shows"
    );
    FindError::NotFound(message)
}

/// Whether a cgroup or one of its descendants has a member.
fn has_members(directory: &Path) -> bool {
    let is_populated = |list: &Path| fs::read(list).is_ok_and(|members| !members.is_empty());
    directories_below(directory)
        .any(|directory| MEMBER_LISTS.iter().any(|list| is_populated(&directory.join(list))))
}

/// A directory and its descendants, breadth first, [`MAX_DIRECTORIES`] at most.
fn directories_below(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let mut waiting = VecDeque::from([directory.to_owned()]);
    std::iter::from_fn(move || {
        let directory = waiting.pop_front()?;
        let capacity = MAX_DIRECTORIES.saturating_sub(waiting.len());
        waiting.extend(children(&directory).into_iter().flatten().take(capacity));
        Some(directory)
    })
    .take(MAX_DIRECTORIES)
}

fn children(directory: &Path) -> io::Result<impl Iterator<Item = PathBuf>> {
    let entries = fs::read_dir(directory)?.filter_map(Result::ok);
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    Ok(directories.map(|entry| entry.path()))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A directory tree with the cgroup hierarchies of a hybrid setup, all on one device.
    pub(super) struct TestHierarchies {
        directory: TempDir,
        pub(super) hierarchies: Vec<Hierarchy>,
    }

    impl TestHierarchies {
        pub(super) fn hybrid() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let device = directory.path().metadata().unwrap().dev();
            let hierarchy = |name: &str, kind| {
                let mount_point = directory.path().canonicalize().unwrap().join(name);
                fs::create_dir(&mount_point).unwrap();
                Hierarchy { kind, mount_point, root: "/".into(), device }
            };
            let v1 = |controllers: &[&'static str]| HierarchyKind::V1 { controllers: controllers.to_vec() };
            let hierarchies = vec![
                hierarchy("systemd", HierarchyKind::WithoutController),
                hierarchy("blkio", v1(&["io"])),
                hierarchy("cpu,cpuacct", v1(&["cpu", "cpuacct"])),
                hierarchy("unified", HierarchyKind::V2),
            ];
            Self { directory, hierarchies }
        }

        pub(super) fn cgroup(&self, path: &str, members: &str) -> PathBuf {
            let directory = self.directory.path().canonicalize().unwrap().join(path);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("cgroup.procs"), members).unwrap();
            directory
        }

        fn resolve(&self, path: impl AsRef<Path>) -> Result<Cgroup, FindError> {
            resolve_in(&self.hierarchies, path.as_ref())
        }
    }

    fn v1(controller: &str) -> Version {
        Version::V1 { controller: controller.to_owned() }
    }

    #[test]
    fn a_directory_has_the_version_of_its_hierarchy() {
        let machine = TestHierarchies::hybrid();
        let blkio = machine.cgroup("blkio/a", "");
        assert_eq!(machine.resolve(&blkio).unwrap(), Cgroup { directory: blkio, version: v1("io") });
        let unified = machine.cgroup("unified/a", "");
        assert_eq!(machine.resolve(&unified).unwrap().version, Version::V2);
    }

    #[test]
    fn the_processes_of_a_cgroup_are_those_of_its_descendants_too() {
        let machine = TestHierarchies::hybrid();
        machine.cgroup("unified/other", "5\n");
        machine.cgroup("unified/a/b/c", "30\n0\n");
        machine.cgroup("unified/a/b", "not a number\n20\n");
        let directory = machine.cgroup("unified/a", "10\n11\n");
        assert_eq!(processes_in(&directory, 10), [10, 11, 20, 30].map(Pid));
        assert_eq!(processes_in(&directory, 3), [10, 11, 20].map(Pid));
        assert!(processes_in(&directory.join("missing"), 10).is_empty());
    }

    #[test]
    fn a_link_to_a_directory_is_followed() {
        let machine = TestHierarchies::hybrid();
        let directory = machine.cgroup("cpu,cpuacct/a", "");
        let link = machine.directory.path().join("cpu");
        std::os::unix::fs::symlink("cpu,cpuacct", &link).unwrap();
        let cgroup = machine.resolve(link.join("a")).unwrap();
        assert_eq!(cgroup, Cgroup { directory, version: v1("cpu") });
    }

    #[test]
    fn a_path_inside_the_hierarchies_is_resolved_to_a_cgroup_with_members() {
        let machine = TestHierarchies::hybrid();
        machine.cgroup("unified/kubepods/pod1", "");
        assert_eq!(machine.resolve("/kubepods/pod1").unwrap().version, Version::V2);
        machine.cgroup("cpu,cpuacct/kubepods/pod1/container", "17\n");
        assert_eq!(machine.resolve("/kubepods/pod1").unwrap().version, v1("cpu"));
        machine.cgroup("unified/kubepods/pod1", "17\n");
        assert_eq!(machine.resolve("kubepods/pod1").unwrap().version, Version::V2);
    }

    #[test]
    fn a_directory_without_controllers_is_resolved_to_the_same_path_in_another_hierarchy() {
        let machine = TestHierarchies::hybrid();
        let systemd = machine.cgroup("systemd/a", "17\n");
        assert!(matches!(machine.resolve(&systemd).unwrap_err(), FindError::Invalid(_)));
        let blkio = machine.cgroup("blkio/a", "17\n");
        assert_eq!(machine.resolve(&systemd).unwrap().directory, blkio);
    }

    #[test]
    fn a_path_without_a_cgroup_is_an_error_that_contains_it() {
        let machine = TestHierarchies::hybrid();
        for path in ["/nowhere", "/../blkio", "/proc"] {
            let error = machine.resolve(path).unwrap_err();
            assert!(matches!(error, FindError::NotFound(_)), "{error}");
            assert!(error.to_string().contains(path), "{error}");
        }
        assert!(resolve_in(&[], Path::new("/a")).unwrap_err().to_string().contains("no cgroup file system"));
    }

    #[test]
    fn every_mounted_hierarchy_is_found_by_its_mount_point() {
        // A mount that another one hides is not reachable.
        let reachable = |hierarchy: &Hierarchy| {
            fs::metadata(&hierarchy.mount_point).is_ok_and(|metadata| metadata.dev() == hierarchy.device)
        };
        for hierarchy in mounted_hierarchies().unwrap().into_iter().filter(reachable) {
            let Some(version) = version(&hierarchy.kind) else { continue };
            let wanted = Cgroup { directory: hierarchy.mount_point.clone(), version };
            assert_eq!(resolve(&hierarchy.mount_point).unwrap(), wanted);
        }
    }
}
