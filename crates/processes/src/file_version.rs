//! Identifies a file and its contents, without reading it.

use std::{fs::File, io, os::fd::AsFd};

use crate::root_directory::status_of;

/// A file with its contents at one time. A changed file has another change time (inode(7)), and a file in another
/// subvolume of btrfs another device, unlike in `/proc/PID/maps`, where all subvolumes show the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileVersion {
    device: u64,
    inode: u64,
    bytes: u64,
    changed_s: i64,
    changed_ns: u32,
}

impl FileVersion {
    /// The version of an open file.
    ///
    /// # Errors
    /// Errors of `statx`.
    pub fn of(file: &File) -> io::Result<Self> {
        let status = status_of(file.as_fd())?;
        Ok(Self {
            device: rustix::fs::makedev(status.stx_dev_major, status.stx_dev_minor),
            inode: status.stx_ino,
            bytes: status.stx_size,
            changed_s: status.stx_ctime.tv_sec,
            changed_ns: status.stx_ctime.tv_nsec,
        })
    }

    /// The inode number.
    pub const fn inode(&self) -> u64 {
        self.inode
    }

    /// The size of the file, bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When the file was changed last (ctime): seconds since the epoch, and nanoseconds.
    pub const fn changed(&self) -> (i64, u32) {
        (self.changed_s, self.changed_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_written_to_has_another_version() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "1").unwrap();
        let version = || FileVersion::of(&File::open(&path).unwrap()).unwrap();
        let first = version();
        assert_eq!(version(), first);
        std::fs::write(&path, "12").unwrap();
        assert_ne!(version(), first);
    }
}
