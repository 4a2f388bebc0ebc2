//! Settings of the kernel.

use std::io;

/// The value of `kernel.NAME`; `None` when it is not a number or cannot be read.
#[must_use]
pub fn sysctl(name: &str) -> Option<i64> {
    std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse().ok()
}

/// Reads the number in a sysctl file.
pub(crate) fn read_number(path: &str) -> io::Result<u64> {
    std::fs::read_to_string(path)?.trim().parse().map_err(io::Error::other)
}
