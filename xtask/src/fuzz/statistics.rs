//! Reads the statistics that libFuzzer prints.

use crate::process::number_behind;

/// What a run of a target has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Statistics {
    pub(super) executions: u64,
    pub(super) executions_per_second: u64,
    /// Edges between basic blocks that an input of the corpus reaches.
    pub(super) edges: u64,
    pub(super) peak_mib: u64,
}

impl Statistics {
    /// Parses the log of a run with `-print_final_stats=1`; `None` when it was killed before it printed them.
    pub(super) fn parse(log: &str) -> Option<Self> {
        Some(Self {
            executions: number_behind(log, "stat::number_of_executed_units:")?,
            executions_per_second: number_behind(log, "stat::average_exec_per_sec:")?,
            edges: edges(log).unwrap_or(0),
            peak_mib: number_behind(log, "stat::peak_rss_mb:")?,
        })
    }
}

/// The coverage in the last status line: `#2048 pulse  cov: 31 ft: 32 ...`.
fn edges(log: &str) -> Option<u64> {
    let mut status_lines = log.lines().rev().filter(|line| line.starts_with('#'));
    status_lines.find_map(|line| line.split_once(" cov: ")?.1.split(' ').next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a run printed, shortened.
    const LOG: &str = "\
INFO: Running with entropic power schedule (0xFF, 100).
INFO: Loaded 1 modules   (9462 inline 8-bit counters): 9462 [0x5580, 0x5581),
#3\tINITED cov: 512 ft: 600 corp: 2/579b exec/s: 0 rss: 38Mb
#2048\tpulse  cov: 640 ft: 900 corp: 41/8Kb lim: 4096 exec/s: 1024 rss: 40Mb
#8210\tREDUCE cov: 655 ft: 931 corp: 47/9Kb lim: 4096 exec/s: 1026 rss: 41Mb L: 93/512 MS: 1 EraseBytes-
#12345\tDONE   cov: 655 ft: 931 corp: 47/9Kb lim: 4096 exec/s: 1028 rss: 41Mb
Done 12345 runs in 12 second(s)
stat::number_of_executed_units: 12345
stat::average_exec_per_sec:     1028
stat::new_units_added:          45
stat::slowest_unit_time_sec:    0
stat::peak_rss_mb:              41
";

    #[test]
    fn the_statistics_are_those_at_the_end() {
        let expected =
            Statistics { executions: 12_345, executions_per_second: 1_028, edges: 655, peak_mib: 41 };
        assert_eq!(Statistics::parse(LOG), Some(expected));
    }

    #[test]
    fn a_run_that_an_input_ended_has_statistics() {
        let (before, after) = LOG.split_once("#12345").unwrap();
        let (_, statistics) = after.split_once("second(s)\n").unwrap();
        let log = format!("{before}==7== ERROR: libFuzzer: deadly signal\nartifact: cov: 1 \n{statistics}");
        assert_eq!(Statistics::parse(&log).unwrap().edges, 655);
    }

    #[test]
    fn a_run_that_was_killed_has_none() {
        let (before, _) = LOG.split_once("stat::").unwrap();
        assert_eq!(Statistics::parse(before), None);
        assert_eq!(Statistics::parse(""), None);
    }
}
