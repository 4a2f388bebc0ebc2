//! Runs the program of a task iterator once for each task.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::BorrowedFd,
};

use crate::sys::bpf_link;

/// Runs one pass.
pub(super) fn run(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut iterator = File::from(bpf_link::create_iterator(link)?);
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
