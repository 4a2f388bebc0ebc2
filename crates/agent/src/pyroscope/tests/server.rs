//! The acceptance rules of a Pyroscope server with default settings (`ValidateLabels` and `ValidateProfile` in
//! `pkg/validation/validate.go`, `sanitizeProfile` and `Normalize` in `pkg/pprof/pprof.go` of its sources), and what it
//! stores of a request.

use std::collections::{BTreeMap, BTreeSet};

use super::wire::{Fields, decompressed};

/// Bytes of a profile that the rate limiter lets through at once (`distributor.ingestion-burst-size-mb`).
const BURST_BYTES: usize = 2 << 20;

/// What the server stores of a profile.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) labels: BTreeMap<String, String>,
    /// Type and unit of values, and those of the period.
    pub(crate) types: Vec<(String, String)>,
    pub(crate) time_ns: u64,
    pub(crate) samples: Vec<StoredSample>,
}

#[derive(Debug)]
pub(crate) struct StoredSample {
    /// Leaf first.
    pub(crate) functions: Vec<String>,
    pub(crate) state: Option<String>,
    pub(crate) value: i64,
}

/// Accepts a request without its compression. Panics where the server would refuse it, or drop a sample of it.
pub(crate) fn accept(request: &[u8]) -> Stored {
    let request = Fields::decode(request);
    let series = request.messages(1);
    assert_eq!(series.len(), 1, "a request with several series may be stored in part");
    let labels: Vec<_> = series[0].messages(1).iter().map(|label| (text(label, 1), text(label, 2))).collect();
    let samples = series[0].messages(2);
    assert_eq!(samples.len(), 1);
    let pprof = decompressed(samples[0].bytes(1)[0]);
    assert!(pprof.len() + 8192 <= BURST_BYTES, "{} bytes", pprof.len());
    let stored = profile(&Fields::decode(&pprof), &labels);
    check_labels(&labels, stored.samples.iter().any(|sample| sample.state.is_some()));
    stored
}

fn text(fields: &Fields, number: u64) -> String {
    fields.texts(number).pop().unwrap_or_default()
}

fn check_labels(labels: &[(String, String)], has_states: bool) {
    assert!(labels.len() + usize::from(has_states) <= 30, "{} labels", labels.len());
    let names: BTreeSet<_> = labels.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), labels.len(), "a label occurs twice: {labels:?}");
    for (name, value) in labels {
        let is_valid = |(index, c): (usize, char)| {
            c.is_ascii_alphabetic() || c == '_' || (index > 0 && c.is_ascii_digit())
        };
        assert!(!name.is_empty() && name.chars().enumerate().all(is_valid), "{name:?}");
        assert!(name.len() <= 1024 && value.len() <= 2048);
    }
    for required in ["__name__", "service_name"] {
        assert!(labels.iter().any(|(name, value)| name == required && !value.is_empty()), "{required}");
    }
}

fn profile(pprof: &Fields, labels: &[(String, String)]) -> Stored {
    let strings = pprof.texts(6);
    assert_eq!(strings[0], "");
    assert!(strings.iter().all(|text| text.len() <= 65_535), "a text is cut");
    let string = |index: u64| strings[usize::try_from(index).unwrap()].clone();
    let value_type = |fields: &Fields| (string(fields.number(1)), string(fields.number(2)));
    let sample_types: Vec<_> = pprof.messages(1).iter().map(value_type).collect();
    assert_eq!(sample_types.len(), 1);
    let types = sample_types.into_iter().chain(pprof.messages(11).iter().map(value_type)).collect();

    let functions: BTreeMap<u64, String> =
        pprof.messages(5).iter().map(|function| (function.number(1), string(function.number(2)))).collect();
    let mappings: BTreeSet<u64> = pprof.messages(3).iter().map(|mapping| mapping.number(1)).collect();
    let mut locations = BTreeMap::new();
    for location in pprof.messages(4) {
        assert!(location.number(2) == 0 || mappings.contains(&location.number(2)));
        let lines = location.messages(4);
        assert!(!lines.is_empty(), "a location without a line marks its mapping as unsymbolized");
        let names: Vec<_> = lines.iter().map(|line| functions[&line.number(1)].clone()).collect();
        assert!(locations.insert(location.number(1), names).is_none());
    }
    let samples = pprof.messages(2);
    assert!(samples.len() <= 16_000, "{} samples", samples.len());
    let stored = samples.iter().map(|sample| {
        let stack = sample.numbers(1);
        assert!(stack.len() <= 1_000, "the server cuts the leaf of {} frames", stack.len());
        let values = sample.numbers(2);
        assert_eq!(values.len(), 1);
        let value = values[0].cast_signed();
        assert!(value >= 0, "{value}");
        let labels: Vec<_> = sample
            .messages(3)
            .iter()
            .map(|label| (string(label.number(1)), string(label.number(2))))
            .collect();
        assert!(labels.iter().all(|(key, _)| key == "state") && labels.len() <= 1, "{labels:?}");
        StoredSample {
            functions: stack.iter().flat_map(|id| locations[id].clone()).collect(),
            state: labels.into_iter().next().map(|(_, state)| state),
            value,
        }
    });
    Stored {
        labels: labels.iter().cloned().collect(),
        types,
        time_ns: pprof.number(9),
        samples: stored.collect(),
    }
}
