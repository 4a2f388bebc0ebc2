//! The events of a session, in the order of their indices.

use std::sync::Arc;

use profiler_profile::{Event, EventLedger};

use super::{
    cpu_ticks::CpuTicks,
    kind::{ArrivedSamples, EventKind, Waits},
    settings::EventSettings,
    wall_share::WallShare,
};

/// The warning of a session without all kinds that sample threads that wait.
const WITHOUT_WAITS: &str = "threads that wait are not sampled (--wall, --off-cpu)";

/// The events of a session.
#[derive(Clone, Debug, Default)]
pub struct EventPlan {
    /// The frequency of the timers of CPUs, hertz; 0 is no timer.
    pub timer_hz: u64,
    /// In the order of their events.
    pub(crate) kinds: Vec<Arc<dyn EventKind>>,
}

impl EventPlan {
    /// CPU samples at a frequency, hertz.
    pub fn cpu_samples(timer_hz: u64) -> Self {
        Self { timer_hz, kinds: vec![Arc::new(CpuTicks::CPU_CLOCK)] }
    }

    /// The settings that request these kinds, and no other: a kernel may lack some that were requested.
    pub fn settings(&self) -> EventSettings {
        let mut settings = EventSettings { cpu_samples: false, ..EventSettings::default() };
        self.kinds.iter().for_each(|kind| kind.add_to(&mut settings, self.timer_hz));
        settings
    }

    /// The events of a profile. An event that two kinds sample is there twice.
    pub fn events(&self) -> Vec<Event> {
        self.kinds.iter().flat_map(|kind| kind.events(self.timer_hz)).collect()
    }

    /// Each kind with the index of its first event.
    pub(crate) fn indexed(&self) -> impl Iterator<Item = (u16, &dyn EventKind)> {
        self.kinds.iter().scan(0, |next, kind| {
            let first = *next;
            // At most `MAX_EVENTS` of each kind.
            *next += kind.events(self.timer_hz).len() as u16;
            Some((first, &**kind))
        })
    }

    /// The events that count a share of the ticks of CPUs as well, by index.
    pub fn shares_of_ticks(&self) -> impl Iterator<Item = (u16, WallShare)> {
        self.indexed().filter_map(|(first, kind)| Some((first, kind.share_of_ticks(self.timer_hz)?)))
    }

    /// The index of the event whose samples are the ticks of the timers of CPUs.
    pub fn ticks_index(&self) -> Option<u16> {
        self.indexed().find(|(_, kind)| kind.counts_ticks()).map(|(first, _)| first)
    }

    /// What is said of the first kind that samples threads that wait; `None` without such a kind.
    pub fn waits(&self) -> Option<Waits> {
        self.kinds.iter().find_map(|kind| kind.waits())
    }

    /// Whether [`Batch::mutex_waits`](crate::Batch::mutex_waits) has the processes in which threads may wait for a mutex, where user
    /// stacks are sampled.
    pub fn notes_mutex_waits(&self) -> bool {
        self.kinds.iter().any(|kind| kind.notes_mutex_waits())
    }

    /// Whether the rate of samples has no limit.
    pub fn has_unbounded_rate(&self) -> bool {
        self.kinds.iter().any(|kind| kind.has_unbounded_rate())
    }

    /// The events whose values are measures, and the indices that they have in this plan.
    pub fn measured(&self) -> (Self, Vec<u16>) {
        let measured = |kind: &dyn EventKind| kind.is_measured();
        let kinds = self.kinds.iter().filter(|kind| measured(&***kind)).cloned().collect();
        let indices = self.indexed().filter(|(_, kind)| measured(*kind));
        let indices = indices.flat_map(|(first, kind)| (first..).take(kind.events(self.timer_hz).len()));
        (Self { timer_hz: self.timer_hz, kinds }, indices.collect())
    }

    /// The account of each event at the end of an interval, by index. `arrived` returns what has arrived of an event.
    pub fn settle(
        &self,
        counted: &[EventLedger],
        arrived: impl Fn(usize) -> ArrivedSamples,
    ) -> Vec<EventLedger> {
        let kinds =
            self.indexed().flat_map(|(_, kind)| std::iter::repeat_n(kind, kind.events(self.timer_hz).len()));
        let default = EventLedger::default();
        let settle = |(index, kind): (usize, &dyn EventKind)| {
            kind.settle(counted.get(index).unwrap_or(&default), &arrived(index))
        };
        kinds.enumerate().map(settle).collect()
    }

    /// Plans without kinds that a kernel may not support, and the warning for each. Samples remain in all of them.
    pub fn reduced(&self) -> Vec<(Self, &'static str)> {
        if !self.kinds.iter().any(|kind| kind.is_sufficient()) {
            return Vec::new();
        }
        let without = |is_left_out: &dyn Fn(&Arc<dyn EventKind>) -> bool| {
            let kinds = self.kinds.iter().filter(|kind| !is_left_out(kind)).cloned().collect();
            Self { timer_hz: self.timer_hz, kinds }
        };
        let optional: Vec<_> = self.kinds.iter().filter_map(|kind| Some((kind, kind.waits()?))).collect();
        let without_one = |(kind, waits): &(&Arc<dyn EventKind>, Waits)| {
            (without(&|other| Arc::ptr_eq(other, kind)), waits.without)
        };
        let mut plans: Vec<_> = optional.iter().map(without_one).collect();
        if optional.len() > 1 {
            plans.push((without(&|kind| kind.waits().is_some()), WITHOUT_WAITS));
        }
        plans
    }
}
