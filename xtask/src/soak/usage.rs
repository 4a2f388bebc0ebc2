//! The memory, descriptors and CPU time of a process, from outside.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};

/// What a process uses.
pub(super) struct Usage {
    pub(super) resident_bytes: u64,
    /// The most since the start.
    pub(super) peak_bytes: u64,
    pub(super) descriptors: usize,
    /// User and system time since the start.
    pub(super) cpu: Duration,
}

impl Usage {
    /// The usage of a running process.
    pub(super) fn of(pid: u32) -> Result<Self> {
        let folder = format!("/proc/{pid}");
        let status = fs::read_to_string(format!("{folder}/status"))?;
        Ok(Self {
            resident_bytes: kibibytes(&status, "VmRSS:").context("no resident memory")?,
            peak_bytes: kibibytes(&status, "VmHWM:").context("no peak of resident memory")?,
            descriptors: fs::read_dir(format!("{folder}/fd"))?.count(),
            cpu: cpu_time(&fs::read_to_string(format!("{folder}/stat"))?).context("no CPU time")?,
        })
    }
}

/// A line of `/proc/PID/status` (proc_pid_status(5)).
fn kibibytes(status: &str, name: &str) -> Option<u64> {
    const BYTES_PER_KIB: u64 = 1024;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * BYTES_PER_KIB)
}

/// `utime` and `stime` of proc_pid_stat(5).
fn cpu_time(stat: &str) -> Option<Duration> {
    /// `USER_HZ`, which is the same on every architecture that the profiler supports.
    const MS_PER_TICK: u64 = 10;
    /// Field 14, counted behind the command, which is field 2 and may contain spaces and parentheses.
    const USER: usize = 11;
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks = fields.split(' ').skip(USER).take(2).map(str::parse::<u64>);
    let ticks = ticks.collect::<Result<Vec<_>, _>>().ok()?;
    Some(Duration::from_millis(ticks.iter().sum::<u64>() * MS_PER_TICK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_cpu_time_are_read_from_proc() {
        assert_eq!(kibibytes("VmHWM:\t  9 kB\nVmRSS:\t    2 kB\n", "VmRSS:"), Some(2048));
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 1 2 3 4 250 50 12 13 20 0 1 0 99";
        assert_eq!(cpu_time(stat), Some(Duration::from_secs(3)));
    }
}
