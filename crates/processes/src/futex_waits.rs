//! Reads which futexes the threads of a process wait for, from `/proc/PID/task/TID/syscall` (proc_pid_syscall(5)).

use std::{
    io,
    path::PathBuf,
    time::{Duration, Instant},
};

use profiler_addresses::RuntimeAddress;
use profiler_blocking::Object;

use crate::{Pid, ProcFs, Process, Tid, procfs::Entries};

/// The number of the system call futex(2) on x86-64.
const FUTEX: u64 = 202;

/// The operation without `FUTEX_PRIVATE_FLAG` and `FUTEX_CLOCK_REALTIME` (linux/futex.h).
const COMMAND_MASK: u64 = !(128 | 256);

/// Bytes read of a `syscall`: nine numbers of at most 18 characters.
const MAX_SYSCALL_BYTES: u64 = 256;

/// A thread in the system call futex(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FutexWait {
    /// The id of the thread in the profiler's PID namespace.
    pub tid: Tid,
    /// The address of the futex in the memory of its process.
    pub address: RuntimeAddress,
    /// The operation, without its flags: 0 is `FUTEX_WAIT`, 6 `FUTEX_LOCK_PI` (linux/futex.h).
    pub command: u32,
    /// The third argument: with `FUTEX_WAIT`, the value for which the thread has begun to wait.
    pub value: u32,
}

impl ProcFs {
    /// The calls of futex(2) in which threads of a process sleep, in one reading of at most `max_time`.
    ///
    /// # Errors
    /// Those of reading; [`io::ErrorKind::NotFound`] when another process has the PID by now; [`io::ErrorKind::TimedOut`] when
    /// the threads were not read in time; [`io::ErrorKind::Unsupported`] while a capture is recorded or replayed, and of a process
    /// with more than `max_threads` threads.
    pub fn futex_waits(
        &self,
        process: &Process,
        max_threads: usize,
        max_time: Duration,
    ) -> io::Result<Vec<FutexWait>> {
        if self.has_capture() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if self.thread_count(process.pid)? > max_threads {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let (entries, pid) = (self.entries().clone(), process.pid);
        let deadline = Instant::now() + max_time;
        // The kernel waits for a lock of the process (exec_update_lock).
        let waits = profiler_blocking::run(Object::process(pid.0), move || {
            futex_waits(&entries, pid, max_threads, deadline)
        })?;
        self.check_is_running(process)?;
        Ok(waits)
    }
}

fn futex_waits(
    entries: &Entries,
    pid: Pid,
    max_threads: usize,
    deadline: Instant,
) -> io::Result<Vec<FutexWait>> {
    let tasks = PathBuf::from(format!("{pid}/task"));
    let mut waits = Vec::new();
    for tid in entries.numbers_in(&tasks)?.take(max_threads) {
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let read = entries.read(&tasks.join(format!("{tid}/syscall")), MAX_SYSCALL_BYTES);
        match read {
            Ok(text) => waits.extend(parse(Tid(tid), &String::from_utf8_lossy(&text))),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            // The thread has ended.
            Err(_) => {}
        }
    }
    Ok(waits)
}

/// Parses a `syscall`: the number, the six arguments, the stack pointer and the program counter. A thread that runs has
/// `running`.
fn parse(tid: Tid, text: &str) -> Option<FutexWait> {
    let (number, arguments) = text.split_once(' ')?;
    if number.parse() != Ok(FUTEX) {
        return None;
    }
    let mut arguments = arguments
        .split_ascii_whitespace()
        .map(|argument| argument.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok()));
    let mut next = || arguments.next().flatten();
    let (address, operation, value) = (next()?, next()?, next()?);
    Some(FutexWait {
        tid,
        address: RuntimeAddress(address),
        // The kernel reads the lower half of both.
        command: (operation & COMMAND_MASK & u64::from(u32::MAX)) as u32,
        value: (value & u64::from(u32::MAX)) as u32,
    })
}

