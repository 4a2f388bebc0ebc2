//! Builds a profile from samples: symbolizes addresses into frames, and caches frames and stacks.

mod deferred;
mod lock_owners;
mod on_stack_replacement;
mod poll_readings;
mod process_attributes;
mod roots;
mod runtime_events;
mod sums;
mod system_calls;
mod tail_calls;
mod user_frames;
mod wakers;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use profiler_addresses::{MonotonicTime, RuntimeAddress};
use profiler_common::unwind::StackEndReason;
use profiler_processes::{Process, ProcessKey, RetiredProcess, Tid, kubernetes::ContainerNames};
use profiler_profile::{
    Attribute, EventId, FoundBy, Frame, FrameId, FrameKind, KubernetesNames, ProcessId, ProfileBuilder,
    Sample, SourceLocation, StackEnd, StackId, SymbolSource, Symbolization, ThreadId,
};
use profiler_sampler::{
    CalledSystemCall, Comm, EventPlan, FrameFound, Origin, RawSample, RawStack, RawStackId,
};
use profiler_symbolize::{CodeKey, SymbolizedCode, Symbolizer, placeholder};

pub(super) use self::{
    deferred::AwaitedStacks,
    wakers::{SampleWaker, WakerName},
};
use self::{
    deferred::{DeferredSample, DeferredStack},
    tail_calls::Callee,
    user_frames::resolve_user_frames,
    wakers::DeferredWake,
};
use super::sample_events::SampleEvents;

/// The most samples that are deferred. Further ones are symbolized with what is known at once.
const MAX_DEFERRED_SAMPLES: usize = 3 << 20;

/// Builds one profile.
#[derive(Debug, Default)]
pub(super) struct ProfileAssembler {
    has_user_stacks: bool,
    /// The zero of the times.
    started: MonotonicTime,
    builder: ProfileBuilder,
    events: SampleEvents,
    /// The frames of each code address, inlined frames first.
    frames: HashMap<CodeKey, Box<[FrameId]>>,
    /// The symbolized code that continues a method in place of other code.
    replacements: HashSet<CodeKey>,
    processes: HashMap<ProcessKey, CachedProcess>,
    deferred_stacks: Vec<DeferredStack>,
    deferred_samples: Vec<DeferredSample>,
    deferred_wakes: Vec<DeferredWake>,
}

/// What is known of a process until it is retired.
#[derive(Debug)]
struct CachedProcess {
    id: ProcessId,
    threads: HashMap<(Tid, Comm), ThreadId>,
    stacks: HashMap<StackKey, CachedStack>,
    /// Whether samples are deferred.
    awaits_symbols: bool,
}

/// A sample whose event is still to be found.
#[derive(Clone, Copy, Debug)]
struct SampleOfThread {
    /// Of a wait, its end.
    time: MonotonicTime,
    cpu: u32,
    thread: ThreadId,
    stack: StackId,
    value: u64,
}

/// The kernel stack and the user stack of a sample.
#[derive(Clone, Debug, Default)]
pub(super) struct SampleStacks {
    pub(super) kernel: Option<Arc<RawStack>>,
    pub(super) user: Option<Arc<RawStack>>,
    /// [`Process::unwind_tables_outdated_since`] the time of the sample.
    pub(super) tables_outdated_since: Option<MonotonicTime>,
    /// The system call that the thread has called.
    pub(super) system_call: Option<CalledSystemCall>,
}

/// The key of a symbolized stack of a process: stack ids together with the state of its mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StackKey {
    arrangement: usize,
    tables_outdated_since: Option<MonotonicTime>,
    kernel: RawStackId,
    user: RawStackId,
    system_call: Option<CalledSystemCall>,
}

/// The result of symbolizing a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CachedStack {
    Symbolized(StackId),
    /// The index of the deferred stack.
    Deferred(u32),
}

impl ProfileAssembler {
    /// An assembler of a profile that starts at this time.
    pub(super) fn new(plan: &EventPlan, has_user_stacks: bool, started: MonotonicTime) -> Self {
        let mut builder = ProfileBuilder::default();
        let events = SampleEvents::new(plan, &mut builder);
        Self { has_user_stacks, started, builder, events, ..Self::default() }
    }

