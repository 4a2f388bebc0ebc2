//! Defers stacks whose symbols may still arrive to the end of the interval.

use std::collections::{HashMap, HashSet};

use profiler_addresses::MonotonicTime;
use profiler_processes::{Process, ProcessKey, ProcessTable, Tid};
use profiler_profile::{StackId, ThreadId};
use profiler_sampler::Origin;
use profiler_symbolize::Symbolizer;

use super::{
    CachedStack, ProfileAssembler, SampleOfThread, SampleStacks,
    user_frames::{jit_tables_outdated_since, resolve_user_frames},
    wakers::WokenStacks,
};
use crate::session::sample_events::Counts;

/// A stack some of whose symbols may still arrive: of JIT code, or from a debug file that is being downloaded.
#[derive(Debug)]
pub(super) struct DeferredStack {
    process: ProcessKey,
    stacks: SampleStacks,
}

/// What differs between the frames of deferred stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StackAtTime {
    /// The index of the stack.
    index: u32,
    /// The epoch of its JIT code, by which the names differ.
    jit_epoch: u32,
    /// [`jit_tables_outdated_since`] the time: the stack is cut at newer code.
    jit_tables_outdated_since: Option<MonotonicTime>,
}

impl StackAtTime {
    fn new(symbolizer: &mut Symbolizer, process: &Process, index: u32, time: MonotonicTime) -> Self {
        Self {
            index,
            jit_epoch: symbolizer.jit_epoch(process, time),
            jit_tables_outdated_since: jit_tables_outdated_since(symbolizer, process, time),
        }
    }
}

/// What differs between symbolized stacks: also the method that the JIT compiles.
type SymbolizedStack = (StackAtTime, Option<String>);

/// Deferred stacks with JIT code whose names may still arrive.
#[derive(Debug, Default)]
pub(in crate::session) struct AwaitedStacks {
    stacks: HashSet<StackAtTime>,
    pub(in crate::session) processes: HashSet<ProcessKey>,
}

/// A sample of a deferred stack. There can be millions.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeferredSample {
    pub(super) time: MonotonicTime,
    pub(super) thread: ThreadId,
    /// The index of the stack.
    pub(super) stack: u32,
    pub(super) value: u64,
    pub(super) cpu: u16,
    pub(super) origin: Origin,
}

impl ProfileAssembler {
    /// The deferred stacks with JIT code whose names may still arrive.
    pub(in crate::session) fn awaited_stacks(
        &self,
        symbolizer: &mut Symbolizer,
        processes: &ProcessTable,
    ) -> AwaitedStacks {
        let mut awaited = AwaitedStacks::default();
        let mut checked = HashSet::new();
        for (index, time) in self.uses_of_deferred_stacks() {
            let deferred = &self.deferred_stacks[index as usize];
            let Some(process) = processes.get(deferred.process) else { continue };
            let stack = StackAtTime::new(symbolizer, process, index, time);
            if !checked.insert(stack) {
                continue;
            }
            let (frames, _) = resolve_user_frames(symbolizer, process, time, &deferred.stacks);
            if !frames.iter().all(|(code, _)| symbolizer.has_final_name(*code, process, time)) {
                awaited.stacks.insert(stack);
                awaited.processes.insert(process.key);
            }
        }
        awaited
    }

