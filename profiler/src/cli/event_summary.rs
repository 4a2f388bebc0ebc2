//! Formats the line of the summary with what the runtimes reported.

use profiler_profile::{FieldValue, Profile, RuntimeEvent, RuntimeEventKind};

/// The line that counts the runtime events; `None` without events.
pub(super) fn line(profile: &Profile) -> Option<String> {
    let parts: Vec<_> = RuntimeEventKind::ALL.iter().filter_map(|kind| part(profile, *kind)).collect();
    (!parts.is_empty()).then(|| format!("events: {}", parts.join("; ")))
}

/// What is said of the events of one kind.
fn part(profile: &Profile, kind: RuntimeEventKind) -> Option<String> {
    let events: Vec<_> = profile.runtime_events().iter().filter(|event| event.kind == kind).collect();
    if events.is_empty() {
        return None;
    }
    let number = counted(events.len(), kind.name());
    Some(match kind {
        RuntimeEventKind::GarbageCollection => {
            let full = events.iter().filter(|event| has(profile, event, "Depth", "2")).count();
            format!("{number} ({full} of generation 2)")
        }
        RuntimeEventKind::Suspension => format!("{} suspended", duration(&events)),
        RuntimeEventKind::Contention => format!("{number} ({})", duration(&events)),
        RuntimeEventKind::PoolAdjustment => {
            let starved = events.iter().filter(|event| event.is_pool_starvation(profile)).count();
            format!("{number} ({starved} for starvation)")
        }
        RuntimeEventKind::Request => {
            let longest_ns = events.iter().map(|event| event.duration_ns).max().unwrap_or(0);
            format!("{number} (the longest {})", milliseconds(longest_ns))
        }
        // Each collection has its sizes.
        RuntimeEventKind::HeapSizes => return None,
        _ => number,
    })
}

/// Whether the field of an event has a value.
fn has(profile: &Profile, event: &RuntimeEvent, field: &str, expected: &str) -> bool {
    match event.field(profile, field) {
        Some(FieldValue::Text(text)) => profile.string(text) == expected,
        Some(FieldValue::Unsigned(number)) => number.to_string() == expected,
        _ => false,
    }
}

fn counted(count: usize, name: &str) -> String {
    match count {
        1 => format!("1 {name}"),
        _ => format!("{count} {name}s"),
    }
}

/// The sum of the durations.
fn duration(events: &[&RuntimeEvent]) -> String {
    milliseconds(events.iter().fold(0_u64, |sum, event| sum.saturating_add(event.duration_ns)))
}

fn milliseconds(ns: u64) -> String {
    const NS_PER_MS: f64 = 1e6;
    format!("{:.0} ms", ns as f64 / NS_PER_MS)
}

#[cfg(test)]
mod tests {
    use profiler_profile::{EventField, Header, ProfileBuilder};

    use super::*;

    #[test]
    fn each_kind_has_its_number_and_what_matters_of_it() {
        let mut builder = ProfileBuilder::default();
        let process = builder.process(1, "app");
        let name = builder.string("x");
        let [depth, reason, starvation, blocking, stable] =
            ["Depth", "Reason", "Starvation", "CooperativeBlocking", "Stabilizing"]
                .map(|text| builder.string(text));
        let mut add = |kind, duration_ns, field: Option<(_, FieldValue)>| {
            let fields = field.into_iter().map(|(name, value)| EventField { name, value }).collect();
            builder.add_runtime_event(RuntimeEvent {
                time_ns: 0,
                duration_ns,
                process,
                thread: None,
                kind,
                name,
                stack: None,
                fields,
            });
        };
        for generation in [0, 1, 2] {
            let generation = Some((depth, FieldValue::Unsigned(generation)));
            add(RuntimeEventKind::GarbageCollection, 1, generation);
            add(RuntimeEventKind::HeapSizes, 0, None);
        }
        add(RuntimeEventKind::Suspension, 83_000_000, None);
        add(RuntimeEventKind::Suspension, 1_000_000, None);
        for text in [starvation, blocking, stable] {
            add(RuntimeEventKind::PoolAdjustment, 0, Some((reason, FieldValue::Text(text))));
        }
        add(RuntimeEventKind::Exception, 0, None);
        add(RuntimeEventKind::Exception, 0, None);
        add(RuntimeEventKind::Contention, 5_000_000, None);
        add(RuntimeEventKind::Request, 5_000_000, None);
        add(RuntimeEventKind::Request, 250_000_000, None);
        let expected = "events: 3 garbage collections (1 of generation 2); 84 ms suspended; \
                        3 thread pool adjustments (2 for starvation); 2 exceptions; 1 lock contention (5 ms); 2 requests (the longest 250 ms)";
        assert_eq!(line(&builder.finish(Header::default())).as_deref(), Some(expected));
    }

    #[test]
    fn a_profile_without_events_has_no_line() {
        assert_eq!(line(&ProfileBuilder::default().finish(Header::default())), None);
    }
}
