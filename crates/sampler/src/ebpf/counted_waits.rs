//! Turns waits into samples. A wait that lasts at the end of an interval has samples up to then, and later ones for the rest.

use std::{collections::HashMap, num::NonZeroU64};

use profiler_addresses::MonotonicTime;
use profiler_common::off_cpu::{OffCpuRecord, OffCpuThread, Waker};
use profiler_processes::{Pid, Tid};

use super::records::thread_state;
use crate::{
    batch::Batch,
    sample::{Comm, Origin, RawSample, RawWaker},
};

/// How far samples have the waits of threads.
#[derive(Debug, Default)]
pub(super) struct CountedWaits {
    /// The index of the event.
    event: u16,
    /// The start of sampling: no wait begins earlier.
    started: MonotonicTime,
    /// By thread id: the waits that lasted at the end of an interval.
    unfinished: HashMap<Tid, UnfinishedWait>,
    intervals: u64,
    /// Whether the time from the wakeup on, in which a thread waits for a CPU, has no samples.
    until_wakeup: bool,
    /// The records so far. Each is a sample, or two.
    decoded: u64,
}

#[derive(Debug)]
struct UnfinishedWait {
    since: MonotonicTime,
    /// The end of its samples.
    until: MonotonicTime,
    /// The interval at whose end it lasted.
    interval: u64,
}

impl CountedWaits {
    /// Samples are of `event`. `until_wakeup`: the time in which a woken thread waits for a CPU has no samples.
    pub(super) fn new(event: u16, until_wakeup: bool) -> Self {
        Self { event, until_wakeup, ..Self::default() }
    }

    /// Sets the start of sampling.
    pub(super) fn start(&mut self, started: MonotonicTime) {
        self.started = started;
    }

    /// Adds the samples of a wait that has ended; `None` for an unknown state.
    pub(super) fn end(&mut self, record: &OffCpuRecord, batch: &mut Batch) -> Option<()> {
        let thread = &record.thread;
        let unfinished = self.unfinished.remove(&Tid(thread.tid));
        let from = self.begin(thread, unfinished.as_ref());
        self.add_samples(thread, (from, MonotonicTime(record.ended_ns)), batch)?;
        self.decoded += 1;
        Some(())
    }

    /// The records of waits so far.
    pub(super) fn decoded(&self) -> u64 {
        self.decoded
    }

    /// Adds the samples so far of threads that wait at the end of an interval.
    pub(super) fn add_unfinished(
        &mut self,
        threads: impl IntoIterator<Item = OffCpuThread>,
        ended: MonotonicTime,
        batch: &mut Batch,
    ) {
        self.intervals += 1;
        for thread in threads {
            let from = self.begin(&thread, self.unfinished.get(&Tid(thread.tid)));
            if self.add_samples(&thread, (from, ended), batch).is_some() {
                let wait = UnfinishedWait {
                    since: MonotonicTime(thread.since_ns),
                    until: ended,
                    interval: self.intervals,
                };
                self.unfinished.insert(Tid(thread.tid), wait);
            }
        }
        // The record of a wait that ended in the interval has arrived, or is lost.
        let newest = self.intervals - 1;
        self.unfinished.retain(|_, wait| wait.interval >= newest);
    }

    /// The time from which on a wait has no samples.
    fn begin(&self, thread: &OffCpuThread, unfinished: Option<&UnfinishedWait>) -> MonotonicTime {
        let since = MonotonicTime(thread.since_ns).max(self.started);
        match unfinished {
            Some(wait) if wait.since == MonotonicTime(thread.since_ns) => since.max(wait.until),
            _ => since,
        }
    }

    /// Adds a sample of the time before the thread was woken, and one of the time in which it waited for a CPU.
    fn add_samples(
        &self,
        thread: &OffCpuThread,
        (from, until): (MonotonicTime, MonotonicTime),
        batch: &mut Batch,
    ) -> Option<()> {
        let state = thread_state(thread.state)?;
        let woken = if thread.woken_ns == 0 { until } else { MonotonicTime(thread.woken_ns).min(until) };
        let waker = (until > woken).then(|| raw_waker(&thread.waker)).flatten();
        let blocked = (state, from, woken, waker);
        let runnable = (thread_state(thread.woken_state)?, woken.max(from), until, None);
        let parts = [Some(blocked), (!self.until_wakeup).then_some(runnable)];
        for (state, from, until, waker) in parts.into_iter().flatten() {
            if from < until {
                batch.samples.push(RawSample {
                    time: until,
                    cpu: thread.cpu,
                    origin: Origin { event: self.event, state: Some(state), is_duration: true },
                    value: until.nanoseconds_since(from),
                    pid: Pid(thread.pid),
                    tid: Tid(thread.tid),
                    comm: Comm(thread.comm),
                    kernel_stack: NonZeroU64::new(thread.kernel_stack),
                    user_stack: NonZeroU64::new(thread.user_stack),
                    waker,
                    system_call: None,
                });
            }
        }
        Some(())
    }
}

/// The waker of a wait, if it was captured.
fn raw_waker(waker: &Waker) -> Option<Box<RawWaker>> {
    let Waker { kernel_stack, user_stack, pid, tid, comm } = *waker;
    let (kernel_stack, user_stack) = (NonZeroU64::new(kernel_stack), NonZeroU64::new(user_stack));
    let is_captured = kernel_stack.is_some() || user_stack.is_some();
    is_captured.then(|| {
        Box::new(RawWaker { pid: Pid(pid), tid: Tid(tid), comm: Comm(comm), kernel_stack, user_stack })
    })
}

