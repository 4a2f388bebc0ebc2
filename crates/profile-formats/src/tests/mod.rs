//! Tests of every format with hostile names, empty profiles and huge counts, against strict parsers.

mod readers;

use self::readers::{Content, read};
use super::{Format, OutputOptions, label};
use profiler_profile::{
    Event, EventField, EventId, FieldValue, Frame, FrameId, FrameKind, Header, Loss, Profile, ProfileBuilder,
    RuntimeEvent, RuntimeEventKind, Sample, SourceLocation, StackEnd, difference::Difference, test_profile,
};

const NAMES: [&str; 17] = [
    "</title></svg></script><script>alert(1)</script><!-- <![CDATA[ ]]> -->",
    "\"'` onload=alert(1) &amp; &#x1b; &nope;",
    "a;b;c 5",
    "\u{1b}[31m\u{1b}]0;title\u{7}\u{9b}2J",
    "line\nbreak\r\n\u{b}\u{c}\u{85}\u{2028}\u{2029}\t\ttab",
    "\0nul\u{7f}",
    "\u{202e}desrever\u{202c}\u{2066}isolate\u{2069}\u{200f}\u{200e}\u{61c}",
    "\u{fffd}\u{fffd} not UTF-8 \u{fffe}\u{ffff}",
    "\u{5d0}\u{5d1} \u{6f22}\u{5b57} \u{1f525} e\u{301}",
    "",
    "   ",
    "5",
    "main_[k]_[j]_[i]",
    "{{profile}} %s %n ${x} \\u0000 \\\\",
    "__proto__",
    "5/6 [0] 1.0: 1 cpu-clock: ",
    "/a/b/../c;d<e>/",
];

fn header() -> Header {
    Header { cpus: 1, ..Header::default() }
}

/// A builder with an event whose ticks are nanoseconds.
fn builder(event: &str) -> ProfileBuilder {
    const NS_PER_S: u64 = 1_000_000_000;
    let mut builder = ProfileBuilder::default();
    builder.event(Event::at_frequency(event, NS_PER_S));
    builder
}

/// A frame with this name, module and source file.
fn frame(builder: &mut ProfileBuilder, name: &str, kind: FrameKind) -> FrameId {
    let module = Some(builder.module(name, name.as_bytes()));
    let plain = test_profile::function(builder, name, u64::MAX);
    let plain = builder.get_frame(plain).clone();
    let location = Some(SourceLocation { file: plain.name, line: 0 });
    builder.frame(Frame { kind, module, location, ..plain })
}

/// A profile whose processes, threads, modules, files, functions, target, event and runtime events have hostile names.
fn odd_names() -> Profile {
    let long = "x".repeat(1 << 16);
    let names = || NAMES.into_iter().chain([&*long]);
    let kinds =
        [FrameKind::Kernel, FrameKind::Native, FrameKind::Jit, FrameKind::Precompiled, FrameKind::Inlined];
    let all = names().collect::<String>();
    let mut builder = builder(&all);
    for name in names() {
        let frames = kinds.map(|kind| frame(&mut builder, name, kind));
        let stack = builder.stack(frames.to_vec(), StackEnd::Root);
        let process = builder.process(u32::MAX, name);
        let thread = builder.thread(process, u32::MAX, name);
        builder.sample(u64::MAX, u32::MAX, thread, stack, 1);
        let text = builder.string(name);
        for (kind, thread) in RuntimeEventKind::ALL.iter().zip([Some(thread), None].into_iter().cycle()) {
            builder.add_runtime_event(RuntimeEvent {
                time_ns: u64::MAX,
                duration_ns: u64::MAX,
                process,
                thread,
                kind: *kind,
                name: text,
                stack: thread.map(|_| stack),
                fields: [FieldValue::Text(text), FieldValue::Real(f64::NAN)]
                    .map(|value| EventField { name: text, value })
                    .into(),
            });
        }
    }
    builder.finish(Header { target: all.clone(), edits: vec![all], ..header() })
}

/// Samples of one-function stacks, by function number and count.
fn samples_of(stacks: impl Iterator<Item = (u64, u64)>) -> Profile {
    let mut builder = builder("cpu-clock");
    let process = builder.process(1, "app");
    let thread = builder.thread(process, 1, "app");
    let main = test_profile::function(&mut builder, "main", 0);
    for (time_ns, (number, count)) in (0..).zip(stacks) {
        let caller = test_profile::function(&mut builder, &format!("f{}", number / 1_000), number / 1_000);
        let leaf = test_profile::function(&mut builder, &format!("g{}", number % 1_000), number % 1_000);
        let stack = builder.stack(vec![leaf, caller, main], StackEnd::Root);
        builder.sample(time_ns, 0, thread, stack, count);
    }
    builder.finish(header())
}

