//! Writing a BPF array through memory: one of one value, made with `BPF_F_MMAPABLE`.

use std::{io, os::fd::BorrowedFd};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Writes at an offset of the array's value. Programs that read there at the same time see some of the old bytes and
/// some of the new ones.
///
/// The array is mapped for as long as it takes: the kernel makes all pages of a mapping at once, and each counts as
/// memory of this process.
///
/// # Errors
/// The system's, when the bytes do not lie in the array.
pub(crate) fn write(array: BorrowedFd<'_>, offset: usize, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let page_bytes = rustix::param::page_size();
    let in_page = offset % page_bytes;
    let length = in_page + bytes.len();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let at = (offset - in_page) as u64;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe { mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, array, at) }?;
    // SAFETY: the mapping is `in_page` bytes longer than the slice.
    let to = unsafe { base.cast::<u8>().add(in_page) };
    // SAFETY: the slice is no part of the mapping, and fits into it from there.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    // SAFETY: the mapping is ours, and nothing refers to it any more.
    unsafe { munmap(base, length) }?;
    Ok(())
}
