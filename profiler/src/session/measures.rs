//! What conditions are evaluated on: the runtime events and the occurrences of counted events since the last moment.

use profiler_addresses::MonotonicTime;
use profiler_dotnet_diagnostics::{CollectedEvent, ProcessEvents};
use profiler_processes::Process;
use profiler_profile::{Header, Profile};
use profiler_sampler::EventPlan;
use profiler_symbolize::Symbolizer;

use super::{profile_assembler::ProfileAssembler, sample_events::Counts};

/// The events since the last moment, without stacks.
#[derive(Debug)]
pub(super) struct MeasuredEvents {
    /// Those of the session that are measured.
    events: EventPlan,
    /// The indices that they have in the session.
    indices: Vec<u16>,
    assembler: ProfileAssembler,
    started: MonotonicTime,
}

impl MeasuredEvents {
    /// No events since `started`.
    pub(super) fn new(plan: &EventPlan, started: MonotonicTime) -> Self {
        let (events, indices) = plan.measured();
        Self { assembler: ProfileAssembler::new(&events, false, started), events, indices, started }
    }

    /// Adds runtime events without their stacks.
    pub(super) fn add(
        &mut self,
        symbolizer: &mut Symbolizer,
        process: Option<&Process>,
        reported: &ProcessEvents,
    ) {
        let without_stack =
            |event: &CollectedEvent| CollectedEvent { stack: Box::default(), ..event.clone() };
        let events = reported.events.iter().map(without_stack).collect();
        let ProcessEvents { process: key, pid, ref comm, ref omitted, .. } = *reported;
        let (comm, omitted) = (comm.clone(), omitted.clone());
        let reported = ProcessEvents { process: key, pid, comm, events, omitted };
        self.assembler.add_runtime_events(symbolizer, process, reported);
    }

    /// The events up to a time, and a sample of each counted event with its sum in `sums`. The next moment begins.
    pub(super) fn take(&mut self, sums: &Counts, ended: MonotonicTime) -> Profile {
        let next = ProfileAssembler::new(&self.events, false, ended);
        let mut assembler = std::mem::replace(&mut self.assembler, next);
        let started = std::mem::replace(&mut self.started, ended);
        let sums: Vec<_> = self.indices.iter().map(|index| sums.get(usize::from(*index))).collect();
        assembler.add_sums(&sums);
        let header = Header {
            started_monotonic_ns: started.0,
            duration_ns: ended.nanoseconds_since(started),
            ..Header::default()
        };
        assembler.finish(|_| None).0.finish(header)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::session::{
        Adjustment,
        interval::Interval,
        pipeline::{Pipeline, PipelineParts},
        test_symbolizer::symbolizer,
    };
    use profiler_processes::{Pid, ProcFs, ProcessFilter, ProcessTable, Tid};
    use profiler_profile::RuntimeEventKind;
    use profiler_sampler::{Batch, Comm, EventSettings, KernelCounts, Origin, PlannedEvent, RawSample};

    #[test]
    fn a_moment_has_the_runtime_events_since_the_last_one_without_stacks() {
        let proc = Arc::new(ProcFs::live());
        let mut symbolizer = symbolizer(Arc::clone(&proc));
        let mut processes = ProcessTable::new(proc, ProcessFilter::All);
        let key = processes.prefetch(Pid::own());
        let event = CollectedEvent {
            time: MonotonicTime(90),
            duration_ns: 30,
            thread: None,
            lock_owner: None,
            kind: RuntimeEventKind::Suspension,
            name: "P/Suspend".into(),
            fields: Vec::new(),
            stack: [7, 8].into(),
        };
        let (pid, comm, events, omitted) = (Pid(7), "app".to_owned(), vec![event], Vec::new());
        let reported = ProcessEvents { process: key, pid, comm, events, omitted };
        let mut measured = MeasuredEvents::new(&EventPlan::default(), MonotonicTime(100));
        measured.add(&mut symbolizer, processes.get(key), &reported);
        let moment = measured.take(&Counts::default(), MonotonicTime(150));
        let events = moment.runtime_events().iter().map(|event| (event.duration_ns, event.stack));
        assert_eq!(events.collect::<Vec<_>>(), [(20, None)], "it has begun before");
        assert_eq!(reported.events[0].stack.len(), 2, "for the profile");
        assert!(measured.take(&Counts::default(), MonotonicTime(200)).runtime_events().is_empty());
    }

    fn finish(pipeline: &mut Pipeline) -> Profile {
        let header = Header { cpus: 2, ..Header::default() };
        let (counts_before, counts) = (KernelCounts::default(), KernelCounts::default());
        let adjustment = Adjustment::default();
        let interval =
            Interval { header, ended: MonotonicTime(10), counts_before, counts, adjustment, is_last: false };
        pipeline.finish_interval(interval, &|| false)
    }

    /// Processes a sample of the first counted event.
    fn count(pipeline: &mut Pipeline, value: u64) {
        let pid = Pid::own();
        let sample = RawSample {
            time: MonotonicTime(1),
            cpu: 0,
            origin: Origin { event: 1, ..Origin::default() },
            value,
            pid,
            tid: Tid::leader_of(pid),
            comm: Comm::default(),
            kernel_stack: None,
            user_stack: None,
            waker: None,
            system_call: None,
        };
        let batch = Batch { samples: vec![sample], watermark: MonotonicTime::MAX, ..Batch::default() };
        pipeline.process(batch, MonotonicTime(0)).unwrap();
    }

    fn values(profile: &Profile) -> u64 {
        profile.samples().iter().map(|sample| sample.value).sum()
    }

    #[test]
    fn measures_have_each_occurrence_once_and_the_profile_has_all() {
        let proc = Arc::new(ProcFs::live());
        let counted = vec![PlannedEvent { event: "page-faults".parse().unwrap(), probed: None }];
        let events = EventSettings::default().plan(counted);
        let symbolizer = symbolizer(Arc::clone(&proc));
        let parts = PipelineParts::new(proc, ProcessFilter::All, symbolizer, events);
        let mut pipeline = Pipeline::new(parts);
        let measure = |pipeline: &mut Pipeline, ended| {
            pipeline.begin_measures();
            let measured = pipeline.take_measures(ended).unwrap();
            (values(&measured), measured.header().started_monotonic_ns, measured.header().duration_ns)
        };
        count(&mut pipeline, 3);
        count(&mut pipeline, 4);
        assert_eq!(
            measure(&mut pipeline, MonotonicTime(5)),
            (7, 0, 5),
            "also those from before the first request"
        );
        count(&mut pipeline, 20);
        assert_eq!(measure(&mut pipeline, MonotonicTime(8)), (20, 5, 3));
        assert_eq!(values(&finish(&mut pipeline)), 27);
        count(&mut pipeline, 100);
        assert_eq!(measure(&mut pipeline, MonotonicTime(12)), (100, 8, 4));
        assert_eq!(measure(&mut pipeline, MonotonicTime(13)), (0, 12, 1));
        assert_eq!(values(&finish(&mut pipeline)), 100);
    }
}
