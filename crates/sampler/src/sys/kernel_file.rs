//! The bytes of a file that the kernel makes and never changes.

use std::{
    fs::{self, File},
    io,
    ops::Deref,
    path::Path,
    ptr, slice,
};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The bytes of the file.
#[derive(Debug)]
pub(crate) enum KernelFile {
    /// Those of the kernel itself. BTF can be mapped from Linux 6.16 on (`btf_sysfs_vmlinux_mmap`, `kernel/bpf/sysfs_btf.c`).
    Mapped(Mapping),
    /// A copy.
    Owned(Vec<u8>),
}

impl KernelFile {
    /// Maps the file, or reads it. Files of sysfs are read in parts of 4 KiB: 5 MB take 7 ms.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        match Mapping::new(&File::open(&path)?) {
            Ok(mapping) => Ok(Self::Mapped(mapping)),
            Err(_) => fs::read(path).map(Self::Owned),
        }
    }
}

impl Deref for KernelFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(mapping) => mapping.bytes(),
            Self::Owned(bytes) => bytes,
        }
    }
}

/// A mapped file.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: *mut libc::c_void,
    length: usize,
}

impl Mapping {
    fn new(file: &File) -> io::Result<Self> {
        let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { mmap(ptr::null_mut(), length, ProtFlags::READ, MapFlags::PRIVATE, file, 0) }?;
        Ok(Self { base, length })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is this long and lives as long as `self`, and the kernel never changes these bytes.
        unsafe { slice::from_raw_parts(self.base.cast::<u8>(), self.length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value created the mapping, and no reference to it is left. Unmapping a whole mapping cannot fail.
        let _ = unsafe { munmap(self.base, self.length) };
    }
}