#[cfg(test)]
mod tests {
    use profiler_common::{RecordKind, wall::WaitState};
    use profiler_profile::ThreadState;

    use super::*;

    fn thread(since_ns: u64, woken_ns: u64) -> OffCpuThread {
        OffCpuThread {
            since_ns,
            woken_ns,
            kernel_stack: 3,
            user_stack: 0,
            previous_ns: 0,
            run_time_ns: 0,
            pid: 7,
            tid: 8,
            state: WaitState::Blocked as u32,
            cpu: 1,
            has_stacks: 1,
            is_cut: 0,
            woken_state: WaitState::Runnable as u32,
            mean_ns: 0,
            comm: *b"app\0\0\0\0\0\0\0\0\0\0\0\0\0",
            waker: Waker::default(),
        }
    }

    fn record(thread: OffCpuThread, ended_ns: u64) -> OffCpuRecord {
        OffCpuRecord { kind: RecordKind::OffCpu as u32, reserved: 0, ended_ns, thread }
    }

    /// State, end and length of each sample.
    fn samples(batch: &Batch) -> Vec<(ThreadState, u64, u64)> {
        let part = |sample: &RawSample| (sample.origin.state.unwrap(), sample.time.0, sample.value);
        batch.samples.iter().map(part).collect()
    }

    #[test]
    fn a_wait_is_blocked_until_it_is_woken_and_runnable_from_then_on() {
        let (mut waits, mut batch) = (CountedWaits::default(), Batch::default());
        waits.end(&record(thread(100, 180), 200), &mut batch).unwrap();
        let blocked = (ThreadState::Blocked, 180, 80);
        assert_eq!(samples(&batch), [blocked, (ThreadState::Runnable, 200, 20)]);
        assert_eq!(waits.decoded(), 1);
        waits.end(&record(OffCpuThread { state: 77, ..thread(100, 0) }, 200), &mut batch);
        assert_eq!((batch.samples.len(), waits.decoded()), (2, 1), "the state is unknown");
    }

    #[test]
    fn the_time_for_which_a_woken_thread_waits_for_a_cpu_can_be_left_out() {
        let (mut waits, mut batch) = (CountedWaits::new(0, true), Batch::default());
        waits.end(&record(thread(100, 180), 200), &mut batch).unwrap();
        waits.add_unfinished([thread(300, 320)], MonotonicTime(340), &mut batch);
        waits.end(&record(thread(300, 320), 350), &mut batch).unwrap();
        let blocked = ThreadState::Blocked;
        assert_eq!(samples(&batch), [(blocked, 180, 80), (blocked, 320, 20)]);
        assert_eq!(waits.decoded(), 2);
    }

    #[test]
    fn a_wait_is_throttled_where_the_quota_was_used_up_when_it_was_woken() {
        let (mut waits, mut batch) = (CountedWaits::default(), Batch::default());
        let woken_state = WaitState::Throttled as u32;
        let displaced = OffCpuThread { state: woken_state, woken_state, ..thread(100, 100) };
        waits.end(&record(displaced, 150), &mut batch).unwrap();
        waits.end(&record(OffCpuThread { woken_state, ..thread(200, 280) }, 300), &mut batch).unwrap();
        let expected = [
            (ThreadState::Throttled, 150, 50),
            (ThreadState::Blocked, 280, 80),
            (ThreadState::Throttled, 300, 20),
        ];
        assert_eq!(samples(&batch), expected);
    }

    #[test]
    fn a_wait_from_before_the_start_counts_from_the_start_on() {
        let (mut waits, mut batch) = (CountedWaits::default(), Batch::default());
        waits.start(MonotonicTime(150));
        waits.end(&record(thread(100, 0), 200), &mut batch).unwrap();
        assert_eq!(samples(&batch), [(ThreadState::Blocked, 200, 50)]);
    }

    #[test]
    fn a_wait_over_several_intervals_counts_once() {
        let mut waits = CountedWaits::default();
        let mut interval = |threads: &[OffCpuThread], ended, record: Option<OffCpuRecord>| {
            let mut batch = Batch::default();
            record.iter().for_each(|record| waits.end(record, &mut batch).unwrap());
            waits.add_unfinished(threads.iter().copied(), ended, &mut batch);
            samples(&batch)
        };
        let (blocked, runnable) = (ThreadState::Blocked, ThreadState::Runnable);
        assert_eq!(interval(&[thread(100, 0)], MonotonicTime(150), None), [(blocked, 150, 50)]);
        assert_eq!(
            interval(&[thread(100, 160)], MonotonicTime(170), None),
            [(blocked, 160, 10), (runnable, 170, 10)]
        );
        assert_eq!(
            interval(&[], MonotonicTime(300), Some(record(thread(100, 160), 190))),
            [(runnable, 190, 20)]
        );
        // Another wait of the same thread.
        assert_eq!(interval(&[thread(310, 0)], MonotonicTime(320), None), [(blocked, 320, 10)]);
        assert_eq!(
            interval(&[], MonotonicTime(400), Some(record(thread(330, 0), 340))),
            [(blocked, 340, 10)]
        );
        for _ in 0..2 {
            interval(&[], MonotonicTime(500), None);
        }
        assert!(waits.unfinished.is_empty());
    }
}
