//! Writes a BPF array of one value, created with `BPF_F_MMAPABLE`, through a memory mapping.

use std::{io, os::fd::BorrowedFd};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Writes `bytes` at an offset of the array's value. BPF programs that read this range at the same time see a mixture of
/// old and new bytes.
///
/// The mapping exists only during the call: the kernel populates all its pages at once, and they count as memory of this
/// process.
///
/// # Errors
/// Fails if the range exceeds the array.
pub(crate) fn write(array: BorrowedFd<'_>, offset: usize, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let page_bytes = rustix::param::page_size();
    let in_page = offset % page_bytes;
    let length = in_page + bytes.len();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let at = (offset - in_page) as u64;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let base = unsafe { mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, array, at) }?;
    // SAFETY: the mapping is `in_page` bytes longer than the slice.
    let to = unsafe { base.cast::<u8>().add(in_page) };
    // SAFETY: the slice does not overlap the mapping, and the mapping is long enough.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    // SAFETY: this function created the mapping, and no reference to it is left.
    unsafe { munmap(base, length) }?;
    Ok(())
}
