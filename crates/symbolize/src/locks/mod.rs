//! Reads the owners of locks that threads wait for, in the memory of their processes.
//!
//! .NET runtimes describe their monitors. A mutex of the GNU C library has the id of its owner, and the system call of a thread that
//! waits for it has its address. Neither process does anything for it.

mod mutexes;

use std::sync::Arc;

use profiler_addresses::MonotonicTime;
use profiler_processes::{Process, ProcessKey, Tid, monotonic_time};
use profiler_profile::GcMode;

pub(crate) use self::mutexes::MutexReadings;
use profiler_dotnet_diagnostics::{EventThread, ThreadReader};

/// The locks of a process at a time.
#[derive(Clone, Debug)]
pub struct ProcessLocks {
    /// The process, which is in the process table.
    pub process: ProcessKey,
    /// When they were read.
    pub time: MonotonicTime,
    /// The locks that threads waited for and whose owners are known.
    pub locks: Vec<ObservedLock>,
    /// The owners of those of a .NET runtime, 16 at most.
    pub managed_threads: Vec<ObservedThread>,
}

/// A lock that a thread held and others waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedLock {
    /// What identifies it in its process: the `LockID` of a .NET runtime's events, or the address of a mutex.
    pub lock: u64,
    /// The thread that held it: its id in the profiler's pid namespace, and its name.
    pub owner: (Tid, Arc<str>),
    /// `Thread.ManagedThreadId` of the owner; 0 for a mutex.
    pub managed_thread_id: u32,
    /// The number of threads that waited for it.
    pub waiters: u32,
}

/// A managed thread that owned a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedThread {
    /// Its id in the profiler's pid namespace, and the name that the kernel has.
    pub thread: (Tid, Arc<str>),
    /// `Thread.ManagedThreadId`.
    pub managed_id: u32,
    /// `Thread.Name`, its first 256 characters; `None` for a thread without a name.
    pub name: Option<String>,
    /// The type of the exception that the thread threw, or handled in a `catch` or `finally`: its first 256 characters.
    pub exception: Option<String>,
    /// Whether a garbage collection waited for the thread.
    pub gc_mode: GcMode,
}

/// The locks of a process that threads wait for, and the managed threads that own them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AwaitedLocks {
    pub(crate) locks: Vec<AwaitedLock>,
    pub(crate) owners: Vec<ManagedOwner>,
}

/// A managed thread that owns a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ManagedOwner {
    /// Its id in the pid namespace of the process.
    pub(crate) os_id: u32,
    pub(crate) managed_id: u32,
    pub(crate) name: Option<String>,
    pub(crate) exception: Option<String>,
    pub(crate) gc_mode: GcMode,
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

/// Managed threads of one process in one reading.
const MAX_MANAGED_OWNERS: usize = 16;

/// The longest name of a thread or of the type of an exception. Longer ones are cut off: the process determines them.
const MAX_NAME_CHARS: usize = 256;

/// The first characters of a name.
fn shortened(mut name: String) -> String {
    if let Some((end, _)) = name.char_indices().nth(MAX_NAME_CHARS) {
        name.truncate(end);
    }
    name
}

/// What the readings of one process keep.
#[derive(Debug, Default)]
pub(crate) struct LockReadings {
    /// The time of the last one.
    pub(crate) last_reading: MonotonicTime,
    threads: Option<ThreadReader>,
}

impl LockReadings {
    /// The locks of a reading that ends now.
    pub(crate) fn end(&mut self, process: &Process, awaited: AwaitedLocks) -> ProcessLocks {
        self.last_reading = monotonic_time();
        let (locks, managed_threads) = self.with_owners(process, awaited);
        ProcessLocks { process: process.key, time: self.last_reading, locks, managed_threads }
    }

