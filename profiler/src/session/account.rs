//! Fills the ledger of an interval: what was due for each event, and what was lost for which cause.

use profiler_profile::{EventLedger, Loss, MissedTick, ProfileBuilder, TimerTicks};
use profiler_sampler::{Batch, KernelCounts, TimerCounts, add_loss};

use super::sample_events::{Counts, SampleEvents};

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
pub(super) struct Account<'a> {
    /// The counters at its end. What is due of events is settled.
    pub(super) now: &'a KernelCounts,
    /// Those at its start.
    pub(super) before: &'a KernelCounts,
    pub(super) losses: IntervalLosses,
}

impl Account<'_> {
    /// Fills the ledger of a profile with these events.
    pub(super) fn fill(&self, events: &SampleEvents, builder: &mut ProfileBuilder) {
        let none = EventLedger::default();
        for (index, id) in events.ids().iter().enumerate() {
            let now = self.now.events.get(index).unwrap_or(&none);
            let before = self.before.events.get(index).unwrap_or(&none);
            let event = builder.event_ledger_mut(*id);
            add_since(event, now, before);
            add_loss(event, Loss::MissingStack, self.losses.missing_stacks.get(index));
            add_loss(event, Loss::MemoryLimit, self.losses.shed_samples.get(index));
            if events.ticks_index() == Some(index) {
                add_loss(event, Loss::Undecodable, self.losses.undecodable);
            }
        }
        for (id, share) in events.shares() {
            let event = builder.event_ledger_mut(*id);
            event.due = event.due.saturating_add(share.ticks());
        }
        let ledger = builder.ledger_mut();
        ledger.timer = timer_ticks(self.now.timer, self.before.timer);
        ledger.lost_process_events = self.losses.lost_events;
        ledger.late_process_events = self.losses.late_events;
        ledger.lost_children = self.now.lost_children.saturating_sub(self.before.lost_children);
        ledger.cost.bpf_run_time_ns = self.now.run_time_ns.saturating_sub(self.before.run_time_ns);
    }
}

/// Adds what was counted between two moments.
fn add_since(event: &mut EventLedger, now: &EventLedger, before: &EventLedger) {
    let counts: [fn(&mut EventLedger) -> &mut u64; 5] = [
        |event| &mut event.due,
        |event| &mut event.skipped_ticks,
        |event| &mut event.cut_stacks,
        |event| &mut event.short_waits,
        |event| &mut event.short_waits_ns,
    ];
    let (mut now, mut before) = (now.clone(), before.clone());
    for count in counts {
        let added = count(&mut now).saturating_sub(*count(&mut before));
        let sum = count(event);
        *sum = sum.saturating_add(added);
    }
    for (loss, lost) in &now.lost {
        let lost_before = before.lost.get(loss).copied().unwrap_or_default();
        add_loss(event, *loss, lost.saturating_sub(lost_before));
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
