//! The unwinding thread: installs unwind tables in BPF maps for the processes that are sampled.
//!
//! The process table reports the mappings of these processes. The pipeline thread never waits for this one: until a table
//! is installed, stacks are unwound by frame pointer.

mod back_off;
mod cached_table;
mod cpu_quota;
mod generations;
mod installations;
mod managed_functions;
mod mapping_entries;
mod mapping_installer;
mod table_cache;
mod tenant;
#[cfg(test)]
mod test_files;

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use profiler_processes::{MappedFiles, MappingChange, ProcessKey, ProcessTable};
use profiler_sampler::{UnwindMaps, raise_thread_priority};
use profiler_symbolize::{JitCallFrames, ManagedFunctionFrames, Symbolizer, debug_file::DebugDirectories};

use self::{cpu_quota::CpuQuota, installations::Installations, mapping_installer::MappingInstaller};
use super::memory_shortage::MemoryShortage;
use crate::sys::usage::{cpu_time_of, thread_cpu_time};

/// The capacity of the channel to the thread, in messages.
const MAX_QUEUED_MESSAGES: usize = 64;

/// The most changes that wait until the channel has capacity. Beyond it, the thread drops its state and gets all
/// mappings again.
const MAX_PENDING_CHANGES: usize = 16 * 1024;

/// Bytes that describe frames of .NET methods and wait for the thread. A server with 20,000 methods has 10 MB. Methods beyond it are
/// unwound by frame pointer or epilogue scan.
const MAX_PENDING_FUNCTION_BYTES: usize = 16 << 20;

/// The CPU time of the thread after which the start of sampling no longer waits for the unwind tables of the initial processes.
/// On a machine that is busy, or whose files are not in memory, it waits for longer than that: the first stacks would be
/// unwound by frame pointer otherwise.
const MAX_START_CPU_TIME: Duration = Duration::from_millis(200);

/// The longest time that the start of sampling waits for them: a file system may not respond.
const MAX_START_DELAY: Duration = Duration::from_secs(2);

/// The interval at which the start compares both.
const START_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The interval at which the thread looks whether memory is still short.
const SHORTAGE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The interval at which unused unwind tables are evicted, as long as there are some.
const EVICTION_INTERVAL: Duration = Duration::from_secs(5);

/// A handle of the unwinding thread. Dropping it stops the thread without waiting: the end of a session waits neither
/// for the kernel to free the BPF maps nor for a file system that does not respond.
#[derive(Debug)]
pub(super) struct UnwindTableThread {
    messages: Option<SyncSender<Message>>,
    pending: Vec<MappingChange>,
    /// Whether the thread has to drop its state before the pending changes.
    must_clear: bool,
    /// Call frame information of JIT code that is not sent yet, by process.
    pending_frames: HashMap<ProcessKey, JitCallFrames>,
    /// What describes the frames of .NET methods and is not sent yet.
    pending_functions: Vec<(ProcessKey, Vec<ManagedFunctionFrames>)>,
    /// Shared with the message that has the previous ones, until the thread has applied it.
    functions_in_flight: Arc<()>,
    installations: Arc<Installations>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// A message to the thread.
#[derive(Debug)]
enum Message {
    /// Changes of mappings. All earlier state is dropped if `must_clear`.
    Changes { changes: Vec<MappingChange>, must_clear: bool },
    /// The call frame information of all JIT code of these processes.
    JitCallFrames(HashMap<ProcessKey, JitCallFrames>),
    /// What describes the frames of further .NET methods of these processes.
    ManagedFunctions { found: Vec<(ProcessKey, Vec<ManagedFunctionFrames>)>, in_flight: Arc<()> },
    /// The sender is notified when all mappings are installed.
    Wait(SyncSender<()>),
}

impl UnwindTableThread {
    /// Starts the thread with empty BPF maps. It builds no tables during a shortage of memory.
    pub(super) fn start(
        maps: UnwindMaps,
        files: Arc<MappedFiles>,
        debug_directories: Arc<DebugDirectories>,
        shortage: MemoryShortage,
    ) -> io::Result<Self> {
        let (messages, receiver) = sync_channel(MAX_QUEUED_MESSAGES);
        let stop = Arc::new(AtomicBool::new(false));
        let installations = Arc::new(Installations::default());
        let installer = MappingInstaller::new(maps, files, debug_directories, Arc::clone(&installations))?;
        let thread = std::thread::Builder::new().name("unwinding".to_owned()).spawn({
            let stop = Arc::clone(&stop);
            move || run(installer, &receiver, &shortage, &stop)
        })?;
        Ok(Self {
            messages: Some(messages),
            pending: Vec::new(),
            must_clear: false,
            pending_frames: HashMap::new(),
            pending_functions: Vec::new(),
            functions_in_flight: Arc::default(),
            installations,
            stop,
            thread,
        })
    }

    /// Passes the changes of mappings to the thread, and its installations to the table. Never blocks.
    pub(super) fn update(&mut self, processes: &mut ProcessTable) {
        for (process, installation) in self.installations.take() {
            processes.note_installation(process, installation);
        }
        self.pending.extend(processes.take_mapping_changes());
        if self.pending.len() > MAX_PENDING_CHANGES {
            self.must_clear = true;
            processes.report_all_mappings();
            self.pending = processes.take_mapping_changes();
        }
        if self.pending.is_empty() && !self.must_clear {
            return;
        }
        let changes = std::mem::take(&mut self.pending);
        let message = Message::Changes { changes, must_clear: std::mem::take(&mut self.must_clear) };
        if let Err(Message::Changes { changes, must_clear }) = self.send(message) {
            (self.pending, self.must_clear) = (changes, must_clear);
        }
    }

