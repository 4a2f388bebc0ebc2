//! Shapes of profiles, and what pprof makes of the same.

use std::time::Duration;

use super::{Shape, Share};
use crate::{
    Event, Frame, Header, Profile, ProfileBuilder, RuntimeEvent, RuntimeEventKind, Sample, SourceLocation,
    StackEnd, ThreadState,
    test_profile::{self, folded},
};

/// As the folded stacks that [`folded`] takes, sorted.
fn stacks(profile: &Profile) -> Vec<String> {
    let mut lines = std::collections::BTreeMap::<String, u64>::new();
    for sample in profile.samples() {
        let process = profile.process(profile.thread(sample.thread).process);
        let mut line = profile.string(process.comm).to_owned();
        for frame in profile.stack(sample.stack).frames.iter().rev() {
            line.push(';');
            line.push_str(profile.string(profile.frame(*frame).name));
        }
        *lines.entry(line).or_default() += sample.value;
    }
    lines.into_iter().map(|(line, count)| format!("{line} {count}")).collect()
}

fn shaped(lines: &[(&str, u64)], shape: &Shape) -> Vec<String> {
    stacks(&folded(lines).shaped(shape))
}

fn focus(pattern: &str) -> Shape {
    Shape { focus: pattern.parse().ok(), ..Shape::default() }
}

fn ignore(pattern: &str) -> Shape {
    Shape { ignore: pattern.parse().ok(), ..Shape::default() }
}

fn hide(pattern: &str) -> Shape {
    Shape { hide: pattern.parse().ok(), ..Shape::default() }
}

fn show_from(pattern: &str) -> Shape {
    Shape { show_from: pattern.parse().ok(), ..Shape::default() }
}

const LINES: [(&str, u64); 4] =
    [("p;main;parse;read", 1), ("p;main;parse", 2), ("p;main;draw;read", 4), ("p", 8)];

#[test]
fn an_empty_shape_changes_nothing() {
    for seed in 0..20 {
        let profile = test_profile::random(seed);
        let same = profile.shaped(&Shape::default());
        assert_eq!((stacks(&same), same.header()), (stacks(&profile), profile.header()));
    }
    assert!(Shape::default().is_empty() && !focus("a").is_empty());
}

#[test]
fn focus_keeps_whole_samples_with_a_match() {
    assert_eq!(shaped(&LINES, &focus("parse")), ["p;main;parse 2", "p;main;parse;read 1"]);
    assert_eq!(shaped(&LINES, &focus("^re")), ["p;main;draw;read 4", "p;main;parse;read 1"]);
    assert_eq!(shaped(&LINES, &focus("nothing")), Vec::<String>::new());
    assert_eq!(shaped(&LINES, &focus("^p$")), Vec::<String>::new(), "a process is no frame");
}

#[test]
fn ignore_drops_samples_with_a_match_and_those_without_frames() {
    assert_eq!(shaped(&LINES, &ignore("read")), ["p;main;parse 2"]);
    assert_eq!(shaped(&LINES, &ignore("nothing")).len(), 3);
    let both = Shape { ignore: "draw".parse().ok(), ..focus("read") };
    assert_eq!(shaped(&LINES, &both), ["p;main;parse;read 1"], "what is ignored goes before what is focused");
}

#[test]
fn hide_removes_frames_and_samples_without_remaining_frames() {
    assert_eq!(shaped(&LINES, &hide("parse|main")), ["p;draw;read 4", "p;read 1"]);
    assert_eq!(shaped(&LINES, &hide(".")), Vec::<String>::new());
}

#[test]
fn show_from_starts_at_the_outermost_match() {
    // The example in pprof's documentation of `ShowFrom`, and its later one of a frame that returns.
    let abc = [("p;A;B;C", 1)];
    for (pattern, expected) in [("A", "p;A;B;C 1"), ("B", "p;B;C 1"), ("C", "p;C 1")] {
        assert_eq!(shaped(&abc, &show_from(pattern)), [expected]);
    }
    assert!(shaped(&abc, &show_from("D")).is_empty());
    assert_eq!(shaped(&[("p;A;B;C;B", 1)], &show_from("B")), ["p;B;C;B 1"]);
    let hidden = Shape { hide: "B".parse().ok(), ..show_from("B|C") };
    assert_eq!(shaped(&abc, &hidden), ["p;C 1"], "a frame that is hidden is not shown from");
}

