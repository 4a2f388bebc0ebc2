//! Compares requests with their profile as the Python package `opentelemetry-proto` decodes them.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use profiler_agent::{Resource, Window, otlp};
use profiler_profile::{Profile, test_profile};
use serde_json::Value;

#[test]
fn the_python_package_reads_the_totals_and_stacks_of_the_profile() {
    for seed in [1, 2, 3, 11] {
        let profile = test_profile::random(seed);
        let expected = folded(&profile);
        let attributes = BTreeMap::from([("service.name".to_owned(), "web".to_owned())]);
        let window = Window::new(profile, |_, _| Resource { attributes: attributes.clone() });
        let encoded = otlp::encode(&window, &otlp::OtlpOptions::default());
        assert_eq!(encoded.messages.len(), 1, "seed {seed}");
        let summary = read(&encoded.messages[0].body);
        let [resource] = &summary["resources"].as_array().unwrap()[..] else { panic!("{summary}") };
        assert_eq!(resource["attributes"]["service.name"], "web");
        let cpu = &resource["profiles"][0];
        assert_eq!(cpu["sample_type"], serde_json::json!(["samples", "count"]));
        assert_eq!(cpu["period_type"], serde_json::json!(["cpu", "nanoseconds"]));
        let stacks = cpu["folded"].as_object().unwrap();
        let stacks = stacks.iter().map(|(stack, value)| (stack.clone(), value.as_u64().unwrap()));
        assert_eq!(stacks.collect::<BTreeMap<_, _>>(), expected, "seed {seed}");
        assert_eq!(cpu["total"].as_u64(), Some(window.profile().total_value()));
    }
}

/// The folded stacks of the first event, root first.
fn folded(profile: &Profile) -> BTreeMap<String, u64> {
    let mut stacks = BTreeMap::new();
    for sample in profile.samples_of(profiler_profile::EventId::FIRST) {
        let frames = profile.stack(sample.stack).frames.iter().rev();
        let names = frames.map(|frame| match profile.string(profile.frame(*frame).name) {
            "" => "[unknown]".to_owned(),
            name => name.chars().map(escaped).collect(),
        });
        let mut names: Vec<_> = names.collect();
        if names.is_empty() {
            names.push("[unknown]".to_owned());
        }
        *stacks.entry(names.join(";")).or_default() += sample.value;
    }
    stacks
}

fn escaped(c: char) -> String {
    if c.is_control() { format!("\\u{{{:x}}}", u32::from(c)) } else { c.to_string() }
}

fn read(body: &[u8]) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let packages = root.join("target/readers/opentelemetry-proto");
    assert!(packages.is_dir(), "{} is missing: run `cargo xtask setup`", packages.display());
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), body).unwrap();
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", packages).arg(root.join("tests/readers/otlp.py")).arg(file.path());
    let output = python.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}
