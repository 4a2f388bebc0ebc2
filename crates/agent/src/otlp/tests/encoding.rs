//! What a request has of a window.

use profiler_profile::{
    Event, EventId, Frame, FrameKind, Header, Profile, ProfileBuilder, Reason, Sample, Sampling, StackEnd,
    SymbolSource, Symbolization, ThreadState, test_profile,
};

use super::decoded_request::{DecodedRequest, decode};
use crate::{
    Encoded, Resource, Window,
    otlp::{self, OtlpOptions, PROTO_VERSION},
};

fn window(profile: Profile) -> Window {
    Window::new(profile, |_, _| service("web"))
}

fn service(name: &str) -> Resource {
    Resource { attributes: [("service.name".to_owned(), name.to_owned())].into() }
}

/// The only request of a window.
fn encoded(window: &Window, options: &OtlpOptions) -> DecodedRequest {
    let Encoded { messages, too_large } = otlp::encode(window, options);
    assert_eq!((messages.len(), too_large), (1, 0));
    decode(&messages[0])
}

#[test]
fn the_scope_states_the_versions_of_the_profiler_and_of_the_definitions() {
    let request = encoded(&window(test_profile::folded(&[("a;f", 1)])), &OtlpOptions::default());
    let scope = request.request.resource_profiles[0].scope_profiles[0].scope.as_ref().unwrap();
    let version = format!("{}+otlp.{PROTO_VERSION}", env!("CARGO_PKG_VERSION"));
    assert_eq!((scope.name.as_str(), &scope.version), ("profiler", &version));
}

#[test]
fn a_profile_has_time_duration_and_period() {
    let mut builder = ProfileBuilder::default();
    builder.event(Event::at_frequency("cpu-clock", 20));
    let frame = test_profile::function(&mut builder, "f", 1);
    let stack = builder.stack(vec![frame], StackEnd::Root);
    let process = builder.process(1, "a");
    let thread = builder.thread(process, 1, "a");
    builder.sample(0, 0, thread, stack, 3);
    let header = Header { started_unix_ns: 1_700_000_000_000_000_000, duration_ns: 60, ..Header::default() };
    let window = window(builder.finish(header));
    let request = encoded(&window, &OtlpOptions::default());
    let profile = &request.request.resource_profiles[0].scope_profiles[0].profiles[0];
    let times = (profile.time_unix_nano, profile.duration_nano, profile.period);
    assert_eq!(times, (1_700_000_000_000_000_000, 60, 50_000_000));
    assert_eq!(request.types(profile), ["samples", "count", "cpu", "nanoseconds"]);
    assert_eq!(profile.samples[0].values, [3]);
    let started = otlp::encode(&window, &OtlpOptions::default()).messages[0].started_unix_ns;
    assert_eq!(started, 1_700_000_000_000_000_000);
}

#[test]
fn processes_of_a_resource_are_one_profile() {
    let mut builder = ProfileBuilder::default();
    let frame = test_profile::function(&mut builder, "f", 1);
    let stack = builder.stack(vec![frame], StackEnd::Root);
    for pid in [1, 2, 3] {
        let process = builder.process(pid, "a");
        let thread = builder.thread(process, pid, "a");
        builder.sample(0, 0, thread, stack, 1);
    }
    let profile = builder.finish(Header::default());
    let name = |profile: &Profile, process| if profile.process(process).pid == 3 { "db" } else { "web" };
    let window = Window::new(profile, |profile, process| service(name(profile, process)));
    let request = encoded(&window, &OtlpOptions::default());
    let samples = request.samples();
    let values: Vec<_> = samples.iter().map(|(texts, value)| (texts.service.as_str(), *value)).collect();
    assert_eq!(values, [("web", 2), ("db", 1)]);
    assert_eq!(request.dictionary().stack_table.len(), 2);
}

