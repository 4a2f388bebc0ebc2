//! The memory-mapped ring buffer of a perf event (perf_event_open(2), "MMAP layout").

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Offset of `data_head` in `struct perf_event_mmap_page` (`include/uapi/linux/perf_event.h`).
const DATA_HEAD_OFFSET: usize = 1024;
/// Offset of `data_tail` in the same structure.
const DATA_TAIL_OFFSET: usize = 1032;
// `enum perf_event_type` and the flag of an exec (`include/uapi/linux/perf_event.h`).
pub(crate) const PERF_RECORD_LOST: u32 = 2;
pub(crate) const PERF_RECORD_COMM: u32 = 3;
pub(crate) const PERF_RECORD_EXIT: u32 = 4;
pub(crate) const PERF_RECORD_FORK: u32 = 7;
pub(crate) const PERF_RECORD_MMAP2: u32 = 10;
pub(crate) const PERF_RECORD_MISC_COMM_EXEC: u32 = 1 << 13;

/// Bytes of `struct perf_event_header`: u32 type, u16 misc, u16 size.
const HEADER_BYTES: usize = 8;

/// Bytes of the largest record: an mmap2 record with a path of `PATH_MAX` bytes (`perf_event_mmap_event` of
/// `kernel/events/core.c`), its other fields and the time.
const MAX_RECORD_BYTES: u64 = 4096 + 128;

/// A perf event with its ring buffer.
#[derive(Debug)]
pub(crate) struct PerfRing {
    event: OwnedFd,
    base: NonNull<u8>,
    page_bytes: usize,
    data_bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, and reading needs `&mut self`.
unsafe impl Send for PerfRing {}

/// One record as the kernel wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PerfRecord<'a> {
    /// `PERF_RECORD_*`.
    pub(crate) kind: u32,
    /// `PERF_RECORD_MISC_*`.
    pub(crate) misc: u16,
    /// The bytes after the header.
    pub(crate) body: &'a [u8],
}

impl PerfRing {
    /// Maps the ring buffer of `event` with `data_pages` pages, a power of two.
    pub(crate) fn map(event: OwnedFd, data_pages: usize) -> io::Result<Self> {
        let page_bytes = rustix::param::page_size();
        let data_bytes = data_pages * page_bytes;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                page_bytes + data_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &event,
                0,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Self { event, base, page_bytes, data_bytes })
    }

    /// Passes every pending record to `handle`, then frees their space. Returns whether the ring was full: the kernel
    /// reports lost records only together with the next one that has room, which may be much later.
    pub(crate) fn drain(&mut self, mut handle: impl FnMut(PerfRecord<'_>)) -> bool {
        let head = self.position(DATA_HEAD_OFFSET).load(Ordering::Acquire);
        let mut tail = self.position(DATA_TAIL_OFFSET).load(Ordering::Relaxed);
        let is_full = head.wrapping_sub(tail) + MAX_RECORD_BYTES > self.data_bytes as u64;
        let mut buffer = Vec::new();
        while head.wrapping_sub(tail) >= HEADER_BYTES as u64 {
            let mut header = [0; HEADER_BYTES];
            self.copy(tail, &mut header);
            let [k0, k1, k2, k3, m0, m1, s0, s1] = header;
            let size = usize::from(u16::from_ne_bytes([s0, s1]));
            if size < HEADER_BYTES || size as u64 > head.wrapping_sub(tail) {
                // Not a valid record: the rest of the ring cannot be parsed.
                tail = head;
                break;
            }
            buffer.resize(size - HEADER_BYTES, 0);
            self.copy(tail.wrapping_add(HEADER_BYTES as u64), &mut buffer);
            handle(PerfRecord {
                kind: u32::from_ne_bytes([k0, k1, k2, k3]),
                misc: u16::from_ne_bytes([m0, m1]),
                body: &buffer,
            });
            tail = tail.wrapping_add(size as u64);
        }
        self.position(DATA_TAIL_OFFSET).store(tail, Ordering::Release);
        is_full
    }

    /// Copies from a position; wraps around at the end of the buffer.
    fn copy(&self, at: u64, to: &mut [u8]) {
        let at = usize::try_from(at % self.data_bytes as u64).unwrap_or(0);
        let first = to.len().min(self.data_bytes - at);
        self.copy_within(at, &mut to[..first]);
        self.copy_within(0, &mut to[first..]);
    }

    fn copy_within(&self, at: usize, to: &mut [u8]) {
        assert!(at + to.len() <= self.data_bytes);
        // SAFETY: in bounds of the mapping, as checked above.
        let from = unsafe { self.base.add(self.page_bytes + at) };
        // SAFETY: the kernel does not write between tail and head, where the caller's range lies.
        unsafe { from.as_ptr().copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: in bounds of the first page of the mapping.
        let position = unsafe { self.base.add(offset) };
        // SAFETY: the field is eight aligned bytes that live as long as the mapping.
        unsafe { position.cast::<AtomicU64>().as_ref() }
    }
}

impl Drop for PerfRing {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and no borrow of it is left.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.page_bytes + self.data_bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

impl AsFd for PerfRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
