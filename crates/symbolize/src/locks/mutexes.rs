//! Reads the owners of mutexes of the GNU C library that threads wait for: `pthread_mutex_t`, `mtx_t` and `std::mutex`.
//!
//! A thread that waits for a mutex is in futex(2) with the address of `__lock`, the first word of the mutex. The other words say
//! which thread has it (`sysdeps/nptl/bits/struct_mutex.h` and `nptl/pthread_mutex_lock.c` of glibc). Other locks wait for futexes
//! with other values, or have other words behind them.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    fs::File,
    os::unix::fs::FileExt,
    time::{Duration, Instant},
};

use profiler_addresses::MonotonicTime;
use profiler_blocking::Object;
use profiler_processes::{FutexWait, Pid, ProcFs, Process, ProcessKey, ProcessTable, monotonic_time};

use super::{AwaitedLock, AwaitedLocks, LockReadings, ProcessLocks};

/// Threads of a process that is read.
const MAX_THREADS: usize = 1024;

/// CPU time of the files of one thread, and of those of a process, with Linux 6.18 in a virtual machine.
const THREAD_US: usize = 20;
const PROCESS_US: usize = 10;

/// CPU time of one reading. The processes that are left are the first ones in the next reading. It is estimated: on a busy machine,
/// measured times are those of other programs.
const MAX_READ_US: usize = PROCESS_US + MAX_THREADS * THREAD_US;

/// The time after which no process is read in a reading, and that for the threads of one process.
const MAX_READ_TIME: Duration = Duration::from_millis(200);

/// Mutexes of one process in one reading: those for which most threads wait.
const MAX_MUTEXES: usize = 64;

/// The least time between two readings of a process in which no thread waited for a mutex. Then, those of most processes take half
/// the time, and those of pools with a thousand threads a fifth.
const PAUSE_WITHOUT_MUTEX: Duration = Duration::from_millis(1900);

/// The same for each thread.
const PAUSE_WITHOUT_MUTEX_A_THREAD: Duration = Duration::from_millis(5);

/// The bytes of a `pthread_mutex_t`.
const MUTEX_BYTES: usize = 40;

/// Commands of futex(2) (linux/futex.h).
const FUTEX_WAIT: u32 = 0;
const FUTEX_LOCK_PI: u32 = 6;
const FUTEX_LOCK_PI2: u32 = 13;

/// A futex that has the id of its owner has this bit while threads wait, and the id in the bits of the mask.
const FUTEX_WAITERS: u32 = 0x8000_0000;
const FUTEX_TID_MASK: u32 = 0x3fff_ffff;

/// The value of `__lock` while threads wait for a mutex that is neither robust nor inherits priorities. 1 is one without.
const LOCKED_WITH_WAITERS: u32 = 2;

/// Bits of `__kind` (`nptl/pthreadP.h`).
const KIND_ROBUST: u32 = 16;
const KIND_INHERITS_PRIORITY: u32 = 32;
/// The type, whether processes share it, and what says whether to elide it.
const KIND_OTHERS: u32 = 3 | 128 | 256 | 512;

/// How a mutex uses its futex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Protocol {
    /// 0, 1 or 2.
    Counted,
    /// The id of the owner.
    Robust,
    /// The id of the owner, which the kernel sets.
    InheritsPriority,
}

/// The readings of all processes.
#[derive(Debug, Default)]
pub(crate) struct MutexReadings(HashMap<ProcessKey, ProcessReadings>);

/// The readings of a process.
#[derive(Debug, Default)]
struct ProcessReadings {
    readings: LockReadings,
    /// The time of the next one.
    next_reading: MonotonicTime,
}

