//! Views of a profile: samples, stacks and frames with what they refer to, instead of ids.
//!
//! ```
//! # use profiler_profile::{Header, ProfileBuilder};
//! # let profile = ProfileBuilder::default().finish(Header::default());
//! for sample in profile.sample_views() {
//!     let stack: Vec<_> = sample.stack().frames().map(|frame| frame.name()).collect();
//!     println!("{} {:?} {}", sample.thread().tid(), stack, sample.value());
//! }
//! ```

use std::{fmt, time::Duration};

use profiler_addresses::ElfAddress;

use crate::{
    CodeKind, Event, Frame, FrameId, FrameKind, Module, Process, ProcessId, Profile, Reason, Sample, Stack,
    StackEnd, StackId, SymbolSource, Symbolization, Thread, ThreadId, ThreadState,
};

impl Profile {
    /// The samples, ordered by time, with what they refer to.
    pub fn sample_views(&self) -> impl DoubleEndedIterator<Item = SampleView<'_>> + ExactSizeIterator {
        self.samples.iter().map(|sample| SampleView { profile: self, sample })
    }

    /// The processes with what they refer to, in the order in which they were first sampled.
    pub fn process_views(&self) -> impl ExactSizeIterator<Item = ProcessView<'_>> {
        self.process_ids().map(|id| self.process_view(id))
    }

    /// The threads with what they refer to, in the order of their ids.
    pub fn thread_views(&self) -> impl ExactSizeIterator<Item = ThreadView<'_>> {
        self.thread_ids().map(|id| self.thread_view(id))
    }

    /// The stacks with what they refer to, in the order of their ids.
    pub fn stack_views(&self) -> impl ExactSizeIterator<Item = StackView<'_>> {
        (0..self.stacks.len()).map(|index| self.stack_view(StackId::from_index(index)))
    }

    /// The frames with what they refer to, in the order of their ids.
    pub fn frame_views(&self) -> impl ExactSizeIterator<Item = FrameView<'_>> {
        let frame_view = |(index, frame)| FrameView { profile: self, id: FrameId::from_index(index), frame };
        self.frames.iter().enumerate().map(frame_view)
    }

    /// A process with what it refers to.
    #[must_use]
    pub fn process_view(&self, id: ProcessId) -> ProcessView<'_> {
        ProcessView { profile: self, id }
    }

    /// A thread with what it refers to.
    #[must_use]
    pub fn thread_view(&self, id: ThreadId) -> ThreadView<'_> {
        ThreadView { profile: self, id }
    }

    /// A stack with what it refers to.
    #[must_use]
    pub fn stack_view(&self, id: StackId) -> StackView<'_> {
        StackView { profile: self, id }
    }

    /// A frame with what it refers to.
    #[must_use]
    pub fn frame_view(&self, id: FrameId) -> FrameView<'_> {
        FrameView { profile: self, id, frame: self.frame(id) }
    }
}

/// A sample of a profile.
#[derive(Clone, Copy)]
pub struct SampleView<'a> {
    profile: &'a Profile,
    sample: &'a Sample,
}

impl<'a> SampleView<'a> {
    /// The time since the start of sampling.
    #[must_use]
    pub fn time(self) -> Duration {
        Duration::from_nanos(self.sample.time_ns)
    }

    /// The CPU that the thread ran on, or had run on last.
    #[must_use]
    pub fn cpu(self) -> u32 {
        self.sample.cpu
    }

    /// What was sampled.
    #[must_use]
    pub fn event(self) -> &'a Event {
        self.profile.event(self.sample.event)
    }

    /// What the thread did, for events that say so.
    #[must_use]
    pub fn state(self) -> Option<ThreadState> {
        self.sample.state
    }

    /// Ticks, nanoseconds or occurrences: see [`Sampling`](crate::Sampling).
    #[must_use]
    pub fn value(self) -> u64 {
        self.sample.value
    }

    /// The thread.
    #[must_use]
    pub fn thread(self) -> ThreadView<'a> {
        self.profile.thread_view(self.sample.thread)
    }

    /// The stack of the thread.
    #[must_use]
    pub fn stack(self) -> StackView<'a> {
        self.profile.stack_view(self.sample.stack)
    }
}

/// A thread of a profile.
#[derive(Clone, Copy)]
pub struct ThreadView<'a> {
    profile: &'a Profile,
    id: ThreadId,
}

impl<'a> ThreadView<'a> {
    /// The id of the thread in its profile: a key that is cheap to compare.
    #[must_use]
    pub fn id(self) -> ThreadId {
        self.id
    }

    /// The id of the thread in the PID namespace of the profiler.
    #[must_use]
    pub fn tid(self) -> u32 {
        self.thread().tid
    }

    /// The name of the thread when it was sampled. A thread that changes its name is another one in the profile.
    #[must_use]
    pub fn name(self) -> &'a str {
        self.profile.string(self.thread().comm)
    }

    /// The process of the thread.
    #[must_use]
    pub fn process(self) -> ProcessView<'a> {
        self.profile.process_view(self.thread().process)
    }

    fn thread(self) -> &'a Thread {
        self.profile.thread(self.id)
    }
}

