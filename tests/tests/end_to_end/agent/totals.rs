//! The samples of each service and stack, as backends receive them and as recordings have them.

use std::{collections::BTreeMap, io::Write as _, process::Command};

use profiler::Profile;
use profiler_agent::naming::{Naming, NamingOptions};
use profiler_tests::{Workload, file, run_command, skip_unless_required, workload_path};

/// The samples of each service and stack, frames root first.
pub(super) type Totals = BTreeMap<(String, String), u64>;

/// What messages of OTLP have, as an independent decoder reads them.
pub(super) fn received_totals<'a>(messages: impl IntoIterator<Item = &'a [u8]>) -> Option<Totals> {
    let packages = file("../target/readers/opentelemetry-proto");
    if !packages.exists() {
        skip_unless_required("opentelemetry-proto is missing");
        return None;
    }
    let mut totals = Totals::new();
    for message in messages {
        let mut body = tempfile::NamedTempFile::new().unwrap();
        body.write_all(message).unwrap();
        let mut python = Command::new("python3");
        python.env("PYTHONPATH", &packages).arg(file("readers/otlp.py")).arg(body.path());
        let output = run_command(&mut python);
        assert_eq!(output.code(), 0, "{}", output.stderr);
        let summary: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        for resource in summary["resources"].as_array().unwrap() {
            let service = resource["attributes"]["service.name"].as_str().unwrap();
            for profile in resource["profiles"].as_array().unwrap() {
                for (stack, value) in profile["folded"].as_object().unwrap() {
                    *totals.entry((service.to_owned(), stack.clone())).or_default() +=
                        value.as_u64().unwrap();
                }
            }
        }
    }
    Some(totals)
}

/// What recordings have.
pub(super) fn recorded_totals(profiles: Vec<Profile>) -> Totals {
    let mut naming = Naming::new(NamingOptions::of_node(None).unwrap()).unwrap();
    let mut totals = Totals::new();
    for profile in profiles {
        let window = naming.window(profile);
        let profile = window.profile();
        for sample in profile.samples() {
            let resource = window.resource_of(profile.thread(sample.thread).process);
            let service = window.resources()[resource].attributes["service.name"].clone();
            let frames = profile.stack(sample.stack).frames.iter().rev();
            let names: Vec<_> = frames.map(|frame| profile.string(profile.frame(*frame).name)).collect();
            let names = if names.is_empty() { vec!["[unknown]"] } else { names };
            *totals.entry((service, names.join(";"))).or_default() += sample.value;
        }
    }
    totals
}

/// The name of the service of [`service`]. Tests that run side by side use names that begin with it: they can be in one
/// container, which has the service of the first process that is sampled.
pub(super) const SERVICE: &str = "agent-test";

/// A function of the workload of [`service`].
pub(super) const FUNCTION: &str = "round_of_work";

/// A workload with the name of a service: the tests themselves can be in a container, which has one service.
pub(super) fn service() -> Workload {
    Workload::run(Command::new(workload_path("shares")).arg("600").env("OTEL_SERVICE_NAME", SERVICE))
}

/// What the workload has. Other tests have processes with names that OTLP and folded stacks cannot have.
pub(super) fn of_workload(mut totals: Totals) -> Totals {
    totals.retain(|(_, stack), _| stack.split(';').any(|name| name == FUNCTION));
    totals
}

/// Whether samples are of a service of these tests.
pub(super) fn has_service(totals: &Totals) -> bool {
    totals.keys().any(|(service, _)| service.starts_with(SERVICE))
}
