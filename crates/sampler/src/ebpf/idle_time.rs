//! The time for which CPUs ran no task.

use std::{collections::BTreeMap, fs, io};

const NS_PER_S: u64 = 1_000_000_000;

/// The idle time of each online CPU since boot, nanoseconds: `idle` and `iowait` of `/proc/stat` (proc_stat(5)).
pub(super) fn idle_ns_by_cpu() -> io::Result<BTreeMap<u32, u64>> {
    let ns_per_tick = NS_PER_S / rustix::param::clock_ticks_per_second().max(1);
    Ok(parse(&fs::read_to_string("/proc/stat")?, ns_per_tick))
}

fn parse(stat: &str, ns_per_tick: u64) -> BTreeMap<u32, u64> {
    let idle_of_line = |line: &str| {
        let mut fields = line.strip_prefix("cpu")?.split(' ');
        let cpu = fields.next()?.parse().ok()?;
        // After the times in user mode, in user mode with low priority, and in system mode.
        let (idle, iowait) = (fields.nth(3)?.parse::<u64>().ok()?, fields.next()?.parse::<u64>().ok()?);
        Some((cpu, (idle + iowait) * ns_per_tick))
    };
    stat.lines().filter_map(idle_of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_that_of_each_cpu_with_its_wait_for_disks() {
        let stat =
            "cpu  9 9 9 9 9 0 0 0 0 0\ncpu0 1 2 3 40 2 6 7 0 0 0\ncpu7 1 2 3 50 0 6 7 0 0 0\nintr 5 4\n";
        assert_eq!(parse(stat, 10), BTreeMap::from([(0, 420), (7, 500)]));
    }

    #[test]
    fn idle_time_of_this_machine_grows_by_at_most_the_time_that_passes() {
        let start = std::time::Instant::now();
        let before = idle_ns_by_cpu().unwrap();
        let after = idle_ns_by_cpu().unwrap();
        let tick_ns = NS_PER_S / rustix::param::clock_ticks_per_second();
        let passed_ns = start.elapsed().as_nanos() as u64 + 2 * tick_ns;
        assert!(!before.is_empty());
        assert!(before.iter().all(|(cpu, idle_ns)| after[cpu].saturating_sub(*idle_ns) <= passed_ns));
    }
}
