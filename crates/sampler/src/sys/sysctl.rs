//! Settings of the kernel.

/// The value of `kernel.NAME`; `None` when it is not a number or cannot be read.
#[must_use]
pub fn sysctl(name: &str) -> Option<i64> {
    std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse().ok()
}