fn written(profile: &Profile, format: Format, options: &OutputOptions) -> Vec<u8> {
    let mut bytes = Vec::new();
    format.write_with(profile, options, &mut bytes).unwrap();
    bytes
}

fn assert_is_read(profile: &Profile, format: Format, options: &OutputOptions) -> Content {
    let expected: u128 = profile.samples().iter().map(|sample| u128::from(sample.value)).sum();
    let content = read(format, &written(profile, format, options));
    if let Some(samples) = content.samples {
        assert!(samples == expected || expected > content.exact_up_to, "{format:?}: {samples} of {expected}");
    }
    for text in &content.texts {
        assert_eq!(*text, label::printable(text), "{format:?}");
    }
    content
}

#[test]
fn hostile_names_stay_names() {
    let everything =
        OutputOptions { annotate: true, per_thread: true, per_process: true, ..OutputOptions::default() };
    let (odd, plain) = (odd_names(), samples_of([(1, 1)].into_iter()));
    for &format in Format::ALL {
        for options in [OutputOptions::default(), everything] {
            let around_plain = assert_is_read(&plain, format, &options).frame;
            assert_eq!(assert_is_read(&odd, format, &options).frame, around_plain, "{format:?}");
        }
    }
}

#[test]
fn an_empty_profile_is_valid() {
    let nothing = ProfileBuilder::default().finish(Header::default());
    let mut lost = builder("cpu-clock");
    lost.event_ledger_mut(EventId::FIRST).lost.insert(Loss::RingBufferFull, u64::MAX);
    for profile in [nothing, lost.finish(header())] {
        for &format in Format::ALL {
            assert_is_read(&profile, format, &OutputOptions::default());
        }
    }
}

#[test]
fn the_first_event_with_samples_is_shown() {
    let mut builder = builder("cpu-clock");
    let event = builder.event(Event::at_frequency("wall", 49));
    let frame = frame(&mut builder, "wait", FrameKind::Native);
    let stack = builder.stack(vec![frame], StackEnd::Root);
    let process = builder.process(1, "a");
    let thread = builder.thread(process, 1, "a");
    builder.add_sample(Sample { time_ns: 0, cpu: 0, thread, stack, event, state: None, value: 3 });
    let folded = written(&builder.finish(header()), Format::Folded, &OutputOptions::default());
    assert_eq!(String::from_utf8(folded).unwrap(), "a;wait (wait) 3\n");
}

#[test]
fn counts_of_any_size_are_valid() {
    let counts: [&[u64]; 5] = [
        &[0],
        &[(1 << 32) + 1, 3 << 33],
        &[u64::MAX / 2, u64::MAX / 2],
        &[u64::MAX, u64::MAX, 1],
        &[u64::MAX / 2, u64::MAX, u64::MAX - 1],
    ];
    for counts in counts {
        let profile = samples_of((0..).zip(counts.iter().copied()));
        for &format in Format::ALL {
            assert_is_read(&profile, format, &OutputOptions::default());
        }
    }
}

/// A writer with quadratic time would not end here. `cargo xtask bench` measures the time.
#[test]
fn one_stack_a_million_times_is_valid() {
    let profile = samples_of((0..1_000_000).map(|_| (7, 1)));
    for &format in Format::ALL {
        assert_is_read(&profile, format, &OutputOptions::default());
    }
}

#[test]
fn many_stacks_once_are_valid() {
    let profile = samples_of((0..200_000).map(|number| (number, 1)));
    for &format in Format::ALL {
        assert_is_read(&profile, format, &OutputOptions::default());
    }
}

#[test]
fn a_difference_of_any_two_profiles_is_valid() {
    let profiles = [
        odd_names(),
        ProfileBuilder::default().finish(Header::default()),
        samples_of([(1, u64::MAX), (2, u64::MAX)].into_iter()),
        samples_of([(2, 1)].into_iter()),
    ];
    for before in &profiles {
        for after in &profiles {
            for &format in Format::OF_DIFFERENCES {
                let mut bytes = Vec::new();
                let difference = Difference::between(before, after);
                format.write_difference(&difference, &OutputOptions::default(), &mut bytes).unwrap();
                let text = String::from_utf8(bytes.clone()).unwrap();
                if format == Format::Svg {
                    readers::svg(&bytes);
                } else {
                    assert!(text.lines().all(|line| line == label::printable(line)), "{text}");
                }
            }
        }
    }
}
