//! Formats the incident of a profile for its summary: when, why, and what changed.

use std::{collections::HashMap, time::Duration};

use profiler_profile::{Difference, EventId, Incident, Profile, Sampling, Shape, difference::FunctionChange};

/// The most functions whose change is listed.
const MAX_CHANGES: usize = 5;

/// The incident and the functions whose share of the samples changed most; empty for profiles without an incident.
pub(super) fn lines(profile: &Profile) -> Vec<String> {
    let Some(incident) = &profile.header().incident else { return Vec::new() };
    let mut lines = vec![incident.to_string()];
    if let Some(event) = compared_event(profile) {
        lines.extend(changes(&profile.single_event(event), incident));
    }
    lines
}

/// Waits show what a process does that has no CPU; without them, the first event with samples.
fn compared_event(profile: &Profile) -> Option<EventId> {
    let shows_waits = |event: &EventId| {
        let event = profile.event(*event);
        event.name == "wall" || matches!(event.sampling, Sampling::Durations { .. })
    };
    let with_samples = || profile.event_ids().filter(|event| profile.samples_of(*event).next().is_some());
    with_samples().find(shows_waits).or_else(|| with_samples().next())
}

/// Compares the time before the incident with the time since it began.
fn changes(profile: &Profile, incident: &Incident) -> Vec<String> {
    let since = Duration::from_nanos(incident.since_ns);
    let before = profile.shaped(&Shape { to: Some(since), ..Shape::default() });
    let during = profile.shaped(&Shape { from: Some(since), ..Shape::default() });
    if before.samples().is_empty() || during.samples().is_empty() {
        return Vec::new();
    }
    let difference = Difference::between(&before, &during);
    let mut functions = difference.functions();
    functions.retain(|function| function.total_change.is_beyond_noise() && !is_in_nearly_all(function));
    let size = |function: &FunctionChange<'_>| function.total_change.points().abs();
    let distances = distances_from_root(profile);
    functions.sort_by(|a, b| {
        let by_distance = || distances.get(a.name).cmp(&distances.get(b.name));
        size(b).total_cmp(&size(a)).then_with(by_distance)
    });
    // Of functions in the same samples, the outermost one.
    functions
        .dedup_by_key(|function| (function.total_change.before_count, function.total_change.after_count));
    let described = |function: &FunctionChange<'_>| {
        let change = function.total_change;
        format!("{} {:.0} -> {:.0} %", function.name, change.before_percent(), change.after_percent())
    };
    let changed: Vec<_> = functions.iter().take(MAX_CHANGES).map(described).collect();
    if changed.is_empty() {
        return vec!["no function has another share of the samples since then".to_owned()];
    }
    vec![format!("changed since then: {}", changed.join("; "))]
}

/// The smallest distance of each function from the root of a stack.
fn distances_from_root(profile: &Profile) -> HashMap<&str, usize> {
    let mut distances = HashMap::new();
    for stack in profile.stack_views() {
        for (distance, frame) in stack.frames().rev().enumerate() {
            let smallest = distances.entry(frame.name()).or_insert(distance);
            *smallest = distance.min(*smallest);
        }
    }
    distances
}

/// Whether the function is the root of nearly all stacks, before and since.
fn is_in_nearly_all(function: &FunctionChange<'_>) -> bool {
    const NEARLY_ALL_PERCENT: f64 = 95.0;
    let change = function.total_change;
    change.before_percent().min(change.after_percent()) > NEARLY_ALL_PERCENT
}

#[cfg(test)]
mod tests {
    use profiler_profile::{Event, Header, ProfileBuilder, StackEnd, test_profile};

    use super::*;

    const NS_PER_S: u64 = 1_000_000_000;

    /// 100 s with a sample each second: `work` before second 60, `sleep` from then on.
    fn profile(has_incident: bool) -> Profile {
        let mut builder = ProfileBuilder::default();
        builder.event(Event::at_frequency("wall", 1));
        let process = builder.process(7, "p");
        let thread = builder.thread(process, 7, "p");
        for second in 0..100 {
            let names = if second < 60 { &["work", "main"][..] } else { &["poll", "sleep", "main"] };
            let frames = names.iter().map(|name| test_profile::function(&mut builder, name, 1)).collect();
            let stack = builder.stack(frames, StackEnd::Root);
            builder.sample(second * NS_PER_S, 0, thread, stack, 1);
        }
        let incident = Incident {
            since_ns: 60 * NS_PER_S,
            time_ns: 70 * NS_PER_S,
            condition: "cpu < 20% for 10s".to_owned(),
            values: "cpu 3.1 %".to_owned(),
        };
        let incident = has_incident.then_some(incident);
        builder.finish(Header { duration_ns: 100 * NS_PER_S, incident, ..Header::default() })
    }

    #[test]
    fn the_functions_that_changed_since_the_incident_began_are_listed() {
        let expected = [
            "incident at 70.0 s: cpu < 20% for 10s (cpu 3.1 %)",
            "changed since then: work 100 -> 0 %; sleep 0 -> 100 %",
        ];
        assert_eq!(lines(&profile(true)), expected);
        assert!(lines(&profile(false)).is_empty());
    }

    #[test]
    fn a_profile_without_samples_before_the_incident_has_no_changes() {
        let mut profile = profile(false);
        profile.set_incident(Incident { since_ns: 0, ..Incident::default() });
        assert_eq!(lines(&profile).len(), 1);
    }
}
