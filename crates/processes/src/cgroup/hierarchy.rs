//! The kernel's texts on cgroups: which hierarchies are mounted, and where a process is in each.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Component, Path, PathBuf},
};

/// The controllers that a cgroup v1 hierarchy can have: by the name that mounts show, and by the name in the
/// kernel's `enum cgroup_subsys_id` (`include/linux/cgroup_subsys.h`), which differs for one of them.
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

/// What tells hierarchies apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    V2,
    /// Controllers by their names in the kernel, at least one; more are mounted together.
    V1 {
        controllers: Vec<&'static str>,
    },
    /// A v1 hierarchy that only groups, such as `name=systemd`: no task of the kernel points into it.
    WithoutController,
}

/// A mounted hierarchy, or the part of it that this mount shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hierarchy {
    pub(super) kind: Kind,
    pub(super) mount_point: PathBuf,
    /// The directory of the hierarchy that is shown at the mount point.
    pub(super) root: PathBuf,
    /// As `st_dev` has it.
    pub(super) device: u64,
}

/// The place of a process in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Membership {
    pub(super) kind: Kind,
    /// From the root of the hierarchy as the reader's cgroup namespace has it: outside of it, it begins with `..`.
    pub(super) path: PathBuf,
}

impl Hierarchy {
    /// Where a path of the hierarchy lies in the file system, when this mount shows it.
    pub(super) fn directory(&self, path: &Path) -> Option<PathBuf> {
        let shown = path.strip_prefix(&self.root).ok()?;
        let outside = shown.components().any(|component| component == Component::ParentDir);
        (!outside).then(|| self.mount_point.join(shown))
    }

    /// The path in the hierarchy of a directory below the mount point.
    pub(super) fn path(&self, directory: &Path) -> Option<PathBuf> {
        Some(self.root.join(directory.strip_prefix(&self.mount_point).ok()?))
    }
}

/// Reads `/proc/PID/mountinfo` (proc_pid_mountinfo(5)); lines of other file systems, and broken ones, count for
/// nothing.
pub(super) fn parse_mountinfo(text: &[u8]) -> Vec<Hierarchy> {
    text.split(|byte| *byte == b'\n').filter_map(parse_mount).collect()
}

fn parse_mount(line: &[u8]) -> Option<Hierarchy> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = parse_device(std::str::from_utf8(fields.nth(2)?).ok()?)?;
    let root = unescape(fields.next()?);
    let mount_point = unescape(fields.next()?);
    // Any number of optional fields ends with a hyphen.
    fields.find(|field| *field == b"-")?;
    let file_system = fields.next()?;
    let options = std::str::from_utf8(fields.nth(1)?).ok()?;
    let kind = match file_system {
        b"cgroup2" => Kind::V2,
        b"cgroup" => v1(options),
        _ => return None,
    };
    Some(Hierarchy { kind, mount_point, root, device })
}

fn parse_device(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// Blanks and backslashes in paths are written as three octal digits.
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

/// Reads `/proc/PID/cgroup` (cgroups(7)); broken lines count for nothing.
pub(super) fn parse_memberships(text: &[u8]) -> Vec<Membership> {
    text.split(|byte| *byte == b'\n').filter_map(parse_membership).collect()
}

fn parse_membership(line: &[u8]) -> Option<Membership> {
    let mut fields = line.splitn(3, |byte| *byte == b':');
    let id = fields.next()?;
    let controllers = std::str::from_utf8(fields.next()?).ok()?;
    let path = fields.next()?;
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let kind = if id == b"0" && controllers.is_empty() { Kind::V2 } else { v1(controllers) };
    Some(Membership { kind, path: OsString::from_vec(path.to_vec()).into() })
}

/// The kind of a v1 hierarchy by a list that has its controllers among other things.
fn v1(list: &str) -> Kind {
    let listed = |name: &str| list.split(',').any(|entry| entry == name);
    let controllers: Vec<_> =
        CONTROLLERS.iter().filter(|(name, _)| listed(name)).map(|(_, in_kernel)| *in_kernel).collect();
    if controllers.is_empty() { Kind::WithoutController } else { Kind::V1 { controllers } }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Docker on a machine with systemd in hybrid mode; the last line is a bind mount with a blank in it.
    const HYBRID: &[u8] = b"\
25 30 0:23 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw
33 25 0:28 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:9 - tmpfs tmpfs ro,mode=755
34 33 0:29 / /sys/fs/cgroup/unified rw,nosuid,nodev,noexec,relatime shared:10 - cgroup2 cgroup2 rw,nsdelegate
35 33 0:30 / /sys/fs/cgroup/systemd rw,nosuid,nodev,noexec,relatime shared:11 - cgroup cgroup rw,xattr,name=systemd
38 33 0:33 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid,nodev,noexec,relatime shared:15 - cgroup cgroup rw,cpu,cpuacct
39 33 0:34 / /sys/fs/cgroup/blkio rw,nosuid,nodev,noexec,relatime shared:16 - cgroup cgroup rw,blkio
90 33 0:34 /docker/a\\040b /mnt/a\\134b rw - cgroup cgroup rw,blkio
";

    fn v1_of(controllers: &[&'static str]) -> Kind {
        Kind::V1 { controllers: controllers.to_vec() }
    }

    #[test]
    fn hierarchies_are_told_apart_by_their_controllers() {
        let found = parse_mountinfo(HYBRID);
        let kinds: Vec<_> = found.iter().map(|hierarchy| hierarchy.kind.clone()).collect();
        let wanted =
            [Kind::V2, Kind::WithoutController, v1_of(&["cpu", "cpuacct"]), v1_of(&["io"]), v1_of(&["io"])];
        assert_eq!(kinds, wanted);
        assert_eq!(found[2].mount_point, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(found[2].device, rustix::fs::makedev(0, 33));
        assert_eq!(found[4].root, Path::new("/docker/a b"));
        assert_eq!(found[4].mount_point, Path::new("/mnt/a\\b"));
    }

    #[test]
    fn a_mount_of_a_part_shows_only_what_is_below_it() {
        let part = &parse_mountinfo(HYBRID)[4];
        assert_eq!(part.directory(Path::new("/docker/a b/c")), Some("/mnt/a\\b/c".into()));
        assert_eq!(part.directory(Path::new("/docker/other")), None);
        assert_eq!(part.path(Path::new("/mnt/a\\b/c")), Some("/docker/a b/c".into()));
    }

    #[test]
    fn what_lies_outside_of_the_cgroup_namespace_is_not_shown() {
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
            (Kind::WithoutController, "/docker/ab"),
            (Kind::V2, "/a:b:c"),
        ];
        assert_eq!(found, wanted.map(|(kind, path)| Membership { kind, path: path.into() }));
    }

    #[test]
    fn nonsense_counts_for_nothing() {
        for text in
            [&b""[..], b"\n\n", b"1 2 3", b"1 2 0:x / / - cgroup c rw", b"1 2 0:1 / / rw cgroup", b"\xff"]
        {
            assert_eq!(parse_mountinfo(text), []);
            assert_eq!(parse_memberships(text), []);
        }
        assert_eq!(unescape(b"a\\"), Path::new("a\\"));
        assert_eq!(unescape(b"\\9990\\04"), Path::new("\\9990\\04"));
    }
}
