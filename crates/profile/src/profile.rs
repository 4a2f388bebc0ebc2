//! The profile: interned tables of frames, stacks, processes and threads, the samples and the ledger.

use indexmap::IndexSet;

use crate::{
    Cost, Event, EventId, EventLedger, Finding, Frame, FrameId, Incident, Ledger, LockOwner, ManagedThread,
    Module, ModuleId, OmittedEvents, PollReading, ProcessId, RuntimeEvent, Stack, StackId, StringId,
    ThreadId, ThreadState, omitted_events::TotalsTable, sum,
};

/// The measurement in words and numbers, for titles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The target in words: `pid 1234 (dotnet)`.
    pub target: String,
    /// Time during which the target was sampled, nanoseconds.
    pub duration_ns: u64,
    /// Start of sampling: nanoseconds since 1970-01-01 UTC.
    pub started_unix_ns: u64,
    /// Start of sampling, `CLOCK_MONOTONIC` nanoseconds: the zero of [`Sample::time_ns`].
    pub started_monotonic_ns: u64,
    /// Number of CPUs that were sampled.
    pub cpus: u32,
    /// The filters and other changes applied to the profile since it was measured, in order: `--focus main`.
    pub edits: Vec<String>,
    /// The incident for which the profile was kept; `None` for other profiles.
    pub incident: Option<Incident>,
}

/// A process. A reused pid is another process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// Process id in the PID namespace of the profiler.
    pub pid: u32,
    /// The name of the thread group leader, as in `/proc/PID/comm`.
    pub comm: StringId,
    /// The id of its container; `None` outside of a container and where the cgroup path has no id.
    pub container: Option<StringId>,
    /// The names of its container in Kubernetes; `None` outside of a pod and where they are unknown.
    pub kubernetes: Option<KubernetesNames>,
    /// Further attributes of the process and of its container. No two have the same name.
    pub attributes: Vec<Attribute>,
}

/// An attribute of a process: a name of OpenTelemetry's semantic conventions
/// (<https://opentelemetry.io/docs/specs/semconv/resource/>), such as `k8s.pod.uid`, and its value, which may be text of the
/// target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attribute {
    /// The name.
    pub name: StringId,
    /// The value.
    pub value: StringId,
}

/// The names that Kubernetes gave a container. Formats with labels have them as attributes of OpenTelemetry's semantic
/// conventions (<https://opentelemetry.io/docs/specs/semconv/resource/k8s/>).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KubernetesNames {
    /// The namespace of the pod: `k8s.namespace.name`.
    pub namespace: StringId,
    /// The name of the pod: `k8s.pod.name`.
    pub pod: StringId,
    /// The name of the container in the pod: `k8s.container.name`; `None` for the sandbox of the pod.
    pub container: Option<StringId>,
}

/// A thread of a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Thread {
    /// The process of the thread.
    pub process: ProcessId,
    /// Thread id in the PID namespace of the profiler.
    pub tid: u32,
    /// The name of the thread when it was sampled. A thread that changes its name has an entry for each name.
    pub comm: StringId,
}

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Nanoseconds since the start of sampling.
    pub time_ns: u64,
    /// The CPU that the thread ran on, or had run on last.
    pub cpu: u32,
    /// The thread.
    pub thread: ThreadId,
    /// The stack of the thread.
    pub stack: StackId,
    /// The event of the sample.
    pub event: EventId,
    /// What the thread did, for events that say so.
    pub state: Option<ThreadState>,
    /// Ticks, nanoseconds or occurrences: see [`Sampling`](crate::Sampling).
    pub value: u64,
}

/// The result of a measurement. [`ProfileBuilder`](crate::ProfileBuilder) builds it.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    pub(crate) header: Header,
    pub(crate) events: IndexSet<Event>,
    pub(crate) strings: IndexSet<Box<str>>,
    pub(crate) modules: IndexSet<Module>,
    pub(crate) frames: IndexSet<Frame>,
    pub(crate) stacks: IndexSet<Stack>,
    pub(crate) processes: Vec<Process>,
    pub(crate) threads: IndexSet<Thread>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) runtime_events: Vec<RuntimeEvent>,
    pub(crate) omitted_events: Vec<OmittedEvents>,
    pub(crate) event_totals: TotalsTable,
    pub(crate) lock_owners: Vec<LockOwner>,
    pub(crate) managed_threads: Vec<ManagedThread>,
    pub(crate) poll_readings: Vec<PollReading>,
    pub(crate) ledger: Ledger,
    pub(crate) findings: Vec<Finding>,
}

