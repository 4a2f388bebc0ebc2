//! The message of a resource, with attributes that backends accept as labels.

use std::{borrow::Cow, collections::HashSet};

use profiler_profile_formats::printable;

use super::{
    messages::{self, AnyValue, KeyValue, any_value},
    text,
};
use crate::Resource;

/// The limits of Pyroscope for labels (`max_label_name_length`, `max_label_value_length`), bytes.
const MAX_KEY_BYTES: usize = 1_024;
const MAX_VALUE_BYTES: usize = 2_048;

/// What is sent first where a resource has more attributes than may be sent.
const MOST_IMPORTANT: [&str; 12] = [
    "service.name",
    "service.namespace",
    "k8s.namespace.name",
    "k8s.pod.name",
    "k8s.container.name",
    "container.id",
    "k8s.node.name",
    "host.name",
    "process.executable.name",
    "service.version",
    "container.image.name",
    "deployment.environment.name",
];

/// Labels that no attribute of a resource becomes: the id of a process makes a series of each process, and the others are
/// attributes of samples.
const NEVER_SENT: [&str; 3] = ["process_pid", "thread_name", "thread_state"];

/// The message with at most `max_attributes` attributes, and the number of the others.
///
/// A key becomes a label with `_` for each `.`, and one that has other characters than letters, digits, `_` and `.` makes
/// Pyroscope reject the whole request (`pkg/validation/validate.go`): they are replaced by `_`. Two keys that become the same
/// label are rejected as well: the first one is sent.
pub(super) fn of(resource: &Resource, max_attributes: usize) -> messages::Resource {
    let rank = |key: &str| MOST_IMPORTANT.iter().position(|known| *known == key);
    let mut entries: Vec<_> = resource.attributes.iter().collect();
    entries.sort_by_key(|(key, _)| (rank(key).unwrap_or(MOST_IMPORTANT.len()), *key));
    let mut labels = HashSet::new();
    let sent = entries.into_iter().filter_map(|(key, value)| {
        let (sent_key, value) = (sent_key(key), sent_value(value));
        let label = sent_key.replace('.', "_");
        let is_sent = !value.trim().is_empty() && is_free(&label, key) && labels.insert(label);
        is_sent.then(|| attribute(sent_key, value.into_owned()))
    });
    let attributes: Vec<_> = sent.take(max_attributes).collect();
    let dropped = resource.attributes.len() - attributes.len();
    messages::Resource {
        attributes,
        dropped_attributes_count: u32::try_from(dropped).unwrap_or(u32::MAX),
        entity_refs: Vec::new(),
    }
}

/// Whether a label is not one of Pyroscope's own, which it makes of the name of the service, or of a sample.
fn is_free(label: &str, key: &str) -> bool {
    let is_own = label.starts_with("__") || (label == "service_name" && key != "service.name");
    !label.is_empty() && !is_own && !NEVER_SENT.contains(&label)
}

fn sent_key(key: &str) -> String {
    let clean = |character: char| match character {
        '.' => '.',
        character if character.is_ascii_alphanumeric() => character,
        _ => '_',
    };
    let key: String = key.chars().map(clean).collect();
    let prefix = if key.starts_with(|first: char| first.is_ascii_digit()) { "_" } else { "" };
    text::shortened(&format!("{prefix}{key}"), MAX_KEY_BYTES).to_owned()
}

fn sent_value(value: &str) -> Cow<'_, str> {
    printable(text::shortened(value, MAX_VALUE_BYTES))
}

fn attribute(key: String, value: String) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value)) };
    KeyValue { key, value: Some(value), key_strindex: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(attributes: &[(&str, &str)], max: usize) -> (Vec<(String, String)>, u32) {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let resource = Resource { attributes: attributes.iter().map(own).collect() };
        let message = of(&resource, max);
        let text = |value: Option<AnyValue>| match value.and_then(|value| value.value) {
            Some(any_value::Value::StringValue(text)) => text,
            other => panic!("no text: {other:?}"),
        };
        let attributes = message.attributes.into_iter().map(|entry| (entry.key, text(entry.value)));
        (attributes.collect(), message.dropped_attributes_count)
    }

    fn keys(attributes: &[(&str, &str)], max: usize) -> Vec<String> {
        sent(attributes, max).0.into_iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn names_of_the_service_and_the_pod_come_first() {
        let attributes = [("a", "1"), ("b", "2"), ("k8s.pod.name", "web-0"), ("service.name", "web")];
        assert_eq!(keys(&attributes, 3), ["service.name", "k8s.pod.name", "a"]);
        assert_eq!(sent(&attributes, 3).1, 1);
    }

    #[test]
    fn keys_become_labels_that_pyroscope_accepts() {
        let attributes = [("k8s.pod.label.app.kubernetes.io/name", "web"), ("1a", "x"), ("h\u{e9}", "y")];
        assert_eq!(keys(&attributes, 9), ["_1a", "h_", "k8s.pod.label.app.kubernetes.io_name"]);
        assert_eq!(keys(&[("a.b", "1"), ("a_b", "2"), ("a/b", "3")], 9), ["a.b"]);
    }

    #[test]
    fn what_makes_a_series_of_each_process_is_not_sent() {
        let attributes = [("process.pid", "7"), ("", "x"), ("empty", " "), ("__name__", "x"), ("ok", "a\nb")];
        assert_eq!(sent(&attributes, 9), (vec![("ok".to_owned(), "a b".to_owned())], 4));
        assert_eq!(keys(&[("service/name", "x"), ("//a", "y"), ("thread/state", "z")], 9), [""; 0]);
        assert_eq!(sent(&[("long", &"x".repeat(5_000))], 9).0[0].1.len(), MAX_VALUE_BYTES);
    }
}
