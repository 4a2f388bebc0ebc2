//! Opens files inside the root directory of a process, without following links out of it.
//!
//! The target controls the content of its root directory. `openat2` resolves every link inside the root and refuses
//! magic links (`RESOLVE_IN_ROOT`, `RESOLVE_NO_MAGICLINKS`, Linux 5.6). Only regular files are opened.

use std::{
    collections::HashMap,
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::{Arc, Weak},
};

use profiler_blocking::Object;
use rustix::{
    fs::{
        AtFlags, CWD, FileType, FsWord, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, Statx, StatxFlags,
        statx,
    },
    io::Errno,
};

use crate::confined_open;

/// Magic numbers of pseudo file systems, whose regular files the kernel generates on each read. A link to such a file can
/// block the reader for ever (`/proc/kmsg`, `trace_pipe`), expose data that the target has no permission to read
/// (`/proc/kcore`, EFI variables), or have side effects.
///
/// From `include/uapi/linux/magic.h`; those of configfs, fusectl, mqueue, nfsd and rpc_pipefs from `fs/configfs/mount.c`,
/// `fs/fuse/control.c`, `ipc/mqueue.c`, `fs/nfsd/nfsctl.c` and `net/sunrpc/rpc_pipe.c`.
const PSEUDO_FILE_SYSTEMS: [FsWord; 27] = [
    PROC_SUPER_MAGIC,
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x0765_5821, // resctrl
    0x6265_6570, // configfs
    0xcafe_4a11, // bpf
    0xde5e_81e4, // efivarfs
    0x6165_676c, // pstore
    0xf97c_ff8c, // selinuxfs
    0x4341_5d53, // smackfs
    0x5a3c_69f0, // apparmorfs
    0x4249_4e4d, // binfmt_misc
    0x6c6f_6f70, // binder
    0x6573_5543, // fusectl
    0x1980_0202, // mqueue
    0x6e73_6673, // nsfs
    0x5049_4446, // pidfs
    0x0904_1934, // anonymous inodes
    0xabba_1974, // xenfs
    0x9fa1,      // openpromfs
    0x9fa2,      // usbfs
    0x6e66_7364, // nfsd
    0x6759_6969, // rpc_pipefs
];

/// An open root directory of a process or of the host.
///
/// It stays usable after the process has ended.
#[derive(Debug)]
pub struct RootDirectory {
    directory: Arc<OwnedFd>,
    id: Option<RootId>,
}

/// Identifies a root directory among those that are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RootId {
    /// The mount (statx(2), Linux 5.8). An open directory keeps it, and so its id, in use.
    pub(crate) mount: u64,
    pub(crate) inode: u64,
}

impl RootDirectory {
    /// Opens the directory at `path`; a magic link such as `/proc/PID/root` is followed.
    ///
    /// # Errors
    /// Errors of `openat`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self::from_open(rustix::fs::openat(CWD, path, flags, Mode::empty())?))
    }

    pub(crate) fn from_open(directory: OwnedFd) -> Self {
        let id = mount_and_inode(&directory);
        Self { directory: Arc::new(directory), id }
    }

    /// Identifies the directory, as long as it is open; `None` where the kernel or a sandbox does not tell.
    pub fn id(&self) -> Option<RootId> {
        self.id
    }

    /// Opens a regular file by its absolute path inside this root.
    ///
    /// # Errors
    /// `InvalidInput` when the path is not that of a regular file, `TimedOut` when its file system does not answer,
    /// `WouldBlock` when another process holds a lease on it, else errors of `openat2`.
    pub fn open_file(&self, path: &Path) -> io::Result<File> {
        let fd = self.resolve(path, OFlags::PATH)?;
        open_regular(fd)
    }

    /// Opens a socket by its absolute path inside this root (`O_PATH`). Connect to it through `/proc/self/fd`.
    ///
    /// # Errors
    /// `InvalidInput` when the path is not that of a socket, else errors of `openat2`.
    pub fn open_socket(&self, path: &Path) -> io::Result<OwnedFd> {
        let fd = self.resolve(path, OFlags::PATH)?;
        if FileType::from_raw_mode(status_of(fd.as_fd())?.stx_mode.into()) != FileType::Socket {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a socket"));
        }
        Ok(fd)
    }

    /// Whether an absolute path inside this root exists. A dangling link exists, and so does a path that cannot be
    /// examined.
    pub fn exists(&self, path: &Path) -> bool {
        let missing = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
        self.resolve(path, OFlags::PATH | OFlags::NOFOLLOW)
            .map_or_else(|error| !missing.contains(&error.kind()), |_| true)
    }

    /// Removes a regular file of a user by its absolute path inside this root. A symbolic link is not removed.
    ///
    /// # Errors
    /// `InvalidInput` when the path is not that of a regular file of that user, else errors of the system call.
    pub fn remove_file(&self, path: &Path, uid: u32) -> io::Result<()> {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let directory = self.resolve(directory, OFlags::PATH | OFlags::DIRECTORY)?;
        let name = name.to_owned();
        profiler_blocking::run(Object::path(self.number(), path), move || {
            let status = rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile || status.st_uid != uid {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file of the user"));
            }
            Ok(rustix::fs::unlinkat(&directory, name, AtFlags::empty())?)
        })
    }

    /// Opens a path: what the kernel has in its cache at once, else with a deadline. A path can lead into a file system in
    /// user space.
    fn resolve(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC;
        // Linux 5.12.
        let cached = resolve | ResolveFlags::CACHED;
        match rustix::fs::openat2(self.directory.as_fd(), path, flags, Mode::empty(), cached) {
            Err(Errno::AGAIN | Errno::INVAL) => {}
            result => return Ok(result?),
        }
        let (directory, path_in_root) = (Arc::clone(&self.directory), path.to_owned());
        profiler_blocking::run(Object::path(self.number(), path), move || {
            confined_open::open(directory.as_fd(), &path_in_root, flags, resolve)
        })
    }

    /// Identifies the open directory.
    fn number(&self) -> i32 {
        self.directory.as_raw_fd()
    }
}

