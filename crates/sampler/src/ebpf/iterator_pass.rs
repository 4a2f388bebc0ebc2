//! Runs the program of a task iterator once for each task.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsRawFd, BorrowedFd},
};

use profiler_blocking::Object;

use crate::sys::bpf_link;

/// Threads that wait: more than a node has by default (`pod-max-pids` of Kubernetes, times pods).
pub(super) const MAX_WAITING_THREADS: u32 = 32 << 10;

/// Runs one pass.
///
/// A program that copies the stacks of other tasks checks first that no file system has to answer, but a target that replaces the
/// memory in the same microsecond can block the copy.
pub(super) fn run(link: BorrowedFd<'_>) -> io::Result<()> {
    read_to_end(&mut File::from(bpf_link::create_iterator(link)?))
}

/// Runs one pass that the caller does not wait for if a target blocks it.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] where the pass does not end, or an earlier one has not.
pub(super) fn run_with_deadline(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut iterator = File::from(bpf_link::create_iterator(link)?);
    profiler_blocking::run(Object::file(link.as_raw_fd()), move || read_to_end(&mut iterator))
}

/// Whether a target delays the passes.
#[derive(Debug, Default)]
pub(super) struct Blockage {
    is_blocked: bool,
}

impl Blockage {
    /// Sets it. A warning says what follows from it, when it begins.
    pub(super) fn set(&mut self, is_blocked: bool, consequence: &str) {
        if is_blocked && !self.is_blocked {
            log::warn!(
                "{consequence} until the copy of a stack ends, which a file system in user space, or the target, delays"
            );
        }
        self.is_blocked = is_blocked;
    }
}

fn read_to_end(iterator: &mut File) -> io::Result<()> {
    // The program prints nothing: one read runs it for every thread.
    let mut nothing = [0; 64];
    loop {
        match iterator.read(&mut nothing) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}
