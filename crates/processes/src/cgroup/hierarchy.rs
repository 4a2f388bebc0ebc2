//! Parses `/proc/PID/mountinfo` for the mounted cgroup hierarchies, and `/proc/PID/cgroup`.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Component, Path, PathBuf},
};

/// The controllers of cgroup v1 hierarchies: the name in mount options, and the name in the kernel's
/// `enum cgroup_subsys_id` (`include/linux/cgroup_subsys.h`). The names of one controller differ.
const CONTROLLERS: [(&str, &str); 15] = [
    ("cpu", "cpu"),
    ("cpuacct", "cpuacct"),
    ("cpuset", "cpuset"),
    ("memory", "memory"),
    ("pids", "pids"),
    ("blkio", "io"),
    ("devices", "devices"),
    ("freezer", "freezer"),
    ("net_cls", "net_cls"),
    ("perf_event", "perf_event"),
    ("net_prio", "net_prio"),
    ("hugetlb", "hugetlb"),
    ("rdma", "rdma"),
    ("misc", "misc"),
    ("dmem", "dmem"),
];

/// The version and controllers of a hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HierarchyKind {
    V2,
    /// A v1 hierarchy with at least one controller. Controllers have the kernel's names.
    V1 {
        controllers: Vec<&'static str>,
    },
    /// A v1 hierarchy that only groups processes, such as `name=systemd`. A BPF program cannot find the cgroup of a task
    /// in it.
    WithoutController,
}

impl HierarchyKind {
    /// Whether it is a v1 hierarchy with a controller, by the kernel's name.
    pub(super) fn has(&self, controller: &str) -> bool {
        matches!(self, Self::V1 { controllers } if controllers.contains(&controller))
    }
}

/// A mount of a cgroup hierarchy or of a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hierarchy {
    pub(super) kind: HierarchyKind,
    pub(super) mount_point: PathBuf,
    /// The directory of the hierarchy that is mounted.
    pub(super) root: PathBuf,
    /// Device number, as in `st_dev`.
    pub(super) device: u64,
}

/// The cgroup of a process in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Membership {
    pub(super) kind: HierarchyKind,
    /// Path relative to the root of the reader's cgroup namespace. It begins with `/..` for a cgroup outside of the
    /// namespace.
    pub(super) path: PathBuf,
}

impl Hierarchy {
    /// The directory in the file system of a path in the hierarchy, when this mount contains it.
    pub(super) fn directory(&self, path: &Path) -> Option<PathBuf> {
        let relative = path.strip_prefix(&self.root).ok()?;
        let outside = relative.components().any(|component| component == Component::ParentDir);
        (!outside).then(|| self.mount_point.join(relative))
    }

    /// The path in the hierarchy of a directory in the file system.
    pub(super) fn path(&self, directory: &Path) -> Option<PathBuf> {
        Some(self.root.join(directory.strip_prefix(&self.mount_point).ok()?))
    }
}

/// Parses the cgroup mounts in `/proc/PID/mountinfo` (proc_pid_mountinfo(5)). Malformed lines are skipped.
pub(super) fn parse_mountinfo(text: &[u8]) -> Vec<Hierarchy> {
    text.split(|byte| *byte == b'\n').filter_map(parse_mount).collect()
}

fn parse_mount(line: &[u8]) -> Option<Hierarchy> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = parse_device(std::str::from_utf8(fields.nth(2)?).ok()?)?;
    let root = unescape(fields.next()?);
    let mount_point = unescape(fields.next()?);
    // A hyphen follows the optional fields.
    fields.find(|field| *field == b"-")?;
    let file_system = fields.next()?;
    let options = std::str::from_utf8(fields.nth(1)?).ok()?;
    let kind = match file_system {
        b"cgroup2" => HierarchyKind::V2,
        b"cgroup" => v1_kind(options),
        _ => return None,
    };
    // Below another root, the absolute path of a cgroup would replace the mount point.
    (root.is_absolute() && mount_point.is_absolute()).then_some(Hierarchy { kind, mount_point, root, device })
}

