//! Tests of the times of readings.

use std::time::Duration;

use profiler_addresses::MonotonicTime;

use super::READINGS;

#[test]
fn readings_are_due_four_times_a_second() {
    let mut due = READINGS;
    due.end(MonotonicTime(0), Duration::ZERO);
    assert!(!due.is_due(MonotonicTime(249_999_999)) && due.is_due(MonotonicTime(250_000_000)));
}
