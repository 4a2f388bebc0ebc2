//! Defers stacks whose symbols may still arrive to the end of the interval.

use std::collections::{HashMap, HashSet};

use profiler_processes::{Process, ProcessKey, ProcessTable};
use profiler_profile::{EventId, Sample, StackId, ThreadId, ThreadState};
use profiler_symbolize::Symbolizer;

use super::{CachedStack, ProfileAssembler, SampleStacks, resolve_user_frames};
use crate::session::sample_events::Ticks;

/// A stack some of whose symbols may still arrive: of JIT code, or from a debug file that is being downloaded.
#[derive(Debug)]
pub(super) struct DeferredStack {
    process: ProcessKey,
    stacks: SampleStacks,
}

/// The index of a deferred stack and the epoch of its JIT code, by which the names differ.
type StackAndEpoch = (u32, u32);

/// What differs between symbolized stacks: also the method that the JIT compiles.
type SymbolizedStack = (StackAndEpoch, Option<String>);

/// Deferred stacks with JIT code whose names may still arrive.
#[derive(Debug, Default)]
pub(in crate::session) struct AwaitedStacks {
    stacks: HashSet<StackAndEpoch>,
    pub(in crate::session) processes: HashSet<ProcessKey>,
}

/// A sample of a deferred stack. There can be millions.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeferredSample {
    pub(super) time_ns: u64,
    pub(super) thread: ThreadId,
    /// The index of the stack.
    pub(super) stack: u32,
    pub(super) weight: u32,
    pub(super) cpu: u16,
    /// What a thread waited for that was not on a CPU.
    pub(super) waited: Option<ThreadState>,
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
        for DeferredSample { time_ns, stack: index, .. } in &self.deferred_samples {
            let deferred = &self.deferred_stacks[*index as usize];
            let Some(process) = processes.get(deferred.process) else { continue };
            let stack = (*index, symbolizer.jit_epoch(process, *time_ns));
            if !checked.insert(stack) {
                continue;
            }
            let (frames, _) = resolve_user_frames(symbolizer, process, *time_ns, &deferred.stacks);
            if !frames.iter().all(|(code, _)| symbolizer.has_final_name(*code, process, *time_ns)) {
                awaited.stacks.insert(stack);
                awaited.processes.insert(process.key);
            }
        }
        awaited
    }

    /// Adds the deferred samples except those of the awaited stacks. Returns the ticks of those whose process is unknown by
    /// now.
    pub(in crate::session) fn add_deferred(
        &mut self,
        symbolizer: &mut Symbolizer,
        processes: &ProcessTable,
        awaited: &AwaitedStacks,
    ) -> Ticks {
        let stacks = std::mem::take(&mut self.deferred_stacks);
        let tids = self.tids();
        let mut symbolized = HashMap::<SymbolizedStack, StackId>::new();
        let mut lost = Ticks::default();
        for sample in std::mem::take(&mut self.deferred_samples) {
            let DeferredSample { time_ns, thread, stack: index, weight, cpu, waited } = sample;
            let deferred = &stacks[index as usize];
            let Some(process) = processes.get(deferred.process) else {
                lost.add(waited, weight);
                continue;
            };
            let key = (index, symbolizer.jit_epoch(process, time_ns));
            if awaited.stacks.contains(&key) {
                self.deferred_samples.push(sample);
                continue;
            }
            let tid = tids.get(&thread);
            let compiled = tid.and_then(|tid| symbolizer.compiled_method(process, *tid, time_ns));
            let key = (key, compiled);
            let stack = match symbolized.get(&key) {
                Some(stack) => *stack,
                None => {
                    let (stacks, method) = (&deferred.stacks, key.1.as_deref());
                    let found = self.symbolize(symbolizer, process, time_ns, stacks, false, method);
                    let Some(stack) = found else { continue };
                    symbolized.insert(key, stack);
                    stack
                }
            };
            let (event, value) = (EventId::FIRST, weight.into());
            self.push(Sample { time_ns, cpu: cpu.into(), thread, stack, event, state: waited, value });
        }
        self.deferred_stacks = stacks;
        lost
    }

    fn tids(&self) -> HashMap<ThreadId, u32> {
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
