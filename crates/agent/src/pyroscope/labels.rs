//! The labels of a series: those that Pyroscope needs, and the attributes of the resource.

use std::collections::BTreeMap;

use profiler_profile::Event;

use super::message::LabelPair;
use crate::Resource;

/// Most labels of a series: the server's limit of 30 (`validation.max-label-names-per-series`), without the label `state`
/// of a stack, which becomes one of the series.
const MAX_LABELS: usize = 29;

/// Longest name, bytes (`validation.max-length-label-name`).
const MAX_NAME_BYTES: usize = 1024;

/// Longest value, bytes (`validation.max-length-label-value`).
const MAX_VALUE_BYTES: usize = 2048;

/// The label with the kind of profile.
const PROFILE_NAME: &str = "__name__";

const SERVICE_NAME: &str = "service_name";

/// The service of resources without a name, as in OpenTelemetry's conventions and in Pyroscope.
const UNKNOWN_SERVICE: &str = "unknown_service";

/// The labels of the series of an event of a resource, by name. Where a resource has too many, the last ones are left out.
pub(super) fn of(resource: &Resource, event: &Event) -> Vec<LabelPair> {
    let service = resource.attributes.get("service.name").and_then(|name| label_value(name));
    let mut labels = BTreeMap::from([
        (PROFILE_NAME.to_owned(), profile_name(event)),
        (SERVICE_NAME.to_owned(), service.unwrap_or(UNKNOWN_SERVICE).to_owned()),
    ]);
    for (name, value) in &resource.attributes {
        if labels.len() == MAX_LABELS {
            break;
        }
        if let (Some(name), Some(value)) = (label_name(name), label_value(value)) {
            labels.entry(name).or_insert_with(|| value.to_owned());
        }
    }
    labels.into_iter().map(|(name, value)| LabelPair { name, value }).collect()
}

/// The name of the profiles of an event. Pyroscope's pages know `process_cpu`, `wall` and `off_cpu`.
fn profile_name(event: &Event) -> String {
    match event.name.as_str() {
        "" | Event::CPU_CLOCK => "process_cpu".to_owned(),
        name => with_underscores(name),
    }
}

/// The name of the label of an attribute: dots become underscores. `None` for names that the server does not accept or
/// reserves.
fn label_name(attribute: &str) -> Option<String> {
    let name = with_underscores(attribute);
    let is_valid = !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.starts_with("__");
    is_valid.then_some(name)
}

fn with_underscores(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// A value, cut at the limit. An empty one is the same as no label.
fn label_value(value: &str) -> Option<&str> {
    let end = (0..=value.len().min(MAX_VALUE_BYTES)).rev().find(|end| value.is_char_boundary(*end))?;
    Some(&value[..end]).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(attributes: &[(&str, &str)]) -> Vec<(String, String)> {
        let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let resource = Resource { attributes: attributes.collect() };
        let labels = of(&resource, &Event::at_frequency("cpu-clock", 19));
        labels.into_iter().map(|LabelPair { name, value }| (name, value)).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn attributes_are_labels_with_underscores() {
        let found = labels(&[("service.name", "web"), ("k8s.pod.name", "web-0"), ("a-b", "c")]);
        let expected =
            [("__name__", "process_cpu"), ("a_b", "c"), ("k8s_pod_name", "web-0"), ("service_name", "web")];
        assert_eq!(found, pairs(&expected));
    }

    #[test]
    fn a_resource_without_a_service_has_the_name_of_the_server() {
        let expected = pairs(&[("__name__", "process_cpu"), ("service_name", "unknown_service")]);
        assert_eq!(labels(&[]), expected);
        assert_eq!(labels(&[("service.name", ""), ("", "x"), ("__name__", "x"), ("1a", "x")]), expected);
    }

    #[test]
    fn the_service_name_precedes_a_label_of_the_same_name() {
        let found = labels(&[("service.name", "web"), ("service_name", "other")]);
        assert_eq!(found, pairs(&[("__name__", "process_cpu"), ("service_name", "web")]));
    }

    #[test]
    fn names_values_and_their_number_are_bounded() {
        let many: Vec<_> = (0..100).map(|number| (format!("a{number}"), "\u{e9}".repeat(2000))).collect();
        let mut many: Vec<_> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        many.extend([(long.as_str(), "x"), ("service.name", "web")]);
        let found = labels(&many);
        assert_eq!(found.len(), MAX_LABELS);
        assert!(found.contains(&("service_name".to_owned(), "web".to_owned())));
        assert!(
            found.iter().all(|(name, value)| name.len() <= MAX_NAME_BYTES && value.len() <= MAX_VALUE_BYTES)
        );
    }

    #[test]
    fn each_event_has_a_profile_name() {
        let name = |event: &str| profile_name(&Event::at_frequency(event, 1));
        assert_eq!(
            ["", "cpu-clock", "wall", "off-cpu"].map(name),
            ["process_cpu", "process_cpu", "wall", "off_cpu"]
        );
    }
}