    /// Adds a sample, or defers it to the end of the interval because symbols of its stack may still arrive.
    pub(super) fn add(
        &mut self,
        symbolizer: &mut Symbolizer,
        process: &Process,
        sample: &RawSample,
        stacks: SampleStacks,
        waker: Option<SampleWaker<'_>>,
    ) {
        let stack = self.cached_stack(symbolizer, process, sample.time, stacks);
        let thread = self.thread(process, sample);
        if let Some(waker) = waker.filter(|_| self.may_defer_wake()) {
            return self.add_wake(symbolizer, sample, (thread, stack), waker);
        }
        let RawSample { time, cpu, value, origin, .. } = *sample;
        match stack {
            CachedStack::Symbolized(stack) => {
                self.push(origin, SampleOfThread { time, cpu, thread, stack, value });
            }
            CachedStack::Deferred(stack) => {
                let cpu = u16::try_from(cpu).unwrap_or(u16::MAX);
                self.deferred_samples.push(DeferredSample { time, thread, stack, value, cpu, origin });
            }
        }
    }

    /// The stack of a process at a time, symbolized or deferred.
    fn cached_stack(
        &mut self,
        symbolizer: &mut Symbolizer,
        process: &Process,
        time: MonotonicTime,
        mut stacks: SampleStacks,
    ) -> CachedStack {
        stacks.tables_outdated_since = process.unwind_tables_outdated_since(time);
        let id = |stack: &Option<Arc<RawStack>>| stack.as_ref().and_then(|stack| stack.id);
        let key = StackKey {
            arrangement: process.mapping_generation(time),
            tables_outdated_since: stacks.tables_outdated_since,
            kernel: id(&stacks.kernel),
            user: id(&stacks.user),
            system_call: stacks.system_call,
        };
        if let Some(cached) = self.process(process).stacks.get(&key) {
            return *cached;
        }
        let may_defer = self.deferred_samples.len() < MAX_DEFERRED_SAMPLES;
        let symbolized = self.symbolize(symbolizer, process, time, &stacks, may_defer, None);
        let result = symbolized.map_or_else(|| self.defer(process, stacks), CachedStack::Symbolized);
        self.process(process).stacks.insert(key, result);
        result
    }

    fn push(&mut self, origin: Origin, measured: SampleOfThread) {
        let SampleOfThread { time, cpu, thread, stack, value } = measured;
        // The time of a wait is its start.
        let wait_ns = if origin.is_duration { value } else { 0 };
        let time_ns = time.nanoseconds_since(self.started).saturating_sub(wait_ns);
        let sample = Sample { time_ns, cpu, thread, stack, event: EventId::FIRST, state: None, value };
        self.events.add(&mut self.builder, origin, sample);
    }

    /// Whether samples of a process are deferred.
    pub(super) fn awaits_symbols(&self, process: ProcessKey) -> bool {
        self.processes.get(&process).is_some_and(|known| known.awaits_symbols)
    }

    /// Forgets a process after its last sample. In the profile it has its last name.
    pub(super) fn retire(&mut self, process: &RetiredProcess) {
        if let Some(known) = self.processes.remove(&process.key) {
            self.builder.rename_process(known.id, &process.comm);
        }
    }

