//! Turns batches into profiles: follows the processes, symbolizes stacks and accounts for every sample.

use std::{sync::Arc, time::Instant};

use profiler_binary_reader::WorkBudget;
use profiler_common::event::EventCounts;
use profiler_processes::{MappedFiles, ProcFs, ProcessFilter, ProcessOfSample, ProcessTable};
use profiler_profile::{Header, Profile};
use profiler_symbolize::{ProcessEvents, Symbolizer};

use super::{
    account::{Account, IntervalLosses},
    after_target,
    interval::Interval,
    measures::MeasuredEvents,
    memory_shortage::MemoryShortage,
    poll::Poll,
    pre_exec::PreExecFilter,
    profile_assembler::{AwaitedStacks, ProfileAssembler, SampleStacks, SampleWaker, WakerName},
    retained_stacks::{ForgetStack, RetainedStacks},
    sample_events::{Counts, Sampled},
    unwinding::UnwindTableThread,
};
#[cfg(feature = "capture")]
use crate::sampler::capture::{Capture, Recorder};
use crate::{
    error::Result,
    sampler::{Batch, Comm, KernelCounts, OffCpuCounts, Origin, RawSample, RawStackId, WallCounts},
};

/// Polls of perf maps, jitdumps and diagnostics sockets: huge files take a tenth of the thread's time.
const JIT_POLL: Poll = Poll::new(100_000_000, 9);

/// Readings of the owners of .NET monitors, where waits are sampled: thousands of locks take a hundredth of the thread's time.
const MONITOR_POLL: Poll = Poll::new(1_000_000_000, 99);

/// Readings of the owners of mutexes, where waits are sampled. Each takes 20 ms of CPU time at most, and more time on a busy machine.
const MUTEX_POLL: Poll = Poll::new(1_000_000_000, 9);

/// Turns batches into profiles.
pub(super) struct Pipeline {
    processes: ProcessTable,
    /// The processes whose mappings were read before sampling began.
    prefetched_pids: Vec<u32>,
    symbolizer: Symbolizer,
    unwinding: Option<UnwindTableThread>,
    stacks: RetainedStacks,
    sampled: Sampled,
    assembler: ProfileAssembler,
    /// Samples of processes that were read from `/proc` later than the events that are known.
    early_samples: Vec<ReceivedSample>,
    /// Runtime events that were received for measures, and are added to the profile at the end of its interval: the names in
    /// their stacks may still arrive.
    early_events: Vec<ProcessEvents>,
    /// From the first request for measures on.
    measured: Option<MeasuredEvents>,
    /// The samples that were added since measures were taken.
    unmeasured: Counts,
    /// For a target that is a command.
    pre_exec_filter: Option<PreExecFilter>,
    /// All samples so far.
    received: Counts,
    /// The records of waits so far.
    received_waits: u64,
    /// Samples of ids which no longer belong to the target.
    foreign: Counts,
    /// Skipped ticks for which later samples stand.
    represented_ticks: u64,
    #[cfg(feature = "capture")]
    recorder: Option<Recorder>,
    memory_shortage: MemoryShortage,
    losses: IntervalLosses,
    /// The zero of the times in the current profile, and in the first one, `CLOCK_MONOTONIC` nanoseconds.
    interval_started_ns: u64,
    session_started_ns: u64,
    jit_poll: Poll,
    monitor_poll: Poll,
    mutex_poll: Poll,
    /// The counters that earlier profiles account for.
    accounted: KernelCounts,
}

/// A sample with its stacks.
struct ReceivedSample {
    sample: RawSample,
    stacks: SampleStacks,
    /// Those of the thread that ended the wait.
    waker_stacks: Option<SampleStacks>,
}

impl Pipeline {
    pub(super) fn new(
        proc: Arc<ProcFs>,
        filter: ProcessFilter,
        symbolizer: Symbolizer,
        sampled: Sampled,
    ) -> Self {
        Self {
            processes: ProcessTable::new(proc, filter),
            prefetched_pids: Vec::new(),
            symbolizer,
            unwinding: None,
            stacks: RetainedStacks::default(),
            assembler: ProfileAssembler::new(&sampled, 0),
            sampled,
            early_samples: Vec::new(),
            early_events: Vec::new(),
            measured: None,
            unmeasured: Counts::default(),
            pre_exec_filter: None,
            received: Counts::default(),
            received_waits: 0,
            foreign: Counts::default(),
            represented_ticks: 0,
            #[cfg(feature = "capture")]
            recorder: None,
            memory_shortage: MemoryShortage::default(),
            losses: IntervalLosses::default(),
            interval_started_ns: 0,
            session_started_ns: 0,
            jit_poll: JIT_POLL,
            monitor_poll: MONITOR_POLL,
            mutex_poll: MUTEX_POLL,
            accounted: KernelCounts::default(),
        }
    }

