//! The events of a session, and the samples that a raw sample becomes.

use std::collections::HashMap;

use profiler_common::event::MAX_EVENTS;
use profiler_profile::{Event, EventId, ProfileBuilder, Sample, Sampling, ThreadId, ThreadState};

use crate::{
    counted_event::CountedEvent,
    sampler::{OffCpu, Origin, RawSample},
};

/// The name of the event of CPU samples. The timers of all CPUs count `CLOCK_MONOTONIC` (`PERF_COUNT_SW_CPU_CLOCK`).
const CPU_CLOCK: &str = "cpu-clock";

/// The name of the event of wall-clock samples.
const WALL: &str = "wall";

/// The name of the event of waits.
const OFF_CPU: &str = "off-cpu";

/// The name of the event of waits for block and file I/O.
const IO: &str = "io";

/// What a session samples.
#[derive(Clone, Debug, Default)]
pub(super) struct Sampled {
    /// Whether user stacks are sampled; if not, a stack is complete when its kernel stack is.
    pub(super) user_stacks: bool,
    /// Whether the ticks of CPUs are an event of their own.
    pub(super) cpu: bool,
    /// The frequency of the timers of CPUs, hertz; 0 is no timer.
    pub(super) timer_hz: u64,
    /// The frequency of wall-clock samples, if there are any.
    pub(super) wall_hz: Option<u64>,
    /// Which waits are samples, if any are.
    pub(super) off_cpu: Option<OffCpu>,
    /// Events that are sampled at their occurrences.
    pub(super) events: Vec<CountedEvent>,
}

impl Sampled {
    /// Whether waiting threads are sampled.
    pub(super) fn has_waits(&self) -> bool {
        self.wall_hz.is_some() || self.off_cpu.is_some()
    }
}

/// Samples by their origin, as the ledger counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Ticks of CPUs.
    pub(super) cpu: u64,
    /// Ticks of passes over waiting threads.
    pub(super) wall: u64,
    /// Parts of waits.
    pub(super) off_cpu: u64,
    /// Occurrences of each event.
    pub(super) events: [u64; MAX_EVENTS],
}

impl Counts {
    /// Adds a sample.
    pub(super) fn add(&mut self, origin: Origin, value: u64) {
        let (count, added) = match origin {
            Origin::Timer => (&mut self.cpu, value),
            Origin::WallPass(_) => (&mut self.wall, value),
            Origin::OffCpu(_) => (&mut self.off_cpu, 1),
            Origin::Event(index) => (&mut self.events[usize::from(index)], value),
        };
        // The numbers of a capture are any.
        *count = count.saturating_add(added);
    }

    /// Adds other counts.
    pub(super) fn add_all(&mut self, Self { cpu, wall, off_cpu, events }: Self) {
        self.cpu = self.cpu.saturating_add(cpu);
        self.wall = self.wall.saturating_add(wall);
        self.off_cpu = self.off_cpu.saturating_add(off_cpu);
        for (sum, added) in self.events.iter_mut().zip(events) {
            *sum = sum.saturating_add(added);
        }
    }

    /// The counts of samples.
    pub(super) fn of<'a>(samples: impl IntoIterator<Item = &'a RawSample>) -> Self {
        let mut counts = Self::default();
        samples.into_iter().for_each(|sample| counts.add(sample.origin, sample.value));
        counts
    }
}

/// The events of a profile under construction.
#[derive(Debug, Default)]
pub(super) struct SampleEvents {
    cpu: Option<EventId>,
    wall: Option<WallEvent>,
    off_cpu: Option<EventId>,
    /// Those that are sampled at their occurrences, by index.
    counted: Vec<EventId>,
}

/// The event of wall-clock samples.
#[derive(Debug)]
struct WallEvent {
    id: EventId,
    wall_hz: u64,
    timer_hz: u64,
    /// For each thread, the part of a wall-clock tick for which it ran and has no sample, in ticks divided by the frequency
    /// of the timers.
    remainders: HashMap<ThreadId, u64>,
    /// The ticks of threads that ran.
    on_cpu_ticks: u64,
}

