//! Hints of the summary: an option that shows more, and a target that ended early.

use std::{collections::BTreeSet, time::Duration};

use profiler::{Ended, EventProvider};
use profiler_profile::{Event, Profile, Sampling, sum};

/// The least share of a CPU, percent, with which CPU samples describe what a target does. Below it, it waits most of the time.
const MIN_CPU_PERCENT: f64 = 5.0;

/// The hint for a target that waits where the profile has CPU samples alone.
pub(super) fn of_waiting_target(profile: &Profile) -> Option<String> {
    let has_only_cpu_samples = profile.events().all(is_of_cpu_samples);
    let percent = has_only_cpu_samples.then(|| cpu_percent(profile)).flatten()?;
    // Without a sample, the cause names the option.
    let is_waiting = percent > 0.0 && percent < MIN_CPU_PERCENT;
    is_waiting
        .then(|| format!("the target used {percent:.1} % of a CPU: --wall shows what its threads wait for"))
}

/// The message on a target that ended before the time of `-d`.
pub(super) fn of_early_end(ended: Ended, limit: Option<Duration>, profile: &Profile) -> Option<String> {
    let is_early = limit.is_some() && ended == Ended::TargetExited;
    let seconds = Duration::from_nanos(profile.header().duration_ns).as_secs_f64();
    is_early.then(|| format!("the target ended after {seconds:.1} s, before the end of -d"))
}

/// The message on the requested providers from which no event came: a runtime does not say that it has no such provider.
pub(super) fn of_silent_providers(providers: &[EventProvider], profile: &Profile) -> Option<String> {
    // The first events of each name are kept.
    let names = profile.runtime_events().iter().map(|event| profile.string(event.name));
    let known: BTreeSet<_> =
        names.filter_map(|name| name.split_once('/')).map(|(provider, _)| provider).collect();
    let silent = providers.iter().filter(|provider| !known.contains(&*provider.name));
    let silent: Vec<_> = silent.map(|provider| format!("`{}`", provider.name)).collect();
    let is_whole = profile.header().edits.is_empty();
    (is_whole && !silent.is_empty()).then(|| {
        let names = silent.join(", ");
        format!("no event of the provider {names} was recorded: check its name, keywords and level (--event-provider)")
    })
}

/// The options to try when an event has no samples.
pub(super) fn of_no_sample(event: &Event) -> &'static str {
    if is_of_cpu_samples(event) {
        "--wall; with -p, children need --children"
    } else {
        "with -p, children need --children"
    }
}

fn is_of_cpu_samples(event: &Event) -> bool {
    matches!(event.sampling, Sampling::Frequency(_)) && event.name != Event::WALL
}

/// The average use of a CPU; `None` where the duration is unknown.
fn cpu_percent(profile: &Profile) -> Option<f64> {
    let duration_ns = profile.header().duration_ns;
    let unit_ns = profile.first_event().unit_ns()?;
    let reported = sum::of(profile.ledger().events.iter().map(|event| event.reported));
    (duration_ns > 0).then(|| 100.0 * reported as f64 * unit_ns as f64 / duration_ns as f64)
}

#[cfg(test)]
mod tests {
    use profiler_profile::{Header, ProfileBuilder, RuntimeEvent, RuntimeEventKind, StackEnd};

    use super::*;

    /// A profile of ten seconds with this number of samples of an event.
    fn profile(event: Event, reported: u64) -> Profile {
        let mut builder = ProfileBuilder::default();
        builder.event(event);
        let process = builder.process(1, "p");
        let thread = builder.thread(process, 1, "p");
        let stack = builder.stack(Vec::new(), StackEnd::Root);
        if reported > 0 {
            builder.sample(0, 0, thread, stack, reported);
        }
        builder.finish(Header { duration_ns: 10_000_000_000, ..Header::default() })
    }

    #[test]
    fn a_target_that_uses_little_of_a_cpu_has_the_option_for_waits() {
        let hint = |reported| of_waiting_target(&profile(Event::at_frequency("cpu-clock", 100), reported));
        assert_eq!(hint(0), None);
        assert!(of_no_sample(&Event::at_frequency("cpu-clock", 100)).starts_with("--wall; "));
        assert!(!of_no_sample(&Event::at_frequency(Event::WALL, 49)).contains("--wall"));
        assert_eq!(
            hint(12).unwrap(),
            "the target used 1.2 % of a CPU: --wall shows what its threads wait for"
        );
        assert_eq!(hint(50), None, "5 % of a CPU");
    }

    #[test]
    fn profiles_of_waits_and_occurrences_have_no_hint_for_waits() {
        let waits = Event { name: "off-cpu".to_owned(), sampling: Sampling::Durations { min_ns: 0 } };
        assert_eq!(of_waiting_target(&profile(waits, 0)), None);
        assert_eq!(of_waiting_target(&profile(Event::at_frequency(Event::WALL, 49), 0)), None);
        assert_eq!(of_waiting_target(&ProfileBuilder::default().finish(Header::default())), None);
    }

    #[test]
    fn a_provider_without_an_event_is_said() {
        let mut builder = ProfileBuilder::default();
        let process = builder.process(1, "p");
        let name = builder.string("Shop-Orders/Placed");
        builder.add_runtime_event(RuntimeEvent {
            time_ns: 0,
            duration_ns: 0,
            process,
            thread: None,
            kind: RuntimeEventKind::Other,
            name,
            stack: None,
            fields: Box::default(),
        });
        let profile = builder.finish(Header::default());
        let hint = |name: &str| of_silent_providers(&[name.parse().unwrap()], &profile);
        assert_eq!(hint("Shop-Orders"), None);
        assert!(
            hint("Shop-Order").unwrap().starts_with("no event of the provider `Shop-Order` was recorded")
        );
        assert_eq!(of_silent_providers(&[], &profile), None);
    }

    #[test]
    fn a_target_that_ended_before_the_limit_is_said() {
        let profile = profile(Event::at_frequency("cpu-clock", 100), 1_000);
        let limit = Some(Duration::from_secs(30));
        let expected = "the target ended after 10.0 s, before the end of -d";
        assert_eq!(of_early_end(Ended::TargetExited, limit, &profile).unwrap(), expected);
        assert_eq!(of_early_end(Ended::TargetExited, None, &profile), None);
        assert_eq!(of_early_end(Ended::Elapsed, limit, &profile), None);
    }
}
