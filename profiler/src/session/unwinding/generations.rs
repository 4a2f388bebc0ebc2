//! A map that drops what was not used for a while.

use std::{
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

/// The duration of a generation.
const GENERATION: Duration = Duration::from_secs(60);

/// The most entries of a generation, which ends early when there are more.
const MAX_ENTRIES: usize = 32 * 1024;

/// A map whose entries are dropped at the end of the first generation in which they were neither inserted nor looked up.
#[derive(Debug)]
pub(super) struct Generations<K, V> {
    current: HashMap<K, V>,
    previous: HashMap<K, V>,
    began: Instant,
}

impl<K: Copy + Eq + Hash, V: Copy> Generations<K, V> {
    pub(super) fn new(now: Instant) -> Self {
        Self { current: HashMap::new(), previous: HashMap::new(), began: now }
    }

    /// The value of a key, which is in use then.
    pub(super) fn get(&mut self, key: K) -> Option<V> {
        if let Some(value) = self.previous.remove(&key) {
            self.current.insert(key, value);
        }
        self.current.get(&key).copied()
    }

    /// Sets the value of a key. Begins a new generation when it is time.
    pub(super) fn insert(&mut self, key: K, value: V, now: Instant) {
        if now.saturating_duration_since(self.began) >= GENERATION || self.current.len() >= MAX_ENTRIES {
            self.previous = std::mem::take(&mut self.current);
            self.began = now;
        }
        self.previous.remove(&key);
        self.current.insert(key, value);
    }

    /// Drops the entries whose value is not to be kept.
    pub(super) fn retain(&mut self, keeps: impl Fn(V) -> bool) {
        self.current.retain(|_, value| keeps(*value));
        self.previous.retain(|_, value| keeps(*value));
    }

    #[cfg(test)]
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.current.values_mut().chain(self.previous.values_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_dropped_when_it_was_not_used_for_a_generation() {
        let begin = Instant::now();
        let after = |generations: u32| begin + GENERATION * generations;
        let mut map = Generations::new(begin);
        map.insert(1, "used", begin);
        map.insert(2, "unused", begin);
        map.insert(3, "new", after(1));
        assert_eq!(map.get(1), Some("used"));
        map.insert(4, "newest", after(2));
        assert_eq!([1, 2, 3, 4].map(|key| map.get(key)), [Some("used"), None, Some("new"), Some("newest")]);
    }

    #[test]
    fn the_number_of_entries_is_bounded() {
        let now = Instant::now();
        let mut map = Generations::new(now);
        for key in 0..10 * MAX_ENTRIES {
            map.insert(key, (), now);
            assert!(map.current.len() + map.previous.len() <= 2 * MAX_ENTRIES);
        }
        assert_eq!((map.get(0), map.get(10 * MAX_ENTRIES - 1)), (None, Some(())));
    }

    #[test]
    fn entries_of_both_generations_are_dropped_by_their_value() {
        let begin = Instant::now();
        let mut map = Generations::new(begin);
        map.insert(1, 10, begin);
        map.insert(2, 20, begin + GENERATION);
        map.insert(3, 30, begin + GENERATION);
        map.retain(|value| value == 30);
        assert_eq!([1, 2, 3].map(|key| map.get(key)), [None, None, Some(30)]);
    }
}
