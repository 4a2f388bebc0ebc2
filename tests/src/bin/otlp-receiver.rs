//! Receives OTLP profiles over HTTP, and prints the services of each request with their samples.
//!
//! `otlp-receiver [HOST:PORT]`, by default at 127.0.0.1:4318. Ctrl-C ends it.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "not a program for users")]

use anyhow::{Context as _, Result};
use opentelemetry_proto::tonic::{
    collector::profiles::v1development::ExportProfilesServiceRequest,
    common::v1::any_value::Value,
    profiles::v1development::{ProfilesDictionary, ResourceProfiles},
};
use profiler_tests::{OtlpReceiver, Reception};
use prost::Message as _;

const DEFAULT_ADDRESS: &str = "127.0.0.1:4318";

fn main() -> Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| DEFAULT_ADDRESS.to_owned());
    let receiver = OtlpReceiver::start_at(&address, Reception::Accept);
    println!("waits for profiles at {}", receiver.url());
    loop {
        for request in receiver.take_requests() {
            let message = ExportProfilesServiceRequest::decode(&*request.body)
                .with_context(|| format!("{} is no request with profiles", request.path))?;
            print(&message, request.body.len());
        }
    }
}

fn print(message: &ExportProfilesServiceRequest, bytes: usize) {
    println!("{bytes} bytes, {} services", message.resource_profiles.len());
    let dictionary = message.dictionary.clone().unwrap_or_default();
    for resource in &message.resource_profiles {
        for (event, samples) in samples(resource, &dictionary) {
            println!("  {samples:>8} {event} of {}", service(resource));
        }
    }
}

/// The name of the service.
fn service(resource: &ResourceProfiles) -> String {
    let attributes = resource.resource.iter().flat_map(|resource| &resource.attributes);
    let mut names = attributes.filter(|attribute| attribute.key == "service.name");
    match names.next().and_then(|attribute| attribute.value.clone()?.value) {
        Some(Value::StringValue(name)) => name,
        _ => "a service without a name".to_owned(),
    }
}

/// The sum of the values of each profile, with the name of what they count.
fn samples(resource: &ResourceProfiles, dictionary: &ProfilesDictionary) -> Vec<(String, i64)> {
    let profiles = resource.scope_profiles.iter().flat_map(|scope| &scope.profiles);
    let name = |index: i32| usize::try_from(index).ok().and_then(|index| dictionary.string_table.get(index));
    let sum = profiles.map(|profile| {
        let kind = profile.sample_type.as_ref().and_then(|kind| name(kind.type_strindex));
        let values = profile.samples.iter().flat_map(|sample| &sample.values);
        (kind.cloned().unwrap_or_default(), values.sum())
    });
    sum.collect()
}