impl SampleEvents {
    /// Adds the events of a session to a profile.
    pub(super) fn new(sampled: &Sampled, builder: &mut ProfileBuilder) -> Self {
        let Sampled { timer_hz, wall_hz, .. } = *sampled;
        let cpu = sampled.cpu.then(|| builder.event(Event::at_frequency(CPU_CLOCK, timer_hz)));
        let wall = wall_hz.map(|wall_hz| WallEvent {
            id: builder.event(Event::at_frequency(WALL, wall_hz)),
            wall_hz,
            timer_hz: timer_hz.max(1),
            remainders: HashMap::new(),
            on_cpu_ticks: 0,
        });
        let off_cpu = sampled.off_cpu.map(|off_cpu| {
            let min_ns = u64::try_from(off_cpu.min_block.as_nanos()).unwrap_or(u64::MAX);
            let name = if off_cpu.only_disk { IO } else { OFF_CPU };
            builder.event(Event { name: name.to_owned(), sampling: Sampling::Durations { min_ns } })
        });
        let counted = sampled.events.iter().map(|event| {
            let period = event.period().get();
            let sampling = match event.weight() {
                Some(_) if event.is_weighted_by_time() => Sampling::Times { period },
                Some(_) => Sampling::Sums { period },
                None => Sampling::Occurrences { period },
            };
            builder.event(Event { name: event.name_with_weight(), sampling })
        });
        let counted = counted.collect();
        Self { cpu, wall, off_cpu, counted }
    }

    /// The events that are sampled at their occurrences, by index.
    pub(super) fn counted(&self) -> &[EventId] {
        &self.counted
    }

    /// The event of waits.
    pub(super) fn off_cpu(&self) -> Option<EventId> {
        self.off_cpu
    }

    /// The event of wall-clock samples, and the ticks of threads that ran.
    pub(super) fn wall(&self) -> Option<(EventId, u64)> {
        self.wall.as_ref().map(|wall| (wall.id, wall.on_cpu_ticks))
    }

    /// The event of CPU samples; that of the wall clock where there is no other. `None` where no timer ticks.
    pub(super) fn of_cpu_ticks(&self) -> Option<EventId> {
        self.cpu.or_else(|| self.wall.as_ref().map(|wall| wall.id))
    }

    /// Adds the samples of a raw sample: `sample` has its thread, stack and value.
    pub(super) fn add(&mut self, builder: &mut ProfileBuilder, origin: Origin, sample: Sample) {
        match origin {
            Origin::Timer => self.add_ticks_on_cpu(builder, sample),
            Origin::WallPass(state) => {
                let Some(wall) = &self.wall else { return };
                builder.add_sample(Sample { event: wall.id, state: Some(state), ..sample });
            }
            Origin::OffCpu(state) => {
                let Some(event) = self.off_cpu else { return };
                builder.add_sample(Sample { event, state: Some(state), ..sample });
            }
            Origin::Event(index) => {
                let Some(event) = self.counted.get(usize::from(index)).copied() else { return };
                builder.add_sample(Sample { event, ..sample });
            }
        }
    }

    fn add_ticks_on_cpu(&mut self, builder: &mut ProfileBuilder, sample: Sample) {
        if let Some(event) = self.cpu {
            builder.add_sample(Sample { event, ..sample });
        }
        if let Some(wall) = &mut self.wall {
            let value = wall.ticks_on_cpu(sample.thread, sample.value);
            if value > 0 {
                let state = Some(ThreadState::OnCpu);
                builder.add_sample(Sample { event: wall.id, state, value, ..sample });
            }
        }
    }
}

impl WallEvent {
    /// The wall-clock ticks of a thread that ran for these ticks of the timers.
    fn ticks_on_cpu(&mut self, thread: ThreadId, timer_ticks: u64) -> u64 {
        // A thread starts with half a tick, so that short runs are neither all counted nor all left out.
        let remainder = self.remainders.entry(thread).or_insert(self.timer_hz / 2);
        let sum = remainder.saturating_add(timer_ticks.saturating_mul(self.wall_hz));
        *remainder = sum % self.timer_hz;
        let ticks = sum / self.timer_hz;
        self.on_cpu_ticks = self.on_cpu_ticks.saturating_add(ticks);
        ticks
    }
}

