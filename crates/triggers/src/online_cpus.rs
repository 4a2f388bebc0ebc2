//! The number of CPUs that are online.

use std::fs;

use profiler_processes::CpuSet;

/// The list of CPUs, of at most some ten bytes a CPU (`Documentation/admin-guide/cputopology.rst`).
const PATH: &str = "/sys/devices/system/cpu/online";

/// The number of CPUs that are online; `None` if sysfs cannot be read.
pub(crate) fn count() -> Option<u64> {
    let cpus: CpuSet = fs::read_to_string(PATH).ok()?.parse().ok()?;
    u64::try_from(cpus.len()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_the_cpus_that_the_kernel_lists() {
        let stat = fs::read_to_string("/proc/stat").unwrap();
        let lines = stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
        assert_eq!(count(), Some(lines.count() as u64));
    }
}
