//! The unwinding thread: installs unwind tables in BPF maps for the processes that are sampled.
//!
//! Its input are sideband events, and the processes in which the BPF unwinder met code without an unwind table. No other
//! thread waits for it: until a table is installed, stacks are unwound by frame pointer.

mod cpu_quota;
mod mapping_installer;
mod table_cache;

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

use profiler_processes::{SidebandEvent, SidebandEventKind};

use self::{cpu_quota::CpuQuota, mapping_installer::MappingInstaller};
use super::priority::raise_thread_priority;
use crate::{
    sampler::{Batch, ebpf::UnwindMaps},
    sys::usage::thread_cpu_time,
};

/// The capacity of the channel to the thread, in messages. When it is full, the thread reads all mappings again, which
/// takes no longer than processing so many messages.
const MAX_QUEUED_MESSAGES: usize = 64;
/// The most sideband events in a message.
const MAX_EVENTS_PER_MESSAGE: usize = 4096;

/// The longest time that the start of sampling waits for the unwind tables of the initial processes.
const MAX_START_DELAY: Duration = Duration::from_millis(200);

/// The interval at which unused unwind tables are evicted, as long as there are some.
const EVICTION_INTERVAL: Duration = Duration::from_secs(5);

/// A handle of the unwinding thread. Dropping it stops the thread without waiting: the end of a session waits neither
/// for the kernel to free the BPF maps nor for a file system that does not respond.
#[derive(Debug)]
pub(super) struct UnwindTableThread {
    messages: Option<SyncSender<Message>>,
    flags: Arc<Flags>,
    thread: Thread,
}

#[derive(Debug, Default)]
struct Flags {
    /// Events were lost: all mappings have to be read again.
    must_resync: AtomicBool,
    stop: AtomicBool,
}

/// A message to the thread.
#[derive(Debug)]
enum Message {
    /// These processes will be sampled. The sender is notified when their tables are installed.
    Prefetch(Vec<u32>, SyncSender<()>),
    Events(Vec<SidebandEvent>),
    /// The BPF unwinder met code without an unwind table in these processes.
    UnknownCode(Vec<u32>),
}

impl UnwindTableThread {
    /// Starts the thread with empty BPF maps. Waits a short time for the tables of `initial_pids`, so that their first
    /// stacks are complete. Tables are also installed for children of sampled processes if `follows_forks`.
    pub(super) fn start(maps: UnwindMaps, initial_pids: &[u32], follows_forks: bool) -> io::Result<Self> {
        let (messages, receiver) = sync_channel(MAX_QUEUED_MESSAGES);
        let flags = Arc::new(Flags::default());
        let installer = MappingInstaller::new(maps, follows_forks)?;
        let thread = std::thread::Builder::new().name("unwinding".to_owned()).spawn({
            let flags = Arc::clone(&flags);
            move || run(installer, &receiver, &flags)
        })?;
        let handle = Self { messages: Some(messages), flags, thread: thread.thread().clone() };
        if !initial_pids.is_empty() {
            let (installed, wait_installed) = sync_channel(1);
            handle.send(Message::Prefetch(initial_pids.to_vec(), installed));
            // The remaining tables are installed while sampling.
            let _ = wait_installed.recv_timeout(MAX_START_DELAY);
        }
        Ok(handle)
    }

    /// Notifies the thread of the events in a batch. Never blocks.
    pub(super) fn notify(&self, batch: &Batch) {
        if batch.may_lack_events || batch.events.len() > MAX_EVENTS_PER_MESSAGE {
            self.flags.must_resync.store(true, Ordering::Release);
            // An empty message wakes the thread.
            self.send(Message::Events(Vec::new()));
        } else if !batch.events.is_empty() {
            let events = batch.events.iter().filter(|event| concerns_mappings(event)).cloned().collect();
            self.send(Message::Events(events));
        }
        if !batch.stale_mappings.is_empty() {
            self.send(Message::UnknownCode(batch.stale_mappings.clone()));
        }
    }

    fn send(&self, message: Message) {
        let is_sent = self.messages.as_ref().is_some_and(|messages| messages.try_send(message).is_ok());
        if !is_sent {
            self.flags.must_resync.store(true, Ordering::Release);
        }
    }
}

impl Drop for UnwindTableThread {
    fn drop(&mut self) {
        self.flags.stop.store(true, Ordering::Release);
        self.messages = None;
        // It may be pausing.
        self.thread.unpark();
    }
}

/// Whether an event changes what the unwinder needs.
fn concerns_mappings(event: &SidebandEvent) -> bool {
    !matches!(event.kind, SidebandEventKind::Rename(_) | SidebandEventKind::StartThread)
}

fn run(mut installer: MappingInstaller, messages: &Receiver<Message>, flags: &Flags) {
    // Stacks are incomplete until the tables are installed. The quota bounds the CPU time of the thread.
    raise_thread_priority();
    let stop = || flags.stop.load(Ordering::Acquire);
    let begin = Instant::now();
    let mut quota = CpuQuota::new(Duration::ZERO);
    let mut used = thread_cpu_time();
    let mut waiting: Vec<SyncSender<()>> = Vec::new();
    let mut evicted = begin;
    while !stop() {
        let timeout = if installer.is_outdated() {
            Duration::ZERO
        } else if installer.has_unused_tables() {
            EVICTION_INTERVAL
        } else {
            Duration::MAX
        };
        match messages.recv_timeout(timeout) {
            Ok(message) => waiting.extend(apply(&mut installer, message)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let queued = messages.try_iter().take(MAX_QUEUED_MESSAGES);
        waiting.extend(queued.filter_map(|message| apply(&mut installer, message)));
        if flags.must_resync.swap(false, Ordering::AcqRel) {
            installer.resync();
        }
        installer.install_outdated(stop);
        if evicted.elapsed() >= EVICTION_INTERVAL {
            installer.evict_unused_tables();
            evicted = Instant::now();
        }
        if !installer.is_outdated() {
            for installed in waiting.drain(..) {
                // The receiver may have timed out.
                let _ = installed.try_send(());
            }
        }
        let used_before = std::mem::replace(&mut used, thread_cpu_time());
        pause(quota.spend(used.saturating_sub(used_before), begin.elapsed()), stop);
    }
}

/// Sleeps for `duration` or until `stop`.
fn pause(duration: Duration, stop: impl Fn() -> bool) {
    let end = Instant::now() + duration;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || stop() {
            return;
        }
        std::thread::park_timeout(left);
    }
}

/// Applies a message. Returns the sender to notify when all tables are installed.
fn apply(installer: &mut MappingInstaller, message: Message) -> Option<SyncSender<()>> {
    match message {
        Message::Prefetch(pids, installed) => {
            pids.into_iter().for_each(|pid| installer.prefetch(pid));
            return Some(installed);
        }
        Message::Events(events) => events.into_iter().for_each(|event| installer.apply(event)),
        Message::UnknownCode(pids) => pids.into_iter().for_each(|pid| installer.handle_unknown_code(pid)),
    }
    None
}