impl Profile {
    /// The description of the measurement.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The samples, ordered by time.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// The samples of an event, ordered by time.
    pub fn samples_of(&self, event: EventId) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| sample.event == event)
    }

    /// What the runtimes of the processes reported, ordered by time. Of events that are too many, some are counted alone:
    /// [`omitted_events`](Self::omitted_events).
    #[must_use]
    pub fn runtime_events(&self) -> &[RuntimeEvent] {
        &self.runtime_events
    }

    /// The owners of locks that threads waited for, ordered by time.
    #[must_use]
    pub fn lock_owners(&self) -> &[LockOwner] {
        &self.lock_owners
    }

    /// The managed threads that owned such locks, ordered by time.
    #[must_use]
    pub fn managed_threads(&self) -> &[ManagedThread] {
        &self.managed_threads
    }

    /// What the main threads of processes waited for in poll(2) and select(2), ordered by time.
    #[must_use]
    pub fn poll_readings(&self) -> &[PollReading] {
        &self.poll_readings
    }

    /// The events, at least one.
    pub fn events(&self) -> impl ExactSizeIterator<Item = &Event> {
        self.events.iter()
    }

    /// The ids of all events.
    pub fn event_ids(&self) -> impl ExactSizeIterator<Item = EventId> + use<> {
        (0..self.events.len()).map(EventId::from_index)
    }

    /// An event.
    #[must_use]
    pub fn event(&self, id: EventId) -> &Event {
        &self.events[id.index()]
    }

    /// The first event, which formats of a single event show.
    #[must_use]
    pub fn first_event(&self) -> &Event {
        self.event(EventId::FIRST)
    }

    /// The account of every sample, stack and frame.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The account of the samples of the first event.
    #[must_use]
    pub fn first_ledger(&self) -> &EventLedger {
        &self.ledger.events[EventId::FIRST.index()]
    }

    /// The text of a string.
    #[must_use]
    pub fn string(&self, id: StringId) -> &str {
        &self.strings[id.index()]
    }

    /// A module.
    #[must_use]
    pub fn module(&self, id: ModuleId) -> &Module {
        &self.modules[id.index()]
    }

    /// A frame.
    #[must_use]
    pub fn frame(&self, id: FrameId) -> &Frame {
        &self.frames[id.index()]
    }

    /// A stack.
    #[must_use]
    pub fn stack(&self, id: StackId) -> &Stack {
        &self.stacks[id.index()]
    }

    /// A process.
    #[must_use]
    pub fn process(&self, id: ProcessId) -> &Process {
        &self.processes[id.index()]
    }

    /// The value of an attribute of a process.
    #[must_use]
    pub fn attribute(&self, id: ProcessId, name: &str) -> Option<&str> {
        let attributes = &self.process(id).attributes;
        let found = attributes.iter().find(|attribute| self.string(attribute.name) == name);
        found.map(|attribute| self.string(attribute.value))
    }

    /// A thread.
    #[must_use]
    pub fn thread(&self, id: ThreadId) -> &Thread {
        &self.threads[id.index()]
    }

    /// All strings, in the order of their ids.
    pub fn strings(&self) -> impl ExactSizeIterator<Item = &str> {
        self.strings.iter().map(|text| &**text)
    }

    /// All modules, in the order of their ids.
    pub fn modules(&self) -> impl ExactSizeIterator<Item = &Module> {
        self.modules.iter()
    }

    /// All frames, in the order of their ids.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = &Frame> {
        self.frames.iter()
    }

    /// All stacks, in the order of their ids.
    pub fn stacks(&self) -> impl ExactSizeIterator<Item = &Stack> {
        self.stacks.iter()
    }

    /// All threads, in the order of their ids.
    pub fn threads(&self) -> impl ExactSizeIterator<Item = &Thread> {
        self.threads.iter()
    }

    /// The ids of all threads.
    pub fn thread_ids(&self) -> impl ExactSizeIterator<Item = ThreadId> + use<> {
        (0..self.threads.len()).map(ThreadId::from_index)
    }

    /// The processes, in the order in which they were first sampled.
    #[must_use]
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// The ids of all processes.
    pub fn process_ids(&self) -> impl ExactSizeIterator<Item = ProcessId> + use<> {
        (0..self.processes.len()).map(ProcessId::from_index)
    }

    /// The number of distinct stacks.
    #[must_use]
    pub fn stack_count(&self) -> usize {
        self.stacks.len()
    }

    /// Sets the incident for which the profile was kept.
    pub fn set_incident(&mut self, incident: Incident) {
        self.header.incident = Some(incident);
    }

    /// Sets the resources that the profiler used, except the run time of its BPF programs.
    pub fn set_cost(&mut self, cost: Cost) {
        self.ledger.cost = Cost { bpf_run_time_ns: self.ledger.cost.bpf_run_time_ns, ..cost };
    }

    /// Multiplies the value of each sample. A product beyond [`u64::MAX`] is [`u64::MAX`]. The ledger remains the account of the
    /// measurement.
    pub fn multiply_values(&mut self, factor: u64) {
        for sample in &mut self.samples {
            sample.value = sample.value.saturating_mul(factor);
        }
    }

    /// The number of equal and independent samples that would give the noise of an event's samples. Each CPU tick is one.
    /// Waits differ in length, and the ticks of one wait are not independent: waits have the effective sample size of
    /// L. Kish, "Survey Sampling" (1965), the square of the sum of the values divided by the sum of their squares.
    #[must_use]
    pub fn effective_samples(&self, event: EventId) -> u64 {
        let values = || self.samples_of(event).map(|sample| sample.value);
        if self.samples_of(event).all(|sample| sample.state.is_none()) {
            return sum::of(values());
        }
        let sum_of = |power| values().map(|value| (value as f64).powi(power)).sum::<f64>();
        let (sum, squares) = (sum_of(1), sum_of(2));
        if squares > 0.0 { (sum * sum / squares).round() as u64 } else { 0 }
    }

    pub(crate) fn sort_by_time(&mut self) {
        self.samples.sort_by_key(|sample| sample.time_ns);
        self.runtime_events.sort_by_key(|event| event.time_ns);
        self.omitted_events.sort_by_key(|omitted| omitted.time_ns);
        self.lock_owners.sort_by_key(|lock| lock.time_ns);
        self.managed_threads.sort_by_key(|thread| thread.time_ns);
        self.poll_readings.sort_by_key(|reading| reading.time_ns);
    }

    /// The sum of the values of all samples of the first event, [`u64::MAX`] where it is larger.
    #[must_use]
    pub fn total_value(&self) -> u64 {
        sum::of(self.samples_of(EventId::FIRST).map(|sample| sample.value))
    }
}
