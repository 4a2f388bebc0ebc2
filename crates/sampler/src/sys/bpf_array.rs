//! Writes and reads a BPF array of one value, created with `BPF_F_MMAPABLE`, through a memory mapping.

use std::{ffi::c_void, io, os::fd::BorrowedFd};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A part of an array's value, mapped into this process. The kernel populates all its pages at once, and they count as
/// memory of this process.
#[derive(Debug)]
pub(crate) struct ArrayMapping {
    base: *mut c_void,
    length: usize,
    /// The offset of the part in its first page.
    in_page: usize,
}

// SAFETY: the mapping belongs to this value, whichever thread has it.
unsafe impl Send for ArrayMapping {}

impl ArrayMapping {
    /// Maps `length` bytes at an offset of the array's value.
    ///
    /// # Errors
    /// Fails if the range exceeds the array.
    pub(crate) fn new(array: BorrowedFd<'_>, offset: usize, length: usize) -> io::Result<Self> {
        let in_page = offset % rustix::param::page_size();
        let length = in_page + length;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let at = (offset - in_page) as u64;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, array, at) }?;
        Ok(Self { base, length, in_page })
    }

    /// Writes bytes at the start of the part. BPF programs that read it at the same time see a mixture of old and new
    /// bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        assert!(self.in_page + bytes.len() <= self.length, "the bytes are a part of the mapping");
        // SAFETY: the offset is in the mapping.
        let to = unsafe { self.base.cast::<u8>().add(self.in_page) };
        // SAFETY: the slice does not overlap the mapping, and the mapping is long enough.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Reads bytes at an offset of the part that no BPF program writes at the same time.
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) {
        let begin = self.in_page + offset;
        assert!(begin + bytes.len() <= self.length, "the bytes are a part of the mapping");
        // SAFETY: the offset is in the mapping.
        let from = unsafe { self.base.cast::<u8>().add(begin) };
        // SAFETY: the slice does not overlap the mapping, and the mapping is long enough.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
    }
}

impl Drop for ArrayMapping {
    fn drop(&mut self) {
        // SAFETY: this value created the mapping, and no reference to it is left. Unmapping a whole mapping cannot fail.
        let _ = unsafe { munmap(self.base, self.length) };
    }
}

/// Writes `bytes` at an offset of the array's value, through a mapping that exists only during the call.
///
/// # Errors
/// Fails if the range exceeds the array.
pub(crate) fn write(array: BorrowedFd<'_>, offset: usize, bytes: &[u8]) -> io::Result<()> {
    if !bytes.is_empty() {
        ArrayMapping::new(array, offset, bytes.len())?.write(bytes);
    }
    Ok(())
}
