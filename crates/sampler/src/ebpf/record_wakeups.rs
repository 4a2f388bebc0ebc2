//! Waits for the wake-ups of the BPF programs, and not for each record in the ring buffer.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
};

/// Becomes readable when a BPF program wakes the reader.
///
/// A ring buffer is readable while it has a record (`ringbuf_map_poll_kern`, `kernel/bpf/ringbuf.c`): a reader that polls it
/// between two passes would read each record alone. Edge-triggered, it is readable after a wake-up only (epoll(7)).
#[derive(Debug)]
pub(super) struct RecordWakeups(OwnedFd);

impl RecordWakeups {
    /// The wake-ups of a ring buffer.
    pub(super) fn new(records: BorrowedFd<'_>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            records,
            epoll::EventData::new_u64(0),
            epoll::EventFlags::IN | epoll::EventFlags::ET,
        )?;
        Ok(Self(epoll))
    }

    /// Resets a wake-up, before the records are read.
    pub(super) fn reset(&self) -> io::Result<()> {
        let mut events = Vec::with_capacity(1);
        match epoll::wait(&self.0, spare_capacity(&mut events), Some(&Timespec::default())) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for RecordWakeups {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

    use super::*;

    #[test]
    fn what_was_not_read_wakes_once() {
        // Like a ring buffer, it is readable until it is read; each write wakes.
        let records = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let wakeups = RecordWakeups::new(records.as_fd()).unwrap();
        let is_readable = || {
            let mut fds = [PollFd::new(&wakeups, PollFlags::IN)];
            poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
        };
        assert!(!is_readable());
        for _ in 0..3 {
            rustix::io::write(&records, &1_u64.to_ne_bytes()).unwrap();
            assert!(is_readable());
            wakeups.reset().unwrap();
            assert!(!is_readable(), "the eventfd was not read");
        }
    }
}