    /// Saves everything that is processed into a capture.
    #[cfg(feature = "capture")]
    pub(super) fn record(&mut self, recorder: Recorder) {
        self.recorder = Some(recorder);
    }

    /// Completes the capture, where one is recorded.
    #[cfg(feature = "capture")]
    pub(super) fn finish_recording(&mut self, capture: &Capture) -> Result<()> {
        self.recorder.take().map_or(Ok(()), |recorder| recorder.finish(capture))
    }

    /// Sheds samples that wait too long while there is this shortage.
    pub(super) fn shed_samples_during(&mut self, shortage: MemoryShortage) {
        self.memory_shortage = shortage;
    }

    /// Reads the mappings of these processes before they are sampled.
    pub(super) fn prefetch(&mut self, pids: &[u32]) {
        for pid in pids {
            self.processes.prefetch(*pid);
        }
        self.prefetched_pids.extend(pids);
    }

    /// Starts to collect the events of runtimes that were found meanwhile.
    pub(super) fn poll_runtime_events(&mut self) {
        self.symbolizer.poll_runtime_events(&self.processes);
    }

    /// The open files of mappings.
    pub(super) fn mapped_files(&self) -> Arc<MappedFiles> {
        Arc::clone(self.symbolizer.mapped_files())
    }

    /// Installs the unwind tables of these processes, and later those of the sampled ones. Waits a short time for the first.
    /// `follows_forks` tells whether the BPF program gives the mappings of a process to its children.
    pub(super) fn install_unwind_tables(
        &mut self,
        mut unwinding: UnwindTableThread,
        pids: &[u32],
        follows_forks: bool,
    ) {
        if follows_forks {
            self.processes.watch_forks();
        }
        if !pids.is_empty() {
            pids.iter().for_each(|pid| self.processes.request_mappings(*pid));
            unwinding.update(&mut self.processes);
            unwinding.wait_until_installed();
        }
        self.unwinding = Some(unwinding);
    }

    /// The processes whose mappings were read before sampling began.
    #[cfg(feature = "capture")]
    pub(super) fn prefetched_pids(&self) -> &[u32] {
        &self.prefetched_pids
    }

    /// The start of the first interval, `CLOCK_MONOTONIC` nanoseconds.
    #[cfg(feature = "capture")]
    pub(super) fn started_ns(&self) -> u64 {
        self.session_started_ns
    }

    /// The frequency of the timers of CPUs, hertz.
    #[cfg(feature = "capture")]
    pub(super) fn frequency_hz(&self) -> u64 {
        self.sampled.timer_hz
    }

    /// Ignores samples of this process until its first exec.
    pub(super) fn ignore_before_exec(&mut self, pid: u32) {
        self.pre_exec_filter = Some(PreExecFilter::new(pid));
    }

    /// The kernel's counters, without the ticks that did not hit the target, and while sampling goes on without those
    /// whose samples are still on their way.
    fn target_counts(&self, interval: &Interval) -> KernelCounts {
        let counts = interval.counts;
        let kernel_ticks = if interval.is_last {
            counts.target_ticks
        } else {
            let lost = counts.lost_ring_buffer.saturating_add(counts.lost_thread_id);
            let received = self.received.cpu.saturating_add(lost);
            let skipped = counts.skipped_ticks.saturating_sub(self.represented_ticks);
            // A CPU can be between the count of a tick and its record.
            let on_their_way = u64::from(interval.header.cpus).saturating_add(skipped);
            let least = interval.ticks_before.saturating_sub(on_their_way);
            received.max(least).min(counts.target_ticks)
        };
        let removed = self.pre_exec_filter.as_ref().map(PreExecFilter::removed).unwrap_or_default();
        let target_ticks = kernel_ticks.saturating_sub(removed.cpu + self.foreign.cpu);
        // Ticks of threads that still wait have no record before the end.
        let received = self.received.wall.saturating_add(counts.wall.lost());
        let wall_ticks = if interval.is_last { counts.wall.ticks } else { received.min(counts.wall.ticks) };
        let wall_ticks = wall_ticks.saturating_sub(removed.wall + self.foreign.wall);
        let wall = WallCounts { ticks: wall_ticks, ..counts.wall };
        let gone = removed.off_cpu + self.foreign.off_cpu;
        let off_cpu = OffCpuCounts { due: self.waits_due(interval).saturating_sub(gone), ..counts.off_cpu };
        let events = std::array::from_fn(|index| {
            let gone = removed.events[index] + self.foreign.events[index];
            Self::occurrences(counts.events[index], self.received.events[index], gone, interval.is_last)
        });
        KernelCounts { target_ticks, wall, off_cpu, events, ..counts }
    }

