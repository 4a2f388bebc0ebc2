//! Fills the ledger of an interval: what was due for each event, and what was lost for which cause.

use profiler_common::event::EventCounts;
use profiler_profile::{EventLedger, Loss, MissedTick, ProfileBuilder, TimerTicks};

use super::sample_events::{Counts, SampleEvents};
use crate::sampler::{Batch, KernelCounts, TimerCounts};

/// Losses on the user side since the last profile.
#[derive(Debug, Default)]
pub(super) struct IntervalLosses {
    pub(super) missing_stacks: Counts,
    /// Samples that waited too long while memory was short.
    pub(super) shed_samples: Counts,
    pub(super) undecodable: u64,
    pub(super) lost_events: u64,
    pub(super) late_events: u64,
}

impl IntervalLosses {
    /// Adds the losses of a batch.
    pub(super) fn add(&mut self, batch: &Batch) {
        self.undecodable = self.undecodable.saturating_add(batch.undecodable);
        self.lost_events = self.lost_events.saturating_add(batch.lost_events);
        self.late_events = self.late_events.saturating_add(batch.late_events);
    }
}

/// The counts of an interval.
pub(super) struct Account {
    /// The counters at its end.
    pub(super) now: KernelCounts,
    /// Those at its start.
    pub(super) before: KernelCounts,
    pub(super) losses: IntervalLosses,
    /// Skipped ticks for which no later sample stands.
    pub(super) unrepresented_ticks: u64,
}

impl Account {
    /// Fills the ledger of a profile with these events.
    pub(super) fn fill(&self, events: &SampleEvents, builder: &mut ProfileBuilder) {
        let of_cpu_ticks = events.of_cpu_ticks();
        if let Some(event) = of_cpu_ticks {
            self.fill_cpu_ticks(builder.event_ledger_mut(event));
        }
        if let Some((wall, on_cpu_ticks)) = events.wall() {
            let event = builder.event_ledger_mut(wall);
            self.fill_wall_ticks(event);
            // Without an event of their own, the ticks of CPUs are there already.
            event.due += if Some(wall) == of_cpu_ticks { 0 } else { on_cpu_ticks };
        }
        if let Some(event) = events.off_cpu() {
            self.fill_waits(builder.event_ledger_mut(event));
        }
        for (index, event) in events.counted().iter().enumerate() {
            self.fill_occurrences(index, builder.event_ledger_mut(*event));
        }
        let ledger = builder.ledger_mut();
        ledger.timer = timer_ticks(self.now.timer, self.before.timer);
        ledger.lost_process_events = self.losses.lost_events;
        ledger.late_process_events = self.losses.late_events;
        ledger.lost_children = self.since(|counts| counts.lost_children);
        ledger.cost.bpf_run_time_ns = self.since(|counts| counts.run_time_ns);
    }

    fn fill_cpu_ticks(&self, event: &mut EventLedger) {
        add_losses(
            event,
            [
                (Loss::OverheadLimit, self.unrepresented_ticks),
                (Loss::RingBufferFull, self.since(|counts| counts.lost_ring_buffer)),
                (Loss::NoThreadId, self.since(|counts| counts.lost_thread_id)),
                (Loss::MissingStack, self.losses.missing_stacks.cpu),
                (Loss::MemoryLimit, self.losses.shed_samples.cpu),
                (Loss::Undecodable, self.losses.undecodable),
            ],
        );
        event.skipped_ticks = self.since(|counts| counts.skipped_ticks);
        event.cut_stacks = self.since(|counts| counts.cut_stacks);
        event.due = self.since(|counts| counts.target_ticks);
    }

    fn fill_wall_ticks(&self, event: &mut EventLedger) {
        add_losses(
            event,
            [
                (Loss::ThreadRan, self.since(|counts| counts.wall.lost_awake)),
                (Loss::RingBufferFull, self.since(|counts| counts.wall.lost_ring_buffer)),
                (Loss::TooManyThreads, self.since(|counts| counts.wall.lost_thread)),
                (Loss::MissingStack, self.losses.missing_stacks.wall),
                (Loss::MemoryLimit, self.losses.shed_samples.wall),
            ],
        );
        event.due += self.since(|counts| counts.wall.ticks);
    }

