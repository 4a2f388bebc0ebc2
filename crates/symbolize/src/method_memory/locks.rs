//! Reads the owners of locks that threads wait for, in the memory of .NET runtimes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use profiler_processes::{ProcFs, Process, ProcessKey, ProcessTable};

use super::{AwaitedLock, MethodMemory};
use crate::{
    Symbolizer,
    diagnostics::{EventThread, ThreadReader, monotonic_ns},
};

/// Time for the locks of all runtimes in one reading. The runtimes that are left are the first ones in the next reading.
const MAX_READ_TIME: Duration = Duration::from_millis(50);

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
    /// What identifies it in its process: the `LockID` of the runtime's events.
    pub lock: u64,
    /// The thread that held it: its id in the profiler's pid namespace, and its name.
    pub owner: (u32, Arc<str>),
    /// `Thread.ManagedThreadId` of the owner.
    pub managed_thread_id: u32,
    /// The number of threads that waited for it.
    pub waiters: u32,
}

/// What the readings of one process keep.
#[derive(Debug, Default)]
pub(super) struct LockReadings {
    /// The time of the last one, `CLOCK_MONOTONIC`.
    last_ns: u64,
    threads: Option<ThreadReader>,
}

impl Symbolizer {
    /// Reads the locks of the .NET runtimes whose code was sampled, with the feature `dotnet-memory`. Runtimes before .NET 9 do not
    /// describe them.
    pub fn read_lock_owners(&mut self, processes: &ProcessTable) -> Vec<ProcessLocks> {
        let deadline = Instant::now() + MAX_READ_TIME;
        let with_memory = self.jit.iter_mut().filter_map(|(key, names)| {
            let memory = names.dotnet_memory()?;
            Some((processes.get(*key)?, memory))
        });
        let mut awaited: Vec<_> = with_memory.collect();
        awaited.sort_by_key(|(_, memory)| memory.lock_readings.last_ns);
        let mut read = Vec::new();
        for (process, memory) in awaited {
            if Instant::now() >= deadline {
                break;
            }
            memory.find_runtime(&mut self.modules, process);
            if memory.reader.is_usable() {
                let locks = memory.read_locks(&self.proc, process);
                let time_ns = memory.lock_readings.last_ns;
                read.push(ProcessLocks { process: process.key, time_ns, locks });
            }
        }
        read.retain(|process| !process.locks.is_empty());
        read
    }
}

impl MethodMemory {
    fn read_locks(&mut self, proc: &ProcFs, process: &Process) -> Vec<ObservedLock> {
        let locks = self.reader.find_locks(proc, process);
        self.lock_readings.last_ns = monotonic_ns();
        self.lock_readings.with_owners(process, &locks)
    }
}

impl LockReadings {
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
    use profiler_processes::ProcessFilter;

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