    /// The profile and its events; processes have their latest names.
    pub(super) fn finish<'a>(
        self,
        process: impl Fn(ProcessKey) -> Option<&'a Process>,
    ) -> (ProfileBuilder, SampleEvents) {
        let mut builder = self.builder;
        for (key, known) in &self.processes {
            if let Some(process) = process(*key) {
                builder.rename_process(known.id, &process.comm);
            }
        }
        (builder, self.events)
    }

    /// Symbolizes a stack; `None` if symbols may still arrive and the stack may be deferred. `compiled_method` is what the
    /// JIT compiled.
    fn symbolize(
        &mut self,
        symbolizer: &mut Symbolizer,
        process: &Process,
        time: MonotonicTime,
        stacks: &SampleStacks,
        may_defer: bool,
        compiled_method: Option<&str>,
    ) -> Option<StackId> {
        let (user, cut) = resolve_user_frames(symbolizer, process, time, stacks);
        let entry =
            compiled_method.and_then(|_| symbolizer.compiler_entry(user.iter().map(|(code, _)| *code)));
        let kernel = stacks.kernel.as_deref().map(RawStack::frames).into_iter().flatten();
        let kernel = kernel.map(|frame| (CodeKey::Kernel(frame.address), frame, None, None, None));
        let mut frames = Vec::with_capacity(user.len());
        let mut is_deferred = false;
        let user = user.iter().enumerate().map(|(index, (code, frame))| {
            let method = compiled_method.filter(|_| entry == Some(index));
            let callee = user.get(index + 1).map(|caller| Callee { code: *code, caller: *caller });
            let inner = index.checked_sub(1).and_then(|index| user.get(index)).map(|(code, _)| *code);
            (*code, *frame, method, callee, inner)
        });
        for (code, frame, compiled_method, callee, inner) in kernel.chain(user) {
            if inner.is_some_and(|inner| self.was_replaced(symbolizer, process, (code, frame), inner, time)) {
                continue;
            }
            if may_defer
                && (matches!(code, CodeKey::Jit(..))
                    || symbolizer.awaits_debug_file(code, process)
                    || symbolizer.awaits_compiled_method(code, process))
            {
                // The other frames are symbolized now, so that this work is not left to the end of sampling.
                is_deferred = true;
            } else {
                let found_by = found_by(code, frame.found);
                let symbolized = self.symbolized_frames(symbolizer, process, code, frame.address, time);
                frames.extend(symbolized.iter().map(|frame| (*frame, found_by)));
                let compiled = compiled_method.zip(symbolized.last().copied());
                frames.extend(compiled.map(|compiled| (self.compilation_frame(compiled), found_by)));
                let jumping =
                    callee.and_then(|callee| self.jumping_function(symbolizer, process, callee, time));
                frames.extend(jumping.map(|frame| (frame, FoundBy::CallInstruction)));
            }
        }
        if is_deferred {
            return None;
        }
        let end = cut.unwrap_or_else(|| self.stack_end(stacks, frames.last().map(|(frame, _)| *frame)));
        let system_call = stacks.system_call.map(|call| (self.system_call_frame(call), FoundBy::Kernel));
        Some(self.builder.unwound_stack(system_call.into_iter().chain(frames), end))
    }

    fn symbolized_frames(
        &mut self,
        symbolizer: &mut Symbolizer,
        process: &Process,
        code: CodeKey,
        address: RuntimeAddress,
        time: MonotonicTime,
    ) -> &[FrameId] {
        let Self { builder, frames, replacements, .. } = self;
        frames.entry(code).or_insert_with(|| {
            let symbols = symbolizer.symbolize(code, process, time);
            if symbols.replaces_on_stack() {
                replacements.insert(code);
            }
            add_frames(builder, &symbols, process, address, time)
        })
    }

    /// A frame with the method that the JIT compiler, whose outermost frame this is, compiles.
    fn compilation_frame(&mut self, (method, compiler): (&str, FrameId)) -> FrameId {
        let name = self.builder.string(&format!("[compiling {method}]"));
        let symbolization = Symbolization::Symbol(SymbolSource::RuntimeEvents);
        let frame = Frame { name, location: None, symbolization, ..*self.builder.get_frame(compiler) };
        self.builder.frame(frame)
    }

    /// The end of a stack: complete if its outermost frame starts a process, a thread or a kernel thread.
    fn stack_end(&self, stacks: &SampleStacks, root: Option<FrameId>) -> StackEnd {
        let Some(root) = root else {
            let is_complete = stacks.system_call.is_some() && !self.has_user_stacks;
            return if is_complete { StackEnd::Root } else { StackEnd::Empty };
        };
        let outer = stacks.user.as_deref().or(stacks.kernel.as_deref());
        if outer.is_some_and(|stack| stack.is_truncated) {
            return StackEnd::DepthLimit;
        }
        let end_reason = outer.and_then(RawStack::end_reason);
        match end_reason {
            Some(StackEndReason::Root | StackEndReason::NoUserStack) => return StackEnd::Root,
            Some(StackEndReason::NoMapping) => return StackEnd::NoMapping,
            Some(StackEndReason::UnreadableStack) => return StackEnd::UnreadableStack,
            Some(StackEndReason::UnsupportedRule) => return StackEnd::UnsupportedRule,
            Some(StackEndReason::Backwards) => return StackEnd::Backwards,
            Some(StackEndReason::DepthLimit) => return StackEnd::DepthLimit,
            Some(StackEndReason::ReturnProbe) => return StackEnd::ReturnProbe,
            Some(StackEndReason::MappingsLocked) => return StackEnd::MappingsLocked,
            // Functions that start a thread have no caller, and often no CFI that says so.
            Some(StackEndReason::NullCaller | StackEndReason::BrokenFramePointer) | None => {}
        }
        let frame = self.builder.get_frame(root);
        let name = self.builder.get_string(frame.name);
        let is_root = match frame.kind {
            FrameKind::Kernel => !self.has_user_stacks || roots::starts_kernel_threads(name),
            _ => {
                let path =
                    frame.module.map(|module| self.builder.get_string(self.builder.get_module(module).path));
                let has_null_caller = end_reason == Some(StackEndReason::NullCaller);
                roots::starts_threads(name, path.unwrap_or_default(), has_null_caller)
            }
        };
        match end_reason {
            _ if is_root => StackEnd::Root,
            Some(StackEndReason::BrokenFramePointer) => StackEnd::BrokenFramePointer,
            _ => StackEnd::Unknown,
        }
    }

    fn thread(&mut self, process: &Process, sample: &RawSample) -> ThreadId {
        let known = self.process(process);
        let (id, thread) = (known.id, (sample.tid, sample.comm));
        if let Some(thread) = known.threads.get(&thread) {
            return *thread;
        }
        let added = self.builder.thread(id, sample.tid.0, &sample.comm.text());
        self.process(process).threads.insert(thread, added);
        added
    }

    fn process(&mut self, process: &Process) -> &mut CachedProcess {
        let builder = &mut self.builder;
        self.processes.entry(process.key).or_insert_with(|| CachedProcess {
            id: add_process(builder, process),
            threads: HashMap::new(),
            stacks: HashMap::new(),
            awaits_symbols: false,
        })
    }
}