    /// The occurrences of an event that samples and losses account for. Before the end, samples are on their way, and those
    /// that were skipped will be in the next sample of their CPU.
    fn occurrences(counts: EventCounts, received: u64, gone: u64, is_last: bool) -> EventCounts {
        let lost = counts.lost_ring_buffer + counts.lost_thread_id + counts.lost_nested;
        let (due, skipped) = if is_last {
            (counts.due, counts.skipped)
        } else {
            (counts.due.min(received.saturating_add(lost)), 0)
        };
        EventCounts { due: due.saturating_sub(gone), skipped, ..counts }
    }

    /// The samples and losses of waits that have ended, and of those that were read while they last.
    fn waits_due(&self, interval: &Interval) -> u64 {
        let counts = interval.counts.off_cpu;
        // Before the end, records are on their way.
        let missing = if interval.is_last {
            counts.records.saturating_sub(counts.lost_ring_buffer).saturating_sub(self.received_waits)
        } else {
            0
        };
        self.received.off_cpu + missing + counts.lost_ring_buffer + counts.lost_thread
    }

    /// The budget of reading symbols.
    pub(super) fn symbol_budget(&self) -> Arc<WorkBudget> {
        Arc::clone(self.symbolizer.work_budget())
    }

    /// Sets the start of the first interval, `CLOCK_MONOTONIC` nanoseconds.
    pub(super) fn start(&mut self, started_ns: u64) {
        self.interval_started_ns = started_ns;
        self.session_started_ns = started_ns;
        self.assembler = ProfileAssembler::new(&self.sampled, started_ns);
    }

    /// Bounds the memory of stacks: evicted ones are sent again.
    pub(super) fn bound_stacks(&mut self, forget: ForgetStack) {
        self.stacks.bound(forget);
    }

    /// Loads what resolves addresses of the kernel, while this process has the rights for it.
    #[cfg(feature = "sandbox")]
    pub(super) fn load_kernel_names(&mut self) {
        self.symbolizer.load_kernel_names();
    }