    /// Adds the deferred samples except those of the awaited stacks. Returns those whose process is unknown by
    /// now.
    pub(in crate::session) fn add_deferred(
        &mut self,
        symbolizer: &mut Symbolizer,
        processes: &ProcessTable,
        awaited: &AwaitedStacks,
    ) -> Counts {
        let stacks = std::mem::take(&mut self.deferred_stacks);
        let tids = self.tids();
        let mut resolver =
            Resolver { symbolizer, processes, awaited, stacks: &stacks, symbolized: HashMap::new() };
        let mut lost = Counts::default();
        for sample in std::mem::take(&mut self.deferred_samples) {
            let DeferredSample { time, thread, stack: index, value, cpu, origin } = sample;
            match resolver.resolve(self, index, tids.get(&thread).copied(), time) {
                Resolved::Awaited => self.deferred_samples.push(sample),
                Resolved::UnknownProcess => lost.add(origin, value),
                Resolved::Stack(stack) => {
                    self.push(origin, SampleOfThread { time, cpu: cpu.into(), thread, stack, value });
                }
            }
        }
        let mut woken_stacks = WokenStacks::new();
        for wake in std::mem::take(&mut self.deferred_wakes) {
            let mut resolve = |cached| match cached {
                CachedStack::Symbolized(stack) => Resolved::Stack(stack),
                CachedStack::Deferred(index) => resolver.resolve(self, index, None, wake.time),
            };
            match (resolve(wake.stack), resolve(wake.waker)) {
                (Resolved::Awaited, _) | (_, Resolved::Awaited) => self.deferred_wakes.push(wake),
                (Resolved::UnknownProcess, _) => lost.add(wake.origin, wake.value),
                (Resolved::Stack(stack), Resolved::UnknownProcess) => {
                    self.push_wake(&wake, stack, None, &mut woken_stacks);
                }
                (Resolved::Stack(stack), Resolved::Stack(waker)) => {
                    self.push_wake(&wake, stack, Some(waker), &mut woken_stacks);
                }
            }
        }
        self.deferred_stacks = stacks;
        lost
    }

    /// The index of the stack and the time of each deferred sample.
    fn uses_of_deferred_stacks(&self) -> impl Iterator<Item = (u32, MonotonicTime)> {
        let samples = self.deferred_samples.iter().map(|sample| (sample.stack, sample.time));
        let wakes = self.deferred_wakes.iter().flat_map(|wake| {
            [wake.stack, wake.waker].into_iter().filter_map(|stack| match stack {
                CachedStack::Deferred(index) => Some((index, wake.time)),
                CachedStack::Symbolized(_) => None,
            })
        });
        samples.chain(wakes)
    }

    fn tids(&self) -> HashMap<ThreadId, Tid> {
        let threads = self.processes.values().flat_map(|process| &process.threads);
        threads.map(|((tid, _), thread)| (*thread, *tid)).collect()
    }

    pub(super) fn defer(&mut self, process: &Process, stacks: SampleStacks) -> CachedStack {
        let index = self.deferred_stacks.len() as u32;
        self.deferred_stacks.push(DeferredStack { process: process.key, stacks });
        self.process(process).awaits_symbols = true;
        CachedStack::Deferred(index)
    }
}

/// Symbolizes deferred stacks.
struct Resolver<'a> {
    symbolizer: &'a mut Symbolizer,
    processes: &'a ProcessTable,
    awaited: &'a AwaitedStacks,
    stacks: &'a [DeferredStack],
    symbolized: HashMap<SymbolizedStack, StackId>,
}

/// What a deferred stack is by now.
enum Resolved {
    /// Its names may still arrive.
    Awaited,
    UnknownProcess,
    Stack(StackId),
}

impl Resolver<'_> {
    /// Symbolizes a stack. `tid` is the thread whose compiled method is shown in frames of the JIT compiler.
    fn resolve(
        &mut self,
        assembler: &mut ProfileAssembler,
        index: u32,
        tid: Option<Tid>,
        time: MonotonicTime,
    ) -> Resolved {
        let deferred = &self.stacks[index as usize];
        let Some(process) = self.processes.get(deferred.process) else { return Resolved::UnknownProcess };
        let key = StackAtTime::new(self.symbolizer, process, index, time);
        if self.awaited.stacks.contains(&key) {
            return Resolved::Awaited;
        }
        let compiled = tid.and_then(|tid| self.symbolizer.compiled_method(process, tid, time));
        let key = (key, compiled);
        if let Some(stack) = self.symbolized.get(&key) {
            return Resolved::Stack(*stack);
        }
        let method = key.1.as_deref();
        let found = assembler.symbolize(self.symbolizer, process, time, &deferred.stacks, false, method);
        // Without deferral, every stack is symbolized.
        let Some(stack) = found else { return Resolved::UnknownProcess };
        self.symbolized.insert(key, stack);
        Resolved::Stack(stack)
    }
}
