//! Settings of the kernel under test.

use std::fs;

/// A setting below `kernel.`.
///
/// # Panics
/// When the kernel has no such number.
#[must_use]
pub fn sysctl(name: &str) -> i32 {
    fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap().trim().parse().unwrap()
}

/// Whether everybody is shown what else needs `CAP_SYSLOG` (`kallsyms_show_value` of `kernel/ksyms_common.c`).
#[must_use]
pub fn kernel_addresses_are_public() -> bool {
    sysctl("kptr_restrict") == 0 && sysctl("perf_event_paranoid") <= 1
}