/// The root directories in use, each with one descriptor, however many processes have it.
#[derive(Debug, Default)]
pub(crate) struct RootDirectories {
    by_id: HashMap<RootId, Weak<RootDirectory>>,
}

impl RootDirectories {
    /// The same directory that is in use already, or this one.
    pub(crate) fn share(&mut self, root: RootDirectory) -> Arc<RootDirectory> {
        let Some(id) = root.id() else { return Arc::new(root) };
        if let Some(shared) = self.by_id.get(&id).and_then(Weak::upgrade) {
            return shared;
        }
        let root = Arc::new(root);
        // As many are in use as processes are known at most.
        self.by_id.retain(|_, root| root.strong_count() > 0);
        self.by_id.insert(id, Arc::downgrade(&root));
        root
    }
}

fn mount_and_inode(directory: &OwnedFd) -> Option<RootId> {
    let wanted = StatxFlags::MNT_ID | StatxFlags::INO;
    let status = statx(directory, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, wanted).ok()?;
    let is_complete = StatxFlags::from_bits_retain(status.stx_mask).contains(wanted);
    is_complete.then_some(RootId { mount: status.stx_mnt_id, inode: status.stx_ino })
}

/// The status of an open file, as the kernel knows it: a file system in user space is not asked.
pub(crate) fn status_of(file: BorrowedFd<'_>) -> io::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Ok(statx(file, "", flags, StatxFlags::BASIC_STATS)?)
}

/// Opens the regular file of an `O_PATH` descriptor for reading. The type is checked first, because opening a device or
/// a FIFO can have side effects.
pub(crate) fn open_regular(path: OwnedFd) -> io::Result<File> {
    let status = status_of(path.as_fd())?;
    if FileType::from_raw_mode(status.stx_mode.into()) != FileType::RegularFile {
        return Err(not_regular());
    }
    // A file system with a block device is served by the kernel. Those in user space (FUSE) have an anonymous device.
    if status.stx_dev_major != 0 {
        return reopen(path.as_fd());
    }
    let object = Object::file_identity(status.stx_dev_minor, status.stx_ino);
    profiler_blocking::run(object, move || {
        if PSEUDO_FILE_SYSTEMS.contains(&rustix::fs::fstatfs(&path)?.f_type) {
            return Err(not_regular());
        }
        reopen(path.as_fd())
    })
}