impl MutexReadings {
    /// Reads the mutexes that threads wait for in the processes that run: in those of `waiting` alone, where it is known which may have
    /// such threads. A process with more than 1,024 threads is not read. Readings of one process are at least a second apart where
    /// the calls are.
    pub(crate) fn read(
        &mut self,
        proc: &ProcFs,
        processes: &ProcessTable,
        waiting: Option<&HashSet<Pid>>,
    ) -> Vec<ProcessLocks> {
        let now = monotonic_time();
        let deadline = Instant::now() + MAX_READ_TIME;
        let is_due = |process: &&Process| {
            let last = self.0.get(&process.key);
            let may_wait = waiting.is_none_or(|waiting| waiting.contains(&process.pid));
            may_wait && is_user_process(process) && last.is_none_or(|last| last.next_reading <= now)
        };
        let mut due: Vec<_> = processes.living().filter(is_due).collect();
        due.sort_by_key(|process| self.0.get(&process.key).map(|last| last.readings.last_reading));
        let (mut read, mut left_us) = (Vec::new(), MAX_READ_US);
        for process in due {
            // A thread waits for the mutex of another one.
            let is_readable = |threads: &usize| (2..=MAX_THREADS).contains(threads);
            let threads = proc.thread_count(process.pid).ok().filter(is_readable);
            let cost_us = PROCESS_US + threads.unwrap_or(0) * THREAD_US;
            if cost_us > left_us || Instant::now() >= deadline {
                break;
            }
            left_us -= cost_us;
            let readings = self.0.entry(process.key).or_default();
            match threads {
                Some(threads) => read.extend(readings.read(proc, process, threads)),
                None => readings.postpone(now, 0),
            }
        }
        read
    }

    /// Forgets the processes that ended.
    pub(crate) fn retain(&mut self, is_retained: impl Fn(ProcessKey) -> bool) {
        self.0.retain(|process, _| is_retained(*process));
    }
}

impl ProcessReadings {
    fn read(&mut self, proc: &ProcFs, process: &Process, threads: usize) -> Option<ProcessLocks> {
        let awaited = awaited_mutexes(proc, process).unwrap_or_else(|error| {
            log::debug!("the mutexes of process {} are not read: {error}", process.pid);
            Vec::new()
        });
        let has_none = awaited.is_empty();
        let awaited = AwaitedLocks { locks: awaited, owners: Vec::new() };
        let locks = self.readings.end(process, awaited);
        if has_none {
            self.postpone(locks.time, threads);
        }
        (!locks.locks.is_empty()).then_some(locks)
    }

    /// Leaves a process with so many threads out of readings for a while after a time.
    fn postpone(&mut self, time: MonotonicTime, threads: usize) {
        let pause = PAUSE_WITHOUT_MUTEX.max(PAUSE_WITHOUT_MUTEX_A_THREAD * threads.min(MAX_THREADS) as u32);
        self.readings.last_reading = time;
        self.next_reading = time.saturating_add(pause);
    }
}

fn is_user_process(process: &Process) -> bool {
    process.identity.as_ref().is_some_and(|identity| !identity.status.kernel_thread)
}

/// The mutexes that threads of a process wait for, and their owners.
fn awaited_mutexes(proc: &ProcFs, process: &Process) -> std::io::Result<Vec<AwaitedLock>> {
    let waits = proc.futex_waits(process, MAX_THREADS, MAX_READ_TIME)?;
    let futexes = futexes_of_mutexes(&waits);
    if futexes.is_empty() {
        return Ok(Vec::new());
    }
    let memory = proc.open_memory(process)?;
    // The memory can be that of a file in user space.
    profiler_blocking::run(Object::process(process.pid.0), move || {
        Ok(futexes.iter().filter_map(|futex| read_mutex(&memory, futex)).collect())
    })
}

/// A futex that can be that of a mutex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MutexFutex {
    address: u64,
    protocol: Protocol,
    waiters: u32,
}

/// The futexes of these waits that can be those of mutexes, [`MAX_MUTEXES`] at most, those with most waiting threads first.
fn futexes_of_mutexes(waits: &[FutexWait]) -> Vec<MutexFutex> {
    let mut waiters = HashMap::<(u64, Protocol), u32>::new();
    for wait in waits {
        if let Some(protocol) = protocol_of_wait(wait) {
            *waiters.entry((wait.address.0, protocol)).or_default() += 1;
        }
    }
    let futexes = waiters.into_iter();
    let mut futexes: Vec<_> =
        futexes.map(|((address, protocol), waiters)| MutexFutex { address, protocol, waiters }).collect();
    futexes.sort_by_key(|futex| (Reverse(futex.waiters), futex.address));
    futexes.truncate(MAX_MUTEXES);
    futexes
}

