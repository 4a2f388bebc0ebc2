//! The memory that the agent uses: its resident memory, and what the kernel charges to its cgroup.

use std::{
    fs,
    path::{Path, PathBuf},
};

use profiler_processes::{ProcFs, cgroup::CgroupMounts};

/// `LONG_MAX` rounded down to a page is no limit (`PAGE_COUNTER_MAX`, `include/linux/page_counter.h`).
const UNLIMITED_BYTES: u64 = 1 << 62;

/// The names of the files of a memory controller.
#[derive(Clone, Copy, Debug)]
struct FileNames {
    limit: &'static str,
    usage: &'static str,
    /// The prefix of the numbers in `memory.stat` that include descendants.
    hierarchical: &'static str,
}

/// Version 1: `Documentation/admin-guide/cgroup-v1/memory.rst`.
const V1_FILES: FileNames =
    FileNames { limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes", hierarchical: "total_" };

/// Version 2: `Documentation/admin-guide/cgroup-v2.rst`.
const V2_FILES: FileNames = FileNames { limit: "memory.max", usage: "memory.current", hierarchical: "" };

/// The memory in use at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// The resident memory of this process, bytes.
    pub resident_bytes: u64,
    /// What is charged to its cgroup and cannot be freed by the kernel, bytes: resident memory, and BPF maps. 0 without a limit.
    pub charged_bytes: u64,
}

/// Measures the memory of this process.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryMeter {
    cgroup: Option<LimitedCgroup>,
}

/// The cgroup of this process, where it or an ancestor has a limit.
#[derive(Clone, Debug)]
struct LimitedCgroup {
    directory: PathBuf,
    files: FileNames,
    limit_bytes: u64,
}

impl MemoryMeter {
    /// Finds the cgroup of this process.
    pub(super) fn of_this_process() -> Self {
        Self { cgroup: LimitedCgroup::of_this_process() }
    }

    /// The least memory limit of the cgroup of this process and its ancestors, bytes.
    pub(super) fn cgroup_limit_bytes(&self) -> Option<u64> {
        self.cgroup.as_ref().map(|cgroup| cgroup.limit_bytes)
    }

    /// The memory in use now.
    pub(super) fn read(&self) -> MemoryUse {
        let charged_bytes = self.cgroup.as_ref().and_then(LimitedCgroup::charged_bytes);
        MemoryUse { resident_bytes: resident_bytes(), charged_bytes: charged_bytes.unwrap_or(0) }
    }
}

impl LimitedCgroup {
    fn of_this_process() -> Option<Self> {
        let mounts = CgroupMounts::read(&ProcFs::live()).ok()?;
        let memberships = fs::read("/proc/self/cgroup").ok()?;
        let of_v1 = Self::at(&mounts.v1_levels(&memberships, "memory"), V1_FILES);
        of_v1.or_else(|| Self::at(&mounts.v2_levels(&memberships), V2_FILES))
    }

    /// A cgroup by its directory and those of its ancestors. `None` without a limit.
    fn at(levels: &[PathBuf], files: FileNames) -> Option<Self> {
        let limits = levels.iter().filter_map(|level| limit_bytes(&level.join(files.limit)));
        Some(Self { directory: levels.first()?.clone(), files, limit_bytes: limits.min()? })
    }

    /// Usage without the pages of files, which the kernel frees before it exceeds a limit.
    fn charged_bytes(&self) -> Option<u64> {
        let usage = fs::read_to_string(self.directory.join(self.files.usage)).ok()?;
        let statistics = fs::read_to_string(self.directory.join("memory.stat")).ok()?;
        let cached = cached_bytes(&statistics, self.files.hierarchical);
        Some(usage.trim().parse::<u64>().ok()?.saturating_sub(cached))
    }
}

/// The pages of files in the text of `memory.stat`.
fn cached_bytes(statistics: &str, prefix: &str) -> u64 {
    let numbers = statistics.lines().filter_map(|line| {
        let (name, bytes) = line.strip_prefix(prefix)?.split_once(' ')?;
        matches!(name, "active_file" | "inactive_file").then(|| bytes.parse::<u64>().ok())?
    });
    numbers.sum()
}

/// The limit in a file; `None` without a limit.
fn limit_bytes(file: &Path) -> Option<u64> {
    let bytes: u64 = fs::read_to_string(file).ok()?.trim().parse().ok()?;
    (bytes < UNLIMITED_BYTES).then_some(bytes)
}

/// The resident memory of this process, bytes: `VmRSS` of `/proc/self/status` (proc_pid_status(5)). 0 where it cannot be read.
pub(super) fn resident_bytes() -> u64 {
    fs::read_to_string("/proc/self/status").ok().and_then(|status| parse_resident(&status)).unwrap_or(0)
}

fn parse_resident(status: &str) -> Option<u64> {
    const BYTES_PER_KB: u64 = 1024;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * BYTES_PER_KB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read() {
        assert_eq!(parse_resident("Name:\ta\nVmRSS:\t    12 kB\n"), Some(12 * 1024));
        assert!(MemoryMeter::of_this_process().read().resident_bytes > 1 << 20);
    }

    #[test]
    fn the_charge_of_a_cgroup_is_its_own_and_its_limit_the_least_of_its_ancestors() {
        for (files, limit_of_none) in [(V1_FILES, "9223372036854771712\n"), (V2_FILES, "max\n")] {
            let directory = tempfile::tempdir().unwrap();
            let levels = [directory.path().join("a/b"), directory.path().join("a")];
            fs::create_dir_all(&levels[0]).unwrap();
            let write = |level: usize, file: &str, text: &str| {
                fs::write(levels[level].join(file), text).unwrap();
            };
            write(0, files.limit, limit_of_none);
            write(1, files.limit, limit_of_none);
            assert!(LimitedCgroup::at(&levels, files).is_none());
            write(1, files.limit, "268435456\n");
            write(0, files.usage, "1000\n");
            write(1, files.usage, "5000\n");
            let prefix = files.hierarchical;
            let statistics = format!("{prefix}anon 1\n{prefix}inactive_file 20\n{prefix}active_file 300\n");
            write(0, "memory.stat", &statistics);
            let cgroup = LimitedCgroup::at(&levels, files).unwrap();
            assert_eq!((cgroup.limit_bytes, cgroup.charged_bytes()), (256 << 20, Some(1000 - 320)));
        }
    }
}
