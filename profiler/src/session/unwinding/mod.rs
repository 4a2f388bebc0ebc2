//! The unwinding thread: keeps the unwind tables in the kernel as the processes that are sampled need them.
//!
//! It is told what happened to processes, and where a walk met code without a table. Nobody waits for it: until a
//! table is there, stacks are walked by frame pointer.

mod allowance;
mod files;
mod spaces;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::Thread,
    time::{Duration, Instant},
};

use self::{allowance::Allowance, spaces::Spaces};
use super::priority::go_first;
use crate::{
    sampler::{Batch, ebpf::UnwindMaps},
    sys::usage::thread_cpu_time,
};
use profiler_processes::SidebandEvent;

/// How much may wait for the thread, and how many events of each. What does not fit is not lost: all mappings are read
/// again then, which takes no longer than so many events.
const WAITING: usize = 64;
const MAX_EVENTS: usize = 4096;

/// How long the start of sampling waits for the tables of the processes that are known.
const MAX_FIRST_WAIT: Duration = Duration::from_millis(200);

/// How often tables that nothing maps any more are looked for, as long as there are some.
const TIDY_INTERVAL: Duration = Duration::from_secs(5);

/// The thread, from outside. Dropped, it ends soon, and the tables with it: the end of a session waits neither for the
/// kernel to give their memory back nor for a file system that never answers.
#[derive(Debug)]
pub(super) struct Unwinding {
    told: Option<SyncSender<RuntimeMethod>>,
    flags: Arc<Flags>,
    thread: Thread,
}

#[derive(Debug, Default)]
struct Flags {
    /// Something was not told.
    missed: AtomicBool,
    /// Nothing is needed any more.
    stop: AtomicBool,
}

/// What the thread is told.
#[derive(Debug)]
enum RuntimeMethod {
    /// These processes will be sampled. Who asks hears when their tables are there.
    Expected(Vec<u32>, SyncSender<()>),
    Happened(Vec<SidebandEvent>),
    /// A walk in these processes met code without a table.
    UnknownCode(Vec<u32>),
}

impl Unwinding {
    /// Starts the thread on empty tables. Waits for those of the processes that are known, but not for long: the first
    /// samples are to be whole, and the last no later for it. Children of a process are sampled when `follows_forks`.
    pub(super) fn start(maps: UnwindMaps, expected: &[u32], follows_forks: bool) -> io::Result<Self> {
        let (told, hears) = sync_channel(WAITING);
        let flags = Arc::new(Flags::default());
        let spaces = Spaces::new(maps, follows_forks)?;
        let thread = std::thread::Builder::new().name("unwinding".to_owned()).spawn({
            let flags = Arc::clone(&flags);
            move || run(spaces, &hears, &flags)
        })?;
        let unwinding = Self { told: Some(told), flags, thread: thread.thread().clone() };
        if !expected.is_empty() {
            let (ready, is_ready) = sync_channel(1);
            unwinding.tell(RuntimeMethod::Expected(expected.to_vec(), ready));
            // What is not there by then comes later.
            let _ = is_ready.recv_timeout(MAX_FIRST_WAIT);
        }
        Ok(unwinding)
    }

    /// Tells what a batch says of processes.
    pub(super) fn hear(&self, batch: &Batch) {
        if batch.lost_events > 0 || batch.events.len() > MAX_EVENTS {
            self.flags.missed.store(true, Ordering::Release);
            // Nothing, for the thread to notice.
            self.tell(RuntimeMethod::Happened(Vec::new()));
        } else if !batch.events.is_empty() {
            self.tell(RuntimeMethod::Happened(batch.events.clone()));
        }
        if !batch.stale_mappings.is_empty() {
            self.tell(RuntimeMethod::UnknownCode(batch.stale_mappings.clone()));
        }
    }

    fn tell(&self, what: RuntimeMethod) {
        let is_told = self.told.as_ref().is_some_and(|told| told.try_send(what).is_ok());
        if !is_told {
            self.flags.missed.store(true, Ordering::Release);
        }
    }
}

impl Drop for Unwinding {
    fn drop(&mut self) {
        self.flags.stop.store(true, Ordering::Release);
        self.told = None;
        // It may be resting.
        self.thread.unpark();
    }
}

fn run(mut spaces: Spaces, hears: &Receiver<RuntimeMethod>, flags: &Flags) {
    // Stacks are short until the tables are there. More than its allowance it does not take.
    go_first();
    let stop = || flags.stop.load(Ordering::Acquire);
    let begin = Instant::now();
    let mut allowance = Allowance::new(Duration::ZERO);
    let mut used = thread_cpu_time();
    let mut waiting: Vec<SyncSender<()>> = Vec::new();
    while !stop() {
        let wait = if spaces.are_behind() {
            Duration::ZERO
        } else if spaces.have_unused_files() {
            TIDY_INTERVAL
        } else {
            Duration::MAX
        };
        match hears.recv_timeout(wait) {
            Ok(what) => waiting.extend(apply(&mut spaces, what)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        waiting.extend(hears.try_iter().take(WAITING).filter_map(|what| apply(&mut spaces, what)));
        if flags.missed.swap(false, Ordering::AcqRel) {
            spaces.look_again();
        }
        spaces.settle(stop);
        if !spaces.are_behind() {
            for ready in waiting.drain(..) {
                // Who asked may have gone on.
                let _ = ready.try_send(());
            }
        }
        let used_before = std::mem::replace(&mut used, thread_cpu_time());
        rest(allowance.spend(used.saturating_sub(used_before), begin.elapsed()), stop);
    }
}

/// Rests for a time, unless told to stop.
fn rest(time: Duration, stop: impl Fn() -> bool) {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || stop() {
            return;
        }
        std::thread::park_timeout(left);
    }
}

/// Takes note of something. Gives who waits until the tables are there.
fn apply(spaces: &mut Spaces, what: RuntimeMethod) -> Option<SyncSender<()>> {
    match what {
        RuntimeMethod::Expected(pids, ready) => {
            pids.into_iter().for_each(|pid| spaces.expect(pid));
            return Some(ready);
        }
        RuntimeMethod::Happened(events) => events.into_iter().for_each(|event| spaces.happened(event)),
        RuntimeMethod::UnknownCode(pids) => pids.into_iter().for_each(|pid| spaces.unknown_code(pid)),
    }
    None
}
