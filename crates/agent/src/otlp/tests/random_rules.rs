//! Random windows obey the rules of the specification and of the backends, and all their samples are accounted for.

use std::{collections::BTreeMap, thread};

use profiler_profile::Sampling;

use super::{
    decoded_request::{DecodedRequest, decode},
    parca_rules, pyroscope_rules,
    random_windows::{self, Random},
    specification_rules,
};
use crate::{Encoded, Window, otlp};

/// The number of windows that are checked by default.
const WINDOWS: u64 = 1_000;

/// `PROFILER_RANDOM_WINDOWS=NUMBER` checks more or fewer.
#[test]
fn random_windows_follow_the_rules_of_the_backends() {
    let windows = std::env::var("PROFILER_RANDOM_WINDOWS").map_or(WINDOWS, |number| number.parse().unwrap());
    let threads = thread::available_parallelism().unwrap().get() as u64;
    let requests: Vec<u64> = thread::scope(|scope| {
        let check = |first: u64| (first..windows).step_by(threads as usize).map(check_window).sum();
        let workers: Vec<_> = (0..threads).map(|first| scope.spawn(move || check(first))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let requests: u64 = requests.iter().sum();
    assert!(requests > windows, "{requests} requests of {windows} windows: narrow limits split none");
}

/// Checks the requests of a window, and returns their number.
fn check_window(seed: u64) -> u64 {
    let mut random = Random::new(seed ^ 0x5eed);
    let (window, options) = (random_windows::window(seed), random_windows::options(&mut random));
    let encoded = otlp::encode(&window, &options);
    let requests: Vec<_> = encoded.messages.iter().map(decode).collect();
    for request in &requests {
        assert!(request.bytes <= options.max_request_bytes, "seed {seed}: {} bytes", request.bytes);
        specification_rules::check(request);
        parca_rules::check(request);
        pyroscope_rules::check(request, &options);
    }
    check_account(&window, &encoded, &requests);
    if options.max_frames == 1_000 && options.max_thread_names == 0 {
        check_values(&window, &options, &encoded, &requests);
    }
    requests.len() as u64
}

/// All samples are in a message or counted as too large, and a message has the samples that it states.
fn check_account(window: &Window, encoded: &Encoded, requests: &[DecodedRequest]) {
    let profile = window.profile();
    let sent: u64 = encoded.messages.iter().map(|message| message.samples).sum();
    assert_eq!(sent + encoded.too_large, random_windows::sample_count(profile));
    if profile.events().any(|event| matches!(event.sampling, Sampling::Durations { .. })) {
        return;
    }
    for (message, request) in encoded.messages.iter().zip(requests) {
        let of_profile = |(texts, value): (super::decoded_request::SampleTexts, i64)| {
            let tick = if texts.types[0] == "wall" { 1_000_000_000 / 49 } else { 1 };
            value.unsigned_abs() / tick
        };
        assert_eq!(message.samples, request.samples().into_iter().map(of_profile).sum::<u64>());
    }
}

/// Each stack has its value, in total over the requests.
fn check_values(
    window: &Window,
    options: &otlp::OtlpOptions,
    encoded: &Encoded,
    requests: &[DecodedRequest],
) {
    let mut values = BTreeMap::new();
    for (texts, value) in requests.iter().flat_map(DecodedRequest::samples) {
        *values.entry(texts).or_insert(0) += i128::from(value);
    }
    let expected = random_windows::expected(window, options);
    if encoded.too_large == 0 {
        assert_eq!(values, expected);
    }
    for (texts, value) in values {
        assert!(expected.get(&texts).is_some_and(|expected| value <= *expected), "{texts:?}: {value}");
    }
}
