//! Removes samples that a started command takes before its exec: until then the process runs the profiler's own code.

use profiler_addresses::MonotonicTime;
use profiler_processes::{Pid, SidebandEvent, SidebandEventKind};
use profiler_sampler::{Batch, RawSample};

use super::sample_events::Counts;

/// Removes the samples of a process before its first exec.
#[derive(Debug)]
pub(super) struct PreExecFilter {
    pid: Pid,
    /// The time of the first exec; zero if that event may be lost.
    exec: Option<MonotonicTime>,
    removed: Counts,
}

impl PreExecFilter {
    /// A filter for the process that will execute the command.
    pub(super) fn new(pid: Pid) -> Self {
        Self { pid, exec: None, removed: Counts::default() }
    }

    /// The samples removed so far.
    pub(super) fn removed(&self) -> &Counts {
        &self.removed
    }

    /// Looks for the first exec in the events of a batch.
    pub(super) fn find_exec(&mut self, batch: &Batch) {
        if self.exec.is_none() {
            self.exec = batch.events.iter().find(|event| self.is_exec(event)).map(|event| event.time);
        }
        if self.exec.is_none() && batch.lost_events > 0 {
            self.exec = Some(MonotonicTime::ZERO);
        }
    }

    /// Removes the samples before the exec from a batch in which it was looked for.
    pub(super) fn remove_samples(&mut self, batch: &mut Batch) {
        let exec = self.exec.unwrap_or(MonotonicTime::MAX);
        let is_before = |sample: &mut RawSample| sample.pid == self.pid && sample.time < exec;
        for sample in batch.samples.extract_if(.., is_before) {
            self.removed.add(sample.origin, sample.value);
        }
    }

    fn is_exec(&self, event: &SidebandEvent) -> bool {
        event.pid == self.pid && matches!(event.kind, SidebandEventKind::Execute(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_processes::Tid;
    use profiler_sampler::{Comm, Origin};

    fn sample(pid: u32, time_ns: u64) -> RawSample {
        let pid = Pid(pid);
        let (comm, kernel_stack, user_stack) = (Comm::default(), None, None);
        RawSample {
            time: MonotonicTime(time_ns),
            cpu: 0,
            pid,
            tid: Tid::leader_of(pid),
            comm,
            kernel_stack,
            user_stack,
            value: 1,
            origin: Origin::default(),
            waker: None,
            system_call: None,
        }
    }

    fn exec(pid: u32, time_ns: u64) -> SidebandEvent {
        let pid = Pid(pid);
        SidebandEvent {
            time: MonotonicTime(time_ns),
            pid,
            tid: Tid::leader_of(pid),
            kind: SidebandEventKind::Execute("ls".to_owned()),
        }
    }

    fn remaining(filter: &mut PreExecFilter, mut batch: Batch) -> Vec<(u32, u64)> {
        filter.find_exec(&batch);
        filter.remove_samples(&mut batch);
        batch.samples.iter().map(|sample| (sample.pid.0, sample.time.0)).collect()
    }

    #[test]
    fn samples_before_the_first_exec_are_removed() {
        let mut filter = PreExecFilter::new(Pid(7));
        let early = Batch { samples: vec![sample(7, 5), sample(8, 5)], ..Batch::default() };
        assert_eq!(remaining(&mut filter, early), [(8, 5)]);
        let events = vec![exec(8, 8), exec(7, 10)];
        let samples = vec![sample(7, 9), sample(7, 10), sample(7, 11)];
        let batch = Batch { events, samples, ..Batch::default() };
        assert_eq!(remaining(&mut filter, batch), [(7, 10), (7, 11)]);
        let second = Batch { events: vec![exec(7, 20)], samples: vec![sample(7, 15)], ..Batch::default() };
        assert_eq!(remaining(&mut filter, second), [(7, 15)], "the command may execute another program");
        assert_eq!(filter.removed().get(0), 2);
    }

    #[test]
    fn all_samples_are_kept_if_the_exec_event_may_be_lost() {
        let mut filter = PreExecFilter::new(Pid(7));
        let batch = Batch { samples: vec![sample(7, 5)], lost_events: 1, ..Batch::default() };
        assert_eq!(remaining(&mut filter, batch), [(7, 5)]);
        assert_eq!(filter.removed(), &Counts::default());
    }
}