#[test]
fn an_unsymbolized_frame_has_a_function_and_its_mapping_a_build_id() {
    let mut builder = ProfileBuilder::default();
    let name = builder.string("[libcoreclr.so+0x1130]");
    let module = Some(builder.module("/usr/lib/libcoreclr.so", &[0xab, 0x01]));
    let frame = builder.frame(Frame {
        name,
        kind: FrameKind::Native,
        module,
        address: profiler_addresses::ElfAddress(0x1130),
        location: None,
        symbolization: Symbolization::Address(Reason::NoSymbols),
    });
    let stack = builder.stack(vec![frame], StackEnd::Root);
    let process = builder.process(1, "a");
    let thread = builder.thread(process, 1, "a");
    builder.sample(0, 0, thread, stack, 1);
    let request = encoded(&window(builder.finish(Header::default())), &OtlpOptions::default());
    let frames = &request.samples()[0].0.frames;
    assert_eq!(frames[0].function, "[libcoreclr.so+0x1130]");
    assert_eq!((frames[0].build_id.as_str(), frames[0].frame_type.as_str()), ("ab01", "native"));
    assert_eq!(request.dictionary().mapping_table[1].memory_limit, 0x1131);
    assert_eq!(request.attributes(&[1])[0].0, "process.executable.build_id.gnu");
}

/// A stack of functions whose names are their distances from the leaf.
fn deep(depth: u64) -> Profile {
    let mut builder = ProfileBuilder::default();
    let frames: Vec<_> =
        (0..depth).map(|depth| test_profile::function(&mut builder, &depth.to_string(), depth)).collect();
    let stack = builder.stack(frames, StackEnd::Root);
    let process = builder.process(1, "a");
    let thread = builder.thread(process, 1, "a");
    builder.sample(0, 0, thread, stack, 1);
    builder.finish(Header::default())
}

#[test]
fn a_stack_that_is_too_deep_keeps_its_leaf() {
    let request = encoded(&window(deep(5_000)), &OtlpOptions::default());
    let frames = &request.samples()[0].0.frames;
    let ends = (frames.len(), frames[0].function.as_str(), frames[999].function.as_str());
    assert_eq!(ends, (1_000, "0", "999"));
    assert_eq!(request.dictionary().function_table.len(), 1_001, "functions of frames that are not sent");
}

#[test]
fn what_exceeds_a_limit_is_sent_in_several_requests_or_counted() {
    let lines: Vec<_> = (0..100).map(|number| (format!("a;main;f{number}"), 1)).collect();
    let lines: Vec<_> = lines.iter().map(|(line, count)| (line.as_str(), *count)).collect();
    let window_of_many = window(test_profile::folded(&lines));
    let options = OtlpOptions { max_profile_samples: 40, ..OtlpOptions::default() };
    let samples = |options: &OtlpOptions| {
        let encoded = otlp::encode(&window_of_many, options);
        (encoded.messages.iter().map(|message| message.samples).collect::<Vec<_>>(), encoded.too_large)
    };
    assert_eq!(samples(&options), (vec![40, 40, 20], 0));
    let options = OtlpOptions { max_request_bytes: 2_000, ..OtlpOptions::default() };
    let (messages, too_large) = samples(&options);
    assert!(messages.len() > 2 && too_large == 0, "{messages:?}");
    let options = OtlpOptions { max_request_bytes: 100, ..OtlpOptions::default() };
    assert_eq!(samples(&options), (vec![], 100));

    // One stack is too large among others that are not.
    let long = format!("a;main;{}", "x".repeat(3_000));
    let window = window(test_profile::folded(&[("a;main;f", 5), (&long, 7), ("a;main;g", 1)]));
    let encoded = otlp::encode(&window, &OtlpOptions { max_request_bytes: 2_000, ..OtlpOptions::default() });
    let sent: u64 = encoded.messages.iter().map(|message| message.samples).sum();
    assert_eq!((sent, encoded.too_large), (6, 7));
}

