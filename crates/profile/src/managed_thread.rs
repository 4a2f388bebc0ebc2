//! Managed threads of .NET runtimes that own locks, as they were read in the memory of their processes.

use crate::{ProcessId, Profile, StringId, ThreadId};

/// A managed thread at a time at which it owned a lock that other threads waited for.
///
/// The owners of the locks of a process are read with the locks, about once a second, sixteen at most. What a reading has can be
/// another in the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagedThread {
    /// Nanoseconds since the start of sampling.
    pub time_ns: u64,
    /// The thread.
    pub thread: ThreadId,
    /// `Thread.ManagedThreadId`, which begins at 1.
    pub managed_id: u32,
    /// `Thread.Name`, whole: the kernel has its first 15 bytes. `None` for a thread without a name.
    pub name: Option<StringId>,
    /// The type of the exception that the thread threw, or handled in a `catch` or `finally`.
    pub exception: Option<StringId>,
    /// Whether a garbage collection waited for the thread.
    pub gc_mode: GcMode,
}

/// Whether a garbage collection waits for a managed thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GcMode {
    /// It waits: the thread runs managed code, or code of the runtime that uses objects.
    Cooperative,
    /// It does not: the thread waits, or runs native code.
    Preemptive,
}

impl GcMode {
    /// Every mode, for tables and tests.
    pub const ALL: &'static [Self] = &[Self::Cooperative, Self::Preemptive];

    /// The name in machine-readable outputs: `cooperative`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cooperative => "cooperative",
            Self::Preemptive => "preemptive",
        }
    }
}

impl ManagedThread {
    /// The process of the thread.
    #[must_use]
    pub fn process(&self, profile: &Profile) -> ProcessId {
        profile.thread(self.thread).process
    }
}

impl Profile {
    /// What the last reading up to a time has of a thread of a process, by its id; `None` where it owned no lock in any.
    #[must_use]
    pub fn managed_thread_at(&self, process: ProcessId, tid: u32, time_ns: u64) -> Option<&ManagedThread> {
        let readings = self.managed_threads();
        let until = readings.partition_point(|reading| reading.time_ns <= time_ns);
        readings[..until].iter().rev().find(|reading| {
            let thread = self.thread(reading.thread);
            (thread.process, thread.tid) == (process, tid)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, Header, Incident, ProfileBuilder, ProfileCopy};

    /// A profile with a reading at each of these times, each of another process.
    fn profile(times_ns: &[u64], started_monotonic_ns: u64) -> Profile {
        let mut builder = ProfileBuilder::default();
        builder.event(Event::at_frequency("cpu-clock", 99));
        builder.event(Event::at_frequency("wall", 49));
        for (pid, time_ns) in (1..).zip(times_ns) {
            // The thread has no samples.
            let process = builder.process(pid, "shop");
            let thread = builder.thread(process, pid + 10, "price computati");
            let [name, exception] =
                ["price computation", "System.FormatException"].map(|text| Some(builder.string(text)));
            let (time_ns, managed_id, gc_mode) = (*time_ns, 4, GcMode::Cooperative);
            let exception = exception.filter(|_| pid == 1);
            builder.add_managed_thread(ManagedThread {
                time_ns,
                thread,
                managed_id,
                name,
                exception,
                gc_mode,
            });
        }
        let incident = Incident { since_ns: 150, time_ns: 150, ..Incident::default() };
        let header = Header {
            started_monotonic_ns,
            duration_ns: 1_000,
            incident: Some(incident),
            ..Header::default()
        };
        builder.finish(header)
    }

    /// Time, thread and exception of the readings.
    fn readings(profile: &Profile) -> Vec<(u64, u32, Option<&str>)> {
        let readings = profile.managed_threads().iter();
        readings
            .map(|reading| {
                assert_eq!((reading.managed_id, reading.gc_mode), (4, GcMode::Cooperative));
                assert_eq!(reading.name.map(|name| profile.string(name)), Some("price computation"));
                let exception = reading.exception.map(|name| profile.string(name));
                (reading.time_ns, profile.thread(reading.thread).tid, exception)
            })
            .collect()
    }

    const FIRST: (u64, u32, Option<&str>) = (100, 11, Some("System.FormatException"));
    const SECOND: (u64, u32, Option<&str>) = (200, 12, None);

    #[test]
    fn readings_are_in_time_order_and_in_each_view() {
        let profile = profile(&[200, 100], 0);
        let both = [(100, 12, None), (200, 11, Some("System.FormatException"))];
        assert_eq!(readings(&profile), both);
        for event in profile.event_ids() {
            assert_eq!(readings(&profile.single_event(event)), both);
        }
        let mut copy = ProfileCopy::of(&profile);
        copy.runtime_events();
        assert_eq!(readings(&copy.finish(profile.header().clone())), both);
        assert_eq!(readings(&profile.since_incident().unwrap()), [(50, 11, Some("System.FormatException"))]);
    }

    #[test]
    fn readings_of_later_intervals_have_later_times() {
        let joined = Profile::joined(&[profile(&[100], 5_000), profile(&[200], 6_000)]);
        assert_eq!(readings(&joined), [FIRST, (1_200, 11, Some("System.FormatException"))]);
        assert_eq!(joined.processes().len(), 1);
    }

    #[test]
    fn the_last_reading_of_a_thread_up_to_a_time_is_found() {
        let joined = Profile::joined(&[profile(&[100], 5_000), profile(&[200], 6_000)]);
        let process = joined.managed_threads()[0].process(&joined);
        let time =
            |tid, time_ns| joined.managed_thread_at(process, tid, time_ns).map(|reading| reading.time_ns);
        let found = [99, 100, 1_199, 1_200, u64::MAX].map(|time_ns| time(11, time_ns));
        assert_eq!(found, [None, Some(100), Some(100), Some(1_200), Some(1_200)]);
        assert_eq!(time(12, u64::MAX), None);
    }

    #[cfg(feature = "filters")]
    #[test]
    fn readings_are_selected_by_process_and_time() {
        use std::time::Duration;

        use crate::Shape;

        let profile = profile(&[100, 200], 0);
        let shaped = |shape: &Shape| {
            let shaped = profile.shaped(shape);
            readings(&shaped).into_iter().map(|(time_ns, tid, _)| (time_ns, tid)).collect::<Vec<_>>()
        };
        let choice = |text: &str| Some(text.parse().unwrap());
        let (first, second) = ((FIRST.0, FIRST.1), (SECOND.0, SECOND.1));
        assert_eq!(shaped(&Shape { process: choice("2"), ..Shape::default() }), [second]);
        let middle = Some(Duration::from_nanos(150));
        assert_eq!(shaped(&Shape { from: middle, ..Shape::default() }), [second]);
        assert_eq!(shaped(&Shape { to: middle, ..Shape::default() }), [first]);
        let of_waiter = Shape { thread: choice("77"), ..Shape::default() };
        assert_eq!(shaped(&of_waiter), [first, second], "it waits for them");
    }
}
