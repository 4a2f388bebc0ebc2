//! The limit of the agent's own memory: what is kept for later samples is evicted first, then the frequency is lowered.

use std::{fs, path::PathBuf};

use profiler_processes::{ProcFs, cgroup::CgroupMounts};

/// The most resident memory, bytes.
const MAX_BYTES: u64 = 64 << 20;

/// The share of the limit of the agent's cgroup that the agent may use, percent.
const CGROUP_PERCENT: u64 = 80;

/// Below this share of the limit, percent, the frequency is raised again.
const CALM_PERCENT: u64 = 75;

/// The windows for which memory stays so low before the frequency is raised.
const CALM_WINDOWS: u32 = 10;

/// `LONG_MAX` rounded down to a page is no limit (`PAGE_COUNTER_MAX`, `include/linux/page_counter.h`).
const UNLIMITED_BYTES: u64 = 1 << 62;

/// The limit, and what was done for it.
#[derive(Debug)]
pub(super) struct MemoryLimit {
    max_bytes: u64,
    requested_hz: u64,
    frequency_hz: u64,
    /// Whether memory exceeded the limit at the end of the last window.
    was_exceeded: bool,
    calm_windows: u32,
}

/// What the end of a window asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryAction {
    /// Evict what is kept for later samples.
    Evict,
    /// Evict it, and sample at the new frequency, which is lower.
    Lower,
    /// Sample at the new frequency, which is higher.
    Raise,
}

impl MemoryLimit {
    /// The limit of this process, which samples at a frequency, hertz.
    pub(super) fn of_this_process(requested_hz: u64) -> Self {
        let of_cgroup = cgroup_limit_bytes().map(|bytes| bytes / 100 * CGROUP_PERCENT);
        Self::new(of_cgroup.map_or(MAX_BYTES, |bytes| bytes.min(MAX_BYTES)), requested_hz)
    }

    fn new(max_bytes: u64, requested_hz: u64) -> Self {
        Self { max_bytes, requested_hz, frequency_hz: requested_hz, was_exceeded: false, calm_windows: 0 }
    }

    /// The most resident memory, bytes.
    pub(super) fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// The frequency of the next window, hertz.
    pub(super) fn frequency_hz(&self) -> u64 {
        self.frequency_hz
    }

    /// Decides at the end of a window, with the resident memory in bytes.
    pub(super) fn apply(&mut self, resident_bytes: u64) -> Option<MemoryAction> {
        let is_exceeded = resident_bytes > self.max_bytes;
        let was_exceeded = std::mem::replace(&mut self.was_exceeded, is_exceeded);
        if is_exceeded {
            self.calm_windows = 0;
            if was_exceeded && self.frequency_hz > 1 {
                self.frequency_hz /= 2;
                return Some(MemoryAction::Lower);
            }
            return Some(MemoryAction::Evict);
        }
        let is_calm = resident_bytes < self.max_bytes / 100 * CALM_PERCENT;
        self.calm_windows = if is_calm { self.calm_windows + 1 } else { 0 };
        if self.calm_windows >= CALM_WINDOWS && self.frequency_hz < self.requested_hz {
            self.calm_windows = 0;
            self.frequency_hz = (self.frequency_hz * 2).min(self.requested_hz);
            return Some(MemoryAction::Raise);
        }
        None
    }
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

/// The least memory limit of the cgroups of this process.
fn cgroup_limit_bytes() -> Option<u64> {
    let mounts = CgroupMounts::read(&ProcFs::live()).ok()?;
    let memberships = fs::read("/proc/self/cgroup").ok()?;
    let of_v1 = mounts.v1_levels(&memberships, "memory");
    let of_v2 = mounts.v2_levels(&memberships);
    let files = of_v1.into_iter().map(|level| level.join("memory.limit_in_bytes"));
    let files = files.chain(of_v2.into_iter().map(|level| level.join("memory.max")));
    files.filter_map(limit_bytes).min()
}

/// The limit in a file; `None` without a limit.
fn limit_bytes(file: PathBuf) -> Option<u64> {
    let bytes: u64 = fs::read_to_string(file).ok()?.trim().parse().ok()?;
    (bytes < UNLIMITED_BYTES).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 1_000;

    #[test]
    fn the_frequency_is_lowered_when_eviction_does_not_suffice() {
        let mut memory = MemoryLimit::new(LIMIT, 19);
        assert_eq!(memory.apply(LIMIT), None);
        assert_eq!((memory.apply(LIMIT + 1), memory.frequency_hz()), (Some(MemoryAction::Evict), 19));
        assert_eq!(memory.apply(LIMIT - 1), None);
        assert_eq!(memory.apply(LIMIT + 1), Some(MemoryAction::Evict));
        for expected_hz in [9, 4, 2, 1] {
            assert_eq!(memory.apply(LIMIT + 1), Some(MemoryAction::Lower));
            assert_eq!(memory.frequency_hz(), expected_hz);
        }
        assert_eq!((memory.apply(LIMIT + 1), memory.frequency_hz()), (Some(MemoryAction::Evict), 1));
    }

    #[test]
    fn the_frequency_is_raised_after_calm_windows_up_to_the_requested_one() {
        let mut memory = MemoryLimit { frequency_hz: 9, ..MemoryLimit::new(LIMIT, 19) };
        for _ in 1..CALM_WINDOWS {
            assert_eq!(memory.apply(LIMIT / 2), None);
        }
        // Neither exceeded nor calm.
        assert_eq!(memory.apply(LIMIT - 100), None);
        for expected_hz in [18, 19] {
            for _ in 1..CALM_WINDOWS {
                assert_eq!(memory.apply(LIMIT / 2), None);
            }
            assert_eq!(
                (memory.apply(LIMIT / 2), memory.frequency_hz()),
                (Some(MemoryAction::Raise), expected_hz)
            );
        }
        assert!((0..100).all(|_| memory.apply(LIMIT / 2).is_none()));
    }

    #[test]
    fn limits_and_memory_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let limit = |text: &str| {
            let file = directory.path().join("memory.max");
            fs::write(&file, text).unwrap();
            limit_bytes(file)
        };
        assert_eq!(limit("268435456\n"), Some(256 << 20));
        assert_eq!(limit("max\n"), None);
        assert_eq!(limit("9223372036854771712\n"), None);
        assert_eq!(parse_resident("Name:\ta\nVmRSS:\t    12 kB\n"), Some(12 * 1024));
        assert!(resident_bytes() > 1 << 20);
        assert!(MemoryLimit::of_this_process(19).max_bytes() <= MAX_BYTES);
    }
}
