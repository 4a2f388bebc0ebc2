//! Tests that a server accepts each message, and that the messages of a window have its samples.

mod server;

use std::collections::BTreeMap;

use profiler_profile::{
    Event, EventId, Header, Profile, ProfileBuilder, Sample, Sampling, StackEnd, ThreadState, sum,
    test_profile,
};

use self::server::{Stored, accept};
use super::*;
use crate::{
    Message, Resource,
    tests::wire::{self, decompressed},
};

/// The resource with a number.
fn resource(number: u32) -> Resource {
    let attributes = [("service.name", format!("service-{number}")), ("k8s.pod.name", "web-0".to_owned())];
    Resource { attributes: attributes.map(|(name, value)| (name.to_owned(), value)).into() }
}

/// A window in which the PID of a process decides its resource.
fn window(profile: Profile) -> Window {
    Window::new(profile, |profile, id| resource(profile.process(id).pid % 3))
}

/// The samples of a window, as the ledger counts them.
fn samples_of(profile: &Profile) -> u64 {
    let samples = profile.samples().iter();
    sum::of(samples.map(|sample| profile.event(sample.event).sample_count(sample.value)))
}

/// Stores the messages of a window, after a check of the account.
fn stored(window: &Window, options: &PyroscopeOptions) -> (Vec<Stored>, u64) {
    let Encoded { messages, too_large } = encode(window, options);
    let samples = sum::of(messages.iter().map(|message| message.samples));
    assert_eq!(samples.saturating_add(too_large), samples_of(window.profile()));
    (messages.iter().map(|Message { body, .. }| accept(&decompressed(body))).collect(), too_large)
}

/// The sum of the values of each service, profile name, stack and state.
type Sums = BTreeMap<(String, String, Vec<String>, Option<String>), i128>;

fn sums_of_stored(stored: &[Stored]) -> Sums {
    let mut sums = Sums::new();
    for Stored { labels, samples, .. } in stored {
        for sample in samples {
            let key = (labels["service_name"].clone(), labels["__name__"].clone());
            let key = (key.0, key.1, sample.functions.clone(), sample.state.clone());
            *sums.entry(key).or_default() += i128::from(sample.value);
        }
    }
    limited(sums)
}

/// The sums, up to the largest number of pprof.
fn limited(sums: Sums) -> Sums {
    sums.into_iter().map(|(key, sum)| (key, sum.min(i64::MAX.into()))).collect()
}

/// What should be stored of a window.
fn expected_sums(window: &Window) -> Sums {
    let profile = window.profile();
    let mut sums = Sums::new();
    for sample in profile.samples() {
        let event = profile.event(sample.event);
        let resource = &window.resources()[window.resource_of(profile.thread(sample.thread).process)];
        let name =
            if event.name == "cpu-clock" { "process_cpu".to_owned() } else { event.name.replace('-', "_") };
        let frames = profile.stack(sample.stack).frames.iter();
        // The name of a function is written as it is shown in outputs.
        let name_of =
            |id| profiler_profile_formats::escaped(profile.string(profile.frame(id).name)).into_owned();
        let frames = frames.map(|id| name_of(*id)).collect();
        let state = sample.state.map(|state| state.to_string());
        let value = i128::from(sample.value) * i128::from(event.unit_ns().unwrap_or(1));
        *sums.entry((resource.attributes["service.name"].clone(), name, frames, state)).or_default() += value;
    }
    limited(sums)
}

#[test]
fn a_server_stores_the_samples_of_random_windows() {
    for seed in 0..300 {
        let window = window(test_profile::random(seed));
        let (stored, too_large) = stored(&window, &PyroscopeOptions::default());
        assert_eq!(too_large, 0);
        assert_eq!(sums_of_stored(&stored), expected_sums(&window), "seed {seed}");
    }
}

#[test]
fn windows_are_split_at_every_limit_and_nothing_is_lost() {
    for seed in 0..100 {
        let window = window(test_profile::random(seed));
        let limits = [(usize::MAX, 3), (700, 16_000), (usize::MAX, 1), (usize::MAX, 0)];
        for (max_profile_bytes, max_samples) in limits {
            let options = PyroscopeOptions { max_profile_bytes, max_samples, ..PyroscopeOptions::default() };
            let (stored, too_large) = stored(&window, &options);
            assert!(stored.iter().all(|stored| stored.samples.len() <= max_samples.max(1)));
            if too_large == 0 {
                assert_eq!(sums_of_stored(&stored), expected_sums(&window), "seed {seed}");
            }
        }
    }
}

