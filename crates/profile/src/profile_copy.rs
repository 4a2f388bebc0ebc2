//! Copies selected samples of a profile, with the frames, stacks and threads they refer to, into a new profile.

use std::collections::HashMap;

use crate::{
    Attribute, EventField, EventId, FieldValue, Frame, FrameId, Header, KubernetesNames, Ledger, LockOwner,
    ManagedThread, Module, ModuleId, OmittedEvents, PollReading, ProcessId, Profile, ProfileBuilder,
    RuntimeEvent, Sample, SourceLocation, Stack, StackId, StringId, Thread, ThreadId,
};

/// A profile under construction that copies entries of another one as samples need them.
#[derive(Debug)]
pub struct ProfileCopy<'a> {
    source: &'a Profile,
    builder: ProfileBuilder,
    /// By index of the event in the source.
    events: Vec<EventId>,
    strings: HashMap<StringId, StringId>,
    modules: HashMap<ModuleId, ModuleId>,
    frames: HashMap<FrameId, FrameId>,
    processes: HashMap<ProcessId, ProcessId>,
    threads: HashMap<ThreadId, ThreadId>,
}

impl<'a> ProfileCopy<'a> {
    /// A copy with the events of the source, without samples.
    pub fn of(from: &'a Profile) -> Self {
        Self::onto(ProfileBuilder::default(), from)
    }

    /// A copy with one event of the source, for samples of this event.
    pub(super) fn of_event(from: &'a Profile, event: EventId) -> Self {
        let mut builder = ProfileBuilder::default();
        builder.event(from.event(event).clone());
        let events = vec![EventId::FIRST; from.events().len()];
        Self { events, ..Self::without_events(builder, from) }
    }

    /// A copy that adds to the entries of `builder`.
    pub(super) fn onto(mut builder: ProfileBuilder, from: &'a Profile) -> Self {
        let events = from.events().map(|event| builder.event(event.clone())).collect();
        Self { events, ..Self::without_events(builder, from) }
    }

    fn without_events(builder: ProfileBuilder, from: &'a Profile) -> Self {
        Self {
            source: from,
            builder,
            events: Vec::new(),
            strings: HashMap::new(),
            modules: HashMap::new(),
            frames: HashMap::new(),
            processes: HashMap::new(),
            threads: HashMap::new(),
        }
    }

    /// The builder, for entries that the source profile does not have.
    pub fn builder(&mut self) -> &mut ProfileBuilder {
        &mut self.builder
    }

    /// Copies a string of the source.
    pub fn string(&mut self, id: StringId) -> StringId {
        let (from, builder) = (self.source, &mut self.builder);
        *self.strings.entry(id).or_insert_with(|| builder.string(from.string(id)))
    }

    /// Copies a module of the source.
    pub fn module(&mut self, id: ModuleId) -> ModuleId {
        if let Some(known) = self.modules.get(&id) {
            return *known;
        }
        let Module { path, build_id } = self.source.module(id);
        let path = self.string(*path);
        let module = self.builder.module_at(path, build_id);
        self.modules.insert(id, module);
        module
    }

    /// Copies a frame of the source.
    pub fn frame(&mut self, id: FrameId) -> FrameId {
        if let Some(known) = self.frames.get(&id) {
            return *known;
        }
        let copied = self.translated(self.source.frame(id));
        let frame = self.builder.frame(copied);
        self.frames.insert(id, frame);
        frame
    }

    /// A frame of the source with the ids of the copy.
    pub fn translated(&mut self, frame: &Frame) -> Frame {
        let location = frame.location.map(|SourceLocation { file, line }| (file, line));
        Frame {
            name: self.string(frame.name),
            module: frame.module.map(|module| self.module(module)),
            location: location.map(|(file, line)| SourceLocation { file: self.string(file), line }),
            ..frame.clone()
        }
    }