/// What a mutex is like for which a thread waits in this way; `None` if it does not wait for a mutex. Waits with a timeout have
/// another command (`FUTEX_WAIT_BITSET`): they end.
fn protocol_of_wait(wait: &FutexWait) -> Option<Protocol> {
    match (wait.command, wait.value) {
        (FUTEX_WAIT, LOCKED_WITH_WAITERS) => Some(Protocol::Counted),
        (FUTEX_WAIT, value) if value & FUTEX_WAITERS != 0 => Some(Protocol::Robust),
        (FUTEX_LOCK_PI | FUTEX_LOCK_PI2, _) => Some(Protocol::InheritsPriority),
        _ => None,
    }
}

fn read_mutex(memory: &File, futex: &MutexFutex) -> Option<AwaitedLock> {
    let mut mutex = [0; MUTEX_BYTES];
    memory.read_exact_at(&mut mutex, futex.address).ok()?;
    Some(AwaitedLock {
        lock: futex.address,
        owner_id: owner_of(&mutex, futex.protocol)?,
        managed_thread_id: 0,
        waiters: futex.waiters,
    })
}

/// The owner of a mutex with these bytes, as an id in the PID namespace of its process; `None` if they are not those of a mutex of
/// this protocol that a thread holds.
fn owner_of(mutex: &[u8; MUTEX_BYTES], protocol: Protocol) -> Option<u32> {
    let (words, _) = mutex.as_chunks::<4>();
    let words: Vec<_> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let [lock, _count, owner, users, kind, _spins, list @ ..] = &words[..] else { return None };
    let (has_users, is_in_list) = (*users > 0, list.iter().any(|word| *word != 0));
    let is_held = match protocol {
        Protocol::Counted => matches!(lock, 1 | 2) && !is_in_list,
        Protocol::Robust | Protocol::InheritsPriority => lock & FUTEX_TID_MASK == *owner,
    };
    let is_mutex = protocol_of_kind(*kind) == Some(protocol) && has_users && is_held;
    (is_mutex && *owner > 0).then_some(*owner)
}

