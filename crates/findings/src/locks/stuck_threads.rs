//! Threads that wait for locks that are not released.

use super::owner::Owners;

/// A thread that waits for a lock until the end.
pub(crate) struct LockWait<'a> {
    pub(crate) tid: u32,
    /// The method of the application that takes the lock.
    pub(crate) method: Option<&'a str>,
    pub(crate) value: u64,
    pub(crate) waited_ns: u64,
}

/// The threads of a process that wait for locks that are not released.
pub(crate) struct StuckThreads<'a> {
    pub(crate) threads: Vec<LockWait<'a>>,
    pub(crate) owners: Owners<'a>,
}

impl StuckThreads<'_> {
    /// Whether threads wait in this method.
    pub(crate) fn has_method(&self, method: Option<&str>) -> bool {
        self.threads.iter().any(|wait| wait.method == method)
    }

    /// Whether no thread that could own the locks proceeds.
    pub(crate) fn is_deadlock(&self) -> bool {
        self.owners.is_empty()
    }

    /// The time for which all of the threads have waited.
    pub(crate) fn shortest_ns(&self) -> u64 {
        shortest_ns(&self.threads)
    }
}

/// The time for which all of these threads have waited.
pub(super) fn shortest_ns(waits: &[LockWait<'_>]) -> u64 {
    waits.iter().map(|wait| wait.waited_ns).min().unwrap_or_default()
}
