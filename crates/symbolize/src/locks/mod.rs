//! Reads the owners of locks that threads wait for, in the memory of their processes.
//!
//! .NET runtimes describe their monitors. A mutex of the GNU C library has the id of its owner, and the system call of a thread that
//! waits for it has its address. Neither process does anything for it.

mod mutexes;

use std::sync::Arc;

use profiler_processes::monotonic_ns;
use profiler_processes::{Process, ProcessKey};

pub(crate) use self::mutexes::MutexReadings;
use crate::diagnostics::{EventThread, ThreadReader};

/// The locks of a process at a time.
#[derive(Clone, Debug)]
pub struct ProcessLocks {
    /// The process, which is in the process table.
    pub process: ProcessKey,
    /// `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// The locks that threads waited for and whose owners are known.
    pub locks: Vec<ObservedLock>,
}

/// A lock that a thread held and others waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedLock {
    /// What identifies it in its process: the `LockID` of a .NET runtime's events, or the address of a mutex.
    pub lock: u64,
    /// The thread that held it: its id in the profiler's pid namespace, and its name.
    pub owner: (u32, Arc<str>),
    /// `Thread.ManagedThreadId` of the owner; 0 for a mutex.
    pub managed_thread_id: u32,
    /// The number of threads that waited for it.
    pub waiters: u32,
}

/// A lock that a thread holds and others wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AwaitedLock {
    /// What identifies it in its process.
    pub(crate) lock: u64,
    /// The id of its owner in the pid namespace of the process.
    pub(crate) owner_id: u32,
    pub(crate) managed_thread_id: u32,
    pub(crate) waiters: u32,
}

/// What the readings of one process keep.
#[derive(Debug, Default)]
pub(crate) struct LockReadings {
    /// The time of the last one, `CLOCK_MONOTONIC`.
    pub(crate) last_ns: u64,
    threads: Option<ThreadReader>,
}

impl LockReadings {
    /// The locks of a reading that ends now.
    pub(crate) fn end(&mut self, process: &Process, locks: &[AwaitedLock]) -> ProcessLocks {
        self.last_ns = monotonic_ns();
        let locks = self.with_owners(process, locks);
        ProcessLocks { process: process.key, time_ns: self.last_ns, locks }
    }

    /// The locks whose owners exist. The ids of a hostile process are any.
    fn with_owners(&mut self, process: &Process, locks: &[AwaitedLock]) -> Vec<ObservedLock> {
        let threads = self.threads.get_or_insert_with(|| {
            let identity = process.identity.as_deref();
            let namespace_pid = identity.map_or(process.pid, |identity| identity.status.innermost_pid);
            ThreadReader::new(process.pid, namespace_pid)
        });
        let owners = threads.look_up(locks.iter().map(|lock| lock.owner_id.into()).collect());
        let observed = |lock: &AwaitedLock| {
            let EventThread { tid, comm } = owners.get(&lock.owner_id.into())?;
            // Without a name, the process has no such thread.
            (!comm.is_empty()).then(|| ObservedLock {
                lock: lock.lock,
                owner: (*tid, Arc::clone(comm)),
                managed_thread_id: lock.managed_thread_id,
                waiters: lock.waiters,
            })
        };
        locks.iter().filter_map(observed).collect()
    }
}

#[cfg(test)]
mod tests {
    use profiler_processes::{ProcFs, ProcessFilter, ProcessTable};

    use super::*;

    #[test]
    fn a_lock_without_a_thread_of_its_process_is_left_out() {
        let proc = Arc::new(ProcFs::live());
        let mut table = ProcessTable::new(proc, ProcessFilter::All);
        let pid = std::process::id();
        let key = table.prefetch(pid);
        let thread = std::thread::Builder::new().name("lock-owner".to_owned()).spawn(move || {
            let own = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
            let lock = |owner_id| AwaitedLock { lock: 0x1000, owner_id, managed_thread_id: 4, waiters: 2 };
            // The process 1 is no thread of this one.
            let locks = [lock(1), lock(own), lock(u32::MAX)];
            let process = table.get(key).unwrap();
            (own, LockReadings::default().with_owners(process, &locks))
        });
        let (own, observed) = thread.unwrap().join().unwrap();
        let owner = (own, Arc::from("lock-owner"));
        assert_eq!(observed, [ObservedLock { lock: 0x1000, owner, managed_thread_id: 4, waiters: 2 }]);
    }
}
