//! Identifies what an operation waits for.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
};

/// A process, a path or a file. An operation that does not end blocks further ones on the same object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    id: u64,
    /// What many objects of one target have in common.
    pub(crate) owner: u64,
}

impl Object {
    /// The entries of a process in `/proc`.
    pub fn process(pid: u32) -> Self {
        Self::new((0_u8, pid), ())
    }

    /// A path below an open directory, which is identified by any number.
    pub fn path(directory: impl Hash, path: &Path) -> Self {
        Self::new((1_u8, &directory), path)
    }

    /// An open file, identified by its descriptor.
    pub fn file(descriptor: i32) -> Self {
        Self::new((2_u8, descriptor), ())
    }

    /// A file, identified by its device and inode.
    pub fn file_identity(device: u32, inode: u64) -> Self {
        Self::new((3_u8, device), inode)
    }

    fn new(owner: impl Hash, part: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        owner.hash(&mut hasher);
        let owner = hasher.finish();
        part.hash(&mut hasher);
        Self { id: hasher.finish(), owner }
    }
}
