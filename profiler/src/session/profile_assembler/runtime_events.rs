//! Adds the events that runtimes reported to a profile.

use std::{collections::HashMap, sync::Arc};

use profiler_addresses::RuntimeAddress;
use profiler_dotnet_diagnostics::{CollectedEvent, OmittedCount, ProcessEvents};
use profiler_dotnet_symbols::eventpipe::fields::{Field, Value};
use profiler_processes::{Process, Tid};
use profiler_profile::{
    EventField, FieldValue, OmittedEvents, ProcessId, RuntimeEvent, StackEnd, StackId, ThreadId,
};
use profiler_symbolize::Symbolizer;

use super::ProfileAssembler;

/// Frames that a runtime captures at most (dotnet/runtime, src/native/eventpipe/ep-types-forward.h, `EP_MAX_STACK_DEPTH`).
const MAX_RUNTIME_FRAMES: usize = 100;

/// The process of events, and its threads by id.
struct Reporter {
    id: ProcessId,
    comm: String,
    threads: HashMap<Tid, ThreadId>,
}

impl ProfileAssembler {
    /// Adds the events of a process. `process` is `None` where the process table does not have it any more.
    pub(in crate::session) fn add_runtime_events(
        &mut self,
        symbolizer: &mut Symbolizer,
        process: Option<&Process>,
        reported: ProcessEvents,
    ) {
        let ProcessEvents { pid, comm, events, omitted, .. } = reported;
        let mut reporter = match process {
            Some(process) => {
                let known = self.process(process);
                let threads = known.threads.iter().map(|((tid, _), thread)| (*tid, *thread)).collect();
                Reporter { id: known.id, comm, threads }
            }
            None => Reporter { id: self.builder.process(pid.0, &comm), comm, threads: HashMap::new() },
        };
        for event in events {
            let stack = process
                .filter(|_| !event.stack.is_empty())
                .map(|process| self.runtime_stack(symbolizer, process, &event));
            self.add_runtime_event(&mut reporter, event, stack);
        }
        omitted.into_iter().for_each(|omitted| self.add_omitted(reporter.id, omitted));
    }

    fn add_omitted(&mut self, process: ProcessId, omitted: OmittedCount) {
        let OmittedCount { time, kind, count, duration_ns, longest_ns, is_lower_bound } = omitted;
        self.builder.add_omitted_events(OmittedEvents {
            time_ns: time.nanoseconds_since(self.started),
            process,
            kind,
            count,
            duration_ns,
            longest_ns,
            is_lower_bound,
        });
    }

    fn add_runtime_event(&mut self, reporter: &mut Reporter, event: CollectedEvent, stack: Option<StackId>) {
        let CollectedEvent { time, duration_ns, thread, lock_owner, kind, name, fields, .. } = event;
        // What has begun before the interval counts from its start on.
        let before_ns = self.started.nanoseconds_since(time);
        let mut add_thread = |(tid, comm): (Tid, Arc<str>)| self.reporting_thread(reporter, tid, &comm);
        let thread = thread.map(&mut add_thread);
        // A field has its id, and the profile its name.
        lock_owner.map(add_thread);
        let name = self.builder.string(&name);
        let fields = fields.into_iter().map(|field| self.field(&field)).collect();
        self.builder.add_runtime_event(RuntimeEvent {
            time_ns: time.nanoseconds_since(self.started),
            duration_ns: duration_ns.saturating_sub(before_ns),
            process: reporter.id,
            thread,
            kind,
            name,
            stack,
            fields,
        });
    }

    /// The thread with an id. One that ended before its name was read has that of its process.
    fn reporting_thread(&mut self, reporter: &mut Reporter, tid: Tid, comm: &str) -> ThreadId {
        let Reporter { id, comm: process_comm, threads } = reporter;
        let builder = &mut self.builder;
        let comm = if comm.is_empty() { process_comm } else { comm };
        *threads.entry(tid).or_insert_with(|| builder.thread(*id, tid.0, comm))
    }

    fn field(&mut self, field: &Field) -> EventField {
        let name = self.builder.string(&field.name);
        let value = match &field.value {
            Value::Unsigned(number) => FieldValue::Unsigned(*number),
            Value::Signed(number) => FieldValue::Signed(*number),
            Value::Real(number) => FieldValue::Real(*number),
            Value::Text(text) => FieldValue::Text(self.builder.string(text)),
        };
        EventField { name, value }
    }

    /// The stack that the runtime captured: the return addresses of managed frames.
    fn runtime_stack(
        &mut self,
        symbolizer: &mut Symbolizer,
        process: &Process,
        event: &CollectedEvent,
    ) -> StackId {
        let mut frames = Vec::with_capacity(event.stack.len());
        for address in &event.stack {
            let address = RuntimeAddress(*address).call_site();
            let code = symbolizer.code_at(process, address, event.time);
            let symbolized = self.symbolized_frames(symbolizer, process, code, address, event.time);
            frames.extend_from_slice(symbolized);
        }
        let is_cut = event.stack.len() >= MAX_RUNTIME_FRAMES;
        self.builder.stack(frames, if is_cut { StackEnd::DepthLimit } else { StackEnd::Root })
    }
}

