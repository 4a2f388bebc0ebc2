//! Says how busy the machine was while a test ran, for the message of a test that measures and fails.

use std::{fmt, fs, time::Duration};

/// `USER_HZ`, the unit of `/proc/stat`, the same on every architecture that the profiler supports.
const TICKS_PER_SECOND: u64 = 100;

/// The times of all CPUs at a moment, in clock ticks (proc_stat(5)).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MachineLoad {
    busy: u64,
    idle: u64,
    stolen: u64,
}

impl MachineLoad {
    /// The times now; zeros where `/proc/stat` cannot be read.
    pub(crate) fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn parse(stat: &str) -> Self {
        let line = stat.lines().next().and_then(|line| line.strip_prefix("cpu "));
        let fields = line.into_iter().flat_map(str::split_ascii_whitespace);
        let ticks: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
        // Guest time, which follows, is part of user time.
        let [user, nice, system, idle, waiting, irq, softirq, stolen, ..] = ticks[..] else {
            return Self::default();
        };
        Self { busy: user + nice + system + irq + softirq, idle: idle + waiting, stolen }
    }

    /// The times since an earlier moment.
    pub(crate) fn since(self, before: Self) -> impl fmt::Display {
        Period(Self {
            busy: self.busy.saturating_sub(before.busy),
            idle: self.idle.saturating_sub(before.idle),
            stolen: self.stolen.saturating_sub(before.stolen),
        })
    }
}

/// The times of a period.
struct Period(MachineLoad);

impl fmt::Display for Period {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MachineLoad { busy, idle, stolen } = self.0;
        let all = (busy + idle + stolen).max(1) as f64;
        let percent = |ticks: u64| 100.0 * ticks as f64 / all;
        let cpu_time = Duration::from_millis((busy + idle + stolen) * 1_000 / TICKS_PER_SECOND);
        write!(
            to,
            "of {:.1} s CPU time {:.1} % busy, {:.1} % idle, {:.1} % stolen by the hypervisor; load average {}",
            cpu_time.as_secs_f64(),
            percent(busy),
            percent(idle),
            percent(stolen),
            fs::read_to_string("/proc/loadavg").unwrap_or_default().trim_end()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_period_are_those_of_its_time() {
        let before = MachineLoad::parse("cpu  10 0 0 10 0 0 0 0 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n");
        let now = MachineLoad::parse("cpu  40 10 10 30 20 5 5 10 7 7\n");
        let text = now.since(before).to_string();
        assert!(
            text.starts_with("of 1.1 s CPU time 54.5 % busy, 36.4 % idle, 9.1 % stolen by the hypervisor"),
            "{text}"
        );
    }

    #[test]
    fn a_period_without_counters_has_no_share() {
        assert!(MachineLoad::parse("").since(MachineLoad::parse("cpu x")).to_string().contains("0.0 % busy"));
    }
}
