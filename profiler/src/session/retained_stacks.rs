//! The stacks that the BPF programs sent, by id, bounded in bytes.
//!
//! A stack is sent once, and samples name it by its id from then on. There are two generations: a stack that is used
//! moves into the recent one. When that is full, the older one is evicted, and removed from the kernel's set of sent
//! stacks, so that a stack that comes again is sent again.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use profiler_addresses::MonotonicTime;
use profiler_processes::monotonic_time;
use profiler_sampler::{RawStack, RawStackId};

/// The bytes of one generation.
const MAX_GENERATION_BYTES: usize = 8 << 20;

/// What a hash table needs for an entry, besides the stack itself.
const ENTRY_BYTES: usize = 64;

type Generation = HashMap<RawStackId, Arc<RawStack>>;

/// Removes stacks from the kernel's set of those that user space has.
pub(super) type ForgetStack = Box<dyn Fn(RawStackId) + Send>;

/// The stacks of a session.
#[derive(Default)]
pub(super) struct RetainedStacks {
    recent: Generation,
    recent_bytes: usize,
    older: Generation,
    /// Evicted generations, each with the time from which on the kernel sends its stacks again: samples from before
    /// still name them.
    evicted: VecDeque<(MonotonicTime, Generation)>,
    /// Without it, nothing is evicted: a capture has each stack once.
    forget: Option<ForgetStack>,
}

impl RetainedStacks {
    /// No stacks. Without `forget`, none is evicted.
    pub(super) fn new(forget: Option<ForgetStack>) -> Self {
        Self { forget, ..Self::default() }
    }

    /// Adds a stack.
    pub(super) fn insert(&mut self, stack: RawStack) {
        let (id, bytes) = (stack.id, stack_bytes(&stack));
        if self.recent.insert(id, Arc::new(stack)).is_none() {
            self.grow(bytes);
        }
    }

    /// The stack with an id.
    pub(super) fn get(&mut self, id: RawStackId) -> Option<Arc<RawStack>> {
        if let Some(stack) = self.recent.get(&id) {
            return Some(Arc::clone(stack));
        }
        if let Some(stack) = self.older.remove(&id) {
            let bytes = stack_bytes(&stack);
            self.recent.insert(id, Arc::clone(&stack));
            self.grow(bytes);
            return Some(stack);
        }
        self.evicted.iter().rev().find_map(|(_, generation)| generation.get(&id)).cloned()
    }

    /// Drops evicted stacks that no later sample names: all samples from before `watermark` have been added.
    pub(super) fn advance(&mut self, watermark: MonotonicTime) {
        let count = self.evicted.partition_point(|(evicted, _)| *evicted < watermark);
        self.evicted.drain(..count);
    }

    /// Evicts all stacks.
    pub(super) fn evict(&mut self) {
        let Some(forget) = &self.forget else { return };
        for generation in [std::mem::take(&mut self.older), std::mem::take(&mut self.recent)] {
            generation.keys().for_each(|id| forget(*id));
            self.evicted.push_back((monotonic_time(), generation));
        }
        self.recent_bytes = 0;
    }

    fn grow(&mut self, bytes: usize) {
        self.recent_bytes += bytes;
        let Some(forget) = self.forget.as_ref().filter(|_| self.recent_bytes > MAX_GENERATION_BYTES) else {
            return;
        };
        self.older.keys().for_each(|id| forget(*id));
        self.recent_bytes = 0;
        let evicted = std::mem::replace(&mut self.older, std::mem::take(&mut self.recent));
        self.evicted.push_back((monotonic_time(), evicted));
    }
}

fn stack_bytes(stack: &RawStack) -> usize {
    size_of::<RawStack>() + ENTRY_BYTES + size_of_val(stack.addresses.as_slice())
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashSet,
        num::NonZeroU64,
        sync::{Mutex, MutexGuard},
    };

    use super::*;

    /// What the BPF program does: it sends each stack that it did not send yet.
    #[derive(Default)]
    struct Kernel {
        sent: Arc<Mutex<HashSet<RawStackId>>>,
    }

    impl Kernel {
        fn sent(&self) -> MutexGuard<'_, HashSet<RawStackId>> {
            self.sent.lock().unwrap()
        }

        fn sample(&self, stacks: &mut RetainedStacks, number: u64) -> RawStackId {
            let id = NonZeroU64::new(number);
            if self.sent().insert(id) {
                stacks.insert(RawStack { id, addresses: vec![number; 100], ..RawStack::default() });
            }
            id
        }

        fn stacks(&self) -> RetainedStacks {
            let sent = Arc::clone(&self.sent);
            RetainedStacks::new(Some(Box::new(move |id| {
                sent.lock().unwrap().remove(&id);
            })))
        }
    }

    fn bytes(stacks: &RetainedStacks) -> usize {
        let generations = [&stacks.recent, &stacks.older];
        generations
            .into_iter()
            .chain(stacks.evicted.iter().map(|(_, evicted)| evicted))
            .map(|generation| generation.values().map(|stack| stack_bytes(stack)).sum::<usize>())
            .sum()
    }

    #[test]
    fn two_hundred_thousand_stacks_take_bounded_memory_and_none_is_missing() {
        let kernel = Kernel::default();
        let mut stacks = kernel.stacks();
        for number in 1..200_000 {
            for sampled in [number, number / 2 + 1, 1] {
                let id = kernel.sample(&mut stacks, sampled);
                assert_eq!(stacks.get(id).unwrap().addresses[0], sampled);
            }
            stacks.advance(monotonic_time());
            assert!(number % 1_000 != 0 || bytes(&stacks) <= 3 * MAX_GENERATION_BYTES);
        }
        assert!(kernel.sent().len() < 50_000);
    }

    #[test]
    fn an_evicted_stack_is_there_for_samples_from_before() {
        let kernel = Kernel::default();
        let mut stacks = kernel.stacks();
        let id = kernel.sample(&mut stacks, 1);
        let mut number = 2;
        while kernel.sent().contains(&id) {
            kernel.sample(&mut stacks, number);
            number += 1;
        }
        let evicted = stacks.evicted.back().unwrap().0;
        stacks.advance(evicted);
        assert!(stacks.get(id).is_some());
        stacks.advance(MonotonicTime(evicted.0 + 1));
        assert!(stacks.get(id).is_none());
    }

    #[test]
    fn all_stacks_are_evicted_on_request_and_sent_again() {
        let kernel = Kernel::default();
        let mut stacks = kernel.stacks();
        let ids = [1, 2, 3].map(|number| kernel.sample(&mut stacks, number));
        stacks.evict();
        assert!(kernel.sent().is_empty());
        assert!(ids.iter().all(|id| stacks.get(*id).is_some()), "samples from before still name them");
        stacks.advance(MonotonicTime::MAX);
        assert_eq!(bytes(&stacks), 0);
        kernel.sample(&mut stacks, 2);
        assert_eq!(stacks.get(ids[1]).unwrap().addresses[0], 2);
    }

    #[test]
    fn nothing_is_evicted_where_stacks_do_not_come_again() {
        let mut stacks = RetainedStacks::default();
        for number in 1..30_000 {
            let id = NonZeroU64::new(number);
            stacks.insert(RawStack { id, addresses: vec![number; 100], ..RawStack::default() });
        }
        assert!(stacks.get(NonZeroU64::new(1)).is_some());
    }
}
