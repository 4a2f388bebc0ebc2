//! Identifies a file and its contents, without reading it.

use std::{fs::File, io, os::unix::fs::MetadataExt};

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
    /// Errors of `fstat`.
    pub fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            changed_s: metadata.ctime(),
            changed_ns: u32::try_from(metadata.ctime_nsec()).unwrap_or(0),
        })
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
