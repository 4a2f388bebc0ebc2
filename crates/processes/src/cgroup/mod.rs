//! Cgroups by path: version 1, version 2, and both side by side.

mod container;
mod container_id;
mod hierarchy;

use std::{
    collections::VecDeque,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

pub use self::container::{Container, Extent, find_container};
use self::hierarchy::{Hierarchy, Kind, parse_memberships, parse_mountinfo};
use crate::FindError;

/// A directory of a mounted cgroup hierarchy: the tasks in it and below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    pub directory: PathBuf,
    pub version: Version,
}

/// The interface that a hierarchy has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Version {
    V1 {
        /// A controller of the hierarchy as the kernel's `enum cgroup_subsys_id` has it: `cpu`, `memory`, `io`.
        controller: String,
    },
    V2,
}

/// The cgroup versions that are mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountedVersions {
    pub v1: bool,
    pub v2: bool,
}

/// How many directories of one hierarchy are looked at: a node full of pods has some thousands.
const MAX_DIRECTORIES: usize = 1 << 16;

/// What lists the processes in a cgroup, and, in a threaded one of version 2, its threads.
const MEMBER_LISTS: [&str; 2] = ["cgroup.procs", "cgroup.threads"];

/// The cgroup that the user means by `path`: a directory of a mounted cgroup file system, or a path inside the
/// hierarchies, as `/proc/PID/cgroup` shows it.
pub fn resolve(path: &Path) -> Result<Cgroup, FindError> {
    resolve_in(&mounted()?, path)
}

/// Which versions are mounted here and can be filtered by.
pub fn mounted_versions() -> MountedVersions {
    let hierarchies = mounted().unwrap_or_default();
    let any = |wanted: fn(&Kind) -> bool| hierarchies.iter().any(|hierarchy| wanted(&hierarchy.kind));
    MountedVersions { v1: any(|kind| matches!(kind, Kind::V1 { .. })), v2: any(|kind| *kind == Kind::V2) }
}

/// The id of the container that a process is in, by its `/proc/PID/cgroup`.
pub fn container_of(text: &[u8]) -> Option<String> {
    let memberships = parse_memberships(text);
    memberships.iter().find_map(|membership| container_id::innermost(&membership.path)).map(str::to_owned)
}

fn mounted() -> Result<Vec<Hierarchy>, FindError> {
    const PATH: &str = "/proc/self/mountinfo";
    let text = fs::read(PATH)
        .map_err(|error| FindError::Io { action: format!("failed to read `{PATH}`"), source: error })?;
    Ok(parse_mountinfo(&text))
}

fn resolve_in(hierarchies: &[Hierarchy], path: &Path) -> Result<Cgroup, FindError> {
    let named = containing(hierarchies, path);
    if let Some((hierarchy, directory)) = &named
        && let Some(version) = version(&hierarchy.kind)
    {
        return Ok(Cgroup { directory: directory.clone(), version });
    }
    // A hierarchy without controllers has directories of the same names as the others.
    let inside = named.as_ref().and_then(|(hierarchy, directory)| hierarchy.path(directory));
    let inside = inside.unwrap_or_else(|| Path::new("/").join(path));
    let mut found: Vec<Cgroup> =
        hierarchies.iter().filter_map(|hierarchy| open(hierarchy, &inside)).collect();
    // A directory in which nothing runs can stand beside the one that is meant.
    found.sort_by_cached_key(|cgroup| (!has_members(&cgroup.directory), cgroup.version != Version::V2));
    found.into_iter().next().ok_or_else(|| not_found(hierarchies, path, named.is_some()))
}

/// The hierarchy that shows the directory `path`, and the directory without links.
fn containing<'a>(hierarchies: &'a [Hierarchy], path: &Path) -> Option<(&'a Hierarchy, PathBuf)> {
    let directory = path.is_absolute().then(|| path.canonicalize().ok())??;
    let metadata = directory.metadata().ok().filter(fs::Metadata::is_dir)?;
    // The device tells mounts apart that lie on top of each other.
    let hierarchy = hierarchies
        .iter()
        .filter(|hierarchy| {
            directory.starts_with(&hierarchy.mount_point) && hierarchy.device == metadata.dev()
        })
        .max_by_key(|hierarchy| hierarchy.mount_point.as_os_str().len())?;
    Some((hierarchy, directory))
}

/// The directory at a path inside a hierarchy, when it is there and can be filtered by.
fn open(hierarchy: &Hierarchy, path: &Path) -> Option<Cgroup> {
    let version = version(&hierarchy.kind)?;
    let directory = hierarchy.directory(path)?;
    directory.is_dir().then_some(Cgroup { directory, version })
}