fn add_process(builder: &mut ProfileBuilder, process: &Process) -> ProcessId {
    let id = builder.process(process.pid.0, &process.comm);
    let Some(identity) = &process.identity else { return id };
    if let Some(container) = &identity.container {
        builder.set_container(id, container);
    }
    for (name, value) in process_attributes::of(identity, process.service_name()) {
        let (name, value) = (builder.string(name), builder.string(&value));
        builder.set_attribute(id, Attribute { name, value });
    }
    if let Some(ContainerNames { namespace, pod, container, .. }) = identity.kubernetes.as_deref() {
        let (namespace, pod) = (builder.string(namespace), builder.string(pod));
        let container = container.as_deref().map(|name| builder.string(name));
        builder.set_kubernetes_names(id, KubernetesNames { namespace, pod, container });
    }
    id
}

fn found_by(code: CodeKey, found: FrameFound) -> FoundBy {
    match found {
        FrameFound::Sampled => FoundBy::Sample,
        FrameFound::ByGetStack if matches!(code, CodeKey::Kernel(_)) => FoundBy::Kernel,
        FrameFound::ByGetStack | FrameFound::ByFramePointer => FoundBy::FramePointer,
        FrameFound::ByCfi => FoundBy::Cfi,
        FrameFound::ByEpilogueScan => FoundBy::EpilogueScan,
        FrameFound::ByInstructions => FoundBy::Instructions,
        FrameFound::Interrupted => FoundBy::SignalFrame,
    }
}

