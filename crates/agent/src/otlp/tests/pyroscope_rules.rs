//! The rules by which Pyroscope accepts a request and shows all of it (`pkg/ingester/otlp`, `pkg/validation` and `pkg/pprof`
//! in grafana/pyroscope), with its default limits or narrower ones.

use std::collections::{BTreeMap, HashMap, HashSet};

use opentelemetry_proto::tonic::profiles::v1development::{Profile, Sample};

use super::decoded_request::DecodedRequest;
use crate::otlp::OtlpOptions;

const MAX_LABELS: usize = 30;
const MAX_LABEL_NAME_BYTES: usize = 1_024;
const MAX_LABEL_VALUE_BYTES: usize = 2_048;

/// Fails if a request breaks a rule.
pub(super) fn check(decoded: &DecodedRequest, options: &OtlpOptions) {
    for (resource, profile) in decoded.profiles() {
        let types = decoded.types(profile);
        let name = profile_name(&types, profile.period);
        assert!(!name.is_empty(), "invalid metric name");
        assert_eq!(
            name == "process_cpu",
            types[0] == "samples" && types[2] == "cpu" && types[3] == "nanoseconds"
        );
        assert!(!types[0].contains('-'), "sample type contains -");
        assert!(profile.samples.len() <= options.max_profile_samples, "exceeds the samples count limit");
        let pprof_bytes = pprof_bytes(decoded, profile);
        assert!(pprof_bytes <= options.max_profile_bytes, "exceeds the size limit: {pprof_bytes}");
        let factor = if name == "process_cpu" { profile.period } else { 1 };
        for sample in &profile.samples {
            let value = sample.values[0].checked_mul(factor);
            assert!(value.is_some_and(|value| value >= 0), "negative values are dropped");
            check_labels(&resource, &name, &decoded.attributes(&sample.attribute_indices));
            check_stack(decoded, sample, options);
        }
    }
}

/// The name of a profile's series by its types and period (`newProfileBuilder`).
fn profile_name(types: &[String; 4], period: i64) -> String {
    let [sample, sample_unit, period_type, period_unit] = types;
    let (period_type, period_unit) =
        if period == 0 { ("", "") } else { (period_type.as_str(), period_unit.as_str()) };
    match format!("{sample}:{sample_unit}:{period_type}:{period_unit}").as_str() {
        "samples:count:cpu:nanoseconds" => "process_cpu".to_owned(),
        "off_cpu:nanoseconds::" => "off_cpu".to_owned(),
        joined => joined.split(':').nth(2).unwrap().to_owned(),
    }
}

/// The labels of a series: those of Pyroscope, the attributes of the resource, and those of samples (`ValidateLabels`).
fn check_labels(resource: &BTreeMap<String, String>, name: &str, of_sample: &[(String, String)]) {
    let service = resource.get("service.name").map_or("unknown_service", String::as_str);
    let own = [("__delta__", "false"), ("__otel__", "true"), ("__name__", name), ("service_name", service)];
    let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let of_resource = resource.iter().map(|(key, value)| (key.clone(), value.clone()));
    let labels: Vec<_> = own.into_iter().chain(of_resource).chain(of_sample.iter().cloned()).collect();
    assert!(labels.len() <= MAX_LABELS, "{} label names", labels.len());
    let mut sanitized = HashMap::new();
    for (key, value) in labels {
        assert!(key.len() <= MAX_LABEL_NAME_BYTES, "label name too long");
        assert!(value.len() <= MAX_LABEL_VALUE_BYTES, "label value too long");
        let is_name = |(index, byte): (usize, u8)| {
            byte.is_ascii_alphabetic() || b"_.".contains(&byte) || (byte.is_ascii_digit() && index > 0)
        };
        assert!(!key.is_empty() && key.bytes().enumerate().all(is_name), "invalid label name {key:?}");
        let earlier = sanitized.insert(key.replace('.', "_"), value.clone());
        assert!(earlier.is_none_or(|earlier| earlier == value), "duplicate label name {key:?}");
    }
}

fn check_stack(decoded: &DecodedRequest, sample: &Sample, options: &OtlpOptions) {
    let locations = decoded.locations(sample);
    assert!(!locations.is_empty(), "a sample without a location is dropped");
    assert!(locations.len() <= options.max_frames, "the frames nearest to the leaf are cut");
    for location in locations {
        // One location without a function marks its whole mapping as not symbolized.
        assert!(!location.lines.is_empty());
        for line in &location.lines {
            assert!(line.function_index > 0);
            let function =
                &decoded.dictionary().function_table[usize::try_from(line.function_index).unwrap()];
            assert!(!decoded.string(function.name_strindex).is_empty());
        }
    }
}

/// The size of the profile of pprof that Pyroscope makes (`convertSampleBack`): it adds the mappings of each sample anew.
fn pprof_bytes(decoded: &DecodedRequest, profile: &Profile) -> usize {
    let dictionary = decoded.dictionary();
    let mut strings = HashSet::from([String::new()]);
    let mut bytes = 2;
    let (mut locations, mut functions, mut mappings) = (HashMap::new(), HashSet::new(), 0);
    let mut add_string = |text: &str, bytes: &mut usize| {
        if strings.insert(text.to_owned()) {
            *bytes += field(text.len());
        }
        number(strings.len() as u64)
    };
    for text in decoded.types(profile) {
        bytes += 2 + 2 * add_string(&text, &mut bytes);
    }
    bytes += 3 * number(u64::MAX);
    for sample in &profile.samples {
        let (mut ids, mut mapping_indices) = (0, HashSet::new());
        for location in decoded.locations(sample) {
            if mapping_indices.insert(location.mapping_index) {
                mappings += 1;
                let mapping = decoded.mapping(location);
                let file = add_string(decoded.string(mapping.filename_strindex), &mut bytes);
                let build_id = decoded.attributes(&mapping.attribute_indices);
                let build_id = build_id.first().map_or("", |(_, value)| value);
                let build_id = add_string(build_id, &mut bytes);
                bytes += field(number(mappings) + number(mapping.memory_limit) + file + build_id + 4 * 2);
            }
            let next = locations.len() as u64 + 1;
            let location_id = *locations.entry(std::ptr::from_ref(location)).or_insert_with(|| {
                let lines = location.lines.iter().map(|line| {
                    if functions.insert(line.function_index) {
                        let function =
                            &dictionary.function_table[usize::try_from(line.function_index).unwrap()];
                        let name = add_string(decoded.string(function.name_strindex), &mut bytes);
                        let file = add_string(decoded.string(function.filename_strindex), &mut bytes);
                        bytes += field(number(functions.len() as u64) + name + file);
                    }
                    field(number(functions.len() as u64) + number(line.line.unsigned_abs()))
                });
                let lines: usize = lines.sum();
                bytes += field(number(next) + number(mappings) + number(location.address) + lines);
                next
            });
            ids += number(location_id) - 1;
        }
        let labels = decoded.attributes(&sample.attribute_indices);
        let labels = labels
            .iter()
            .map(|(key, value)| field(add_string(key, &mut bytes) + add_string(value, &mut bytes)));
        let labels: usize = labels.sum();
        bytes += field(field(ids) + field(number(sample.values[0].unsigned_abs())) + labels);
    }
    bytes
}

/// A field of variable length.
fn field(length: usize) -> usize {
    1 + prost::length_delimiter_len(length) + length
}

/// A number with its tag.
fn number(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    1 + bits.div_ceil(7)
}