/// A process of a profile.
#[derive(Clone, Copy)]
pub struct ProcessView<'a> {
    profile: &'a Profile,
    id: ProcessId,
}

impl<'a> ProcessView<'a> {
    /// The id of the process in its profile: a key that is cheap to compare.
    #[must_use]
    pub fn id(self) -> ProcessId {
        self.id
    }

    /// The id of the process in the PID namespace of the profiler.
    #[must_use]
    pub fn pid(self) -> u32 {
        self.process().pid
    }

    /// The name of its leader, as in `/proc/PID/comm`.
    #[must_use]
    pub fn name(self) -> &'a str {
        self.profile.string(self.process().comm)
    }

    /// The id of its container, where it has one that is known.
    #[must_use]
    pub fn container(self) -> Option<&'a str> {
        self.process().container.map(|container| self.profile.string(container))
    }

    /// The value of an attribute, such as `k8s.pod.uid`.
    #[must_use]
    pub fn attribute(self, name: &str) -> Option<&'a str> {
        self.profile.attribute(self.id, name)
    }

    fn process(self) -> &'a Process {
        self.profile.process(self.id)
    }
}

/// A stack of a profile.
#[derive(Clone, Copy)]
pub struct StackView<'a> {
    profile: &'a Profile,
    id: StackId,
}

impl<'a> StackView<'a> {
    /// The id of the stack in its profile: a key that is cheap to compare.
    #[must_use]
    pub fn id(self) -> StackId {
        self.id
    }

    /// The frames, leaf first.
    pub fn frames(self) -> impl DoubleEndedIterator<Item = FrameView<'a>> + ExactSizeIterator {
        let profile = self.profile;
        self.stack().frames.iter().map(|id| profile.frame_view(*id))
    }

    /// The frame of the code that ran or waits; `None` where the stack was not captured.
    #[must_use]
    pub fn leaf(self) -> Option<FrameView<'a>> {
        self.frames().next()
    }

    /// Why the stack ends.
    #[must_use]
    pub fn end(self) -> StackEnd {
        self.stack().end
    }

    fn stack(self) -> &'a Stack {
        self.profile.stack(self.id)
    }
}

/// A frame of a profile.
#[derive(Clone, Copy)]
pub struct FrameView<'a> {
    profile: &'a Profile,
    id: FrameId,
    frame: &'a Frame,
}

impl<'a> FrameView<'a> {
    /// The id of the frame in its profile: a key that is cheap to compare.
    #[must_use]
    pub fn id(self) -> FrameId {
        self.id
    }

    /// The symbol, or the address in brackets.
    #[must_use]
    pub fn name(self) -> &'a str {
        self.profile.string(self.frame.name)
    }

    /// The kind of code.
    #[must_use]
    pub fn kind(self) -> FrameKind {
        self.frame.kind
    }

    /// The kind by which pictures colour the frame.
    #[must_use]
    pub fn code_kind(self) -> CodeKind {
        self.frame.code_kind()
    }

    /// The file of the code; JIT code and unmapped addresses have none.
    #[must_use]
    pub fn module(self) -> Option<ModuleView<'a>> {
        let module = self.profile.module(self.frame.module?);
        Some(ModuleView { profile: self.profile, module })
    }

    /// The file name of the module, empty where the frame has none.
    #[must_use]
    pub fn module_name(self) -> &'a str {
        self.profile.module_name(self.frame.module)
    }

    /// The address in the module; for JIT code the runtime address; for kernel code the offset in the function.
    #[must_use]
    pub fn address(self) -> ElfAddress {
        self.frame.address
    }

    /// The source line, where it was requested and is known.
    #[must_use]
    pub fn location(self) -> Option<LocationView<'a>> {
        let location = self.frame.location?;
        Some(LocationView { file: self.profile.string(location.file), line: location.line })
    }

    /// The source of the symbol.
    ///
    /// # Errors
    /// The reason why the frame has none.
    pub fn source(self) -> Result<SymbolSource, Reason> {
        match self.frame.symbolization {
            Symbolization::Symbol(source) => Ok(source),
            Symbolization::Address(reason) => Err(reason),
        }
    }
}

/// A file that code of a profile was loaded from.
#[derive(Clone, Copy)]
pub struct ModuleView<'a> {
    profile: &'a Profile,
    module: &'a Module,
}

impl<'a> ModuleView<'a> {
    /// The path in the mount namespace of the process; `[kernel]`, `[vdso]` and `[name]` for a kernel module.
    #[must_use]
    pub fn path(self) -> &'a str {
        self.profile.string(self.module.path)
    }

    /// The build id; empty where the file has none.
    #[must_use]
    pub fn build_id(self) -> &'a [u8] {
        &self.module.build_id
    }
}

/// A line of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LocationView<'a> {
    /// The path in the debug information.
    pub file: &'a str,
    /// The line, from 1; 0 where the debug information has none.
    pub line: u32,
}

