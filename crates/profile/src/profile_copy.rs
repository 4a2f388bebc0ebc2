//! A profile made of the samples of another: those that are chosen, with other stacks where they are given ones.

use std::collections::HashMap;

use super::{
    Frame, FrameId, Header, Ledger, Module, ModuleId, ProcessId, Profile, ProfileBuilder, Sample,
    SourceLocation, Stack, StackId, StringId, Thread, ThreadId,
};

/// A profile in the making that takes from another what its samples need, and nothing else.
#[derive(Debug)]
pub struct ProfileCopy<'a> {
    from: &'a Profile,
    builder: ProfileBuilder,
    strings: HashMap<StringId, StringId>,
    modules: HashMap<ModuleId, ModuleId>,
    frames: HashMap<FrameId, FrameId>,
    processes: HashMap<ProcessId, ProcessId>,
    threads: HashMap<ThreadId, ThreadId>,
}

impl<'a> ProfileCopy<'a> {
    pub fn of(from: &'a Profile) -> Self {
        Self::onto(ProfileBuilder::default(), from)
    }

    /// As [`of`](Self::of), beside what the builder already holds.
    pub(super) fn onto(builder: ProfileBuilder, from: &'a Profile) -> Self {
        Self {
            from,
            builder,
            strings: HashMap::new(),
            modules: HashMap::new(),
            frames: HashMap::new(),
            processes: HashMap::new(),
            threads: HashMap::new(),
        }
    }

    /// Where new strings and frames can be put.
    pub fn builder(&mut self) -> &mut ProfileBuilder {
        &mut self.builder
    }

    pub fn string(&mut self, id: StringId) -> StringId {
        let (from, builder) = (self.from, &mut self.builder);
        *self.strings.entry(id).or_insert_with(|| builder.string(from.string(id)))
    }

    pub fn module(&mut self, id: ModuleId) -> ModuleId {
        if let Some(known) = self.modules.get(&id) {
            return *known;
        }
        let Module { path, build_id } = self.from.module(id);
        let path = self.string(*path);
        let module = self.builder.module_at(path, build_id);
        self.modules.insert(id, module);
        module
    }

    pub fn frame(&mut self, id: FrameId) -> FrameId {
        if let Some(known) = self.frames.get(&id) {
            return *known;
        }
        let copied = self.copied(self.from.frame(id));
        let frame = self.builder.frame(copied);
        self.frames.insert(id, frame);
        frame
    }

    /// A frame of the other profile, with the ids it has in this one.
    pub fn copied(&mut self, frame: &Frame) -> Frame {
        let location = frame.location.map(|SourceLocation { file, line }| (file, line));
        Frame {
            name: self.string(frame.name),
            module: frame.module.map(|module| self.module(module)),
            location: location.map(|(file, line)| SourceLocation { file: self.string(file), line }),
            ..frame.clone()
        }
    }

    /// A stack with these of its frames.
    pub fn stack_of(&mut self, stack: &Stack, is_kept: impl Fn(usize) -> bool) -> StackId {
        let kept = (0..stack.frames.len()).filter(|index| is_kept(*index));
        let frames: Vec<_> =
            kept.map(|index| (self.frame(stack.frames[index]), stack.found_by[index])).collect();
        self.builder.walked_stack(frames, stack.end)
    }

    /// A stack with all of its frames.
    pub(super) fn stack(&mut self, stack: &Stack) -> StackId {
        self.stack_of(stack, |_| true)
    }

    /// A sample of the other profile, with a stack of this one.
    pub fn sample(&mut self, sample: &Sample, stack: StackId) {
        let thread = self.thread(sample.thread);
        self.builder.sample(sample.time_ns, sample.cpu, thread, stack, sample.count);
    }

    /// The process of the other profile is this one, which the builder has already.
    pub(super) fn set_process(&mut self, id: ProcessId, known: ProcessId) {
        self.processes.insert(id, known);
    }

    pub(super) fn into_builder(self) -> ProfileBuilder {
        self.builder
    }

    /// The ledger stays that of the measurement.
    pub fn finish(self, header: Header) -> Profile {
        let ledger = self.from.ledger().clone();
        self.finish_with(header, ledger)
    }

    pub fn finish_with(self, header: Header, ledger: Ledger) -> Profile {
        self.builder.finish_with(header, ledger)
    }

    fn thread(&mut self, id: ThreadId) -> ThreadId {
        if let Some(known) = self.threads.get(&id) {
            return *known;
        }
        let Thread { process, tid, comm } = self.from.thread(id);
        let (process, comm) = (self.process(*process), self.string(*comm));
        let thread = self.builder.thread_named(process, *tid, comm);
        self.threads.insert(id, thread);
        thread
    }

    pub(super) fn process(&mut self, id: ProcessId) -> ProcessId {
        if let Some(known) = self.processes.get(&id) {
            return *known;
        }
        let process = self.from.process(id);
        let comm = self.string(process.comm);
        let copied = self.builder.process_named(process.pid, comm);
        if let Some(container) = process.container {
            let container = self.string(container);
            self.builder.set_container_named(copied, container);
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
    fn a_copy_has_what_its_samples_need_and_nothing_else() {
        let profile = test_profile::folded(&[("a;main;work", 1), ("b;main;idle", 2)]);
        let mut copy = ProfileCopy::of(&profile);
        let sample = &profile.samples()[1];
        let stack = copy.stack_of(profile.stack(sample.stack), |_| true);
        copy.sample(sample, stack);
        let copied = copy.finish(profile.header().clone());
        assert_eq!(copied.strings().collect::<Vec<_>>(), ["idle", "main", "b"]);
        assert_eq!((copied.processes().len(), copied.frames().len()), (1, 2));
        assert_eq!(copied.ledger(), profile.ledger());
    }

    #[test]
    fn a_copy_of_everything_is_the_same_to_every_reader() {
        for seed in 0..20 {
            let profile = test_profile::random(seed);
            let mut copy = ProfileCopy::of(&profile);
            for sample in profile.samples() {
                let stack = copy.stack_of(profile.stack(sample.stack), |_| true);
                copy.sample(sample, stack);
            }
            let copied = copy.finish(profile.header().clone());
            let told = |profile: &Profile| -> Vec<String> {
                let tell = |sample: &Sample| {
                    let frames = profile.stack(sample.stack).frames.iter().map(|id| {
                        let frame = profile.frame(*id);
                        (profile.string(frame.name), frame.module.map(|id| profile.module(id).build_id.len()))
                    });
                    let thread = profile.thread(sample.thread);
                    let container = profile.process(thread.process).container.map(|id| profile.string(id));
                    let frames = frames.collect::<Vec<_>>();
                    format!("{} {} {container:?} {frames:?}", sample.time_ns, thread.tid)
                };
                profile.samples().iter().map(tell).collect()
            };
            assert_eq!(told(&copied), told(&profile));
        }
    }
}
