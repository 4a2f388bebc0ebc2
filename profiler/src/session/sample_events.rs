//! The events of a session, and the samples that a raw sample becomes.

use std::collections::HashMap;

use profiler_profile::{Event, EventId, ProfileBuilder, Sample, ThreadId, ThreadState};

use crate::sampler::RawSample;

/// The name of the event of CPU samples. The timers of all CPUs count `CLOCK_MONOTONIC` (`PERF_COUNT_SW_CPU_CLOCK`).
const CPU_CLOCK: &str = "cpu-clock";

/// The name of the event of wall-clock samples.
const WALL: &str = "wall";

/// What a session samples.
#[derive(Clone, Debug, Default)]
pub(super) struct Sampled {
    /// Whether user stacks are sampled; if not, a stack is complete when its kernel stack is.
    pub(super) user_stacks: bool,
    /// The frequency of the timers of CPUs, hertz.
    pub(super) timer_hz: u64,
    /// The frequency of wall-clock samples, if there are any.
    pub(super) wall_hz: Option<u64>,
    /// Whether the ticks of CPUs are wall-clock samples alone.
    pub(super) is_wall_only: bool,
}

/// Ticks of CPUs, and of passes over waiting threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ticks {
    pub(super) cpu: u64,
    pub(super) waiting: u64,
}

impl Ticks {
    /// Adds the ticks of a sample.
    pub(super) fn add(&mut self, waited: Option<ThreadState>, weight: u32) {
        let ticks = if waited.is_some() { &mut self.waiting } else { &mut self.cpu };
        // The numbers of a capture are any.
        *ticks = ticks.saturating_add(weight.into());
    }

    /// The ticks of samples.
    pub(super) fn of<'a>(samples: impl IntoIterator<Item = &'a RawSample>) -> Self {
        let mut ticks = Self::default();
        samples.into_iter().for_each(|sample| ticks.add(sample.waited, sample.weight));
        ticks
    }
}

/// The events of a profile under construction.
#[derive(Debug, Default)]
pub(super) struct SampleEvents {
    /// `None` where all ticks are of the wall clock.
    cpu: Option<EventId>,
    wall: Option<WallEvent>,
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
        let Sampled { timer_hz, wall_hz, is_wall_only, .. } = *sampled;
        let cpu = (!is_wall_only).then(|| builder.event(Event::at_frequency(CPU_CLOCK, timer_hz)));
        let wall = wall_hz.map(|wall_hz| WallEvent {
            id: builder.event(Event::at_frequency(WALL, wall_hz)),
            wall_hz,
            timer_hz: timer_hz.max(1),
            remainders: HashMap::new(),
            on_cpu_ticks: 0,
        });
        Self { cpu, wall }
    }

    /// The event of wall-clock samples, and the ticks of threads that ran.
    pub(super) fn wall(&self) -> Option<(EventId, u64)> {
        self.wall.as_ref().map(|wall| (wall.id, wall.on_cpu_ticks))
    }

    /// The event of CPU samples; that of the wall clock where there is no other.
    pub(super) fn of_cpu_ticks(&self) -> EventId {
        self.cpu.or_else(|| self.wall.as_ref().map(|wall| wall.id)).unwrap_or_default()
    }

    /// Adds the samples of a raw sample: `sample` with its ticks as value, and the state of a thread that waited.
    pub(super) fn add(&mut self, builder: &mut ProfileBuilder, sample: Sample) {
        if sample.state.is_none()
            && let Some(event) = self.cpu
        {
            builder.add_sample(Sample { event, ..sample });
        }
        if let Some(wall) = &mut self.wall {
            let (state, value) = match sample.state {
                Some(state) => (state, sample.value),
                None => (ThreadState::OnCpu, wall.ticks_on_cpu(sample.thread, sample.value)),
            };
            if value > 0 {
                builder.add_sample(Sample { event: wall.id, state: Some(state), value, ..sample });
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
        (0..on_cpu).for_each(|_| events.add(&mut builder, tick));
        let state = Some(ThreadState::Blocked);
        events.add(&mut builder, Sample { state, value: waiting, ..tick });
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
        let both = Sampled { timer_hz: 99, wall_hz: Some(49), ..Sampled::default() };
        let expected = [
            ("cpu-clock".to_owned(), None, 198),
            ("wall".to_owned(), Some(ThreadState::OnCpu), 98),
            ("wall".to_owned(), Some(ThreadState::Blocked), 7),
        ];
        assert_eq!(values(&profile(&both, 198, 7)), expected);
    }

    #[test]
    fn all_ticks_are_of_the_wall_clock_where_there_is_no_other_event() {
        let wall = Sampled { timer_hz: 49, wall_hz: Some(49), is_wall_only: true, ..Sampled::default() };
        let profile = profile(&wall, 5, 3);
        assert_eq!(profile.events().len(), 1);
        let expected = [
            ("wall".to_owned(), Some(ThreadState::OnCpu), 5),
            ("wall".to_owned(), Some(ThreadState::Blocked), 3),
        ];
        assert_eq!(values(&profile), expected);
    }

    #[test]
    fn a_session_without_wall_clock_samples_has_one_event() {
        let profile = profile(&Sampled { timer_hz: 99, ..Sampled::default() }, 4, 0);
        assert_eq!(values(&profile), [("cpu-clock".to_owned(), None, 4)]);
    }
}