    /// Copies a stack without the frames for whose index `is_kept` is false.
    pub fn stack_with(&mut self, stack: &Stack, is_kept: impl Fn(usize) -> bool) -> StackId {
        let kept = (0..stack.frames.len()).filter(|index| is_kept(*index));
        let frames: Vec<_> =
            kept.map(|index| (self.frame(stack.frames[index]), stack.found_by[index])).collect();
        self.builder.unwound_stack(frames, stack.end)
    }

    /// Copies a stack.
    pub(super) fn stack(&mut self, stack: &Stack) -> StackId {
        self.stack_with(stack, |_| true)
    }

    /// Copies a sample, with a stack of the copy.
    pub fn sample(&mut self, sample: &Sample, stack: StackId) {
        let thread = self.thread(sample.thread);
        let event = self.events[sample.event.index()];
        self.builder.add_sample(Sample { thread, stack, event, ..*sample });
    }

    /// Copies all runtime events, those that are counted alone, and all readings of locks, of their owners and of polls of the source.
    pub fn runtime_events(&mut self) {
        let source = self.source;
        source.runtime_events().iter().for_each(|event| self.runtime_event(event));
        source.omitted_events().iter().for_each(|omitted| self.omitted_events(omitted));
        source.lock_owners().iter().for_each(|lock| self.lock_owner(lock));
        source.managed_threads().iter().for_each(|thread| self.managed_thread(thread));
        source.poll_readings().iter().for_each(|reading| self.poll_reading(reading));
    }

    /// Copies runtime events that are counted alone.
    pub(super) fn omitted_events(&mut self, omitted: &OmittedEvents) {
        let process = self.process(omitted.process);
        self.builder.add_omitted_events(OmittedEvents { process, ..*omitted });
    }

    /// Copies an observation of a lock.
    pub(super) fn lock_owner(&mut self, lock: &LockOwner) {
        let owner = self.thread(lock.owner);
        self.builder.add_lock_owner(LockOwner { owner, ..*lock });
    }

    /// Copies a reading of a managed thread.
    pub(super) fn managed_thread(&mut self, reading: &ManagedThread) {
        let thread = self.thread(reading.thread);
        let [name, exception] = [reading.name, reading.exception].map(|text| Some(self.string(text?)));
        self.builder.add_managed_thread(ManagedThread { thread, name, exception, ..*reading });
    }

    /// Copies what a thread waited for.
    pub(super) fn poll_reading(&mut self, reading: &PollReading) {
        let thread = self.thread(reading.thread);
        self.builder.add_poll_reading(PollReading { thread, ..*reading });
    }

    /// Copies a runtime event.
    pub(super) fn runtime_event(&mut self, event: &RuntimeEvent) {
        let source = self.source;
        let fields = event.fields.iter().map(|field| {
            let value = match field.value {
                FieldValue::Text(text) => FieldValue::Text(self.string(text)),
                number => number,
            };
            EventField { name: self.string(field.name), value }
        });
        let fields = fields.collect();
        let copied = RuntimeEvent {
            process: self.process(event.process),
            thread: event.thread.map(|thread| self.thread(thread)),
            name: self.string(event.name),
            stack: event.stack.map(|stack| self.stack(source.stack(stack))),
            fields,
            ..event.clone()
        };
        self.builder.add_runtime_event(copied);
    }

    /// The events of the source in the copy, by their index in the source.
    pub(super) fn events(&self) -> &[EventId] {
        &self.events
    }

    /// Maps a process of the source to one that the builder already has.
    pub(super) fn map_process(&mut self, id: ProcessId, known: ProcessId) {
        self.processes.insert(id, known);
    }

    pub(super) fn into_builder(self) -> ProfileBuilder {
        self.builder
    }

    /// Returns the copy with the ledger and the findings of the source.
    pub fn finish(self, header: Header) -> Profile {
        let (ledger, findings) = (self.source.ledger().clone(), self.source.findings().to_vec());
        let mut copy = self.finish_with(header, ledger);
        copy.set_findings(findings);
        copy
    }

    /// Returns the copy with another ledger, without findings.
    pub fn finish_with(self, header: Header, ledger: Ledger) -> Profile {
        self.builder.finish_with(header, ledger)
    }