fn protocol_of_kind(kind: u32) -> Option<Protocol> {
    match kind & !KIND_OTHERS {
        0 => Some(Protocol::Counted),
        KIND_ROBUST => Some(Protocol::Robust),
        bits if bits & !KIND_ROBUST == KIND_INHERITS_PRIORITY => Some(Protocol::InheritsPriority),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use profiler_addresses::RuntimeAddress;
    use profiler_processes::{ProcessFilter, Tid};

    use super::*;

    const OWNER: u32 = 0x709d;
    const LIST: u32 = 0x7390_0a20;

    /// A mutex with these values of `__lock`, `__owner`, `__nusers` and `__kind`, and of each word of `__list`.
    fn mutex([lock, owner, users, kind]: [u32; 4], list: u32) -> [u8; MUTEX_BYTES] {
        let mut bytes = [0; MUTEX_BYTES];
        for (index, word) in [lock, 0, owner, users, kind, 0, list, list, list, list].iter().enumerate() {
            bytes[index * 4..][..4].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn wait(address: u64, command: u32, value: u32) -> FutexWait {
        FutexWait { tid: Tid(7), address: RuntimeAddress(address), command, value }
    }

    #[test]
    fn a_held_mutex_of_each_kind_has_its_owner() {
        const ID: u32 = OWNER | FUTEX_WAITERS;
        // As glibc 2.36 leaves them: normal, recursive, errorcheck, adaptive, shared, not elided; robust; with priority
        // inheritance; both.
        let counted = [0, 1, 2, 3, 128, 512].map(|kind| (Protocol::Counted, [2, OWNER, 1, kind], 0));
        let others = [
            (Protocol::Counted, [1, OWNER, 1, 0], 0),
            (Protocol::Robust, [ID, OWNER, 1, 0x90], LIST),
            (Protocol::InheritsPriority, [ID, OWNER, 1, 0x20], 0),
            (Protocol::InheritsPriority, [ID, OWNER, 1, 0xb0], LIST),
        ];
        for (protocol, words, list) in counted.into_iter().chain(others) {
            assert_eq!(owner_of(&mutex(words, list), protocol), Some(OWNER), "{protocol:?} {words:x?}");
        }
    }

    #[test]
    fn words_that_are_not_those_of_a_held_mutex_have_no_owner() {
        const ID: u32 = OWNER | FUTEX_WAITERS;
        let cases = [
            ("released", Protocol::Counted, [0, 0, 0, 0], 0),
            ("without an owner yet", Protocol::Counted, [2, 0, 1, 0], 0),
            ("without users", Protocol::Counted, [2, OWNER, 0, 0], 0),
            ("another value", Protocol::Counted, [3, OWNER, 1, 0], 0),
            ("another kind", Protocol::Counted, [2, OWNER, 1, 0x400], 0),
            ("a ceiling of priorities", Protocol::Counted, [2, OWNER, 1, 64], 0),
            ("data behind the lock of another library", Protocol::Counted, [2, OWNER, 1, 0], LIST),
            ("another protocol", Protocol::Counted, [2, OWNER, 1, 0x20], 0),
            ("a new owner that has not returned", Protocol::InheritsPriority, [ID, OWNER + 1, 1, 0x20], 0),
            ("an owner that ended", Protocol::Robust, [FUTEX_WAITERS, 0, 1, 0x90], LIST),
        ];
        for (name, protocol, words, list) in cases {
            assert_eq!(owner_of(&mutex(words, list), protocol), None, "{name}");
        }
    }

    #[test]
    fn processes_without_a_wait_for_a_mutex_are_not_read() {
        let proc = Arc::new(ProcFs::live());
        let mut table = ProcessTable::new(Arc::clone(&proc), ProcessFilter::All);
        let own = table.prefetch(Pid::own());
        let is_read = |waiting: Option<HashSet<Pid>>| {
            let mut readings = MutexReadings::default();
            readings.read(&proc, &table, waiting.as_ref());
            readings.0.contains_key(&own)
        };
        assert!(is_read(None) && is_read(Some(HashSet::from([Pid::own()]))));
        assert!(!is_read(Some(HashSet::new())) && !is_read(Some(HashSet::from([Pid(1)]))));
    }

    #[test]
    fn threads_that_wait_for_one_mutex_are_counted() {
        const WAIT_BITSET: u32 = 9;
        let robust = wait(0x3000, FUTEX_WAIT, OWNER | FUTEX_WAITERS);
        let waits = [
            wait(0x1000, FUTEX_WAIT, 2),
            wait(0x2000, FUTEX_LOCK_PI, 0),
            wait(0x1000, FUTEX_WAIT, 2),
            robust,
            wait(0x2000, FUTEX_LOCK_PI2, 0),
            wait(0x1000, FUTEX_WAIT, 2),
            // A condition variable, a semaphore, a futex of Rust's standard library.
            wait(0x4000, WAIT_BITSET, 0),
            wait(0x5000, FUTEX_WAIT, 0),
            wait(0x6000, WAIT_BITSET, 2),
        ];
        let found = futexes_of_mutexes(&waits).into_iter();
        let found: Vec<_> = found.map(|futex| (futex.address, futex.protocol, futex.waiters)).collect();
        let expected = [
            (0x1000, Protocol::Counted, 3),
            (0x2000, Protocol::InheritsPriority, 2),
            (0x3000, Protocol::Robust, 1),
        ];
        assert_eq!(found, expected);
        let many: Vec<_> = (0..10_000).map(|number| wait(number * 64, FUTEX_WAIT, 2)).collect();
        assert_eq!(futexes_of_mutexes(&many).len(), MAX_MUTEXES);
    }
}
