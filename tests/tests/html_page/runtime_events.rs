//! Profiles with runtime events for the tests of the interactive page.

use profiler::{
    Profile,
    profile::{
        EventField, FieldValue, FrameKind, ProfileBuilder, RuntimeEvent, RuntimeEventKind, StackEnd, StackId,
        ThreadId,
    },
};

use super::profiles::{NS_PER_MS, RUNS, builder, frame, header, wall_clock_builder};

/// Events of a profile with the threads and samples of [`lanes`](super::profiles::lanes).
struct Events {
    builder: ProfileBuilder,
    threads: Vec<ThreadId>,
}

/// The times of an event in milliseconds, and the index of its thread.
struct Place {
    at_ms: u64,
    takes_ms: u64,
    thread: Option<usize>,
}

impl Events {
    fn add(
        &mut self,
        kind: RuntimeEventKind,
        place: &Place,
        fields: &[(&str, FieldValue)],
        stack: Option<StackId>,
    ) {
        let builder = &mut self.builder;
        let fields =
            fields.iter().map(|(name, value)| EventField { name: builder.string(name), value: *value });
        let fields = fields.collect();
        let name = builder.string("Microsoft-Windows-DotNETRuntime/Event");
        builder.add_runtime_event(RuntimeEvent {
            time_ns: place.at_ms * NS_PER_MS,
            duration_ns: place.takes_ms * NS_PER_MS,
            process: builder.process_of(self.threads[0]),
            thread: place.thread.map(|thread| self.threads[thread]),
            kind,
            name,
            stack,
            fields,
        });
    }

    fn text(&mut self, text: &str) -> FieldValue {
        FieldValue::Text(self.builder.string(text))
    }
}

/// A collection with its suspension, an exception with a stack, a wait for a lock, and a counter without a thread.
pub(super) fn known_events() -> Profile {
    let (builder, threads) = wall_clock_builder(&["main", "worker"], &RUNS);
    let mut events = Events { builder, threads };
    let reason = events.text("AllocSmall");
    let place = Place { at_ms: 300, takes_ms: 100, thread: Some(1) };
    let fields = [("Depth", FieldValue::Unsigned(0)), ("Reason", reason)];
    events.add(RuntimeEventKind::GarbageCollection, &place, &fields, None);
    let reason = events.text("SuspendForGC");
    let place = Place { at_ms: 300, takes_ms: 50, thread: Some(1) };
    events.add(RuntimeEventKind::Suspension, &place, &[("Reason", reason)], None);
    let frames =
        ["throw", "main"].map(|name| frame(&mut events.builder, name, FrameKind::Native, "/app/run"));
    let stack = events.builder.stack(frames.to_vec(), StackEnd::Root);
    let (of_type, message) = (events.text("System.FormatException"), events.text("<b>\u{202e}x</b>"));
    let place = Place { at_ms: 500, takes_ms: 0, thread: Some(0) };
    let fields = [("ExceptionType", of_type), ("ExceptionMessage", message)];
    events.add(RuntimeEventKind::Exception, &place, &fields, Some(stack));
    let place = Place { at_ms: 700, takes_ms: 100, thread: Some(1) };
    events.add(RuntimeEventKind::Contention, &place, &[("LockID", FieldValue::Unsigned(u64::MAX))], None);
    let place = Place { at_ms: 900, takes_ms: 0, thread: None };
    events.add(RuntimeEventKind::Counter, &place, &[("cpu-usage", FieldValue::Real(12.5))], None);
    events.builder.finish(header(1_000))
}

/// An exception without a stack among CPU samples, whose threads have no lanes.
pub(super) fn of_cpu_samples() -> Profile {
    let mut builder = builder();
    let process = builder.process(7, "app");
    let threads = vec![builder.thread(process, 7, "app")];
    for (index, name) in ["early", "late"].into_iter().enumerate() {
        let frame = frame(&mut builder, name, FrameKind::Native, "/app/run");
        let stack = builder.stack(vec![frame], StackEnd::Root);
        builder.sample(index as u64 * 800 * NS_PER_MS, 0, threads[0], stack, 1);
    }
    let mut events = Events { builder, threads };
    let place = Place { at_ms: 600, takes_ms: 0, thread: Some(0) };
    events.add(RuntimeEventKind::Exception, &place, &[], None);
    events.builder.finish(header(1_000))
}

/// Twenty thousand exceptions, waits and collections in ten seconds of a hundred threads.
pub(super) fn many_events() -> Profile {
    let names = vec!["worker"; 100];
    let runs: Vec<_> = (0..100).map(|thread| (thread, 0, 500, RUNS[thread % 4].3, "work")).collect();
    let (builder, threads) = wall_clock_builder(&names, &runs);
    let mut events = Events { builder, threads };
    let kinds =
        [RuntimeEventKind::Exception, RuntimeEventKind::Contention, RuntimeEventKind::GarbageCollection];
    for index in 0..20_000 {
        let kind = kinds[index % kinds.len()];
        let takes_ms = if kind == RuntimeEventKind::Exception { 0 } else { 1 };
        let place = Place { at_ms: index as u64 / 2, takes_ms, thread: Some(index % 100) };
        events.add(kind, &place, &[("Index", FieldValue::Unsigned(index as u64))], None);
    }
    events.builder.finish(header(10_000))
}