#[test]
fn stacks_that_exceed_the_limit_alone_are_counted() {
    let options = PyroscopeOptions { max_profile_bytes: 1_000, ..PyroscopeOptions::default() };
    let long = "x".repeat(2_000);
    let window = window(test_profile::folded(&[("app;main", 2), (&format!("app;main;{long}"), 5)]));
    let (stored, too_large) = stored(&window, &options);
    assert_eq!((stored.len(), too_large), (1, 5));
    assert_eq!(stored[0].samples[0].functions, ["main"]);
}

#[test]
fn the_leaf_of_a_deep_stack_is_kept() {
    let line = (0..3_000).map(|depth| format!("f{depth}")).collect::<Vec<_>>().join(";");
    let window = window(test_profile::folded(&[(&format!("app;{line}"), 1)]));
    let (stored, _) = stored(&window, &PyroscopeOptions::default());
    let functions = &stored[0].samples[0].functions;
    assert_eq!((functions.len(), functions[0].as_str(), functions[999].as_str()), (1_000, "f2999", "f2000"));
}

#[test]
fn a_window_with_many_stacks_is_split_at_the_limits_of_the_server() {
    let mut builder = ProfileBuilder::default();
    let cpu = builder.event(Event::at_frequency("cpu-clock", 19));
    let process = builder.process(1, "app");
    let thread = builder.thread(process, 1, "app");
    let root = test_profile::function(&mut builder, "main", 0);
    for number in 0..40_000_u64 {
        let name = format!("{number:05}-{}", "name".repeat(10));
        let leaf = test_profile::function(&mut builder, &name, 1 + number);
        let stack = builder.stack(vec![leaf, root], StackEnd::Root);
        builder.add_sample(Sample {
            time_ns: number,
            cpu: 0,
            thread,
            stack,
            event: cpu,
            state: None,
            value: 1,
        });
    }
    let window = window(builder.finish(Header::default()));
    let (stored, too_large) = stored(&window, &PyroscopeOptions::default());
    assert_eq!(too_large, 0);
    assert!(stored.len() < 10, "{}", stored.len());
    assert_eq!(stored.iter().map(|stored| stored.samples.len()).sum::<usize>(), 40_000);
}

#[test]
fn each_event_has_the_profile_type_of_pyroscope() {
    let mut builder = ProfileBuilder::default();
    let events = [
        Event::at_frequency("cpu-clock", 19),
        Event::at_frequency("wall", 10),
        Event { name: "off-cpu".to_owned(), sampling: Sampling::Durations { min_ns: 1 } },
    ];
    let events: Vec<EventId> = events.into_iter().map(|event| builder.event(event)).collect();
    let process = builder.process(1, "app");
    let thread = builder.thread(process, 1, "app");
    let stack = builder.stack(Vec::new(), StackEnd::Empty);
    for (event, state) in events.into_iter().zip([None, Some(ThreadState::Blocked), Some(ThreadState::Disk)])
    {
        builder.add_sample(Sample { time_ns: 0, cpu: 0, thread, stack, event, state, value: 7 });
    }
    let header = Header { started_unix_ns: 1_700_000_000_000_000_000, ..Header::default() };
    let (stored, _) = stored(&window(builder.finish(header)), &PyroscopeOptions::default());
    let types: Vec<_> = stored
        .iter()
        .map(|stored| {
            let types = stored.types.iter().map(|(kind, unit)| format!("{kind}:{unit}"));
            format!("{}:{}", stored.labels["__name__"], types.collect::<Vec<_>>().join(":"))
        })
        .collect();
    let expected = [
        "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
        "wall:wall:nanoseconds:wall:nanoseconds",
        "off_cpu:off_cpu:nanoseconds",
    ];
    assert_eq!(types, expected);
    assert!(stored.iter().all(|stored| stored.time_ns == 1_700_000_000_000_000_000));
    let states: Vec<_> = stored.iter().map(|stored| stored.samples[0].state.as_deref()).collect();
    assert_eq!(states, [None, Some("blocked"), Some("disk")]);
    assert_eq!(stored[2].samples[0].value, 7);
}

#[test]
fn a_window_without_samples_has_no_message() {
    let window = window(ProfileBuilder::default().finish(Header::default()));
    assert_eq!(encode(&window, &PyroscopeOptions::default()), Encoded::default());
}
