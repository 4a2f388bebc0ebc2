//! The parsers of the node agent: what backends and the kubelet respond, files of the spool, variables and filters.

use std::fs;

use profiler_agent::{
    Filter, Resource,
    environment::{Environment, Protocol},
    fuzz,
};

use crate::{scratch_directory, sections};

/// The list of pods of a kubelet.
pub fn pod_list(bytes: &[u8]) {
    fuzz::check_pod_list(bytes);
}

/// A response of a backend.
pub fn response(bytes: &[u8]) {
    fuzz::check_response(bytes);
}

/// A spool: each section is a file. The lowest two bits of its tag are the kind of file, the next one says whether the file gets
/// valid checksums, and the upper ones choose its number.
pub fn spool(bytes: &[u8]) {
    const EXTENSIONS: [&str; 4] = ["message", "sending", "partial", "other"];
    const WITH_CHECKSUMS: u8 = 4;
    const NUMBERS: [u64; 8] = [0, 1, 2, 3, 1 << 32, i64::MAX as u64, u64::MAX - 1, u64::MAX];
    let directory = scratch_directory();
    for (tag, content) in sections(bytes) {
        let number = NUMBERS[usize::from(tag >> 3) % NUMBERS.len()];
        let name = format!("{number:020}.{}", EXTENSIONS[usize::from(tag % 4)]);
        let file = if tag & WITH_CHECKSUMS != 0 { fuzz::message_file(content) } else { content.to_vec() };
        fs::write(directory.path().join(name), file).expect("a file in the scratch directory");
    }
    fuzz::check_spool(directory.path()).expect("a spool in the scratch directory");
}

/// The variables of an exporter: a line for each, such as `OTEL_EXPORTER_OTLP_HEADERS=a=b`.
pub fn otel_environment(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let variable = |name: &str| {
        let mut pairs = text.lines().filter_map(|line| line.split_once('='));
        pairs.find(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
    };
    match Environment::read(variable) {
        Ok(environment) => {
            let headers = environment.headers.iter().map(|(name, value)| (name, value));
            for (name, value) in headers.chain(&environment.attributes) {
                assert!(!name.is_empty() && !value.contains(['\n', '\r']));
            }
            for protocol in [Protocol::Http, Protocol::Grpc] {
                let is_given = environment.profiles_endpoint.is_some() || environment.endpoint.is_some();
                assert_eq!(environment.url(protocol).is_some(), is_given);
            }
        }
        Err(error) => assert!(error.to_string().contains("OTEL_")),
    }
}

/// A filter, and after a line break the value of the attribute `a`. The filter is a pattern for it, too.
pub fn resource_filter(bytes: &[u8]) {
    const MAX_CHARACTERS: usize = 200;
    let text = String::from_utf8_lossy(bytes);
    let (filter, value) = text.split_once('\n').unwrap_or((&text, ""));
    let resource = Resource { attributes: [("a".to_owned(), value.to_owned())].into() };
    if let Ok(filter) = filter.parse::<Filter>() {
        let _ = (filter.matches(&resource), filter.matches(&Resource::default()));
    }
    if filter.contains(',') || text.chars().count() > MAX_CHARACTERS {
        return;
    }
    let is_expected = matches_pattern(filter.trim(), value);
    for (operator, is_selected) in [("=", is_expected), ("!=", !is_expected)] {
        let condition = format!("a{operator}{filter}").parse::<Filter>();
        assert_eq!(condition.map(|condition| condition.matches(&resource)), Ok(is_selected));
    }
}

/// Whether a text matches a pattern, by a table: whether the beginning of the pattern matches the beginning of the text with a
/// length.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let mut matched = vec![false; text.len() + 1];
    matched[0] = true;
    for expected in pattern.chars() {
        let before = matched.clone();
        for length in 0..matched.len() {
            let is_longer_match = |row: &[bool]| length > 0 && row[length - 1];
            matched[length] = match expected {
                '*' => before[length] || is_longer_match(&matched),
                _ => is_longer_match(&before) && text[length - 1] == expected,
            };
        }
    }
    matched[text.len()]
}