#[test]
fn values_beyond_63_bits_are_counted_as_too_large() {
    let mut builder = ProfileBuilder::default();
    let sampling = Sampling::Occurrences { period: 1 };
    let event = builder.event(Event { name: "faults".to_owned(), sampling });
    let process = builder.process(1, "a");
    let thread = builder.thread(process, 1, "a");
    for (name, value) in [("f", 1 << 63), ("g", (1 << 63) - 1)] {
        let frame = test_profile::function(&mut builder, name, 1);
        let stack = builder.stack(vec![frame], StackEnd::Root);
        builder.add_sample(Sample { time_ns: 0, cpu: 0, thread, stack, event, state: None, value });
    }
    let encoded = otlp::encode(&window(builder.finish(Header::default())), &OtlpOptions::default());
    assert_eq!((encoded.messages[0].samples, encoded.too_large), ((1 << 63) - 1, 1 << 63));
}

#[test]
fn samples_have_states_and_as_many_thread_names_as_permitted() {
    let mut builder = ProfileBuilder::default();
    let off_cpu =
        builder.event(Event { name: "off-cpu".to_owned(), sampling: Sampling::Durations { min_ns: 0 } });
    assert_eq!(off_cpu, EventId::FIRST);
    let process = builder.process(1, "a");
    let frame = test_profile::function(&mut builder, "f", 1);
    let stack = builder.stack(vec![frame], StackEnd::Root);
    for (number, name) in (0..).zip(["one", "two", "three", "one"]) {
        let thread = builder.thread(process, number, name);
        let state = Some(ThreadState::Blocked);
        let time_ns = u64::from(number);
        builder.add_sample(Sample { time_ns, cpu: 0, thread, stack, event: off_cpu, state, value: 10 });
    }
    let window = window(builder.finish(Header::default()));
    let attributes = |options: &OtlpOptions| -> Vec<(String, i64)> {
        let samples = encoded(&window, options).samples().into_iter();
        let text = |(key, value): (String, String)| format!("{key}={value} ");
        samples.map(|(texts, value)| (texts.attributes.into_iter().map(text).collect(), value)).collect()
    };
    assert_eq!(attributes(&OtlpOptions::default()), [("thread.state=blocked ".to_owned(), 40)]);
    let options = OtlpOptions { max_thread_names: 2, thread_states: false, ..OtlpOptions::default() };
    let mut named = attributes(&options);
    named.sort();
    let expected = [("", 10), ("thread.name=one ", 20), ("thread.name=two ", 10)];
    assert_eq!(named, expected.map(|(text, value)| (text.to_owned(), value)));
}

#[test]
fn a_window_without_samples_is_no_message() {
    let profile = ProfileBuilder::default().finish(Header::default());
    assert_eq!(otlp::encode(&window(profile), &OtlpOptions::default()), Encoded::default());
}

#[test]
fn inlined_functions_are_lines_of_their_location() {
    let mut builder = ProfileBuilder::default();
    let mut frame = |name: &str, kind| {
        let name = builder.string(name);
        let symbolization = Symbolization::Symbol(SymbolSource::Dwarf);
        let address = profiler_addresses::ElfAddress(1);
        builder.frame(Frame { name, kind, module: None, address, location: None, symbolization })
    };
    let frames = vec![frame("inner", FrameKind::Inlined), frame("outer", FrameKind::Native)];
    let stack = builder.stack(frames, StackEnd::Root);
    let process = builder.process(1, "a");
    let thread = builder.thread(process, 1, "a");
    builder.sample(0, 0, thread, stack, 1);
    let request = encoded(&window(builder.finish(Header::default())), &OtlpOptions::default());
    assert_eq!(request.dictionary().location_table[1].lines.len(), 2);
    let functions: Vec<_> =
        request.samples()[0].0.frames.iter().map(|frame| frame.function.clone()).collect();
    assert_eq!(functions, ["inner", "outer"]);
}