#[test]
fn source_files_and_modules_match_like_names() {
    let mut builder = ProfileBuilder::default();
    let (file, module) = (builder.string("/src/parser.rs"), Some(builder.module("/usr/lib/libxml.so", &[])));
    let frame = test_profile::function(&mut builder, "f", 1);
    let location = Some(SourceLocation { file, line: 3 });
    let frame = Frame { module, location, ..builder.get_frame(frame).clone() };
    let frame = builder.frame(frame);
    let stack = builder.stack(vec![frame], StackEnd::Root);
    let process = builder.process(1, "p");
    let thread = builder.thread(process, 1, "p");
    builder.sample(0, 0, thread, stack, 1);
    let profile = builder.finish(Header::default());
    for (pattern, count) in [("parser", 1), ("libxml", 1), ("^f$", 1), ("other", 0)] {
        assert_eq!(profile.shaped(&focus(pattern)).samples().len(), count, "{pattern}");
    }
}

#[test]
fn threads_processes_containers_and_times_select_samples() {
    let mut builder = ProfileBuilder::default();
    let stack = builder.stack(Vec::new(), StackEnd::Empty);
    let (first, second) = (builder.process(1, "web"), builder.process(2, "worker"));
    builder.set_container(second, "4f1c3a99");
    let threads = [
        builder.thread(first, 1, "web"),
        builder.thread(first, 3, "GC"),
        builder.thread(second, 2, "worker"),
    ];
    for (second, thread) in (0..).zip(threads) {
        builder.sample(second * 1_000_000_000, 0, thread, stack, 1 << second);
    }
    let profile = builder.finish(Header::default());
    let count = |shape: &Shape| profile.shaped(shape).total_value();
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(count(&Shape { thread: "3".parse().ok(), ..Shape::default() }), 2);
    assert_eq!(count(&Shape { thread: "^w".parse().ok(), ..Shape::default() }), 5);
    assert_eq!(count(&Shape { process: "1".parse().ok(), ..Shape::default() }), 3);
    assert_eq!(count(&Shape { process: "work".parse().ok(), ..Shape::default() }), 4);
    for (container, expected) in [("4f1c", 4), ("f1c3", 0)] {
        assert_eq!(count(&Shape { container: Some(container.to_owned()), ..Shape::default() }), expected);
    }
    assert_eq!(count(&Shape { from: seconds(1), ..Shape::default() }), 6);
    assert_eq!(count(&Shape { from: seconds(1), to: seconds(2), ..Shape::default() }), 2);
    assert_eq!(count(&Shape { to: seconds(0), ..Shape::default() }), 0);
}

#[test]
fn states_select_samples() {
    let mut builder = ProfileBuilder::default();
    let event = builder.event(Event::at_frequency("wall", 49));
    let stack = builder.stack(Vec::new(), StackEnd::Empty);
    let process = builder.process(1, "web");
    let thread = builder.thread(process, 1, "web");
    let states = [None, Some(ThreadState::OnCpu), Some(ThreadState::Blocked)];
    for (value, state) in [1, 2, 4].into_iter().zip(states) {
        builder.add_sample(Sample { time_ns: 0, cpu: 0, thread, stack, event, state, value });
    }
    let profile = builder.finish(Header::default());
    let total = |states: &[ThreadState]| {
        profile.shaped(&Shape { states: states.to_vec(), ..Shape::default() }).total_value()
    };
    assert_eq!(total(&[]), 7);
    assert_eq!(total(&[ThreadState::Blocked]), 4);
    assert_eq!(total(&[ThreadState::OnCpu, ThreadState::Blocked]), 6);
    assert_eq!(total(&[ThreadState::Disk]), 0);
}

#[test]
fn direct_recursion_is_one_frame() {
    let shape = Shape { collapse_recursion: true, ..Shape::default() };
    assert_eq!(shaped(&[("p;a;f;f;f;g;f", 1)], &shape), ["p;a;f;g;f 1"]);
    let hidden = Shape { hide: "g".parse().ok(), ..shape };
    assert_eq!(shaped(&[("p;a;f;g;f", 1)], &hidden), ["p;a;f 1"], "what is hidden does not keep apart");
}

#[test]
fn the_addresses_of_a_function_are_merged() {
    let profile = folded(&[("p;a;f", 1), ("p;a;b;f", 2), ("p;a;b;c;f", 4)]);
    assert_eq!(profile.frames().len(), 6);
    let shape = Shape { merge_addresses: true, ..Shape::default() };
    let merged = profile.shaped(&shape);
    assert_eq!((merged.frames().len(), stacks(&merged)), (4, stacks(&profile)));
    let f = merged.frames().find(|frame| merged.string(frame.name) == "f").unwrap();
    assert_eq!(f.address.0, 1);
}