#[cfg(test)]
mod tests {
    use profiler_addresses::MonotonicTime;
    use profiler_processes::{Pid, ProcFs, ProcessFilter, ProcessTable};
    use profiler_profile::{Header, Profile, RuntimeEventKind, Thread};
    use profiler_sampler::EventPlan;

    use super::*;
    use crate::session::test_symbolizer::symbolizer;

    const STARTED_NS: u64 = 1_000;

    fn event(time_ns: u64, thread: Option<(u32, &str)>) -> CollectedEvent {
        CollectedEvent {
            time: MonotonicTime(time_ns),
            duration_ns: 300,
            thread: thread.map(|(tid, comm)| (Tid(tid), Arc::from(comm))),
            lock_owner: Some((Tid(9), Arc::from("owner"))),
            kind: RuntimeEventKind::Contention,
            name: "P/ContentionStart".into(),
            fields: vec![Field { name: "LockID".into(), value: Value::Unsigned(7) }],
            stack: Box::default(),
        }
    }

    /// The profile of an interval with these events of this process.
    fn profile(is_known: bool, events: Vec<CollectedEvent>) -> Profile {
        let proc = Arc::new(ProcFs::live());
        let mut symbolizer = symbolizer(Arc::clone(&proc));
        let mut table = ProcessTable::new(proc, ProcessFilter::All);
        let pid = Pid::own();
        let key = table.prefetch(pid);
        let mut assembler = ProfileAssembler::new(&EventPlan::default(), false, MonotonicTime(STARTED_NS));
        let count = |time| OmittedCount {
            time,
            kind: RuntimeEventKind::Contention,
            count: 9,
            duration_ns: 90,
            longest_ns: 20,
            is_lower_bound: false,
        };
        let omitted = vec![count(MonotonicTime(1_600)), count(MonotonicTime(900))];
        let reported = ProcessEvents { process: key, pid, comm: "app".to_owned(), events, omitted };
        let process = table.get(key).filter(|_| is_known);
        assembler.add_runtime_events(&mut symbolizer, process, reported);
        assembler.finish(|_| None).0.finish(Header::default())
    }

    #[test]
    fn events_have_their_process_threads_and_fields() {
        for is_known in [true, false] {
            let events =
                vec![event(1_500, Some((5, "worker"))), event(1_600, Some((6, ""))), event(1_700, None)];
            let profile = profile(is_known, events);
            let threads: Vec<_> = profile
                .runtime_events()
                .iter()
                .map(|event| event.thread.map(|thread| profile.thread(thread)))
                .map(|thread| thread.map(|thread| (thread.tid, profile.string(thread.comm))))
                .collect();
            assert_eq!(threads, [Some((5, "worker")), Some((6, "app")), None]);
            assert_eq!(profile.processes().len(), 1);
            let totals =
                profile.runtime_event_totals(profile.process_ids().next(), RuntimeEventKind::Contention);
            assert_eq!((totals.count, totals.kept), (21, 3));
            let times: Vec<_> = profile.omitted_events().iter().map(|omitted| omitted.time_ns).collect();
            assert_eq!(times, [0, 600], "a part can begin before the interval");
            let is_owner = |thread: &&Thread| (thread.tid, profile.string(thread.comm)) == (9, "owner");
            assert_eq!(profile.threads().filter(is_owner).count(), 1);
            let first = &profile.runtime_events()[0];
            assert_eq!((first.time_ns, first.duration_ns), (500, 300));
            assert_eq!(profile.string(first.name), "P/ContentionStart");
            assert_eq!(first.field(&profile, "LockID"), Some(FieldValue::Unsigned(7)));
        }
    }

    #[test]
    fn an_event_that_began_before_the_interval_counts_from_its_start() {
        let profile = profile(true, vec![event(900, None), event(100, None)]);
        let times = profile.runtime_events().iter().map(|event| (event.time_ns, event.duration_ns));
        assert_eq!(times.collect::<Vec<_>>(), [(0, 200), (0, 0)]);
    }

    #[test]
    fn the_stack_of_an_event_has_the_symbols_of_samples() {
        let own = profile as fn(_, _) -> _ as usize as u64;
        let event = CollectedEvent { stack: [own + 1, own + 1].into(), ..event(1_500, None) };
        let profile = profile(true, vec![event]);
        let stack = profile.stack(profile.runtime_events()[0].stack.unwrap());
        assert_eq!((stack.frames.len(), stack.end), (2, StackEnd::Root));
        let name = profile.string(profile.frame(stack.frames[0]).name);
        assert!(name.ends_with("runtime_events::tests::profile"), "{name}");
    }
}