fn version(kind: &Kind) -> Option<Version> {
    match kind {
        Kind::V2 => Some(Version::V2),
        Kind::V1 { controllers } => Some(Version::V1 { controller: (*controllers.first()?).to_owned() }),
        Kind::WithoutController => None,
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

/// Whether anything runs in a cgroup or below it.
fn has_members(directory: &Path) -> bool {
    let listed = |list: &Path| fs::read(list).is_ok_and(|members| !members.is_empty());
    walk(directory).any(|directory| MEMBER_LISTS.iter().any(|list| listed(&directory.join(list))))
}

/// A directory and those below it, nearest first, as many as the limit allows.
fn walk(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let mut waiting = VecDeque::from([directory.to_owned()]);
    std::iter::from_fn(move || {
        let directory = waiting.pop_front()?;
        let room = MAX_DIRECTORIES.saturating_sub(waiting.len());
        waiting.extend(children(&directory).into_iter().flatten().take(room));
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

    /// A directory tree in the shape of a hybrid machine, all on one device.
    pub(super) struct Machine {
        directory: TempDir,
        pub(super) hierarchies: Vec<Hierarchy>,
    }

    impl Machine {
        pub(super) fn hybrid() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let device = directory.path().metadata().unwrap().dev();
            let hierarchy = |name: &str, kind| {
                let mount_point = directory.path().canonicalize().unwrap().join(name);
                fs::create_dir(&mount_point).unwrap();
                Hierarchy { kind, mount_point, root: "/".into(), device }
            };
            let v1 = |controllers: &[&'static str]| Kind::V1 { controllers: controllers.to_vec() };
            let hierarchies = vec![
                hierarchy("systemd", Kind::WithoutController),
                hierarchy("blkio", v1(&["io"])),
                hierarchy("cpu,cpuacct", v1(&["cpu", "cpuacct"])),
                hierarchy("unified", Kind::V2),
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
    fn a_directory_is_taken_with_the_version_of_its_hierarchy() {
        let machine = Machine::hybrid();
        let blkio = machine.cgroup("blkio/a", "");
        assert_eq!(machine.resolve(&blkio).unwrap(), Cgroup { directory: blkio, version: v1("io") });
        let unified = machine.cgroup("unified/a", "");
        assert_eq!(machine.resolve(&unified).unwrap().version, Version::V2);
    }

    #[test]
    fn a_link_to_a_directory_is_followed() {
        let machine = Machine::hybrid();
        let directory = machine.cgroup("cpu,cpuacct/a", "");
        let link = machine.directory.path().join("cpu");
        std::os::unix::fs::symlink("cpu,cpuacct", &link).unwrap();
        let cgroup = machine.resolve(link.join("a")).unwrap();
        assert_eq!(cgroup, Cgroup { directory, version: v1("cpu") });
    }

    #[test]
    fn a_path_inside_the_hierarchies_is_looked_for_where_something_runs() {
        let machine = Machine::hybrid();
        machine.cgroup("unified/kubepods/pod1", "");
        assert_eq!(machine.resolve("/kubepods/pod1").unwrap().version, Version::V2);
        machine.cgroup("cpu,cpuacct/kubepods/pod1/container", "17\n");
        assert_eq!(machine.resolve("/kubepods/pod1").unwrap().version, v1("cpu"));
        machine.cgroup("unified/kubepods/pod1", "17\n");
        assert_eq!(machine.resolve("kubepods/pod1").unwrap().version, Version::V2);
    }

    #[test]
    fn a_directory_without_controllers_stands_for_its_like_in_another_hierarchy() {
        let machine = Machine::hybrid();
        let systemd = machine.cgroup("systemd/a", "17\n");
        assert!(matches!(machine.resolve(&systemd).unwrap_err(), FindError::Invalid(_)));
        let blkio = machine.cgroup("blkio/a", "17\n");
        assert_eq!(machine.resolve(&systemd).unwrap().directory, blkio);
    }

    #[test]
    fn what_is_no_cgroup_is_an_error_that_names_it() {
        let machine = Machine::hybrid();
        for path in ["/nowhere", "/../blkio", "/proc"] {
            let error = machine.resolve(path).unwrap_err();
            assert!(matches!(error, FindError::NotFound(_)), "{error}");
            assert!(error.to_string().contains(path), "{error}");
        }
        assert!(resolve_in(&[], Path::new("/a")).unwrap_err().to_string().contains("no cgroup file system"));
    }

    #[test]
    fn every_hierarchy_of_this_machine_is_found_by_its_mount_point() {
        // What is mounted below another mount cannot be reached.
        let reachable = |hierarchy: &Hierarchy| {
            fs::metadata(&hierarchy.mount_point).is_ok_and(|metadata| metadata.dev() == hierarchy.device)
        };
        for hierarchy in mounted().unwrap().into_iter().filter(reachable) {
            let Some(version) = version(&hierarchy.kind) else { continue };
            let wanted = Cgroup { directory: hierarchy.mount_point.clone(), version };
            assert_eq!(resolve(&hierarchy.mount_point).unwrap(), wanted);
        }
    }
}
