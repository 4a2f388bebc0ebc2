//! Formats the incident of a profile for its summary: when, why, and what changed.

use std::{collections::HashMap, time::Duration};

use profiler_findings::{IdleThreads, with_wait_causes};
use profiler_profile::{
    Difference, Event, EventId, Incident, Profile, Sampling, Shape, difference::FunctionChange,
};
use profiler_profile_formats::OutputOptions;

/// The most functions whose change is listed.
const MAX_CHANGES: usize = 5;

/// The incident and the functions whose share of the samples changed most; empty for profiles without an incident.
pub(super) fn lines(profile: &Profile) -> Vec<String> {
    let Some(incident) = &profile.header().incident else { return Vec::new() };
    let mut lines = vec![incident.to_string()];
    let without_idle = compared(profile, incident, IdleThreads::Hidden);
    // A process that only waits for work has no other samples.
    lines.extend(without_idle.or_else(|| compared(profile, incident, IdleThreads::Shown)));
    lines
}

/// What changed; `None` without samples before or since.
fn compared(profile: &Profile, incident: &Incident, idle: IdleThreads) -> Option<String> {
    let causes = with_wait_causes(profile, idle);
    let shown = OutputOptions::default().displayed(&causes);
    let event = compared_event(&shown, incident)?;
    changes(&shown.single_event(event), incident)
}

/// The event that shows what changed: CPU samples where the use of the CPU began the incident. Otherwise waits, which show what a process
/// does that has no CPU; without them, the first event with samples.
fn compared_event(profile: &Profile, incident: &Incident) -> Option<EventId> {
    let with_samples = || profile.event_ids().filter(|event| profile.samples_of(*event).next().is_some());
    let is_of_cpu = |event: &EventId| profile.event(*event).name == Event::CPU_CLOCK;
    let shows_waits = |event: &EventId| {
        let event = profile.event(*event);
        event.name == "wall" || matches!(event.sampling, Sampling::Durations { .. })
    };
    let busy = with_samples().find(is_of_cpu).filter(|_| is_of_use_of_cpu(&incident.condition));
    busy.or_else(|| with_samples().find(shows_waits)).or_else(|| with_samples().next())
}

/// Whether a condition holds while a measure of the CPU is above a limit: `threads > 200 and cpu-of-quota > 90%`.
fn is_of_use_of_cpu(condition: &str) -> bool {
    let words: Vec<_> = condition.split_whitespace().map(|word| word.trim_start_matches('(')).collect();
    words.windows(2).any(|pair| pair[0].starts_with("cpu") && pair[1].starts_with('>'))
}

/// Compares the time before the incident with the time since it began.
fn changes(profile: &Profile, incident: &Incident) -> Option<String> {
    let since = Duration::from_nanos(incident.since_ns);
    let before = profile.shaped(&Shape { to: Some(since), ..Shape::default() });
    let during = profile.shaped(&Shape { from: Some(since), ..Shape::default() });
    if before.samples().is_empty() || during.samples().is_empty() {
        return None;
    }
    let difference = Difference::between(&before, &during);
    let distances = distances_from_root(profile);
    let mut functions = difference.functions();
    functions.retain(|FunctionChange { name, total_change, .. }| {
        distances.contains_key(name) && total_change.is_beyond_noise() && !total_change.is_of_nearly_all()
    });
    let size = |function: &FunctionChange<'_>| function.total_change.points().abs();
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
    Some(if changed.is_empty() {
        "no function has another share of the samples since then".to_owned()
    } else {
        format!("changed since then: {}", changed.join("; "))
    })
}

/// The smallest distance of each function with a symbol from the root of a stack.
fn distances_from_root(profile: &Profile) -> HashMap<&str, usize> {
    let mut distances = HashMap::new();
    for stack in profile.stack_views() {
        for (distance, frame) in stack.frames().rev().enumerate().filter(|(_, frame)| frame.source().is_ok())
        {
            let smallest = distances.entry(frame.name()).or_insert(distance);
            *smallest = distance.min(*smallest);
        }
    }
    distances
}

#[cfg(test)]
mod tests {
    use profiler_profile::{Header, ProfileBuilder, Sample, StackEnd, ThreadState, test_profile};

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

    /// 100 s of CPU samples, of `work` and from second 60 on of `spin`, and of a thread that waits for a lock, then for work.
    fn with_waits(condition: &str) -> Profile {
        let mut builder = ProfileBuilder::default();
        let cpu = builder.event(Event::at_frequency(Event::CPU_CLOCK, 1));
        let wall = builder.event(Event::at_frequency("wall", 1));
        let process = builder.process(7, "p");
        let thread = builder.thread(process, 7, "p");
        let mut stack = |names: &str| {
            let frames = names.split(';').map(|name| test_profile::function(&mut builder, name, 1)).collect();
            builder.stack(frames, StackEnd::Root)
        };
        let of_cpu = [stack("work;main"), stack("spin;main")];
        let of_wall = [stack("pthread_mutex_lock;take;main"), stack("epoll_wait;run_loop;main")];
        for second in 0..100 {
            let (time_ns, part) = (second * NS_PER_S, usize::from(second >= 60));
            builder.add_sample(Sample {
                time_ns,
                cpu: 0,
                thread,
                stack: of_cpu[part],
                event: cpu,
                state: None,
                value: 1,
            });
            let state = Some(ThreadState::Blocked);
            builder.add_sample(Sample {
                time_ns,
                cpu: 0,
                thread,
                stack: of_wall[part],
                event: wall,
                state,
                value: 1,
            });
            let state = Some(ThreadState::OnCpu);
            builder.add_sample(Sample {
                time_ns,
                cpu: 0,
                thread,
                stack: of_cpu[0],
                event: wall,
                state,
                value: 1,
            });
        }
        let (since_ns, time_ns) = (60 * NS_PER_S, 70 * NS_PER_S);
        let incident = Incident { since_ns, time_ns, condition: condition.to_owned(), values: String::new() };
        builder.finish(Header { duration_ns: 100 * NS_PER_S, incident: Some(incident), ..Header::default() })
    }

    #[test]
    fn what_changed_is_that_of_the_event_that_began_the_incident_without_idle_threads() {
        let changed = |condition| lines(&with_waits(condition)).remove(1);
        for condition in ["cpu > 80% for 2s", "threads > 9 and (cpu-of-quota >= 90% or rss > 2GB)"] {
            assert_eq!(changed(condition), "changed since then: spin 0 -> 100 %; work 100 -> 0 %");
        }
        assert_eq!(
            changed("cpu < 20% for 2s"),
            "changed since then: work 50 -> 100 %; take 50 -> 0 %",
            "an idle thread has no share"
        );
    }

    #[test]
    fn a_profile_without_samples_before_the_incident_has_no_changes() {
        let mut profile = profile(false);
        profile.set_incident(Incident { since_ns: 0, ..Incident::default() });
        assert_eq!(lines(&profile).len(), 1);
    }
}