#[test]
fn rare_paths_are_cut_and_count_for_their_callers() {
    let lines = [("p;main;hot", 90), ("p;main;warm;a", 6), ("p;main;warm;b", 3), ("p;rare", 1)];
    let trim = |percent| Shape { min_share: Share::from_percent(percent), ..Shape::default() };
    assert_eq!(shaped(&lines, &trim(5.0)), ["p 1", "p;main;hot 90", "p;main;warm 3", "p;main;warm;a 6"]);
    assert_eq!(shaped(&lines, &trim(100.0)), ["p 100"]);
    assert_eq!(shaped(&lines, &trim(1.0)).len(), 4);
}

#[test]
fn the_ledger_stays_and_the_header_lists_the_edits() {
    let profile = folded(&LINES);
    let first = profile.shaped(&focus("parse"));
    assert_eq!(first.ledger(), profile.ledger());
    let shape =
        Shape { to: Some(Duration::from_millis(1500)), min_share: Share::from_percent(0.5), ..ignore("x") };
    let edits = ["--focus parse", "--to 1.5s", "--ignore x", "--min-share 0.5%"];
    assert_eq!(first.shaped(&shape).header().edits, edits);
}

#[test]
fn filters_commute_and_are_idempotent() {
    let shapes = [
        focus("work|main"),
        ignore("h\u{e9}"),
        Shape { thread: "a".parse().ok(), ..Shape::default() },
        Shape { from: Some(Duration::from_secs(2)), ..Shape::default() },
        Shape { to: Some(Duration::from_secs(8)), ..Shape::default() },
        Shape { merge_addresses: true, ..Shape::default() },
    ];
    for seed in 0..20 {
        let profile = test_profile::random(seed);
        for first in &shapes {
            let once = profile.shaped(first);
            assert_eq!(stacks(&once.shaped(first)), stacks(&once), "{first:?}");
            for second in &shapes {
                let (one, other) = (once.shaped(second), profile.shaped(second).shaped(first));
                assert_eq!(stacks(&one), stacks(&other), "{first:?} and {second:?}");
            }
        }
    }
}

#[test]
fn no_shape_adds_samples() {
    let shape = Shape {
        hide: "a".parse().ok(),
        show_from: "main|f".parse().ok(),
        collapse_recursion: true,
        merge_addresses: true,
        min_share: Share::from_percent(3.0),
        ..focus("main|work|f")
    };
    for seed in 0..50 {
        let profile = test_profile::random(seed);
        assert!(profile.shaped(&shape).total_value() <= profile.total_value());
        let rest = Shape { show_from: None, focus: None, hide: None, ..shape.clone() };
        assert_eq!(profile.shaped(&rest).total_value(), profile.total_value());
    }
}

#[test]
fn runtime_events_are_selected_by_process_thread_and_time() {
    let mut builder = ProfileBuilder::default();
    for (pid, tid, time_ns, duration_ns) in [(1, 1, 100, 0), (1, 2, 200, 150), (2, 3, 400, 0)] {
        let process = builder.process(pid, "a");
        let thread = Some(builder.thread(process, tid, "a"));
        let event = test_profile::runtime_event(&mut builder, process, RuntimeEventKind::Other);
        builder.add_runtime_event(RuntimeEvent { time_ns, duration_ns, thread, ..event });
    }
    let profile = builder.finish(Header::default());
    let times = |shape: &Shape| -> Vec<u64> {
        profile.shaped(shape).runtime_events().iter().map(|event| event.time_ns).collect()
    };
    let choice = |text: &str| Some(text.parse().unwrap());
    assert_eq!(times(&Shape { process: choice("1"), ..Shape::default() }), [100, 200]);
    assert_eq!(times(&Shape { thread: choice("2"), ..Shape::default() }), [200]);
    let from = Some(Duration::from_nanos(300));
    assert_eq!(
        times(&Shape { from, ..Shape::default() }),
        [200, 400],
        "an event that lasts is partly in the range"
    );
    assert_eq!(times(&Shape { to: from, ..Shape::default() }), [100, 200]);
    assert_eq!(times(&Shape { merge_addresses: true, ..Shape::default() }), [100, 200, 400]);
}