    /// Passes what describes the frames of JIT code to the thread. Never blocks.
    pub(super) fn update_jit_code(&mut self, symbolizer: &mut Symbolizer) {
        self.set_jit_call_frames(symbolizer.take_jit_call_frames());
        self.add_managed_functions(symbolizer.take_function_frames());
    }

    /// Passes the call frame information of all JIT code of processes to the thread.
    fn set_jit_call_frames(&mut self, changed: Vec<(ProcessKey, JitCallFrames)>) {
        self.pending_frames.extend(changed);
        // A process is known by its mappings.
        let awaits_mappings = !self.pending.is_empty() || self.must_clear;
        if self.pending_frames.is_empty() || awaits_mappings {
            return;
        }
        let message = Message::JitCallFrames(std::mem::take(&mut self.pending_frames));
        if let Err(Message::JitCallFrames(frames)) = self.send(message) {
            self.pending_frames = frames;
        }
    }

    /// Passes what describes the frames of further .NET methods to the thread.
    fn add_managed_functions(&mut self, found: Vec<(ProcessKey, Vec<ManagedFunctionFrames>)>) {
        let pending = self.pending_functions.iter().flat_map(|(_, functions)| functions);
        if pending.map(ManagedFunctionFrames::memory_bytes).sum::<usize>() < MAX_PENDING_FUNCTION_BYTES {
            self.pending_functions.extend(found);
        }
        // One message at a time, because it has megabytes.
        let is_busy = Arc::strong_count(&self.functions_in_flight) > 1;
        if self.pending_functions.is_empty() || is_busy {
            return;
        }
        let found = std::mem::take(&mut self.pending_functions);
        let in_flight = Arc::clone(&self.functions_in_flight);
        if let Err(Message::ManagedFunctions { found, .. }) =
            self.send(Message::ManagedFunctions { found, in_flight })
        {
            self.pending_functions = found;
        }
    }

    /// Waits a short time for the tables of all mappings, so that the first stacks are complete. The remaining tables are
    /// installed while sampling.
    pub(super) fn wait_until_installed(&self) {
        let (installed, wait_installed) = sync_channel(1);
        if self.send(Message::Wait(installed)).is_err() {
            return;
        }
        let (begin, used_before) = (Instant::now(), cpu_time_of(&self.thread));
        let goes_on = || {
            let used = cpu_time_of(&self.thread).saturating_sub(used_before);
            used < MAX_START_CPU_TIME && begin.elapsed() < MAX_START_DELAY
        };
        while goes_on() && wait_installed.recv_timeout(START_CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout)
        {
        }
    }

    /// Sends a message; returns it while the channel is full.
    fn send(&self, message: Message) -> Result<(), Message> {
        let Some(messages) = &self.messages else { return Ok(()) };
        match messages.try_send(message) {
            // The thread has ended only if it panicked.
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
            Err(TrySendError::Full(message)) => Err(message),
        }
    }
}

impl Drop for UnwindTableThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.messages = None;
        // It may be pausing.
        self.thread.thread().unpark();
    }
}

fn run(
    mut installer: MappingInstaller,
    messages: &Receiver<Message>,
    shortage: &MemoryShortage,
    stop: &AtomicBool,
) {
    // Stacks are incomplete until the tables are installed. The quota bounds the CPU time of the thread.
    raise_thread_priority();
    let stop = || stop.load(Ordering::Acquire);
    let begin = Instant::now();
    let mut quota = CpuQuota::new(Duration::ZERO);
    let mut used = thread_cpu_time();
    let mut waiting: Vec<SyncSender<()>> = Vec::new();
    let mut evicted = begin;
    while !stop() {
        let timeout = if shortage.is_present() {
            SHORTAGE_CHECK_INTERVAL
        } else if installer.is_outdated() {
            Duration::ZERO
        } else {
            let eviction = installer.has_unused_tables().then_some(EVICTION_INTERVAL);
            let retry = installer.next_retry().map(|at| at.saturating_duration_since(Instant::now()));
            eviction.into_iter().chain(retry).min().unwrap_or(Duration::MAX)
        };
        match messages.recv_timeout(timeout) {
            Ok(message) => waiting.extend(apply(&mut installer, message)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let queued = messages.try_iter().take(MAX_QUEUED_MESSAGES);
        waiting.extend(queued.filter_map(|message| apply(&mut installer, message)));
        // A table of a large file takes megabytes, in the BPF maps as well.
        if !shortage.is_present() {
            installer.install_outdated(stop);
        }
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
        Message::Wait(installed) => return Some(installed),
        Message::Changes { changes, must_clear } => {
            if must_clear {
                installer.clear();
            }
            changes.into_iter().for_each(|change| installer.apply(change));
        }
        Message::JitCallFrames(changed) => {
            changed.into_iter().for_each(|(process, frames)| installer.set_jit_call_frames(process, frames));
        }
        Message::ManagedFunctions { found, in_flight } => {
            for (process, functions) in found {
                installer.add_managed_functions(process, functions);
            }
            drop(in_flight);
        }
    }
    None
}
