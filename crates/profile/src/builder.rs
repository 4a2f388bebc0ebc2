//! Builds a profile: interns strings, modules, frames and stacks, and completes the ledger.

use std::collections::HashMap;

use crate::{
    Attribute, Event, EventId, EventLedger, FoundBy, Frame, FrameId, FrameKind, Header, KubernetesNames,
    Ledger, LockOwner, ManagedThread, Module, ModuleId, OmittedEvents, PollReading, Process, ProcessId,
    Profile, Reason, RuntimeEvent, Sample, Stack, StackEnd, StackId, StringId, SymbolSource, Symbolization,
    Thread, ThreadId, UnsymbolizedFrames, sum,
};

/// The attributes of a process. A recording may state any number.
pub const MAX_ATTRIBUTES: usize = 32;

/// Builds a [`Profile`].
///
/// ```
/// use profiler_addresses::ElfAddress;
/// use profiler_profile::{
///     Event, Frame, FrameKind, Header, ProfileBuilder, StackEnd, SymbolSource, Symbolization,
/// };
///
/// let mut builder = ProfileBuilder::default();
/// builder.event(Event::at_frequency("cpu-clock", 99));
/// let name = builder.string("main");
/// let main = builder.frame(Frame {
///     name,
///     kind: FrameKind::Native,
///     module: None,
///     address: ElfAddress(0x1000),
///     location: None,
///     symbolization: Symbolization::Symbol(SymbolSource::SymbolTable),
/// });
/// let stack = builder.stack(vec![main], StackEnd::Root);
/// let process = builder.process(1, "demo");
/// let thread = builder.thread(process, 1, "demo");
/// builder.sample(0, 0, thread, stack, 1);
/// let profile = builder.finish(Header::default());
/// assert_eq!(profile.total_value(), 1);
/// assert_eq!(profile.first_ledger().reported, 1);
/// ```
#[derive(Debug, Default)]
pub struct ProfileBuilder {
    profile: Profile,
}

impl ProfileBuilder {
    /// The id of an event. A profile without one has an event without a name.
    pub fn event(&mut self, event: Event) -> EventId {
        EventId::from_index(self.profile.events.insert_full(event).0)
    }

    /// The id of a string.
    pub fn string(&mut self, text: &str) -> StringId {
        let strings = &mut self.profile.strings;
        let index = strings.get_index_of(text).unwrap_or_else(|| strings.insert_full(text.into()).0);
        StringId::from_index(index)
    }

    /// The id of a module.
    pub fn module(&mut self, path: &str, build_id: &[u8]) -> ModuleId {
        let path = self.string(path);
        self.module_at(path, build_id)
    }

    /// The id of a module whose path is interned already.
    pub fn module_at(&mut self, path: StringId, build_id: &[u8]) -> ModuleId {
        let module = Module { path, build_id: build_id.into() };
        ModuleId::from_index(self.profile.modules.insert_full(module).0)
    }

    /// The id of a frame.
    pub fn frame(&mut self, frame: Frame) -> FrameId {
        FrameId::from_index(self.profile.frames.insert_full(frame).0)
    }

    /// The id of a stack of frames, leaf first, with [`FoundBy::NotRecorded`].
    pub fn stack(&mut self, frames: Vec<FrameId>, end: StackEnd) -> StackId {
        self.unwound_stack(frames.into_iter().map(|frame| (frame, FoundBy::NotRecorded)), end)
    }

    /// The id of a stack of frames, leaf first, with how each was found.
    pub fn unwound_stack(
        &mut self,
        frames: impl IntoIterator<Item = (FrameId, FoundBy)>,
        end: StackEnd,
    ) -> StackId {
        let (frames, found_by): (Vec<_>, Vec<_>) = frames.into_iter().unzip();
        let stack = Stack { frames: frames.into(), found_by: found_by.into(), end };
        StackId::from_index(self.profile.stacks.insert_full(stack).0)
    }

    /// Adds a process. Each call adds another process, also for the same pid.
    pub fn process(&mut self, pid: u32, comm: &str) -> ProcessId {
        let comm = self.string(comm);
        self.process_named(pid, comm)
    }

    /// Adds a process whose name is interned already.
    pub fn process_named(&mut self, pid: u32, comm: StringId) -> ProcessId {
        let process = Process { pid, comm, container: None, kubernetes: None, attributes: Vec::new() };
        self.profile.processes.push(process);
        ProcessId::from_index(self.profile.processes.len() - 1)
    }

