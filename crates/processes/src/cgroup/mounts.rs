//! The directories of a process's cgroups in the mounted hierarchies.

use std::{
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use super::hierarchy::{Hierarchy, HierarchyKind, parse_memberships, parse_mountinfo};
use crate::ProcFs;

/// Bytes read of a mount table. A line has some hundred bytes, and a node with many containers some ten thousand mounts.
const MAX_MOUNT_TABLE_BYTES: u64 = 16 << 20;

/// Levels of a cgroup that are returned. Container runtimes make some ten.
const MAX_LEVELS: usize = 64;

/// The mounted cgroup hierarchies, as they were when they were read.
#[derive(Clone, Debug)]
pub struct CgroupMounts {
    hierarchies: Vec<Hierarchy>,
}

impl CgroupMounts {
    /// Reads the mounts of the calling process.
    ///
    /// # Errors
    /// When `/proc/self/mountinfo` cannot be read.
    pub fn read(proc: &ProcFs) -> io::Result<Self> {
        let mut text = Vec::new();
        proc.open_global("self/mountinfo")?.take(MAX_MOUNT_TABLE_BYTES).read_to_end(&mut text)?;
        Ok(Self { hierarchies: parse_mountinfo(&text) })
    }

    /// The directories of a version 2 cgroup and its ancestors, the cgroup first. `memberships` is the text of
    /// `/proc/PID/cgroup`. Empty when the process is in no version 2 cgroup below a mount.
    pub fn v2_levels(&self, memberships: &[u8]) -> Vec<PathBuf> {
        self.levels(memberships, |kind| *kind == HierarchyKind::V2)
    }

    /// As [`v2_levels`](Self::v2_levels), in the version 1 hierarchy with a controller. It has the name in the kernel's
    /// `enum cgroup_subsys_id`: `cpu`, `memory`, `io`.
    pub fn v1_levels(&self, memberships: &[u8], controller: &str) -> Vec<PathBuf> {
        self.levels(memberships, |kind| kind.has(controller))
    }

    /// The path inside of its hierarchy of a cgroup, by its directory: container runtimes use the same path in every
    /// hierarchy. `None` for a directory that is not below a mount.
    pub fn path_of(&self, directory: &Path) -> Option<PathBuf> {
        // The innermost mount is the last one.
        let mounts = self.hierarchies.iter().rev();
        mounts.filter_map(|mount| mount.path(directory)).next()
    }

    /// As [`v2_levels`](Self::v2_levels), of a cgroup with this path in the hierarchy.
    pub fn v2_levels_at(&self, path: &Path) -> Vec<PathBuf> {
        self.levels_at(path, |kind| *kind == HierarchyKind::V2)
    }

    /// As [`v1_levels`](Self::v1_levels), of a cgroup with this path in the hierarchy.
    pub fn v1_levels_at(&self, path: &Path, controller: &str) -> Vec<PathBuf> {
        self.levels_at(path, |kind| kind.has(controller))
    }

    fn levels(&self, memberships: &[u8], is_wanted: impl Fn(&HierarchyKind) -> bool) -> Vec<PathBuf> {
        let memberships = parse_memberships(memberships);
        let membership = memberships.iter().find(|membership| is_wanted(&membership.kind));
        let levels = membership.map(|found| self.levels_at(&found.path, |kind| *kind == found.kind));
        levels.unwrap_or_default()
    }

    fn levels_at(&self, path: &Path, is_wanted: impl Fn(&HierarchyKind) -> bool) -> Vec<PathBuf> {
        let mounts = self.hierarchies.iter().filter(|hierarchy| is_wanted(&hierarchy.kind));
        let directories = mounts.filter_map(|mount| Some((mount, mount.directory(path)?)));
        // A hierarchy can be mounted several times, each mount with a part of it.
        let mut existing = directories.filter(|(_, directory)| directory.is_dir());
        let Some((mount, directory)) = existing.next() else { return Vec::new() };
        let levels = directory.ancestors().take_while(|level| level.starts_with(&mount.mount_point));
        levels.take(MAX_LEVELS).map(PathBuf::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A mount table of a hybrid setup below a directory.
    fn hybrid(directory: &Path) -> CgroupMounts {
        let below = directory.display();
        let text = format!(
            "34 33 0:29 / {below}/unified rw - cgroup2 cgroup2 rw\n\
             35 33 0:30 / {below}/systemd rw - cgroup cgroup rw,name=systemd\n\
             38 33 0:33 / {below}/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
             39 33 0:34 /docker {below}/missing rw - cgroup cgroup rw,memory\n\
             40 33 0:34 /docker {below}/memory rw - cgroup cgroup rw,memory\n"
        );
        fs::create_dir(directory.join("self")).unwrap();
        fs::write(directory.join("self/mountinfo"), text).unwrap();
        CgroupMounts::read(&ProcFs::from_capture(directory.to_owned())).unwrap()
    }

    const MEMBERSHIPS: &[u8] =
        b"4:memory:/docker/a\n3:cpu,cpuacct:/docker/a\n1:name=systemd:/s\n0::/x.slice/y.scope\n";

    #[test]
    fn the_levels_of_a_cgroup_end_at_the_mount_point() {
        let directory = tempfile::tempdir().unwrap();
        let mounts = hybrid(directory.path());
        for cgroup in ["unified/x.slice/y.scope", "cpu/docker/a", "memory/a"] {
            fs::create_dir_all(directory.path().join(cgroup)).unwrap();
        }
        let below = |paths: &[&str]| paths.iter().map(|path| directory.path().join(path)).collect::<Vec<_>>();
        assert_eq!(
            mounts.v2_levels(MEMBERSHIPS),
            below(&["unified/x.slice/y.scope", "unified/x.slice", "unified"])
        );
        let cpu = below(&["cpu/docker/a", "cpu/docker", "cpu"]);
        assert_eq!(mounts.v1_levels(MEMBERSHIPS, "cpu"), cpu);
        assert_eq!(mounts.v1_levels(MEMBERSHIPS, "cpuacct"), cpu);
        assert_eq!(mounts.v1_levels(MEMBERSHIPS, "memory"), below(&["memory/a", "memory"]));
    }

    #[test]
    fn a_directory_has_the_same_path_in_every_hierarchy() {
        let directory = tempfile::tempdir().unwrap();
        let mounts = hybrid(directory.path());
        let at = |path: &str| directory.path().join(path);
        for cgroup in ["unified/docker/a", "cpu/docker/a", "memory/a"] {
            fs::create_dir_all(at(cgroup)).unwrap();
        }
        for cgroup in ["unified/docker/a", "cpu/docker/a", "memory/a"] {
            let path = mounts.path_of(&at(cgroup)).unwrap();
            assert_eq!(path, Path::new("/docker/a"), "{cgroup}");
            assert_eq!(mounts.v2_levels_at(&path)[0], at("unified/docker/a"));
            assert_eq!(mounts.v1_levels_at(&path, "cpuacct")[0], at("cpu/docker/a"));
            assert_eq!(mounts.v1_levels_at(&path, "memory"), [at("memory/a"), at("memory")]);
            assert!(mounts.v1_levels_at(&path, "pids").is_empty());
        }
        assert_eq!(mounts.path_of(Path::new("/somewhere/else")), None);
    }

    #[test]
    fn a_cgroup_that_is_not_mounted_has_no_levels() {
        let directory = tempfile::tempdir().unwrap();
        let mounts = hybrid(directory.path());
        assert!(mounts.v1_levels(MEMBERSHIPS, "io").is_empty());
        assert!(mounts.v1_levels(MEMBERSHIPS, "cpu").is_empty(), "no directory");
        fs::create_dir_all(directory.path().join("unified")).unwrap();
        assert!(mounts.v2_levels(b"0::/../outside\n").is_empty());
        assert_eq!(mounts.v2_levels(b"0::/\n").len(), 1);
        assert!(mounts.v2_levels(b"").is_empty());
    }
}
