//! Formats the line of the summary with what the runtimes reported.

use profiler_profile::{EventTotals, FieldValue, Profile, RuntimeEvent, RuntimeEventKind};

/// The line that counts the runtime events; `None` without events.
pub(super) fn line(profile: &Profile) -> Option<String> {
    let parts: Vec<_> = RuntimeEventKind::ALL.iter().filter_map(|kind| part(profile, *kind)).collect();
    (!parts.is_empty()).then(|| format!("events: {}", parts.join("; ")))
}

/// What is said of the events of one kind.
fn part(profile: &Profile, kind: RuntimeEventKind) -> Option<String> {
    let events: Vec<_> = profile.runtime_events().iter().filter(|event| event.kind == kind).collect();
    let totals = profile.runtime_event_totals(None, kind);
    if totals.count == 0 {
        return None;
    }
    let kept = events.len();
    let detail = |detail: Option<String>| details(detail, totals);
    let number = counted(totals, kind.name());
    Some(match kind {
        RuntimeEventKind::GarbageCollection => {
            let full = events.iter().filter(|event| has(profile, event, "Depth", "2")).count();
            format!("{number}{}", detail(Some(format!("{} of generation 2", share(full, kept, totals)))))
        }
        RuntimeEventKind::Suspension => format!("{} suspended", duration(totals)),
        RuntimeEventKind::Contention => format!("{number}{}", detail(Some(duration(totals)))),
        RuntimeEventKind::PoolAdjustment => {
            let starved = events.iter().filter(|event| event.is_pool_starvation(profile)).count();
            format!("{number}{}", detail(Some(format!("{} for starvation", share(starved, kept, totals)))))
        }
        RuntimeEventKind::Request => {
            let longest = format!("the longest {}{}", bound(totals), milliseconds(totals.longest_ns));
            format!("{number}{}", detail(Some(longest)))
        }
        // Each collection has its sizes.
        RuntimeEventKind::HeapSizes => return None,
        _ => format!("{number}{}", detail(None)),
    })
}

/// What follows a number, in brackets: how many events the profile has where it does not have all.
fn details(detail: Option<String>, totals: EventTotals) -> String {
    let kept = (totals.kept < totals.count).then(|| format!("{} kept", totals.kept));
    let details: Vec<_> = detail.into_iter().chain(kept).collect();
    if details.is_empty() { String::new() } else { format!(" ({})", details.join("; ")) }
}

/// The number of all events that are like `some` of the kept ones: `about 90` where the profile does not have all.
fn share(some: usize, kept: usize, totals: EventTotals) -> String {
    let of_all = (some as f64 * totals.count as f64 / kept.max(1) as f64).round();
    let is_share = some > 0 && some < kept && totals.kept < totals.count;
    let bound = if totals.is_lower_bound && some > 0 { bound(totals) } else { "" };
    format!("{bound}{}{of_all}", if is_share { "about " } else { "" })
}

/// The words before a number where the runtime dropped more events than it says.
fn bound(totals: EventTotals) -> &'static str {
    if totals.is_lower_bound { "at least " } else { "" }
}

/// Whether the field of an event has a value.
fn has(profile: &Profile, event: &RuntimeEvent, field: &str, expected: &str) -> bool {
    match event.field(profile, field) {
        Some(FieldValue::Text(text)) => profile.string(text) == expected,
        Some(FieldValue::Unsigned(number)) => number.to_string() == expected,
        _ => false,
    }
}

fn counted(totals: EventTotals, name: &str) -> String {
    match totals.count {
        1 => format!("{}1 {name}", bound(totals)),
        count => format!("{}{count} {name}s", bound(totals)),
    }
}

/// The sum of the durations.
fn duration(totals: EventTotals) -> String {
    format!("{}{}", bound(totals), milliseconds(totals.duration_ns))
}

fn milliseconds(ns: u64) -> String {
    const NS_PER_MS: f64 = 1e6;
    format!("{:.0} ms", ns as f64 / NS_PER_MS)
}

#[cfg(test)]
mod tests {
    use profiler_profile::{EventField, Header, OmittedEvents, ProfileBuilder, test_profile};

    use super::*;

    #[test]
    fn each_kind_has_its_number_and_what_matters_of_it() {
        let mut builder = ProfileBuilder::default();
        let process = builder.process(1, "app");
        let [depth, reason, starvation, blocking, stable] =
            ["Depth", "Reason", "Starvation", "CooperativeBlocking", "Stabilizing"]
                .map(|text| builder.string(text));
        let mut add = |kind, duration_ns, field: Option<(_, FieldValue)>| {
            let fields = field.into_iter().map(|(name, value)| EventField { name, value }).collect();
            let event = test_profile::runtime_event(&mut builder, process, kind);
            builder.add_runtime_event(RuntimeEvent { duration_ns, fields, ..event });
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

    /// The line of one event of each of these kinds, and of omitted ones.
    fn line_with_omitted(
        kinds: &[RuntimeEventKind],
        omitted: &[(RuntimeEventKind, u64, u64, bool)],
    ) -> String {
        let mut builder = ProfileBuilder::default();
        let process = builder.process(1, "app");
        for kind in kinds {
            let event = test_profile::runtime_event(&mut builder, process, *kind);
            let fields =
                [EventField { name: builder.string("Depth"), value: FieldValue::Unsigned(2) }].into();
            builder.add_runtime_event(RuntimeEvent { duration_ns: 1_000_000, fields, ..event });
        }
        for &(kind, count, duration_ns, is_lower_bound) in omitted {
            let (time_ns, longest_ns) = (0, duration_ns);
            builder.add_omitted_events(OmittedEvents {
                time_ns,
                process,
                kind,
                count,
                duration_ns,
                longest_ns,
                is_lower_bound,
            });
        }
        line(&builder.finish(Header::default())).unwrap()
    }

    #[test]
    fn events_that_the_profile_does_not_have_are_counted_and_it_says_how_many_it_has() {
        const EXCEPTION: RuntimeEventKind = RuntimeEventKind::Exception;
        let line = |omitted, is_lower_bound| {
            line_with_omitted(&[EXCEPTION], &[(EXCEPTION, omitted, 0, is_lower_bound)])
        };
        assert_eq!(line(19_999, false), "events: 20000 exceptions (1 kept)");
        assert_eq!(line(19_999, true), "events: at least 20000 exceptions (1 kept)");
        assert_eq!(line(0, true), "events: at least 1 exception");
        let kinds =
            [RuntimeEventKind::GarbageCollection, RuntimeEventKind::Suspension, RuntimeEventKind::Contention];
        let omitted = kinds.map(|kind| (kind, 99, 4_000_000, kind == RuntimeEventKind::Contention));
        let expected = "events: 100 garbage collections (100 of generation 2; 1 kept); 5 ms suspended; \
                        at least 100 lock contentions (at least 5 ms; 1 kept)";
        assert_eq!(line_with_omitted(&kinds, &omitted), expected);
    }

    #[test]
    fn a_profile_without_events_has_no_line() {
        assert_eq!(line(&ProfileBuilder::default().finish(Header::default())), None);
    }
}
