//! Opening files inside a process's root without being led out of it.
//!
//! The target owns what lies there. `openat2` resolves every link inside the root and refuses magic links
//! (`RESOLVE_IN_ROOT`, `RESOLVE_NO_MAGICLINKS`, Linux 5.6), and what is not a regular file is never opened.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};

/// The root directory of a process, or of the profiler itself.
///
/// Holds the directory open: it stays reachable when the process has ended.
#[derive(Debug)]
pub(crate) struct Root {
    directory: OwnedFd,
    display: PathBuf,
}

impl Root {
    /// The root that `path` leads to, following a magic link such as `/proc/PID/root`.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        Ok(Self { directory, display: path.to_owned() })
    }

    /// Opens a regular file by its absolute path inside this root.
    ///
    /// # Errors
    /// `InvalidInput` for what is not a regular file, else the system's.
    pub(crate) fn open_file(&self, path: &Path) -> io::Result<File> {
        let fd = self.resolve(path, OFlags::PATH)?;
        open_regular(fd.as_fd())
    }

    fn resolve(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC;
        retry(|| rustix::fs::openat2(self.directory.as_fd(), path, flags, Mode::empty(), resolve))
    }

    /// Names of the entries of a directory inside this root, at most `limit` of them.
    pub(crate) fn list(&self, path: &Path, limit: usize) -> io::Result<Vec<Vec<u8>>> {
        let fd = self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
            if names.len() == limit {
                break;
            }
        }
        Ok(names)
    }

    /// Where this root is, for messages.
    pub(crate) fn display(&self) -> &Path {
        &self.display
    }
}

/// `openat2` answers EAGAIN when a rename raced with the look-up (openat2(2)): a few more tries settle it.
fn retry(mut open: impl FnMut() -> rustix::io::Result<OwnedFd>) -> io::Result<OwnedFd> {
    const TRIES: usize = 8;
    let mut result = open();
    for _ in 1..TRIES {
        match result {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => result = open(),
            _ => break,
        }
    }
    Ok(result?)
}

/// Opens for reading what an `O_PATH` descriptor names, when it is a regular file. Looking before opening
/// matters: opening a device or a FIFO can have effects of its own.
pub(crate) fn open_regular(path: BorrowedFd<'_>) -> io::Result<File> {
    let status = rustix::fs::fstat(path)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    File::open(format!("/proc/self/fd/{}", path.as_raw_fd()))
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

        let root = Root::open(&root).unwrap();
        assert_eq!(std::io::read_to_string(root.open_file(Path::new("/link")).unwrap()).unwrap(), "data");
        assert!(root.open_file(Path::new("/tmp/absolute")).is_err());
        assert!(root.open_file(Path::new("/tmp/relative")).is_err());
        assert!(root.open_file(Path::new("/../outside")).is_err());
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let root = Root::open(directory.path()).unwrap();
        assert_eq!(root.open_file(Path::new("/fifo")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(root.open_file(Path::new("/")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_listing_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        for i in 0..10 {
            std::fs::write(directory.path().join(i.to_string()), "").unwrap();
        }
        let root = Root::open(directory.path()).unwrap();
        assert_eq!(root.list(Path::new("/"), 4).unwrap().len(), 4);
        assert_eq!(root.list(Path::new("/"), 100).unwrap().len(), 10);
    }
}