    fn fill_waits(&self, event: &mut EventLedger) {
        add_losses(
            event,
            [
                (Loss::RingBufferFull, self.since(|counts| counts.off_cpu.lost_ring_buffer)),
                (Loss::TooManyThreads, self.since(|counts| counts.off_cpu.lost_thread)),
                (Loss::MissingStack, self.losses.missing_stacks.off_cpu),
                (Loss::MemoryLimit, self.losses.shed_samples.off_cpu),
            ],
        );
        event.due = self.since(|counts| counts.off_cpu.due);
        event.short_waits = self.since(|counts| counts.off_cpu.short);
        event.short_waits_ns = self.since(|counts| counts.off_cpu.short_ns);
    }

    fn fill_occurrences(&self, index: usize, event: &mut EventLedger) {
        let since = |count: fn(EventCounts) -> u64| self.since(|counts| count(counts.events[index]));
        add_losses(
            event,
            [
                (Loss::OverheadLimit, since(|counts| counts.skipped)),
                (Loss::RingBufferFull, since(|counts| counts.lost_ring_buffer)),
                (Loss::NoThreadId, since(|counts| counts.lost_thread_id)),
                (Loss::Nested, since(|counts| counts.lost_nested)),
                (Loss::MissingStack, self.losses.missing_stacks.events[index]),
                (Loss::MemoryLimit, self.losses.shed_samples.events[index]),
            ],
        );
        event.due = since(|counts| counts.due);
    }

    fn since(&self, count: impl Fn(&KernelCounts) -> u64) -> u64 {
        count(&self.now).saturating_sub(count(&self.before))
    }
}

/// Adds the losses that are not 0.
fn add_losses<const N: usize>(event: &mut EventLedger, losses: [(Loss, u64); N]) {
    for (loss, count) in losses.into_iter().filter(|(_, count)| *count > 0) {
        *event.lost.entry(loss).or_default() += count;
    }
}

/// The ticks of the timers between two counts.
fn timer_ticks(now: TimerCounts, before: TimerCounts) -> TimerTicks {
    // Ticks between the readings of both counters seem to be missing, and to be too many in the next interval.
    let missed_between = |missed: fn(TimerCounts) -> u64| missed(now).saturating_sub(missed(before));
    let missed = missed_between(|counts| counts.due.saturating_sub(counts.delivered));
    let idle = missed_between(|counts| counts.idle_due.saturating_sub(counts.idle_delivered)).min(missed);
    let without_timer =
        if now.is_throttled || before.is_throttled { MissedTick::Throttled } else { MissedTick::NoInterrupt };
    let missed = [
        (without_timer, missed - idle),
        (MissedTick::IdleCpu, idle),
        (MissedTick::CpuOnline, missed_between(|counts| counts.cpu_online)),
    ];
    let due = |counts: TimerCounts| counts.due.saturating_add(counts.cpu_online);
    TimerTicks {
        due: due(now).saturating_sub(due(before)),
        missed: missed.into_iter().filter(|(_, ticks)| *ticks > 0).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_missed_while_a_cpu_was_idle_have_that_cause() {
        let before = TimerCounts {
            due: 100,
            delivered: 90,
            idle_due: 50,
            idle_delivered: 45,
            ..TimerCounts::default()
        };
        let after = |due, delivered, idle_due, idle_delivered| {
            timer_ticks(TimerCounts { due, delivered, idle_due, idle_delivered, ..before }, before)
        };
        let missed = |idle, other| {
            let causes = [(MissedTick::IdleCpu, idle), (MissedTick::NoInterrupt, other)];
            causes.into_iter().filter(|(_, ticks)| *ticks > 0).collect()
        };
        assert_eq!(after(300, 190, 150, 45), TimerTicks { due: 200, missed: missed(100, 0) });
        assert_eq!(after(300, 180, 150, 55), TimerTicks { due: 200, missed: missed(90, 20) });
        // Idle time in units of 10 ms is more than what was missed.
        assert_eq!(after(300, 285, 160, 135), TimerTicks { due: 200, missed: missed(5, 0) });
    }
}
