//! The moment in which a command that the profiler starts is still the profiler's own launcher.

use crate::sampler::Batch;
use profiler_processes::{SidebandEvent, SidebandEventKind};

/// The process of a command: what it does before it executes the command is not the command's.
#[derive(Debug)]
pub(super) struct Launcher {
    pid: u32,
    /// When it executed the command, `CLOCK_MONOTONIC` nanoseconds; 0 when that event may be lost.
    executed_ns: Option<u64>,
    ticks: u64,
}

impl Launcher {
    /// The process that will execute the command.
    pub(super) fn new(pid: u32) -> Self {
        Self { pid, executed_ns: None, ticks: 0 }
    }

    /// How many samples were the launcher's.
    pub(super) fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Takes its samples out of a batch.
    pub(super) fn take_out(&mut self, batch: &mut Batch) {
        if self.executed_ns.is_none() {
            self.executed_ns =
                batch.events.iter().find(|event| self.executes(event)).map(|event| event.time_ns);
        }
        if self.executed_ns.is_none() && batch.lost_events > 0 {
            self.executed_ns = Some(0);
        }
        let before = batch.samples.len();
        let executed_ns = self.executed_ns.unwrap_or(u64::MAX);
        batch.samples.retain(|sample| sample.pid != self.pid || sample.time_ns >= executed_ns);
        self.ticks += (before - batch.samples.len()) as u64;
    }

    fn executes(&self, event: &SidebandEvent) -> bool {
        event.pid == self.pid && matches!(event.kind, SidebandEventKind::Execute(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::{Comm, RawSample};

    fn sample(pid: u32, time_ns: u64) -> RawSample {
        let (comm, kernel_stack, user_stack) = (Comm::default(), None, None);
        RawSample { time_ns, cpu: 0, pid, tid: pid, comm, kernel_stack, user_stack }
    }

    fn execute(pid: u32, time_ns: u64) -> SidebandEvent {
        SidebandEvent { time_ns, pid, tid: pid, kind: SidebandEventKind::Execute("ls".to_owned()) }
    }

    fn left(launcher: &mut Launcher, mut batch: Batch) -> Vec<(u32, u64)> {
        launcher.take_out(&mut batch);
        batch.samples.iter().map(|sample| (sample.pid, sample.time_ns)).collect()
    }

    #[test]
    fn what_comes_before_the_command_is_executed_is_not_its() {
        let mut launcher = Launcher::new(7);
        let early = Batch { samples: vec![sample(7, 5), sample(8, 5)], ..Batch::default() };
        assert_eq!(left(&mut launcher, early), [(8, 5)]);
        let events = vec![execute(8, 8), execute(7, 10)];
        let samples = vec![sample(7, 9), sample(7, 10), sample(7, 11)];
        assert_eq!(left(&mut launcher, Batch { events, samples, ..Batch::default() }), [(7, 10), (7, 11)]);
        let again = Batch { events: vec![execute(7, 20)], samples: vec![sample(7, 15)], ..Batch::default() };
        assert_eq!(left(&mut launcher, again), [(7, 15)], "the command may execute another");
        assert_eq!(launcher.ticks(), 2);
    }

    #[test]
    fn where_the_moment_was_lost_every_sample_counts() {
        let mut launcher = Launcher::new(7);
        let batch = Batch { samples: vec![sample(7, 5)], lost_events: 1, ..Batch::default() };
        assert_eq!(left(&mut launcher, batch), [(7, 5)]);
        assert_eq!(launcher.ticks(), 0);
    }
}