    /// Processes a batch that was read at `now_ns`.
    ///
    /// # Errors
    /// A capture that cannot be written.
    pub(super) fn process(&mut self, mut batch: Batch, now_ns: u64) -> Result<()> {
        let counts = Counts::of(&batch.samples);
        let of_cpus = batch.samples.iter().filter(|sample| sample.origin == Origin::Timer).count() as u64;
        self.received.add_all(counts);
        self.received.add_all(Counts { cpu: batch.undecodable, ..Counts::default() });
        self.received_waits += batch.off_cpu_records;
        self.represented_ticks += counts.cpu.saturating_sub(of_cpus);
        if let Some(filter) = &mut self.pre_exec_filter {
            filter.apply(&mut batch);
        }
        for event in std::mem::take(&mut batch.events) {
            // A capture holds no events of processes that are not sampled.
            #[cfg(feature = "capture")]
            if self.recorder.is_some() && self.processes.is_relevant(&event) {
                batch.events.push(event.clone());
            }
            self.processes.apply(event);
        }
        #[cfg(feature = "capture")]
        if let Some(recorder) = &mut self.recorder {
            recorder.record(&batch)?;
        }
        self.losses.add(&batch);
        if batch.may_lack_events {
            self.processes.lose_events();
        }
        self.processes.advance(batch.watermark_ns);
        if let Some(unwinding) = &mut self.unwinding {
            batch.stale_mappings.iter().for_each(|pid| self.processes.request_mappings(*pid));
            unwinding.update(&mut self.processes);
        }
        for stack in batch.stacks {
            self.stacks.insert(stack);
        }
        for received in std::mem::take(&mut self.early_samples) {
            self.add_sample(received);
        }
        for sample in batch.samples {
            match self.stacks_of(sample.kernel_stack, sample.user_stack) {
                Some(stacks) => {
                    let stacks = SampleStacks { system_call: sample.system_call, ..stacks };
                    let waker = sample.waker.as_ref();
                    let waker_stacks =
                        waker.and_then(|waker| self.stacks_of(waker.kernel_stack, waker.user_stack));
                    self.add_sample(ReceivedSample { sample, stacks, waker_stacks });
                }
                None => self.losses.missing_stacks.add(sample.origin, sample.value),
            }
        }
        self.stacks.advance(batch.watermark_ns);
        let (assembler, symbolizer, early_events) = (&self.assembler, &self.symbolizer, &self.early_events);
        let is_needed = |key| {
            assembler.awaits_symbols(key)
                || symbolizer.awaits_runtime_events(key)
                || early_events.iter().any(|reported| reported.process == key)
        };
        for process in self.processes.retire_ended(is_needed) {
            self.assembler.retire(&process);
        }
        if self.jit_poll.is_due(now_ns) {
            let begin = Instant::now();
            self.symbolizer.poll_jit(&self.processes, now_ns);
            self.poll_runtime_events();
            let call_frames = self.symbolizer.take_jit_call_frames();
            if let Some(unwinding) = &mut self.unwinding {
                unwinding.set_jit_call_frames(call_frames);
            }
            self.jit_poll.end(now_ns, begin.elapsed());
        }
        if self.sampled.has_waits() {
            self.read_lock_owners(now_ns);
        }
        Ok(())
    }

    /// Adds the locks that threads wait for now to the current profile.
    fn read_lock_owners(&mut self, now_ns: u64) {
        let mut read = Vec::new();
        if self.monitor_poll.is_due(now_ns) {
            let begin = Instant::now();
            read.extend(self.symbolizer.read_monitor_owners(&self.processes));
            self.monitor_poll.end(now_ns, begin.elapsed());
        }
        if self.mutex_poll.is_due(now_ns) {
            let begin = Instant::now();
            read.extend(self.symbolizer.read_mutex_owners(&self.processes));
            self.mutex_poll.end(now_ns, begin.elapsed());
        }
        for read in read {
            if let Some(process) = self.processes.get(read.process) {
                self.assembler.add_lock_owners(process, &read);
            }
        }
    }

    /// The files of the processes.
    pub(super) fn proc(&self) -> &ProcFs {
        self.processes.proc()
    }

    /// Warns of processes that run on after the target that started them.
    pub(super) fn warn_of_living_processes(&self) {
        after_target::warn_of_living_processes(&self.processes);
    }

    /// The profile of all samples since the last one, without findings. The last profile waits for symbols that are still on their way,
    /// as long as `may_wait` allows.
    pub(super) fn finish_interval(&mut self, interval: Interval, may_wait: &dyn Fn() -> bool) -> Profile {
        if interval.is_last {
            self.unwinding = None;
        }
        // A profile does not wait for the events up to the last reading.
        self.processes.advance(u64::MAX);
        for received in std::mem::take(&mut self.early_samples) {
            self.add_sample(received);
        }
        self.symbolizer.request_runtime_events(interval.is_last);
        let lost = self.add_deferred(&interval, may_wait);
        self.receive_runtime_events(interval.ended_ns, interval.is_last);
        self.add_runtime_events();
        self.losses.missing_stacks.add_all(lost);
        let counts = self.target_counts(&interval);
        self.sampled.timer_hz = interval.adjustment.frequency_hz.unwrap_or(self.sampled.timer_hz);
        let next = ProfileAssembler::new(&self.sampled, interval.ended_ns);
        let assembler = std::mem::replace(&mut self.assembler, next);
        let losses = std::mem::take(&mut self.losses);
        let started_ns = std::mem::replace(&mut self.interval_started_ns, interval.ended_ns);
        let (mut builder, events) = assembler.finish(|key| self.processes.get(key));
        let unrepresented_ticks =
            if interval.is_last { counts.skipped_ticks.saturating_sub(self.represented_ticks) } else { 0 };
        let account = Account { now: counts, before: self.accounted, losses, unrepresented_ticks };
        account.fill(&events, &mut builder);
        let ledger = builder.ledger_mut();
        ledger.malformed_jit_entries = self.symbolizer.malformed_jit_entries();
        ledger.dropped_runtime_events = self.symbolizer.dropped_runtime_events();
        let since_start_ns = started_ns.saturating_sub(self.session_started_ns);
        let header = Header {
            started_unix_ns: interval.header.started_unix_ns.saturating_add(since_start_ns),
            duration_ns: interval.ended_ns.saturating_sub(started_ns),
            started_monotonic_ns: started_ns,
            ..interval.header
        };
        let profile = builder.finish(header);
        #[cfg(feature = "capture")]
        if interval.is_last {
            self.symbolizer.capture_jit_names(&self.processes);
        }
        if interval.adjustment.evicts_stacks {
            self.stacks.evict();
        }
        self.accounted = counts;
        // Samples of the last milliseconds are still in the ring buffer.
        self.processes.end_interval(started_ns);
        let processes = &self.processes;
        self.symbolizer.end_interval(started_ns, |key| processes.get(key).is_some());
        profile
    }

