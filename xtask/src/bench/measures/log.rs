//! Reads the times of events from the profiler's log.

use std::time::Duration;

/// The time from `started`, a time since the epoch, to the first log line with this text.
pub(crate) fn time_to(log: &str, words: &str, started: Duration) -> Option<Duration> {
    let line = log.lines().find(|line| line.contains(words))?;
    let start = Duration::from_secs(started.as_secs() % SECONDS_PER_DAY)
        + Duration::from_nanos(started.subsec_nanos().into());
    let day = Duration::from_secs(SECONDS_PER_DAY);
    // The line may be of the next day.
    let time = time_of_day(line)?;
    Some(if time < start { time + day - start } else { time - start })
}

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

/// `[2026-01-31T12:34:56.789Z DEBUG ...`
fn time_of_day(line: &str) -> Option<Duration> {
    let (time, _) = line.split_once('T')?.1.split_once('Z')?;
    let mut fields = time.splitn(3, ':').map(str::parse::<f64>);
    let mut next = || fields.next()?.ok();
    let seconds = next()? * 3600.0 + next()? * 60.0 + next()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_of_the_next_day_is_found() {
        const LOG: &str = "[2026-01-31T23:59:59.900Z DEBUG profiler::x] no unwind table of `/a`: Malformed\n\
            [2026-02-01T00:00:00.100Z DEBUG profiler::x] sampling begins\n";
        let started = Duration::from_secs(20 * SECONDS_PER_DAY - 1) + Duration::from_millis(600);
        let took = time_to(LOG, "sampling begins", started).unwrap();
        assert!((took.as_secs_f64() - 0.5).abs() < 1e-6, "{took:?}");
        assert_eq!(time_to(LOG, "sampling ends", started), None);
    }
}
