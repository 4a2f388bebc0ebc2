//! Runs the program of a task iterator once for each task.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsRawFd, BorrowedFd},
};

use profiler_blocking::Object;

use crate::sys::bpf_link;

/// Runs one pass of a program that cannot sleep.
pub(super) fn run(link: BorrowedFd<'_>) -> io::Result<()> {
    read_to_end(&mut File::from(bpf_link::create_iterator(link)?))
}

/// Runs one pass of a program that copies the stacks of other tasks. The program checks first that no file system has to
/// answer, but a target that replaces the memory in the same microsecond can block the copy.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] where the pass does not end. Until it does, [`StackCopies::are_blocked`], and no other pass may run.
pub(super) fn run_copying(link: BorrowedFd<'_>, copies: StackCopies) -> io::Result<()> {
    let mut iterator = File::from(bpf_link::create_iterator(link)?);
    profiler_blocking::run(copies.0, move || read_to_end(&mut iterator))
}

/// The passes of a session that copy stacks into the same memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackCopies(Object);

impl StackCopies {
    /// Those of a link of their program.
    pub(super) fn of(link: BorrowedFd<'_>) -> Self {
        Self(Object::file(link.as_raw_fd()))
    }

    /// Whether a pass has not ended in time, and still runs.
    pub(super) fn are_blocked(self) -> bool {
        profiler_blocking::is_blocked(self.0)
    }
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
