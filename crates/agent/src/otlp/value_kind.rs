//! The type, unit and period of an event's values.

use profiler_profile::{Event, Sampling};

/// The event whose profiles Pyroscope names `process_cpu`. An event without a name is the one of a profile that has a single
/// kind of samples.
const CPU_CLOCK: [&str; 2] = [Event::CPU_CLOCK, ""];

/// The type of the intervals that Pyroscope names `off_cpu`.
const OFF_CPU: &str = "off_cpu";

/// A type and its unit, both texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TypeAndUnit {
    pub(super) name: String,
    pub(super) unit: &'static str,
}

/// What the values of a profile of an event are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ValueKind {
    pub(super) sample_type: TypeAndUnit,
    pub(super) period_type: TypeAndUnit,
    /// The distance between samples, in the unit of the period type.
    pub(super) period: i64,
    /// The value that is sent for a value of 1.
    scale: u64,
    /// Larger values are not sent: a backend multiplies values by the period and has 63 bits.
    pub(super) max_value: i64,
}

impl ValueKind {
    /// The value that is sent; `None` if it is too large.
    pub(super) fn sent_value(&self, value: u64) -> Option<i64> {
        let sent = i64::try_from(value.checked_mul(self.scale)?).ok()?;
        (sent <= self.max_value).then_some(sent)
    }
}

/// The types by the rules of Pyroscope (`pkg/ingester/otlp/convert.go`): `samples/count` with the period `cpu/nanoseconds` is
/// a CPU profile, whose values it multiplies by the period; `off_cpu/nanoseconds` with the period 0 is an off-CPU profile;
/// the name of any other profile is its period type, which must not be empty, and the period of such a profile must not be 0.
pub(super) fn of(event: &Event) -> ValueKind {
    let name = type_name(event);
    let time = |name: &str| TypeAndUnit { name: name.to_owned(), unit: "nanoseconds" };
    let count = |name: &str| TypeAndUnit { name: name.to_owned(), unit: "count" };
    let kind = |sample_type, period_type, period| ValueKind {
        sample_type,
        period_type,
        period,
        scale: 1,
        max_value: i64::MAX,
    };
    let period_ns = event.unit_ns().and_then(|period_ns| i64::try_from(period_ns).ok());
    match (event.sampling, period_ns.filter(|period_ns| *period_ns > 0)) {
        (Sampling::Frequency(_), Some(period_ns)) if CPU_CLOCK.contains(&event.name.as_str()) => {
            let max_value = i64::MAX / period_ns;
            ValueKind { max_value, ..kind(count("samples"), time(&name), period_ns) }
        }
        (Sampling::Frequency(_), Some(period_ns)) => {
            ValueKind { scale: period_ns.unsigned_abs(), ..kind(time(&name), time(&name), period_ns) }
        }
        (Sampling::Durations { .. }, _) => kind(time(&name), time(&name), i64::from(name != OFF_CPU)),
        (Sampling::Times { period }, _) => {
            kind(time(&name), time(&name), i64::try_from(period).unwrap_or(i64::MAX).max(1))
        }
        (Sampling::Occurrences { period } | Sampling::Sums { period }, _) => {
            let period = i64::try_from(period).unwrap_or(i64::MAX).max(1);
            kind(count(&name), count(&name), period)
        }
        _ => kind(count("samples"), count(&name), 1),
    }
}

/// The name of an event without the characters that Pyroscope rejects in a type (`-`) or separates types by (`:`).
fn type_name(event: &Event) -> String {
    if CPU_CLOCK.contains(&event.name.as_str()) {
        return "cpu".to_owned();
    }
    let clean = |character: char| if character.is_ascii_alphanumeric() { character } else { '_' };
    event.name.chars().map(clean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The types as Pyroscope joins them, and the period.
    fn types(event: &Event) -> (String, i64) {
        let ValueKind { sample_type, period_type, period, .. } = of(event);
        let parts = [&sample_type.name, sample_type.unit, &period_type.name, period_type.unit];
        (parts.join(":"), period)
    }

    fn event(name: &str, sampling: Sampling) -> Event {
        Event { name: name.to_owned(), sampling }
    }

    #[test]
    fn a_cpu_profile_counts_ticks_and_other_frequencies_are_times() {
        let cpu = event("cpu-clock", Sampling::Frequency(19));
        assert_eq!(types(&cpu), ("samples:count:cpu:nanoseconds".to_owned(), 52_631_578));
        assert_eq!((of(&cpu).sent_value(3), of(&cpu).sent_value(1 << 60)), (Some(3), None));
        let wall = event("wall", Sampling::Frequency(10));
        assert_eq!(types(&wall), ("wall:nanoseconds:wall:nanoseconds".to_owned(), 100_000_000));
        assert_eq!((of(&wall).sent_value(3), of(&wall).sent_value(1 << 60)), (Some(300_000_000), None));
    }

    #[test]
    fn off_cpu_times_have_no_period() {
        let sampling = Sampling::Durations { min_ns: 5 };
        assert_eq!(
            types(&event("off-cpu", sampling)),
            ("off_cpu:nanoseconds:off_cpu:nanoseconds".to_owned(), 0)
        );
        assert_eq!(types(&event("locks", sampling)), ("locks:nanoseconds:locks:nanoseconds".to_owned(), 1));
    }

    #[test]
    fn times_of_occurrences_have_the_period_of_their_samples() {
        let calls = event("syscall-time", Sampling::Times { period: 1 });
        assert_eq!(types(&calls), ("syscall_time:nanoseconds:syscall_time:nanoseconds".to_owned(), 1));
    }

    #[test]
    fn an_unknown_frequency_and_other_events_are_counts() {
        let unknown = event("", Sampling::Frequency(0));
        assert_eq!(types(&unknown), ("samples:count:cpu:count".to_owned(), 1));
        let too_frequent = event("cpu-clock", Sampling::Frequency(u64::MAX));
        assert_eq!(types(&too_frequent).1, 1);
        let faults = event("sched:page-faults", Sampling::Occurrences { period: 10 });
        assert_eq!(types(&faults), ("sched_page_faults:count:sched_page_faults:count".to_owned(), 10));
        assert_eq!(types(&event("bytes", Sampling::Sums { period: 0 })).1, 1);
        assert_eq!(of(&faults).sent_value(u64::MAX), None);
    }
}