    fn thread(&mut self, id: ThreadId) -> ThreadId {
        if let Some(known) = self.threads.get(&id) {
            return *known;
        }
        let Thread { process, tid, comm } = self.source.thread(id);
        let (process, comm) = (self.process(*process), self.string(*comm));
        let thread = self.builder.thread_named(process, *tid, comm);
        self.threads.insert(id, thread);
        thread
    }

    pub(super) fn process(&mut self, id: ProcessId) -> ProcessId {
        if let Some(known) = self.processes.get(&id) {
            return *known;
        }
        let process = self.source.process(id);
        let comm = self.string(process.comm);
        let copied = self.builder.process_named(process.pid, comm);
        if let Some(container) = process.container {
            let container = self.string(container);
            self.builder.set_container_named(copied, container);
        }
        if let Some(KubernetesNames { namespace, pod, container }) = process.kubernetes {
            let (namespace, pod) = (self.string(namespace), self.string(pod));
            let container = container.map(|name| self.string(name));
            self.builder.set_kubernetes_names(copied, KubernetesNames { namespace, pod, container });
        }
        for Attribute { name, value } in &process.attributes {
            let attribute = Attribute { name: self.string(*name), value: self.string(*value) };
            self.builder.set_attribute(copied, attribute);
        }
        self.processes.insert(id, copied);
        copied
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_profile;

    #[test]
    fn a_copy_has_only_the_entries_that_its_samples_refer_to() {
        let profile = test_profile::folded(&[("a;main;work", 1), ("b;main;idle", 2)]);
        let mut copy = ProfileCopy::of(&profile);
        let sample = &profile.samples()[1];
        let stack = copy.stack_with(profile.stack(sample.stack), |_| true);
        copy.sample(sample, stack);
        let copied = copy.finish(profile.header().clone());
        assert_eq!(copied.strings().collect::<Vec<_>>(), ["idle", "main", "b"]);
        assert_eq!((copied.processes().len(), copied.frames().len()), (1, 2));
        assert_eq!(copied.ledger(), profile.ledger());
    }

    #[test]
    fn a_copied_process_has_its_attributes() {
        let profile = test_profile::in_pod();
        let mut copy = ProfileCopy::of(&profile);
        for sample in profile.samples() {
            let stack = copy.stack(profile.stack(sample.stack));
            copy.sample(sample, stack);
        }
        let copied = copy.finish(profile.header().clone());
        let process = copied.thread(copied.samples()[0].thread).process;
        assert_eq!(copied.attribute(process, "k8s.pod.uid"), Some("0d4b8f4e-52f1"));
        assert_eq!(copied.attribute(process, "service.name"), None);
    }

    #[test]
    fn a_full_copy_reads_like_its_source() {
        for seed in 0..20 {
            let profile = test_profile::random(seed);
            let mut copy = ProfileCopy::of(&profile);
            for sample in profile.samples() {
                let stack = copy.stack_with(profile.stack(sample.stack), |_| true);
                copy.sample(sample, stack);
            }
            let copied = copy.finish(profile.header().clone());
            let contents = |profile: &Profile| -> Vec<String> {
                let tell = |sample: &Sample| {
                    let frames = profile.stack(sample.stack).frames.iter().map(|id| {
                        let frame = profile.frame(*id);
                        (profile.string(frame.name), frame.module.map(|id| profile.module(id).build_id.len()))
                    });
                    let thread = profile.thread(sample.thread);
                    let process = profile.process(thread.process);
                    let container = process.container.map(|id| profile.string(id));
                    let kubernetes = process.kubernetes.map(|names| {
                        let texts = [names.namespace, names.pod].map(|name| profile.string(name));
                        (texts, names.container.map(|name| profile.string(name)))
                    });
                    let frames = frames.collect::<Vec<_>>();
                    format!("{} {} {container:?} {kubernetes:?} {frames:?}", sample.time_ns, thread.tid)
                };
                profile.samples().iter().map(tell).collect()
            };
            assert_eq!(contents(&copied), contents(&profile));
        }
    }
}