    /// Sets the container of a process.
    pub fn set_container(&mut self, process: ProcessId, id: &str) {
        let id = self.string(id);
        self.set_container_named(process, id);
    }

    /// Sets the container of a process to an id that is interned already.
    pub fn set_container_named(&mut self, process: ProcessId, id: StringId) {
        self.profile.processes[process.index()].container = Some(id);
    }

    /// Sets the names that Kubernetes gave the container of a process.
    pub fn set_kubernetes_names(&mut self, process: ProcessId, names: KubernetesNames) {
        self.profile.processes[process.index()].kubernetes = Some(names);
    }

    /// Sets an attribute of a process. One with more names than [`MAX_ATTRIBUTES`] keeps the first ones.
    pub fn set_attribute(&mut self, process: ProcessId, attribute: Attribute) {
        let attributes = &mut self.profile.processes[process.index()].attributes;
        if let Some(known) = attributes.iter_mut().find(|known| known.name == attribute.name) {
            known.value = attribute.value;
        } else if attributes.len() < MAX_ATTRIBUTES {
            attributes.push(attribute);
        }
    }

    /// Changes the name of a process.
    pub fn rename_process(&mut self, process: ProcessId, comm: &str) {
        let comm = self.string(comm);
        self.profile.processes[process.index()].comm = comm;
    }

    /// The id of a thread.
    pub fn thread(&mut self, process: ProcessId, tid: u32, comm: &str) -> ThreadId {
        let comm = self.string(comm);
        self.thread_named(process, tid, comm)
    }

    /// The id of a thread whose name is interned already.
    pub fn thread_named(&mut self, process: ProcessId, tid: u32, comm: StringId) -> ThreadId {
        ThreadId::from_index(self.profile.threads.insert_full(Thread { process, tid, comm }).0)
    }

    /// Adds a sample of the first event without a state; `time_ns` counts from the start of sampling.
    pub fn sample(&mut self, time_ns: u64, cpu: u32, thread: ThreadId, stack: StackId, value: u64) {
        self.add_sample(Sample { time_ns, cpu, thread, stack, event: EventId::FIRST, state: None, value });
    }

    /// Adds a sample.
    pub fn add_sample(&mut self, sample: Sample) {
        self.profile.samples.push(sample);
    }

    /// Adds an event that a runtime reported.
    pub fn add_runtime_event(&mut self, event: RuntimeEvent) {
        self.profile.runtime_events.push(event);
    }

    /// Adds runtime events that are counted alone.
    pub fn add_omitted_events(&mut self, omitted: OmittedEvents) {
        self.profile.omitted_events.push(omitted);
    }

    /// Adds an observation of a lock.
    pub fn add_lock_owner(&mut self, lock: LockOwner) {
        self.profile.lock_owners.push(lock);
    }

    /// Adds a reading of a managed thread that owned a lock.
    pub fn add_managed_thread(&mut self, thread: ManagedThread) {
        self.profile.managed_threads.push(thread);
    }

    /// Adds what a thread waited for in poll(2) or select(2).
    pub fn add_poll_reading(&mut self, reading: PollReading) {
        self.profile.poll_readings.push(reading);
    }

