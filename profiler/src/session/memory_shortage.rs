//! Whether the profiler is short of memory. Then samples that wait too long for the pipeline are shed, and no unwind tables are built.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use profiler_addresses::MonotonicTime;
use profiler_processes::monotonic_time;

/// While memory is short, samples are shed that have waited for longer.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// A flag that the thread that measures memory sets for the threads of a session. A session whose memory is not measured is never
/// short of it.
#[derive(Clone, Debug, Default)]
pub struct MemoryShortage(Arc<AtomicBool>);

impl MemoryShortage {
    /// Begins or ends it.
    pub fn set(&self, is_short: bool) {
        self.0.store(is_short, Ordering::Relaxed);
    }

    /// Whether memory is short now.
    pub fn is_present(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether a sample of this time is shed.
    pub(super) fn sheds(&self, time: MonotonicTime) -> bool {
        self.is_present() && monotonic_time().saturating_since(time) > MAX_WAIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{
        Adjustment,
        interval::Interval,
        pipeline::{Pipeline, PipelineParts},
        test_symbolizer::symbolizer,
    };
    use profiler_processes::{Pid, ProcFs, ProcessFilter, Tid};
    use profiler_profile::{Header, Loss};
    use profiler_sampler::{Batch, Comm, EventPlan, KernelCounts, Origin, RawSample};

    /// A pipeline for all processes, and its flag.
    fn pipeline() -> (Pipeline, MemoryShortage) {
        let proc = Arc::new(ProcFs::live());
        let (symbolizer, events) = (symbolizer(Arc::clone(&proc)), EventPlan::cpu_samples(99));
        let parts = PipelineParts::new(proc, ProcessFilter::All, symbolizer, events);
        let memory_shortage = MemoryShortage::default();
        let shortage = memory_shortage.clone();
        (Pipeline::new(PipelineParts { memory_shortage, ..parts }), shortage)
    }

    /// Processes samples of this process.
    fn process(pipeline: &mut Pipeline, times_ns: &[u64]) {
        let pid = Pid::own();
        let samples = times_ns.iter().map(|time_ns| RawSample {
            time: MonotonicTime(*time_ns),
            cpu: 0,
            origin: Origin::default(),
            value: 1,
            pid,
            tid: Tid::leader_of(pid),
            comm: Comm::default(),
            kernel_stack: None,
            user_stack: None,
            waker: None,
            system_call: None,
        });
        let batch = Batch { samples: samples.collect(), watermark: MonotonicTime::MAX, ..Batch::default() };
        pipeline.process(batch, MonotonicTime(0)).unwrap();
    }

    #[test]
    fn only_samples_that_wait_while_memory_is_short_are_lost_and_each_is_counted() {
        let (mut pipeline, shortage) = pipeline();
        process(&mut pipeline, &[1, 2]);
        shortage.set(true);
        // The last one has not been waiting.
        process(&mut pipeline, &[3, 4, 5, u64::MAX]);
        shortage.set(false);
        process(&mut pipeline, &[6]);
        let (counts_before, counts) = (KernelCounts::default(), KernelCounts::of_ticks(100));
        let (header, adjustment) = (Header::default(), Adjustment::default());
        let interval =
            Interval { header, ended: MonotonicTime(10), counts_before, counts, adjustment, is_last: false };
        let profile = pipeline.finish_interval(interval, &|| false);
        let ledger = profile.first_ledger();
        assert_eq!((ledger.due, ledger.reported), (7, 4), "{ledger:?}");
        assert_eq!(ledger.lost, [(Loss::MemoryLimit, 3)].into(), "{ledger:?}");
        assert!(profile.ledger().adds_up(), "{ledger:?}");
    }
}
