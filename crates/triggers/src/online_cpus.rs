//! The number of CPUs that are online.

use std::fs;

/// The list of CPUs, of at most some ten bytes a CPU (`Documentation/admin-guide/cputopology.rst`).
const PATH: &str = "/sys/devices/system/cpu/online";

/// The number of CPUs that are online; `None` if sysfs cannot be read.
pub(crate) fn count() -> Option<u64> {
    parse(&fs::read_to_string(PATH).ok()?).filter(|cpus| *cpus > 0)
}

/// Parses a list of CPUs and ranges: `0-3,8`.
fn parse(list: &str) -> Option<u64> {
    let mut cpus = list.trim_end().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    });
    cpus.try_fold(0_u64, |sum, cpus| sum.checked_add(cpus?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_and_ranges_are_counted() {
        for (list, cpus) in
            [("0\n", Some(1)), ("0-3,8\n", Some(5)), ("1,3-4", Some(3)), ("", None), ("3-1", None)]
        {
            assert_eq!(parse(list), cpus, "{list}");
        }
    }

    #[test]
    fn this_machine_has_the_cpus_that_the_kernel_lists() {
        let stat = fs::read_to_string("/proc/stat").unwrap();
        let lines = stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
        assert_eq!(count(), Some(lines.count() as u64));
    }
}
