//! The bytes of a file that the kernel makes and never changes.

use std::{
    fs::{self, File},
    io,
    ops::Deref,
    path::Path,
};

use memmap2::{Mmap, MmapOptions};

/// The bytes of the file.
#[derive(Debug)]
pub(crate) enum KernelFile {
    /// Those of the kernel itself. BTF can be mapped from Linux 6.16 on (`btf_sysfs_vmlinux_mmap`, `kernel/bpf/sysfs_btf.c`).
    Mapped(Mmap),
    /// A copy.
    Owned(Vec<u8>),
}

impl KernelFile {
    /// Maps the file, or reads it. Files of sysfs are read in parts of 4 KiB: 5 MB take 7 ms.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        // SAFETY: the kernel never changes the bytes, and and no process can.
        match unsafe { MmapOptions::new().map_copy_read_only(&File::open(&path)?) } {
            Ok(bytes) => Ok(Self::Mapped(bytes)),
            Err(_) => fs::read(path).map(Self::Owned),
        }
    }
}

impl Deref for KernelFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}