    /// The ledger, for the caller to set losses and cost.
    pub fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.profile.ledger
    }

    /// The ledger of an event, for the caller to set samples due and losses.
    pub fn event_ledger_mut(&mut self, event: EventId) -> &mut EventLedger {
        let events = &mut self.profile.ledger.events;
        events.resize(events.len().max(event.index() + 1), EventLedger::default());
        &mut events[event.index()]
    }

    /// An interned stack.
    #[must_use]
    pub fn get_stack(&self, id: StackId) -> &Stack {
        self.profile.stack(id)
    }

    /// An interned frame.
    #[must_use]
    pub fn get_frame(&self, id: FrameId) -> &Frame {
        self.profile.frame(id)
    }

    /// An interned module.
    #[must_use]
    pub fn get_module(&self, id: ModuleId) -> &Module {
        self.profile.module(id)
    }

    /// The process of an interned thread.
    #[must_use]
    pub fn process_of(&self, thread: ThreadId) -> ProcessId {
        self.profile.thread(thread).process
    }

    /// The text of an interned string.
    #[must_use]
    pub fn get_string(&self, id: StringId) -> &str {
        self.profile.string(id)
    }

    /// Orders samples, runtime events and owners of locks by time, completes the ledger and returns the profile.
    ///
    /// Where the caller set no number of samples due, it becomes the sum of samples and losses.
    #[must_use]
    pub fn finish(mut self, header: Header) -> Profile {
        self.complete_events();
        self.profile.header = header;
        self.profile.sort_by_time();
        for event in 0..self.profile.events.len() {
            self.complete_ledger(EventId::from_index(event));
        }
        self.profile
    }

    /// Orders the samples by time and returns the profile with the ledger of an earlier measurement.
    pub fn finish_with(mut self, header: Header, ledger: Ledger) -> Profile {
        self.profile.header = header;
        self.profile.ledger = ledger;
        self.complete_events();
        self.profile.sort_by_time();
        self.profile
    }

    /// Adds an unnamed event if the profile has no event, and a ledger for each event.
    fn complete_events(&mut self) {
        let Profile { events, ledger, .. } = &mut self.profile;
        if events.is_empty() {
            events.insert(Event::at_frequency("", 0));
        }
        ledger.events.resize(events.len(), EventLedger::default());
    }

    fn complete_ledger(&mut self, id: EventId) {
        let profile = &mut self.profile;
        let event = &profile.events[id.index()];
        let mut by_stack = HashMap::<StackId, u64>::new();
        for sample in profile.samples.iter().filter(|sample| sample.event == id) {
            sum::add(by_stack.entry(sample.stack).or_default(), event.sample_count(sample.value));
        }
        let mut symbolized = HashMap::<SymbolSource, u64>::new();
        let mut unsymbolized = HashMap::<(Option<ModuleId>, Reason), u64>::new();
        let ledger = &mut profile.ledger.events[id.index()];
        ledger.reported = sum::of(by_stack.values().copied());
        for (stack, count) in by_stack {
            let stack = &profile.stacks[stack.index()];
            sum::add(ledger.stacks.entry(stack.end).or_default(), count);
            for found_by in &stack.found_by {
                sum::add(ledger.found_by.entry(*found_by).or_default(), count);
            }
            for frame in &stack.frames {
                let frame = &profile.frames[frame.index()];
                if matches!(frame.kind, FrameKind::Label | FrameKind::Wait) {
                    continue;
                }
                let outcome = match frame.symbolization {
                    Symbolization::Symbol(source) => symbolized.entry(source).or_default(),
                    Symbolization::Address(reason) => unsymbolized.entry((frame.module, reason)).or_default(),
                };
                sum::add(outcome, count);
            }
        }
        ledger.symbolized.extend(symbolized);
        for ((module, reason), count) in unsymbolized {
            let module = module.map_or("", |id| &profile.strings[profile.modules[id.index()].path.index()]);
            let frames = UnsymbolizedFrames { module: module.to_owned(), reason };
            sum::add(ledger.unsymbolized.entry(frames).or_default(), count);
        }
        if ledger.due == 0 {
            ledger.due = ledger.reported.saturating_add(ledger.lost_total());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FrameKind, Loss, Sampling, StackEnd, ThreadState};
    use profiler_addresses::ElfAddress;

    #[test]
    fn the_attributes_of_a_process_are_distinct_and_bounded() {
        let mut builder = ProfileBuilder::default();
        let process = builder.process(1, "app");
        for number in 0..2 * MAX_ATTRIBUTES {
            let [name, value] = [format!("a{number}"), format!("{number}")].map(|text| builder.string(&text));
            builder.set_attribute(process, Attribute { name, value });
        }
        let [name, value] = ["a0", "later"].map(|text| builder.string(text));
        builder.set_attribute(process, Attribute { name, value });
        let profile = builder.finish(Header::default());
        assert_eq!(profile.process(process).attributes.len(), MAX_ATTRIBUTES);
        assert_eq!(profile.attribute(process, "a0"), Some("later"));
        assert_eq!(profile.attribute(process, "a1"), Some("1"));
    }

    fn frame(builder: &mut ProfileBuilder, name: &str, symbolization: Symbolization) -> FrameId {
        let name = builder.string(name);
        let module = Some(builder.module("/bin/app", &[1, 2]));
        builder.frame(Frame {
            name,
            kind: FrameKind::Native,
            module,
            address: ElfAddress(0),
            location: None,
            symbolization,
        })
    }

    #[test]
    fn equal_entries_are_interned_once() {
        let mut builder = ProfileBuilder::default();
        assert_eq!(builder.string("a"), builder.string("a"));
        let first = frame(&mut builder, "f", Symbolization::Symbol(SymbolSource::SymbolTable));
        let second = frame(&mut builder, "f", Symbolization::Symbol(SymbolSource::SymbolTable));
        assert_eq!(first, second);
        assert_eq!(builder.stack(vec![first], StackEnd::Root), builder.stack(vec![second], StackEnd::Root));
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let mut builder = ProfileBuilder::default();
        assert_ne!(builder.process(7, "old"), builder.process(7, "new"));
    }

    #[test]
    fn the_ledger_counts_samples_and_frames_by_outcome() {
        let mut builder = ProfileBuilder::default();
        let symbolized = frame(&mut builder, "f", Symbolization::Symbol(SymbolSource::PerfMap));
        let unsymbolized = frame(&mut builder, "[app+0x1]", Symbolization::Address(Reason::NoSymbols));
        let whole = builder.stack(vec![symbolized, unsymbolized], StackEnd::Root);
        let cut = builder.stack(vec![symbolized], StackEnd::DepthLimit);
        let process = builder.process(1, "app");
        let thread = builder.thread(process, 1, "app");
        builder.sample(20, 0, thread, whole, 3);
        builder.sample(10, 0, thread, cut, 2);
        let profile = builder.finish(Header::default());

        let ledger = profile.first_ledger();
        assert_eq!(ledger.reported, 5);
        assert!(ledger.adds_up());
        assert_eq!(ledger.stacks[&StackEnd::Root], 3);
        assert_eq!(ledger.stacks[&StackEnd::DepthLimit], 2);
        assert_eq!(ledger.symbolized[&SymbolSource::PerfMap], 5);
        let frames = UnsymbolizedFrames { module: "/bin/app".to_owned(), reason: Reason::NoSymbols };
        assert_eq!(ledger.unsymbolized[&frames], 3);
        assert_eq!(profile.samples()[0].time_ns, 10);
    }

    #[test]
    fn sums_saturate_at_the_largest_number() {
        let mut builder = ProfileBuilder::default();
        let frame = frame(&mut builder, "f", Symbolization::Symbol(SymbolSource::PerfMap));
        let process = builder.process(1, "app");
        let thread = builder.thread(process, 1, "app");
        for end in [StackEnd::Root, StackEnd::DepthLimit] {
            let stack = builder.stack(vec![frame, frame], end);
            builder.sample(0, 0, thread, stack, u64::MAX - 1);
        }
        builder.event_ledger_mut(EventId::FIRST).lost.insert(Loss::RingBufferFull, u64::MAX);
        let profile = builder.finish(Header::default());
        let ledger = profile.first_ledger();
        assert_eq!(
            (profile.total_value(), ledger.reported, ledger.symbolized_total()),
            (u64::MAX, u64::MAX, u64::MAX)
        );
        assert!(ledger.adds_up());
        assert_eq!(profile.functions()[0].total_count, u64::MAX);
    }

    #[test]
    fn each_event_has_its_ledger() {
        let mut builder = ProfileBuilder::default();
        let cpu = builder.event(Event::at_frequency("cpu-clock", 99));
        let waits = Event { name: "off-cpu".to_owned(), sampling: Sampling::Durations { min_ns: 0 } };
        let off_cpu = builder.event(waits);
        let frame = frame(&mut builder, "f", Symbolization::Symbol(SymbolSource::PerfMap));
        let stack = builder.stack(vec![frame], StackEnd::Root);
        let process = builder.process(1, "app");
        let thread = builder.thread(process, 1, "app");
        builder.sample(0, 0, thread, stack, 3);
        let state = Some(ThreadState::Blocked);
        let value = 5_000_000;
        builder.add_sample(Sample { time_ns: 1, cpu: 0, thread, stack, event: off_cpu, state, value });
        builder.event_ledger_mut(off_cpu).lost.insert(Loss::RingBufferFull, 2);
        let profile = builder.finish(Header::default());
        let ledgers: Vec<_> =
            profile.ledger().events.iter().map(|ledger| (ledger.due, ledger.reported)).collect();
        assert_eq!(ledgers, [(3, 3), (3, 1)]);
        assert!(profile.ledger().adds_up());
        assert_eq!((profile.total_value(), profile.samples_of(cpu).count()), (3, 1));
    }
}
