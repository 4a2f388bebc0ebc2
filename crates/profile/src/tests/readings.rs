//! Readings of polls in views of a profile.

use crate::{Event, Header, Incident, PollReading, Profile, ProfileBuilder, ProfileCopy};

/// A profile with a reading at each of these times, each of another process.
fn profile(times_ns: &[u64], started_monotonic_ns: u64) -> Profile {
    let mut builder = ProfileBuilder::default();
    builder.event(Event::at_frequency("cpu-clock", 99));
    builder.event(Event::at_frequency("wall", 49));
    for (pid, time_ns) in (1..).zip(times_ns) {
        // The thread has no samples.
        let process = builder.process(pid, "shop");
        let thread = builder.thread(process, pid, "main");
        builder.add_poll_reading(PollReading { time_ns: *time_ns, thread, awaits_connections: pid == 1 });
    }
    let incident = Incident { since_ns: 150, time_ns: 150, ..Incident::default() };
    let header =
        Header { started_monotonic_ns, duration_ns: 1_000, incident: Some(incident), ..Header::default() };
    builder.finish(header)
}

/// Time, thread and kind of the readings.
fn readings(profile: &Profile) -> Vec<(u64, u32, bool)> {
    let readings = profile.poll_readings().iter();
    readings.map(|one| (one.time_ns, profile.thread(one.thread).tid, one.awaits_connections)).collect()
}

#[test]
fn readings_are_in_time_order_and_in_each_view() {
    let profile = profile(&[200, 100], 0);
    let both = [(100, 2, false), (200, 1, true)];
    assert_eq!(readings(&profile), both);
    for event in profile.event_ids() {
        assert_eq!(readings(&profile.single_event(event)), both);
    }
    let mut copy = ProfileCopy::of(&profile);
    copy.runtime_events();
    assert_eq!(readings(&copy.finish(profile.header().clone())), both);
    assert_eq!(readings(&profile.since_incident().unwrap()), [(50, 1, true)]);
}

#[test]
fn readings_of_later_intervals_have_later_times() {
    let joined = Profile::joined(&[profile(&[100], 5_000), profile(&[200], 6_000)]);
    assert_eq!(readings(&joined), [(100, 1, true), (1_200, 1, true)]);
    assert_eq!(joined.processes().len(), 1);
}

#[cfg(feature = "filters")]
#[test]
fn readings_are_selected_by_process_thread_and_time() {
    use std::time::Duration;

    use crate::Shape;

    let profile = profile(&[100, 200], 0);
    let shaped = |shape: &Shape| readings(&profile.shaped(shape));
    let choice = |text: &str| Some(text.parse().unwrap());
    let (first, second) = ((100, 1, true), (200, 2, false));
    assert_eq!(shaped(&Shape { process: choice("2"), ..Shape::default() }), [second]);
    assert_eq!(shaped(&Shape { thread: choice("1"), ..Shape::default() }), [first]);
    let middle = Some(Duration::from_nanos(150));
    assert_eq!(shaped(&Shape { from: middle, ..Shape::default() }), [second]);
    assert_eq!(shaped(&Shape { to: middle, ..Shape::default() }), [first]);
}