fn parse_device(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// Decodes a backslash and three octal digits: the kernel escapes blanks and backslashes in paths in this way.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.first_chunk::<3>().filter(|_| *first == b'\\');
        match octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

/// Parses `/proc/PID/cgroup` (cgroups(7)). Malformed lines are skipped.
pub(super) fn parse_memberships(text: &[u8]) -> Vec<Membership> {
    text.split(|byte| *byte == b'\n').filter_map(parse_membership).collect()
}

fn parse_membership(line: &[u8]) -> Option<Membership> {
    let mut fields = line.splitn(3, |byte| *byte == b':');
    let id = fields.next()?;
    let controllers = std::str::from_utf8(fields.next()?).ok()?;
    let path = fields.next()?;
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let kind = if id == b"0" && controllers.is_empty() { HierarchyKind::V2 } else { v1_kind(controllers) };
    Some(Membership { kind, path: OsString::from_vec(path.to_vec()).into() })
}

/// The kind of a v1 hierarchy, from a comma-separated list that contains its controllers.
fn v1_kind(list: &str) -> HierarchyKind {
    let listed = |name: &str| list.split(',').any(|entry| entry == name);
    let controllers: Vec<_> =
        CONTROLLERS.iter().filter(|(name, _)| listed(name)).map(|(_, in_kernel)| *in_kernel).collect();
    if controllers.is_empty() { HierarchyKind::WithoutController } else { HierarchyKind::V1 { controllers } }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Docker with systemd in hybrid mode. The last line is a bind mount with a blank and a backslash in its paths.
    const HYBRID: &[u8] = b"\
25 30 0:23 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw
33 25 0:28 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:9 - tmpfs tmpfs ro,mode=755
34 33 0:29 / /sys/fs/cgroup/unified rw,nosuid,nodev,noexec,relatime shared:10 - cgroup2 cgroup2 rw,nsdelegate
35 33 0:30 / /sys/fs/cgroup/systemd rw,nosuid,nodev,noexec,relatime shared:11 - cgroup cgroup rw,xattr,name=systemd
38 33 0:33 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid,nodev,noexec,relatime shared:15 - cgroup cgroup rw,cpu,cpuacct
39 33 0:34 / /sys/fs/cgroup/blkio rw,nosuid,nodev,noexec,relatime shared:16 - cgroup cgroup rw,blkio
90 33 0:34 /docker/a\\040b /mnt/a\\134b rw - cgroup cgroup rw,blkio
";

    fn v1_of(controllers: &[&'static str]) -> HierarchyKind {
        HierarchyKind::V1 { controllers: controllers.to_vec() }
    }

    #[test]
    fn hierarchies_have_the_kind_of_their_controllers() {
        let found = parse_mountinfo(HYBRID);
        let kinds: Vec<_> = found.iter().map(|hierarchy| hierarchy.kind.clone()).collect();
        let wanted = [
            HierarchyKind::V2,
            HierarchyKind::WithoutController,
            v1_of(&["cpu", "cpuacct"]),
            v1_of(&["io"]),
            v1_of(&["io"]),
        ];
        assert_eq!(kinds, wanted);
        assert_eq!(found[2].mount_point, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(found[2].device, rustix::fs::makedev(0, 33));
        assert_eq!(found[4].root, Path::new("/docker/a b"));
        assert_eq!(found[4].mount_point, Path::new("/mnt/a\\b"));
    }

    #[test]
    fn a_mount_of_a_part_contains_only_the_directories_below_it() {
        let part = &parse_mountinfo(HYBRID)[4];
        assert_eq!(part.directory(Path::new("/docker/a b/c")), Some("/mnt/a\\b/c".into()));
        assert_eq!(part.directory(Path::new("/docker/other")), None);
        assert_eq!(part.path(Path::new("/mnt/a\\b/c")), Some("/docker/a b/c".into()));
    }

    #[test]
    fn paths_outside_of_the_cgroup_namespace_have_no_directory() {
        let whole = &parse_mountinfo(HYBRID)[0];
        assert_eq!(whole.directory(Path::new("/../0123456789ab")), None);
        assert_eq!(whole.directory(Path::new("/")), Some("/sys/fs/cgroup/unified".into()));
    }

    #[test]
    fn memberships_have_the_kind_of_their_hierarchy() {
        let found = parse_memberships(
            b"13:blkio:/docker/ab\n4:cpuacct,cpu:/docker/ab\n1:name=systemd:/docker/ab\n0::/a:b:c (deleted)\n",
        );
        let wanted = [
            (v1_of(&["io"]), "/docker/ab"),
            (v1_of(&["cpu", "cpuacct"]), "/docker/ab"),
            (HierarchyKind::WithoutController, "/docker/ab"),
            (HierarchyKind::V2, "/a:b:c"),
        ];
        assert_eq!(found, wanted.map(|(kind, path)| Membership { kind, path: path.into() }));
    }

    #[test]
    fn malformed_lines_are_skipped() {
        for text in
            [&b""[..], b"\n\n", b"1 2 3", b"1 2 0:x / / - cgroup c rw", b"1 2 0:1 / / rw cgroup", b"\xff"]
        {
            assert_eq!(parse_mountinfo(text), []);
            assert_eq!(parse_memberships(text), []);
        }
        for (root, mount_point) in [("", "/mnt"), ("a", "/mnt"), ("/", ""), ("/", "mnt")] {
            let line = format!("34 33 0:29 {root} {mount_point} rw - cgroup2 cgroup2 rw");
            assert_eq!(parse_mountinfo(line.as_bytes()), [], "{line}");
        }
        assert_eq!(unescape(b"a\\"), Path::new("a\\"));
        assert_eq!(unescape(b"\\9990\\04"), Path::new("\\9990\\04"));
    }
}