/// Opens a file without waiting for the holder of a lease (fcntl(2), `F_SETLEASE`).
fn reopen(path: BorrowedFd<'_>) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = format!("/proc/self/fd/{}", path.as_raw_fd());
    Ok(rustix::fs::openat(CWD, fd, flags, Mode::empty())?.into())
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_resolved_inside_the_root() {
        let directory = tempfile::tempdir().unwrap();
        let outside = directory.path().join("outside");
        let root = directory.path().join("root");
        std::fs::create_dir_all(root.join("tmp")).unwrap();
        std::fs::write(&outside, "secret").unwrap();
        symlink(&outside, root.join("tmp/absolute")).unwrap();
        symlink("../../outside", root.join("tmp/relative")).unwrap();
        std::fs::write(root.join("tmp/real"), "data").unwrap();
        symlink("/tmp/real", root.join("link")).unwrap();

        let root = RootDirectory::open(&root).unwrap();
        assert_eq!(io::read_to_string(root.open_file(Path::new("/link")).unwrap()).unwrap(), "data");
        assert!(root.open_file(Path::new("/tmp/absolute")).is_err());
        assert!(root.open_file(Path::new("/tmp/relative")).is_err());
        assert!(root.open_file(Path::new("/../outside")).is_err());
    }

    #[test]
    fn files_that_are_not_regular_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let root = RootDirectory::open(directory.path()).unwrap();
        assert_eq!(root.open_file(Path::new("/fifo")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(root.open_file(Path::new("/")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn only_a_regular_file_of_the_user_inside_the_root_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("root");
        std::fs::create_dir_all(inside.join("tmp")).unwrap();
        let outside = directory.path().join("file");
        let own = rustix::process::geteuid().as_raw();
        for path in [&outside, &inside.join("tmp/file"), &inside.join("file")] {
            std::fs::write(path, "text").unwrap();
        }
        symlink("..", inside.join("up")).unwrap();
        symlink("/nowhere", inside.join("dangling")).unwrap();
        let root = RootDirectory::open(&inside).unwrap();
        let exists = |path: &str| root.exists(Path::new(path));
        assert_eq!(["/tmp/file", "/dangling", "/missing", "/file/x"].map(exists), [true, true, false, false]);
        let remove = |path: &str, uid| root.remove_file(Path::new(path), uid).map_err(|error| error.kind());
        for (path, uid) in [("/tmp", own), ("/dangling", own), ("/tmp/file", own + 1), ("/", own)] {
            assert_eq!(remove(path, uid), Err(io::ErrorKind::InvalidInput), "{path}");
        }
        assert_eq!(remove("/missing", own), Err(io::ErrorKind::NotFound));
        // The parent directory of the root is the root.
        assert_eq!(remove("/up/file", own), Ok(()));
        assert_eq!(remove("/tmp/file", own), Ok(()));
        assert!(outside.exists() && !inside.join("file").exists() && !inside.join("tmp/file").exists());
    }

    #[test]
    fn files_of_pseudo_file_systems_are_refused_also_behind_a_link() {
        let root = RootDirectory::open(Path::new("/")).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        symlink("/proc/version", &link).unwrap();
        for path in [&link, Path::new("/proc/version"), Path::new("/sys/kernel/profiling")] {
            match root.open_file(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                opened => assert_eq!(opened.unwrap_err().kind(), io::ErrorKind::InvalidInput),
            }
        }
    }

    /// The first regular file in a directory, without its subdirectories.
    fn first_file(directory: &str) -> Option<std::path::PathBuf> {
        let entries = std::fs::read_dir(directory).ok()?.filter_map(Result::ok);
        { entries }.find(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())).map(|entry| entry.path())
    }

    #[test]
    fn files_of_all_mounted_file_systems_that_the_kernel_generates_are_refused() {
        const TYPES: [&str; 20] = [
            "binder",
            "binfmt_misc",
            "bpf",
            "cgroup",
            "cgroup2",
            "configfs",
            "debugfs",
            "efivarfs",
            "fusectl",
            "mqueue",
            "nsfs",
            "proc",
            "pstore",
            "resctrl",
            "securityfs",
            "selinuxfs",
            "smackfs",
            "sysfs",
            "tracefs",
            "xenfs",
        ];
        let root = RootDirectory::open(Path::new("/")).unwrap();
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let mut fields = mounts.lines().map(|line| line.split(' ').skip(1));
        let generated = fields.by_ref().filter_map(|mut fields| Some((fields.next()?, fields.next()?)));
        for (directory, kind) in generated.filter(|(_, kind)| TYPES.contains(kind)) {
            let Some(file) = first_file(directory) else { continue };
            let opened = root.open_file(&file).map_err(|error| error.kind());
            assert_eq!(opened.unwrap_err(), io::ErrorKind::InvalidInput, "{kind}: {}", file.display());
        }
    }
}