fn add_frames(
    builder: &mut ProfileBuilder,
    code_symbols: &SymbolizedCode,
    process: &Process,
    address: RuntimeAddress,
    time: MonotonicTime,
) -> Box<[FrameId]> {
    let module = code_symbols.module.as_ref().map(|(path, build_id)| builder.module(path, build_id));
    let functions = match &code_symbols.names {
        Ok(symbolized) => &symbolized.functions[..],
        Err(reason) => {
            let mapping = process.find_mapping(address, time).ok().map(|mapping| &**mapping);
            let name = builder.string(&placeholder(code_symbols, *reason, mapping));
            let symbolization = Symbolization::Address(*reason);
            let frame = Frame {
                name,
                kind: code_symbols.kind,
                module,
                address: code_symbols.address,
                location: None,
                symbolization,
            };
            return [builder.frame(frame)].into();
        }
    };
    let source = code_symbols.names.as_ref().map(|symbolized| symbolized.source);
    let frames = functions.iter().enumerate().map(|(index, function)| {
        let is_outermost = index + 1 == functions.len();
        let location = function
            .location
            .as_ref()
            .map(|(file, line)| SourceLocation { file: builder.string(file), line: *line });
        let symbolization =
            source.map_or_else(|reason| Symbolization::Address(*reason), Symbolization::Symbol);
        let name = builder.string(&function.name);
        let kind = if is_outermost { code_symbols.kind } else { FrameKind::Inlined };
        builder.frame(Frame { name, kind, module, address: code_symbols.address, location, symbolization })
    });
    frames.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use profiler_addresses::ElfAddress;

    const FUNCTION: &str = "work";

    fn stack(end_reason: Option<StackEndReason>) -> RawStack {
        RawStack {
            addresses: vec![1],
            end_reason: end_reason.map_or(0, |end| end as u8),
            ..RawStack::default()
        }
    }

    /// The end of a stack whose outermost frame is a function of this name.
    fn end(has_user_stacks: bool, stacks: &SampleStacks, kind: FrameKind, name: &str) -> StackEnd {
        let mut assembler = ProfileAssembler::new(&EventPlan::default(), has_user_stacks, MonotonicTime(0));
        let name = assembler.builder.string(name);
        let (address, symbolization) = (ElfAddress(0), Symbolization::Symbol(SymbolSource::Kallsyms));
        let frame = Frame { name, kind, module: None, address, location: None, symbolization };
        let root = assembler.builder.frame(frame);
        assembler.stack_end(stacks, Some(root))
    }

    fn user_end(stack: &RawStack, name: &str) -> StackEnd {
        let stacks = SampleStacks { user: Some(Arc::new(stack.clone())), ..SampleStacks::default() };
        end(true, &stacks, FrameKind::Native, name)
    }

    #[test]
    fn an_unwound_stack_has_the_end_of_its_reason() {
        for (end_reason, expected) in [
            (StackEndReason::Root, StackEnd::Root),
            (StackEndReason::NoUserStack, StackEnd::Root),
            (StackEndReason::NoMapping, StackEnd::NoMapping),
            (StackEndReason::UnreadableStack, StackEnd::UnreadableStack),
            (StackEndReason::UnsupportedRule, StackEnd::UnsupportedRule),
            (StackEndReason::Backwards, StackEnd::Backwards),
            (StackEndReason::DepthLimit, StackEnd::DepthLimit),
            (StackEndReason::ReturnProbe, StackEnd::ReturnProbe),
            (StackEndReason::MappingsLocked, StackEnd::MappingsLocked),
            (StackEndReason::NullCaller, StackEnd::Unknown),
            (StackEndReason::BrokenFramePointer, StackEnd::BrokenFramePointer),
        ] {
            assert_eq!(user_end(&stack(Some(end_reason)), FUNCTION), expected);
        }
    }

    #[test]
    fn a_function_that_starts_a_thread_is_a_root() {
        for end_reason in [None, Some(StackEndReason::NullCaller), Some(StackEndReason::BrokenFramePointer)] {
            assert_eq!(user_end(&stack(end_reason), "_start"), StackEnd::Root);
        }
        for end_reason in [StackEndReason::NoMapping, StackEndReason::Backwards, StackEndReason::DepthLimit] {
            assert_ne!(user_end(&stack(Some(end_reason)), "_start"), StackEnd::Root);
        }
        assert_eq!(user_end(&stack(None), FUNCTION), StackEnd::Unknown);
    }

    #[test]
    fn a_truncated_stack_ends_at_the_depth_limit() {
        let cut = RawStack { is_truncated: true, ..stack(None) };
        assert_eq!(user_end(&cut, "_start"), StackEnd::DepthLimit);
    }

    #[test]
    fn a_kernel_stack_is_complete_without_user_stacks() {
        let stacks = &SampleStacks { kernel: Some(Arc::new(stack(None))), ..SampleStacks::default() };
        assert_eq!(end(false, stacks, FrameKind::Kernel, "do_syscall_64"), StackEnd::Root);
        assert_eq!(end(true, stacks, FrameKind::Kernel, "do_syscall_64"), StackEnd::Unknown);
        assert_eq!(end(true, stacks, FrameKind::Kernel, "ret_from_fork"), StackEnd::Root);
        assert_eq!(ProfileAssembler::default().stack_end(stacks, None), StackEnd::Empty);
    }
}