    /// Adds the deferred samples. Waits for the runtimes only where the methods that were received lack a sampled one: a
    /// runtime takes 100 ms to write what it has buffered. Returns the number of samples whose process is unknown by now.
    fn add_deferred(&mut self, interval: &Interval, may_wait: &dyn Fn() -> bool) -> Counts {
        let (symbolizer, processes) = (&mut self.symbolizer, &self.processes);
        let mut requested = symbolizer.read_received_methods(processes, interval.ended_ns);
        let awaited = self.assembler.awaited_stacks(symbolizer, processes);
        symbolizer.request_all_methods(&mut requested, &awaited.processes, interval.is_last);
        if interval.is_last {
            symbolizer.wait_for_debug_files(may_wait);
        }
        let mut lost = self.assembler.add_deferred(symbolizer, processes, &awaited);
        symbolizer.receive_all_methods(&requested, processes, interval.ended_ns);
        lost.add_all(self.assembler.add_deferred(symbolizer, processes, &AwaitedStacks::default()));
        lost
    }

    /// Has the next measures contain runtime events.
    pub(super) fn begin_measures(&mut self) {
        let (sampled, started_ns) = (&self.sampled, self.interval_started_ns);
        self.measured.get_or_insert_with(|| MeasuredEvents::new(sampled, started_ns));
    }

    /// The runtime events and the sums of counted events since the last call; `None` before
    /// [`begin_measures`](Self::begin_measures).
    pub(super) fn take_measures(&mut self, ended_ns: u64) -> Option<Profile> {
        let sums = std::mem::take(&mut self.unmeasured);
        self.measured.as_mut().map(|measured| measured.take(&sums, ended_ns))
    }

    /// Receives what the runtimes reported up to a time, `CLOCK_MONOTONIC` nanoseconds.
    pub(super) fn receive_runtime_events(&mut self, ended_ns: u64, is_last: bool) {
        for reported in self.symbolizer.receive_runtime_events(ended_ns, is_last) {
            if let Some(measured) = &mut self.measured {
                measured.add(&mut self.symbolizer, self.processes.get(reported.process), &reported);
            }
            self.early_events.push(reported);
        }
    }

    /// Adds the runtime events that were received. Their stacks have the symbols of the samples.
    fn add_runtime_events(&mut self) {
        for reported in std::mem::take(&mut self.early_events) {
            let process = self.processes.get(reported.process);
            self.assembler.add_runtime_events(&mut self.symbolizer, process, reported);
        }
    }

    /// The stacks with these ids; `None` if one is missing.
    fn stacks_of(&mut self, kernel: RawStackId, user: RawStackId) -> Option<SampleStacks> {
        let mut get = |id: RawStackId| id.map_or(Some(None), |_| self.stacks.get(id).map(Some));
        let (kernel, user) = (get(kernel)?, get(user)?);
        Some(SampleStacks { kernel, user, ..SampleStacks::default() })
    }

