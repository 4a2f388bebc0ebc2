//! Tests of the times of readings.

use std::time::Duration;

use super::READINGS;

#[test]
fn readings_are_due_four_times_a_second() {
    let mut due = READINGS;
    due.end(0, Duration::ZERO);
    assert!(!due.is_due(249_999_999) && due.is_due(250_000_000));
}