    /// The locks whose owners exist, and these. The ids of a hostile process are any.
    fn with_owners(
        &mut self,
        process: &Process,
        awaited: AwaitedLocks,
    ) -> (Vec<ObservedLock>, Vec<ObservedThread>) {
        let AwaitedLocks { locks, owners: managed } = awaited;
        let threads = self.threads.get_or_insert_with(|| {
            let identity = process.identity.as_deref();
            let namespace_pid = identity.map_or(process.pid.0, |identity| identity.status.innermost_pid);
            ThreadReader::new(process.pid, namespace_pid)
        });
        let owners = threads.look_up(locks.iter().map(|lock| lock.owner_id.into()).collect());
        let thread_of = |id: u32| {
            let EventThread { tid, comm } = owners.get(&id.into())?;
            // Without a name, the process has no such thread.
            (!comm.is_empty()).then(|| (*tid, Arc::clone(comm)))
        };
        let observed_lock = |lock: &AwaitedLock| {
            Some(ObservedLock {
                lock: lock.lock,
                owner: thread_of(lock.owner_id)?,
                managed_thread_id: lock.managed_thread_id,
                waiters: lock.waiters,
            })
        };
        let observed_thread = |owner: ManagedOwner| {
            Some(ObservedThread {
                thread: thread_of(owner.os_id)?,
                managed_id: owner.managed_id,
                name: owner.name.map(shortened),
                exception: owner.exception.map(shortened),
                gc_mode: owner.gc_mode,
            })
        };
        let locks: Vec<_> = locks.iter().filter_map(observed_lock).collect();
        let managed = managed.into_iter().filter_map(observed_thread).take(MAX_MANAGED_OWNERS);
        (locks, managed.collect())
    }
}

#[cfg(test)]
mod tests {
    use profiler_processes::{Pid, ProcFs, ProcessFilter, ProcessTable};

    use super::*;

    #[test]
    fn a_lock_without_a_thread_of_its_process_is_left_out() {
        let proc = Arc::new(ProcFs::live());
        let mut table = ProcessTable::new(proc, ProcessFilter::All);
        let pid = Pid::own();
        let key = table.prefetch(pid);
        let thread = std::thread::Builder::new().name("lock-owner".to_owned()).spawn(move || {
            let own = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
            let lock = |owner_id| AwaitedLock { lock: 0x1000, owner_id, managed_thread_id: 4, waiters: 2 };
            // The process 1 is no thread of this one.
            let ids = [1, own, u32::MAX];
            let owners = ids.map(|id| owner(id, "price computation")).to_vec();
            let awaited = AwaitedLocks { locks: ids.map(lock).to_vec(), owners };
            let process = table.get(key).unwrap();
            (own, LockReadings::default().with_owners(process, awaited))
        });
        let (own, (locks, threads)) = thread.unwrap().join().unwrap();
        let owner = (Tid(own), Arc::from("lock-owner"));
        let thread = ObservedThread {
            thread: owner.clone(),
            managed_id: 4,
            name: Some("price computation".to_owned()),
            exception: None,
            gc_mode: GcMode::Cooperative,
        };
        assert_eq!(locks, [ObservedLock { lock: 0x1000, owner, managed_thread_id: 4, waiters: 2 }]);
        assert_eq!(threads, [thread]);
    }

    fn owner(os_id: u32, name: &str) -> ManagedOwner {
        let name = Some(name.to_owned());
        ManagedOwner { os_id, managed_id: 4, name, exception: None, gc_mode: GcMode::Cooperative }
    }

    #[test]
    fn managed_owners_and_their_names_are_bounded() {
        let proc = Arc::new(ProcFs::live());
        let mut table = ProcessTable::new(proc, ProcessFilter::All);
        let key = table.prefetch(Pid::own());
        let own = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let long = "\u{e9}".repeat(10_000);
        let exception = Some(long.clone());
        let owners = vec![ManagedOwner { exception, ..owner(own, &long) }; 100];
        let awaited = AwaitedLocks { locks: Vec::new(), owners };
        // The id is looked up with those of the locks.
        let lock = AwaitedLock { lock: 0x1000, owner_id: own, managed_thread_id: 4, waiters: 1 };
        let awaited = AwaitedLocks { locks: vec![lock], ..awaited };
        let (_, threads) = LockReadings::default().with_owners(table.get(key).unwrap(), awaited);
        assert_eq!(threads.len(), MAX_MANAGED_OWNERS);
        for text in threads.iter().flat_map(|thread| [&thread.name, &thread.exception]) {
            assert_eq!(text.as_deref(), Some(&*"\u{e9}".repeat(MAX_NAME_CHARS)));
        }
    }
}