/// Parses the text of a `syscall`.
#[cfg(fuzzing)]
pub fn parse_any(text: &str) {
    if let Some(wait) = parse(Tid(1), text) {
        assert_eq!(u64::from(wait.command) & !COMMAND_MASK, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        sync::{Arc, Condvar, Mutex, mpsc},
    };

    use super::*;
    use crate::{ProcessFilter, ProcessTable};

    const MAX_TIME: Duration = Duration::from_secs(60);

    #[test]
    fn a_futex_has_an_address_a_command_and_a_value() {
        let wait = |text| parse(Tid(7), text).map(|wait| (wait.address.0, wait.command, wait.value));
        let private = "202 0x55bdc9fce140 0x80 0x2 0x0 0x0 0x0 0x7f84b0e8dea8 0x7f84b0f1812b\n";
        assert_eq!(wait(private), Some((0x55bd_c9fc_e140, 0, 2)));
        let with_clock = "202 0x55bdc9fce128 0x189 0x0 0x0 0x0 0xffffffff 0x7f84b107bdd0 0x7f84b0f17f16\n";
        assert_eq!(wait(with_clock), Some((0x55bd_c9fc_e128, 9, 0)));
        let inherited = "202 0x10 0x86 0xffffffff8000709d 0x0 0x0 0x0 0x1 0x1\n";
        assert_eq!(wait(inherited), Some((0x10, 6, 0x8000_709d)));
        for other in ["running\n", "-1 0x7ffe 0x7f84\n", "0 0x4 0x7f 0xc7 0x0 0x0 0x0 0x1 0x1\n", ""] {
            assert_eq!(wait(other), None, "{other}");
        }
        for malformed in ["202 0x10 0x80\n", "202 10 0x80 0x2\n", "202 0x1ffffffffffffffff 0x80 0x2\n"] {
            assert_eq!(wait(malformed), None, "{malformed}");
        }
    }

    /// The calls of this process in which the thread `tid` sleeps, once it does.
    fn await_wait(proc: &ProcFs, process: &Process, tid: Tid) -> FutexWait {
        let began = Instant::now();
        loop {
            let waits = proc.futex_waits(process, usize::MAX, MAX_TIME).unwrap();
            if let Some(wait) = waits.into_iter().find(|wait| wait.tid == tid) {
                return wait;
            }
            assert!(began.elapsed() < MAX_TIME, "thread {tid} does not wait");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_thread_that_waits_has_the_address_of_its_futex() {
        let proc = Arc::new(ProcFs::live());
        let mut table = ProcessTable::new(Arc::clone(&proc), ProcessFilter::All);
        let key = table.prefetch(Pid::own());
        let process = table.get(key).unwrap();
        let ended = Arc::new((Mutex::new(false), Condvar::new()));
        let (tids, tid) = mpsc::channel();
        let waiter = {
            let ended = Arc::clone(&ended);
            std::thread::spawn(move || {
                tids.send(Tid(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs())).unwrap();
                let (ended, changed) = &*ended;
                drop(changed.wait_while(ended.lock().unwrap(), |ended| !*ended).unwrap());
            })
        };
        let tid = tid.recv().unwrap();
        let wait = await_wait(&proc, process, tid);
        let object = &raw const *ended as u64..&raw const *ended as u64 + size_of_val(&*ended) as u64;
        assert!(object.contains(&wait.address.0), "{wait:?} in {object:x?}");
        *ended.0.lock().unwrap() = true;
        ended.1.notify_all();
        waiter.join().unwrap();
    }

    #[test]
    fn processes_with_too_many_threads_and_captures_are_not_read() {
        let proc = Arc::new(ProcFs::live());
        let mut table = ProcessTable::new(Arc::clone(&proc), ProcessFilter::All);
        let key = table.prefetch(Pid::own());
        let process = table.get(key).unwrap();
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("7/task/7")).unwrap();
        let copy = ProcFs::from_capture(directory.path().to_owned());
        let kind = |read: io::Result<Vec<FutexWait>>| read.unwrap_err().kind();
        assert_eq!(kind(copy.futex_waits(process, 10, MAX_TIME)), io::ErrorKind::Unsupported);
        // A test has a thread of its own.
        assert_eq!(kind(proc.futex_waits(process, 1, MAX_TIME)), io::ErrorKind::Unsupported);
        assert_eq!(kind(proc.futex_waits(process, usize::MAX, Duration::ZERO)), io::ErrorKind::TimedOut);
    }
}
