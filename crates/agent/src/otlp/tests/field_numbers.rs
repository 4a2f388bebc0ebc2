//! Requests by the field numbers of opentelemetry-proto 1.10.0 and 1.11.0 (`profiles.proto`, `common.proto`, `resource.proto`,
//! `profiles_service.proto`). The encoder and the other tests have their messages from one crate: a version of it with another
//! number, which no backend reads, fails here.

use profiler_addresses::ElfAddress;
use profiler_profile::{
    Event, Frame, FrameKind, Header, ProfileBuilder, Sample, Sampling, SourceLocation, StackEnd,
    SymbolSource, Symbolization, ThreadState,
};

use crate::{
    Resource, Window,
    otlp::{self, OtlpOptions},
    tests::wire::{Fields, decompressed},
};

/// A window in which every field that the encoder writes has a value.
fn window() -> Window {
    let mut builder = ProfileBuilder::default();
    let sampling = Sampling::Durations { min_ns: 7 };
    let event = builder.event(Event { name: "off-cpu".to_owned(), sampling });
    let (name, file) = (builder.string("wait"), builder.string("wait.c"));
    let module = Some(builder.module("/lib/wait.so", &[0xab]));
    let frame = builder.frame(Frame {
        name,
        kind: FrameKind::Native,
        module,
        address: ElfAddress(0x1130),
        location: Some(SourceLocation { file, line: 31 }),
        symbolization: Symbolization::Symbol(SymbolSource::Dwarf),
    });
    let stack = builder.stack(vec![frame], StackEnd::Root);
    let process = builder.process(1, "a");
    let thread = builder.thread(process, 1, "worker");
    let state = Some(ThreadState::Blocked);
    builder.add_sample(Sample { time_ns: 0, cpu: 0, thread, stack, event, state, value: 4_000 });
    let profile = builder.finish(Header { started_unix_ns: 1_700, duration_ns: 60, ..Header::default() });
    let attributes = [("service.name", "web"), ("host.name", "node"), ("process.pid", "1")];
    let attributes = attributes.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Window::new(profile, |_, _| Resource { attributes: attributes.clone().into() })
}

fn only(fields: &Fields, number: u64) -> Fields {
    let [message] = <[Fields; 1]>::try_from(fields.messages(number)).unwrap();
    message
}

/// The text of an `AnyValue`.
fn value(of: &Fields) -> String {
    only(of, 2).texts(1).concat()
}

#[test]
fn every_field_has_its_number_in_the_specification() {
    let options = OtlpOptions { max_thread_names: 1, thread_states: true, ..OtlpOptions::default() };
    let encoded = otlp::encode(&window(), &options);
    let request = Fields::decode(&decompressed(&encoded.messages[0].body));
    assert_eq!(request.all_numbers(), [1, 2]);
    let (resource_profiles, dictionary) = (only(&request, 1), only(&request, 2));

    assert_eq!(resource_profiles.all_numbers(), [1, 2]);
    let resource = only(&resource_profiles, 1);
    let attributes = resource.messages(1);
    let attributes: Vec<_> =
        attributes.iter().map(|attribute| (attribute.texts(1).concat(), value(attribute))).collect();
    let expected = [("service.name", "web"), ("host.name", "node")];
    assert_eq!(attributes, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    assert_eq!((resource.all_numbers(), resource.number(2)), (vec![1, 2], 1), "one attribute is dropped");

    let scope_profiles = only(&resource_profiles, 2);
    assert_eq!(scope_profiles.all_numbers(), [1, 2]);
    let scope = only(&scope_profiles, 1);
    assert_eq!((scope.all_numbers(), scope.texts(1)), (vec![1, 2], vec!["profiler".to_owned()]));
    assert_eq!(scope.texts(2), [otlp::SCOPE_VERSION]);
    check_profile(&only(&scope_profiles, 2), &dictionary);
}

fn check_profile(profile: &Fields, dictionary: &Fields) {
    let texts = dictionary.texts(5);
    let text = |index: u64| texts[usize::try_from(index).unwrap()].as_str();
    let element =
        |table: u64, index: u64| dictionary.messages(table)[usize::try_from(index).unwrap()].clone();
    let attribute = |index: u64| {
        let attribute = element(6, index);
        assert_eq!(attribute.all_numbers(), [1, 2]);
        (text(attribute.number(1)).to_owned(), value(&attribute))
    };
    let of = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(dictionary.all_numbers(), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(dictionary.bytes(4), [b""], "one link, the zero value");

    // An off-CPU event has no period.
    assert_eq!(profile.all_numbers(), [1, 2, 3, 4, 5]);
    for number in [1, 5] {
        let kind = only(profile, number);
        assert_eq!([text(kind.number(1)), text(kind.number(2))], ["off_cpu", "nanoseconds"]);
    }
    assert_eq!((profile.number(3), profile.number(4)), (1_700, 60));

    let sample = only(profile, 2);
    assert_eq!((sample.all_numbers(), sample.numbers(4)), (vec![1, 2, 4], vec![4_000]));
    let attributes: Vec<_> = sample.numbers(2).into_iter().map(attribute).collect();
    assert_eq!(attributes, [of("thread.state", "blocked"), of("thread.name", "worker")]);

    let stack = element(7, sample.number(1));
    let location = element(2, stack.number(1));
    assert_eq!((location.all_numbers(), location.number(2)), (vec![1, 2, 3, 4], 0x1130));
    assert_eq!(attribute(location.number(4)), of("profile.frame.type", "native"));
    let line = only(&location, 3);
    assert_eq!((line.all_numbers(), line.number(2)), (vec![1, 2], 31));
    let function = element(3, line.number(1));
    assert_eq!([text(function.number(1)), text(function.number(3))], ["wait", "wait.c"]);
    let mapping = element(1, location.number(1));
    assert_eq!((mapping.all_numbers(), mapping.number(2)), (vec![2, 4, 5], 0x1131));
    assert_eq!(text(mapping.number(4)), "/lib/wait.so");
    assert_eq!(attribute(mapping.number(5)), of("process.executable.build_id.gnu", "ab"));
}

#[test]
fn a_period_has_its_number_in_the_specification() {
    let window =
        Window::new(profiler_profile::test_profile::folded(&[("a;f", 1)]), |_, _| Resource::default());
    let encoded = otlp::encode(&window, &OtlpOptions::default());
    let request = Fields::decode(&decompressed(&encoded.messages[0].body));
    let profile = only(&only(&only(&request, 1), 2), 2);
    assert!(profile.number(6) > 0, "{profile:?}");
}
