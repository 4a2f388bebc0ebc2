//! The first line of a capture: what the session sampled, and its counters at the end.

use std::collections::BTreeMap;

use profiler_addresses::MonotonicTime;
use profiler_processes::{Pid, ProcessFilter};
use profiler_profile::{EventLedger, Loss};
use serde::{Deserialize, Serialize};

use crate::{
    counts::{KernelCounts, TimerCounts},
    ebpf::events::{EventPlan, EventSettings},
    planned_event::PlannedEvent,
};

/// The metadata of a capture: its first line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// [`VERSION`](super::VERSION) of its writer.
    pub version: u32,
    /// The target in words.
    pub target: String,
    /// The processes and threads of the target when sampling began.
    pub filter: ProcessFilter,
    /// The process of a command, whose samples count from its first exec on.
    pub command_pid: Option<Pid>,
    /// Processes whose mappings were read before sampling began; all sideband events are later.
    pub expected: Vec<Pid>,
    /// What was sampled.
    pub events: EventSettings,
    /// Whether user stacks were sampled.
    pub has_user_stacks: bool,
    /// The number of CPUs that were sampled.
    pub cpus: u32,
    /// The start of sampling.
    #[serde(rename = "started_ns")]
    pub started: MonotonicTime,
    /// The end of sampling.
    #[serde(rename = "ended_ns")]
    pub ended: MonotonicTime,
    /// Nanoseconds since 1970-01-01 UTC.
    pub started_unix_ns: u64,
    /// The counters at the end.
    pub counts: RecordedCounts,
}

impl Capture {
    /// The kinds of events that were sampled.
    pub fn event_plan(&self) -> EventPlan {
        let planned = |event| PlannedEvent { event, probed: None };
        self.events.plan(self.events.counted.iter().cloned().map(planned).collect())
    }
}

/// The counters of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedCounts {
    pub(super) lost_children: u64,
    pub(super) run_time_ns: u64,
    pub(super) timer: TimerCounts,
    /// By the index of the event.
    pub(super) events: Vec<RecordedLedger>,
}

/// What the BPF programs count of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RecordedLedger {
    pub(super) due: u64,
    pub(super) lost: BTreeMap<Loss, u64>,
    pub(super) skipped_ticks: u64,
    pub(super) cut_stacks: u64,
    pub(super) short_waits: u64,
    pub(super) short_waits_ns: u64,
}

impl From<&KernelCounts> for RecordedCounts {
    fn from(counts: &KernelCounts) -> Self {
        let ledger = |event: &EventLedger| RecordedLedger {
            due: event.due,
            lost: event.lost.clone(),
            skipped_ticks: event.skipped_ticks,
            cut_stacks: event.cut_stacks,
            short_waits: event.short_waits,
            short_waits_ns: event.short_waits_ns,
        };
        let KernelCounts { lost_children, run_time_ns, timer, ref events } = *counts;
        Self { lost_children, run_time_ns, timer, events: events.iter().map(ledger).collect() }
    }
}

impl From<&RecordedCounts> for KernelCounts {
    fn from(counts: &RecordedCounts) -> Self {
        let ledger = |event: &RecordedLedger| EventLedger {
            due: event.due,
            lost: event.lost.clone(),
            skipped_ticks: event.skipped_ticks,
            cut_stacks: event.cut_stacks,
            short_waits: event.short_waits,
            short_waits_ns: event.short_waits_ns,
            ..EventLedger::default()
        };
        let RecordedCounts { lost_children, run_time_ns, timer, ref events } = *counts;
        Self { lost_children, run_time_ns, timer, events: events.iter().map(ledger).collect() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{counted_event::CountedEvent, ebpf::events::OffCpu};

    #[test]
    fn the_kinds_of_a_plan_are_those_of_its_recorded_settings() {
        let off_cpu = |only_disk| OffCpu { min_block: Duration::from_millis(2), wakers: true, only_disk };
        let event = |name: &str| name.parse::<CountedEvent>().unwrap();
        let counted = vec![
            event("sched:sched_switch").weighted_by("prev_state"),
            CountedEvent::system_call_time(),
            event("page-faults").every(std::num::NonZeroU64::new(7).unwrap()),
        ];
        let none = EventSettings { cpu_samples: false, ..EventSettings::default() };
        let all = [
            EventSettings::default(),
            EventSettings { wall_hz: Some(49), ..EventSettings::default() },
            EventSettings { wall_hz: Some(49), ..none.clone() },
            EventSettings { off_cpu: Some(off_cpu(false)), ..none.clone() },
            EventSettings { off_cpu: Some(off_cpu(true)), frequency_hz: 7, ..EventSettings::default() },
            EventSettings { counted: counted.clone(), ..none },
            EventSettings {
                wall_hz: Some(19),
                off_cpu: Some(off_cpu(false)),
                counted,
                ..EventSettings::default()
            },
        ];
        for settings in all {
            let events = settings.plan(
                settings.counted.iter().cloned().map(|event| PlannedEvent { event, probed: None }).collect(),
            );
            let line = serde_json::to_string(&events.settings()).unwrap();
            let capture = Capture { events: serde_json::from_str(&line).unwrap(), ..Capture::default() };
            let replayed = capture.event_plan();
            assert_eq!(format!("{replayed:?}"), format!("{events:?}"), "{line}");
        }
    }

    #[test]
    fn what_the_kernel_counted_of_each_event_is_in_a_capture() {
        let ledger = |due, loss| EventLedger {
            due,
            lost: [(loss, 3)].into(),
            skipped_ticks: 4,
            cut_stacks: 5,
            short_waits: 6,
            short_waits_ns: 7,
            ..EventLedger::default()
        };
        let counts = KernelCounts {
            lost_children: 1,
            run_time_ns: 2,
            timer: TimerCounts { due: 8, ..TimerCounts::default() },
            events: Loss::ALL.iter().map(|loss| ledger(9, *loss)).collect(),
        };
        let line = serde_json::to_string(&RecordedCounts::from(&counts)).unwrap();
        let recorded: RecordedCounts = serde_json::from_str(&line).unwrap();
        assert_eq!(KernelCounts::from(&recorded), counts);
    }
}
