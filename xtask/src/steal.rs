//! Measures steal time: what the hypervisor took from the machine, which makes every measured time longer.

#![cfg(feature = "commands")]

use fs_err as fs;

/// The time counters of all CPUs at a moment, in clock ticks.
#[derive(Clone, Copy)]
pub(crate) struct CpuTimes {
    all: u64,
    stolen: u64,
}

impl CpuTimes {
    /// The counters now; zeros where `/proc/stat` cannot be read.
    pub(crate) fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// Parses the first line of `/proc/stat` (proc_stat(5)): guest time is part of user time, and not counted again.
    fn parse(stat: &str) -> Self {
        const STOLEN: usize = 7;
        let line = stat.lines().next().and_then(|line| line.strip_prefix("cpu "));
        let fields = line.into_iter().flat_map(str::split_ascii_whitespace).take(STOLEN + 1);
        let ticks: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
        Self { all: ticks.iter().sum(), stolen: ticks.get(STOLEN).copied().unwrap_or_default() }
    }

    /// The share of the time since then that was stolen.
    pub(crate) fn stolen_percent_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        100.0 * self.stolen.saturating_sub(before.stolen) as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_a_share_of_all_time() {
        let before = CpuTimes::parse("cpu  1 2 3 4 5 6 7 8 9 9\ncpu0 1 2 3 4 5 6 7 8 9 9\n");
        let now = CpuTimes::parse("cpu  41 2 3 54 5 6 7 18 9 9\n");
        assert_eq!(now.stolen_percent_since(before), 10.0);
        assert_eq!(CpuTimes::parse("").stolen_percent_since(CpuTimes::parse("cpu x")), 0.0);
    }
}