impl fmt::Debug for SampleView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampleView")
            .field("time", &self.time())
            .field("cpu", &self.cpu())
            .field("event", &self.event().name)
            .field("state", &self.state())
            .field("value", &self.value())
            .field("thread", &self.thread())
            .field("stack", &self.stack())
            .finish()
    }
}

impl fmt::Debug for ThreadView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadView")
            .field("tid", &self.tid())
            .field("name", &self.name())
            .field("process", &self.process())
            .finish()
    }
}

impl fmt::Debug for ProcessView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessView").field("pid", &self.pid()).field("name", &self.name()).finish()
    }
}

impl fmt::Debug for StackView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.frames()).finish()
    }
}

impl fmt::Debug for FrameView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.name())
    }
}

impl fmt::Debug for ModuleView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Header, ProfileBuilder, SourceLocation};

    fn profile() -> Profile {
        let mut builder = ProfileBuilder::default();
        let file = builder.string("src/work.c");
        let module = builder.module("/usr/bin/demo", &[1, 2]);
        let named = Frame {
            name: builder.string("work"),
            kind: FrameKind::Native,
            module: Some(module),
            address: ElfAddress(0x1130),
            location: Some(SourceLocation { file, line: 7 }),
            symbolization: Symbolization::Symbol(SymbolSource::Dwarf),
        };
        let unnamed = Frame {
            name: builder.string("[JIT 0x7000]"),
            kind: FrameKind::Jit,
            module: None,
            address: ElfAddress(0x7000),
            location: None,
            symbolization: Symbolization::Address(Reason::NoSymbols),
        };
        let frames = vec![builder.frame(named), builder.frame(unnamed)];
        let stack = builder.stack(frames, StackEnd::Root);
        let process = builder.process(12, "demo");
        let thread = builder.thread(process, 34, "worker");
        builder.sample(5_000, 3, thread, stack, 42);
        let empty = builder.stack(Vec::new(), StackEnd::Empty);
        builder.sample(6_000, 3, thread, empty, 1);
        builder.finish(Header::default())
    }

    #[test]
    fn a_sample_has_what_it_refers_to() {
        let profile = profile();
        let sample = profile.sample_views().next().unwrap();
        assert_eq!((sample.time(), sample.cpu()), (Duration::from_micros(5), 3));
        assert_eq!((sample.value(), sample.state()), (42, None));
        assert_eq!(sample.event(), profile.first_event());
        assert_eq!((sample.thread().tid(), sample.thread().name()), (34, "worker"));
        let process = sample.thread().process();
        assert_eq!((process.pid(), process.name(), process.container()), (12, "demo", None));
        assert_eq!(process.attribute("k8s.pod.uid"), None);
        assert_eq!(profile.process_views().map(ProcessView::pid).collect::<Vec<_>>(), [12]);
    }

    #[test]
    fn an_id_of_a_view_gives_the_view_again() {
        let profile = profile();
        let sample = profile.sample_views().next().unwrap();
        assert_eq!(profile.thread_view(sample.thread().id()).tid(), 34);
        assert_eq!(profile.process_view(sample.thread().process().id()).pid(), 12);
        assert_eq!(profile.stack_view(sample.stack().id()).frames().len(), 2);
        let leaf = sample.stack().leaf().unwrap();
        assert_eq!(profile.frame_view(leaf.id()).name(), leaf.name());
        assert_eq!(profile.thread_views().map(ThreadView::tid).collect::<Vec<_>>(), [34]);
        assert_eq!(profile.stack_views().map(|stack| stack.frames().len()).collect::<Vec<_>>(), [2, 0]);
        assert_eq!(profile.frame_views().map(FrameView::name).collect::<Vec<_>>(), ["work", "[JIT 0x7000]"]);
    }

    #[test]
    fn frames_are_leaf_first_and_have_a_source_or_a_reason() {
        let profile = profile();
        let mut samples = profile.sample_views();
        let stack = samples.next().unwrap().stack();
        assert_eq!(stack.end(), StackEnd::Root);
        let [work, unnamed] = stack.frames().collect::<Vec<_>>()[..] else { panic!("{stack:?}") };
        assert_eq!(
            (work.name(), work.kind(), work.address()),
            ("work", FrameKind::Native, ElfAddress(0x1130))
        );
        assert_eq!(work.location(), Some(LocationView { file: "src/work.c", line: 7 }));
        assert_eq!(work.source(), Ok(SymbolSource::Dwarf));
        assert_eq!((work.code_kind(), work.module_name()), (CodeKind::Native, "demo"));
        let module = work.module().unwrap();
        assert_eq!((module.path(), module.build_id()), ("/usr/bin/demo", &[1, 2][..]));
        assert_eq!(unnamed.source(), Err(Reason::NoSymbols));
        assert_eq!((unnamed.code_kind(), unnamed.module_name()), (CodeKind::Unsymbolized, ""));
        assert!(unnamed.module().is_none() && unnamed.location().is_none());
        assert_eq!(stack.leaf().unwrap().name(), "work");
        assert_eq!(format!("{stack:?}"), r#"["work", "[JIT 0x7000]"]"#);
        assert!(samples.next().unwrap().stack().leaf().is_none());
    }
}