#[cfg(test)]
mod tests {
    use profiler_profile::{Header, Profile, StackEnd};

    use super::*;

    /// The profile of one thread that ran for some ticks of the timers, and waited for some passes.
    fn profile(sampled: &Sampled, on_cpu: u64, waiting: u64) -> Profile {
        let mut builder = ProfileBuilder::default();
        let mut events = SampleEvents::new(sampled, &mut builder);
        let process = builder.process(1, "a");
        let thread = builder.thread(process, 1, "a");
        let stack = builder.stack(Vec::new(), StackEnd::Empty);
        let tick = Sample { time_ns: 0, cpu: 0, thread, stack, event: EventId::FIRST, state: None, value: 1 };
        (0..on_cpu).for_each(|_| events.add(&mut builder, Origin::Timer, tick));
        let waited = Origin::WallPass(ThreadState::Blocked);
        events.add(&mut builder, waited, Sample { value: waiting, ..tick });
        builder.finish(Header::default())
    }

    /// Each event with the sum of its values by state.
    fn values(profile: &Profile) -> Vec<(String, Option<ThreadState>, u64)> {
        let mut sums = std::collections::BTreeMap::new();
        for sample in profile.samples() {
            *sums.entry((profile.event(sample.event).name.clone(), sample.state)).or_default() +=
                sample.value;
        }
        sums.into_iter().map(|((name, state), value)| (name, state, value)).collect()
    }

    #[test]
    fn ticks_of_cpus_count_for_the_wall_clock_by_the_ratio_of_the_frequencies() {
        let both = Sampled { cpu: true, timer_hz: 99, wall_hz: Some(49), ..Sampled::default() };
        let expected = [
            ("cpu-clock".to_owned(), None, 198),
            ("wall".to_owned(), Some(ThreadState::OnCpu), 98),
            ("wall".to_owned(), Some(ThreadState::Blocked), 7),
        ];
        assert_eq!(values(&profile(&both, 198, 7)), expected);
    }

    #[test]
    fn all_ticks_are_of_the_wall_clock_where_there_is_no_other_event() {
        let wall = Sampled { timer_hz: 49, wall_hz: Some(49), ..Sampled::default() };
        let profile = profile(&wall, 5, 3);
        assert_eq!(profile.events().len(), 1);
        let expected = [
            ("wall".to_owned(), Some(ThreadState::OnCpu), 5),
            ("wall".to_owned(), Some(ThreadState::Blocked), 3),
        ];
        assert_eq!(values(&profile), expected);
    }

    #[test]
    fn each_counted_event_has_its_samples() {
        let events = ["page-faults", "sched:sched_switch"].map(|name| name.parse().unwrap()).to_vec();
        let mut builder = ProfileBuilder::default();
        let mut events = SampleEvents::new(&Sampled { events, ..Sampled::default() }, &mut builder);
        let process = builder.process(1, "a");
        let thread = builder.thread(process, 1, "a");
        let stack = builder.stack(Vec::new(), StackEnd::Empty);
        let sample =
            Sample { time_ns: 0, cpu: 0, thread, stack, event: EventId::FIRST, state: None, value: 5 };
        events.add(&mut builder, Origin::Event(1), sample);
        events.add(&mut builder, Origin::Event(7), sample);
        let expected = [("sched:sched_switch".to_owned(), None, 5)];
        assert_eq!(values(&builder.finish(Header::default())), expected);
    }

    #[test]
    fn a_session_without_wall_clock_samples_has_one_event() {
        let profile = profile(&Sampled { cpu: true, timer_hz: 99, ..Sampled::default() }, 4, 0);
        assert_eq!(values(&profile), [("cpu-clock".to_owned(), None, 4)]);
    }
}