    /// Adds a sample to the current profile, once its process is known.
    fn add_sample(&mut self, received: ReceivedSample) {
        let sample = &received.sample;
        if self.memory_shortage.sheds(sample.time_ns) {
            return self.losses.shed_samples.add(sample.origin, sample.value);
        }
        let key = match self.process_of(sample.pid, sample.tid, sample.comm, sample.time_ns) {
            ProcessOfSample::Known(key) => key,
            ProcessOfSample::AfterWatermark => return self.early_samples.push(received),
            ProcessOfSample::NotATarget => return self.foreign.add(sample.origin, sample.value),
        };
        let waker_key = match &sample.waker {
            Some(waker) => match self.process_of(waker.pid, waker.tid, waker.comm, sample.time_ns) {
                ProcessOfSample::Known(key) => Some(key),
                ProcessOfSample::AfterWatermark | ProcessOfSample::NotATarget => None,
            },
            None => None,
        };
        let Some(process) = self.processes.get(key) else { return };
        let ReceivedSample { sample, stacks, waker_stacks } = received;
        self.unmeasured.add(sample.origin, sample.value);
        let waker_process = waker_key.and_then(|key| self.processes.get(key));
        let waker = sample.waker.as_ref().zip(waker_stacks).map(|(waker, stacks)| SampleWaker {
            process: waker_process.unwrap_or(process),
            stacks: if waker_process.is_some() { stacks } else { SampleStacks { user: None, ..stacks } },
            name: WakerName {
                comm: waker.comm,
                other_pid: Some(waker.pid).filter(|pid| *pid != 0 && *pid != sample.pid),
            },
        });
        self.assembler.add(&mut self.symbolizer, process, &sample, stacks, waker);
    }

    fn process_of(&mut self, pid: u32, tid: u32, comm: Comm, time_ns: u64) -> ProcessOfSample {
        self.processes.process_of_sample(pid, tid, time_ns, &comm.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sampler::TimerCounts,
        session::{Adjustment, test_symbolizer::symbolizer},
    };

    fn pipeline() -> Pipeline {
        let proc = Arc::new(ProcFs::live());
        Pipeline::new(
            Arc::clone(&proc),
            ProcessFilter::All,
            symbolizer(proc),
            Sampled { cpu: true, ..Sampled::default() },
        )
    }

    /// The ticks and the sum of samples and losses of a profile during sampling, with these counts of ticks.
    fn ticks(pipeline: &mut Pipeline, [ticks_before, target_ticks]: [u64; 2]) -> (u64, u64) {
        let header = Header { cpus: 2, ..Header::default() };
        let counts = KernelCounts { target_ticks, ..KernelCounts::default() };
        let adjustment = Adjustment::default();
        let interval = Interval { header, ended_ns: 1, ticks_before, counts, adjustment, is_last: false };
        let profile = pipeline.finish_interval(interval, &|| false);
        let ledger = profile.first_ledger();
        (ledger.due, ledger.reported + ledger.lost_total())
    }

    #[test]
    fn ticks_whose_samples_never_arrive_are_missing_in_a_profile_during_sampling() {
        let mut pipeline = pipeline();
        assert_eq!(ticks(&mut pipeline, [2, 4]), (0, 0), "their samples can still arrive");
        assert_eq!(ticks(&mut pipeline, [10, 12]), (8, 0), "more than a sample of each CPU is missing");
        assert_eq!(ticks(&mut pipeline, [10, 12]), (0, 0), "they are counted once");
    }

    #[test]
    fn the_counts_of_a_forged_capture_saturate() {
        let mut pipeline = pipeline();
        for _ in 0..2 {
            let (undecodable, lost_events, late_events) = (u64::MAX, u64::MAX, u64::MAX);
            let batch = Batch { undecodable, lost_events, late_events, ..Batch::default() };
            pipeline.process(batch, 0).unwrap();
        }
        let timer = TimerCounts { due: u64::MAX, cpu_online: u64::MAX, ..TimerCounts::default() };
        let counts = KernelCounts {
            target_ticks: u64::MAX,
            lost_ring_buffer: u64::MAX,
            lost_thread_id: u64::MAX,
            skipped_ticks: u64::MAX,
            timer,
            ..KernelCounts::default()
        };
        for is_last in [false, true] {
            let header = Header { cpus: u32::MAX, ..Header::default() };
            let adjustment = Adjustment::default();
            let interval =
                Interval { header, ended_ns: 1, ticks_before: u64::MAX, counts, adjustment, is_last };
            let profile = pipeline.finish_interval(interval, &|| false);
            assert_eq!(profile.ledger().lost_process_events, if is_last { 0 } else { u64::MAX });
        }
    }
}
