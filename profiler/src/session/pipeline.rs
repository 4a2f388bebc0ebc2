//! Turns batches into profiles: follows the processes, symbolizes stacks and accounts for every sample.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use profiler_addresses::MonotonicTime;
use profiler_binary_reader::WorkBudget;
use profiler_dotnet_diagnostics::{EventSources, ProcessEvents};
use profiler_processes::{MappedFiles, Pid, ProcFs, ProcessFilter, ProcessOfSample, ProcessTable, Tid};
use profiler_profile::{Header, Profile};
use profiler_sampler::{ArrivedSamples, Batch, Comm, EventPlan, KernelCounts, RawSample, RawStackId};
use profiler_symbolize::Symbolizer;

use super::{
    account::{Account, IntervalLosses},
    after_target,
    capture::SessionRecorder,
    interval::Interval,
    measures::MeasuredEvents,
    memory_shortage::MemoryShortage,
    poll::Poll,
    pre_exec::PreExecFilter,
    profile_assembler::{AwaitedStacks, ProfileAssembler, SampleStacks, SampleWaker, WakerName},
    retained_stacks::{ForgetStack, RetainedStacks},
    sample_events::{Counts, Received},
    unwinding::UnwindTableThread,
    wait_readings::WaitReadings,
};
use crate::error::Result;

/// Polls of perf maps, jitdumps and diagnostics sockets: huge files take a tenth of the thread's time.
const JIT_POLL: Poll = Poll::new(Duration::from_millis(100), 9);

/// Turns batches into profiles.
pub(super) struct Pipeline {
    processes: ProcessTable,
    symbolizer: Symbolizer,
    runtime_events: EventSources,
    unwinding: Option<UnwindTableThread>,
    stacks: RetainedStacks,
    events: EventPlan,
    /// Whether user stacks are sampled; if not, a stack is complete when its kernel stack is.
    has_user_stacks: bool,
    assembler: ProfileAssembler,
    /// Samples of processes that were read from `/proc` later than the events that are known.
    early_samples: Vec<ReceivedSample>,
    /// Runtime events that were received for measures, and are added to the profile at the end of its interval: the names in
    /// their stacks may still arrive.
    early_events: Vec<ProcessEvents>,
    wait_readings: WaitReadings,
    /// From the first request for measures on.
    measured: Option<MeasuredEvents>,
    /// The samples that were added since measures were taken.
    unmeasured: Counts,
    /// For a target that is a command.
    pre_exec_filter: Option<PreExecFilter>,
    /// So far.
    received: Received,
    /// Samples of ids which no longer belong to the target.
    foreign: Counts,
    recorder: SessionRecorder,
    memory_shortage: MemoryShortage,
    losses: IntervalLosses,
    /// The zero of the times in the current profile, and in the first one.
    interval_started: MonotonicTime,
    session_started: MonotonicTime,
    jit_poll: Poll,
    /// The counters that earlier profiles account for.
    accounted: KernelCounts,
}

impl Drop for Pipeline {
    /// Stops the sessions of events and those of methods, which the symbolizer has, at the same time.
    fn drop(&mut self) {
        self.runtime_events.begin_stop();
    }
}

/// A sample with its stacks.
struct ReceivedSample {
    sample: RawSample,
    stacks: SampleStacks,
    /// Those of the thread that ended the wait.
    waker_stacks: Option<SampleStacks>,
}

/// What a pipeline is made of.
pub(super) struct PipelineParts {
    pub(super) proc: Arc<ProcFs>,
    pub(super) filter: ProcessFilter,
    pub(super) symbolizer: Symbolizer,
    /// What the runtimes of the target are asked for beside the samples.
    pub(super) runtime_events: EventSources,
    pub(super) events: EventPlan,
    /// Whether user stacks are sampled; if not, a stack is complete when its kernel stack is.
    pub(super) has_user_stacks: bool,
    /// Removes stacks from the kernel's set, so that they can be evicted. `None`: each is sent once.
    pub(super) forget_stack: Option<ForgetStack>,
    /// Samples that wait too long while memory is short are shed.
    pub(super) memory_shortage: MemoryShortage,
    /// The process of a command, whose samples are ignored until its first exec.
    pub(super) command_pid: Option<Pid>,
    /// Saves everything that is processed into a capture.
    pub(super) recorder: SessionRecorder,
}

impl PipelineParts {
    /// The parts of a pipeline that reads a source other than the BPF programs.
    #[cfg(any(test, feature = "capture", feature = "testing"))]
    pub(super) fn new(
        proc: Arc<ProcFs>,
        filter: ProcessFilter,
        symbolizer: Symbolizer,
        events: EventPlan,
    ) -> Self {
        Self {
            proc,
            filter,
            symbolizer,
            runtime_events: EventSources::default(),
            events,
            has_user_stacks: true,
            forget_stack: None,
            memory_shortage: MemoryShortage::default(),
            command_pid: None,
            recorder: SessionRecorder::default(),
        }
    }
}

impl Pipeline {
    pub(super) fn new(parts: PipelineParts) -> Self {
        let notes_mutex_waits = parts.has_user_stacks && parts.events.notes_mutex_waits();
        Self {
            processes: ProcessTable::new(parts.proc, parts.filter),
            symbolizer: parts.symbolizer,
            runtime_events: parts.runtime_events,
            unwinding: None,
            stacks: RetainedStacks::new(parts.forget_stack),
            assembler: ProfileAssembler::new(&parts.events, parts.has_user_stacks, MonotonicTime::ZERO),
            events: parts.events,
            has_user_stacks: parts.has_user_stacks,
            early_samples: Vec::new(),
            early_events: Vec::new(),
            wait_readings: WaitReadings::new(notes_mutex_waits),
            measured: None,
            unmeasured: Counts::default(),
            pre_exec_filter: parts.command_pid.map(PreExecFilter::new),
            received: Received::default(),
            foreign: Counts::default(),
            recorder: parts.recorder,
            memory_shortage: parts.memory_shortage,
            losses: IntervalLosses::default(),
            interval_started: MonotonicTime::ZERO,
            session_started: MonotonicTime::ZERO,
            jit_poll: JIT_POLL,
            accounted: KernelCounts::default(),
        }
    }

    /// Completes the capture, where one is recorded.
    pub(super) fn finish_recording(&mut self) -> Result<()> {
        self.recorder.finish()
    }

    /// Reads the mappings of these processes before they are sampled.
    pub(super) fn prefetch(&mut self, pids: &[Pid]) {
        for pid in pids {
            self.processes.prefetch(*pid);
        }
        self.recorder.note_prefetched(pids);
    }

    /// Starts to collect the events of runtimes that were found meanwhile.
    pub(super) fn poll_runtime_events(&mut self) {
        // The methods of the stacks, also where no sample has JIT code.
        let found = self.runtime_events.poll(&self.processes);
        for process in found.into_iter().filter_map(|key| self.processes.get(key)) {
            self.symbolizer.begin_jit_names(process);
        }
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
        pids: &[Pid],
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

    /// The kernel's counters. What is due of events is without samples of processes that are not targets, and while sampling
    /// goes on without samples that are still on their way.
    fn settled_counts(&self, interval: &Interval) -> KernelCounts {
        let removed = self.pre_exec_filter.as_ref().map(PreExecFilter::removed);
        let arrived = |event| ArrivedSamples {
            samples: self.received.samples.get(event),
            records: self.received.records.get(event),
            foreign: self.foreign.get(event) + removed.map_or(0, |removed| removed.get(event)),
            due_before: interval.counts_before.events.get(event).map_or(0, |event| event.due),
            cpus: interval.header.cpus,
            is_last: interval.is_last,
        };
        let events = self.events.settle(&interval.counts.events, arrived);
        KernelCounts { events, ..interval.counts }
    }

    /// The budget of reading symbols.
    pub(super) fn symbol_budget(&self) -> Arc<WorkBudget> {
        Arc::clone(self.symbolizer.work_budget())
    }

    /// Sets the start of the first interval.
    pub(super) fn start(&mut self, started: MonotonicTime) {
        self.interval_started = started;
        self.session_started = started;
        self.assembler = ProfileAssembler::new(&self.events, self.has_user_stacks, started);
    }

    /// Loads what resolves addresses of the kernel, while this process has the rights for it.
    pub(super) fn load_kernel_names(&mut self) {
        self.symbolizer.load_kernel_names();
    }

    /// Processes a batch that was read at `now`.
    ///
    /// # Errors
    /// A capture that cannot be written.
    pub(super) fn process(&mut self, mut batch: Batch, now: MonotonicTime) -> Result<()> {
        self.received.add(&batch.samples);
        if let Some(ticks) = self.events.ticks_index() {
            self.received.add_undecodable(ticks, batch.undecodable);
        }
        if let Some(filter) = &mut self.pre_exec_filter {
            filter.find_exec(&batch);
        }
        for event in std::mem::take(&mut batch.events) {
            // A capture holds no events of processes that are not sampled.
            if self.recorder.is_recording() && self.processes.is_relevant(&event) {
                batch.events.push(event.clone());
            }
            self.processes.apply(event);
        }
        self.recorder.record(&batch)?;
        if let Some(filter) = &mut self.pre_exec_filter {
            filter.remove_samples(&mut batch);
        }
        self.losses.add(&batch);
        self.wait_readings.note_mutex_waits(&batch.mutex_waits);
        if batch.may_lack_events {
            self.processes.lose_events();
        }
        self.processes.advance(batch.watermark);
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
        self.stacks.advance(batch.watermark);
        let (assembler, runtime_events, early_events, wait_readings) =
            (&self.assembler, &self.runtime_events, &self.early_events, &self.wait_readings);
        let is_needed = |key| {
            assembler.awaits_symbols(key)
                || runtime_events.awaits(key)
                || wait_readings.has(key)
                || early_events.iter().any(|reported| reported.process == key)
        };
        for process in self.processes.retire_ended(is_needed) {
            self.assembler.retire(&process);
        }
        if self.jit_poll.is_due(now) {
            let begin = Instant::now();
            self.symbolizer.poll_jit(&self.processes, now);
            self.poll_runtime_events();
            if let Some(unwinding) = &mut self.unwinding {
                unwinding.update_jit_code(&mut self.symbolizer);
            }
            self.jit_poll.end(now, begin.elapsed());
        }
        // A capture has nothing of these readings.
        if self.events.waits().is_some() && !self.proc().has_capture() {
            self.wait_readings.read(&mut self.symbolizer, &self.processes, now);
        }
        Ok(())
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
            self.recorder.note_end(&interval, self.session_started);
        }
        // A profile does not wait for the events up to the last reading.
        self.processes.advance(MonotonicTime::MAX);
        for received in std::mem::take(&mut self.early_samples) {
            self.add_sample(received);
        }
        if interval.is_last {
            self.runtime_events.begin_stop();
        }
        let lost = self.add_deferred(&interval, may_wait);
        self.receive_runtime_events(interval.ended, interval.is_last);
        self.add_runtime_events();
        self.wait_readings.add_until(interval.ended, &self.processes, &mut self.assembler);
        self.losses.missing_stacks.add_all(&lost);
        let counts = self.settled_counts(&interval);
        self.events.timer_hz = interval.adjustment.frequency_hz.unwrap_or(self.events.timer_hz);
        let next = ProfileAssembler::new(&self.events, self.has_user_stacks, interval.ended);
        let assembler = std::mem::replace(&mut self.assembler, next);
        let losses = std::mem::take(&mut self.losses);
        let started = std::mem::replace(&mut self.interval_started, interval.ended);
        let (mut builder, events) = assembler.finish(|key| self.processes.get(key));
        let account = Account { now: &counts, before: &self.accounted, losses };
        account.fill(&events, &mut builder);
        let ledger = builder.ledger_mut();
        let lost_events = self.runtime_events.lost();
        ledger.malformed_jit_entries = self.symbolizer.malformed_jit_entries() + lost_events.malformed;
        ledger.dropped_runtime_events = self.symbolizer.dropped_method_events() + lost_events.dropped;
        ledger.event_sessions = self.symbolizer.event_sessions();
        let since_start_ns = started.nanoseconds_since(self.session_started);
        let header = Header {
            started_unix_ns: interval.header.started_unix_ns.saturating_add(since_start_ns),
            duration_ns: interval.ended.nanoseconds_since(started),
            started_monotonic_ns: started.0,
            ..interval.header
        };
        let profile = builder.finish(header);
        if interval.is_last {
            self.symbolizer.capture_jit_names(&self.processes);
        }
        if interval.adjustment.evicts_stacks {
            self.stacks.evict();
        }
        self.accounted = counts;
        // Samples of the last milliseconds are still in the ring buffer.
        self.processes.end_interval(started);
        let processes = &self.processes;
        let is_retained = |key| processes.get(key).is_some();
        self.runtime_events.retire_ended(is_retained);
        self.symbolizer.end_interval(started, is_retained);
        profile
    }

    /// Adds the deferred samples. Waits for the runtimes only where the methods that were received lack a sampled one: a
    /// runtime takes 100 ms to write what it has buffered. Returns the number of samples whose process is unknown by now.
    fn add_deferred(&mut self, interval: &Interval, may_wait: &dyn Fn() -> bool) -> Counts {
        let (symbolizer, processes) = (&mut self.symbolizer, &self.processes);
        let mut requested = symbolizer.read_received_methods(processes, interval.ended);
        let awaited = self.assembler.awaited_stacks(symbolizer, processes);
        symbolizer.request_all_methods(&mut requested, &awaited.processes, interval.is_last);
        if interval.is_last {
            symbolizer.wait_for_debug_files(may_wait);
        }
        let mut lost = self.assembler.add_deferred(symbolizer, processes, &awaited);
        symbolizer.receive_all_methods(&requested, processes, interval.ended);
        lost.add_all(&self.assembler.add_deferred(symbolizer, processes, &AwaitedStacks::default()));
        lost
    }

    /// Has the next measures contain runtime events.
    pub(super) fn begin_measures(&mut self) {
        let (events, started) = (&self.events, self.interval_started);
        self.measured.get_or_insert_with(|| MeasuredEvents::new(events, started));
    }

    /// The runtime events and the sums of counted events since the last call; `None` before
    /// [`begin_measures`](Self::begin_measures).
    pub(super) fn take_measures(&mut self, ended: MonotonicTime) -> Option<Profile> {
        let sums = std::mem::take(&mut self.unmeasured);
        self.measured.as_mut().map(|measured| measured.take(&sums, ended))
    }

    /// Receives what the runtimes reported up to a time.
    pub(super) fn receive_runtime_events(&mut self, ended: MonotonicTime, is_last: bool) {
        for reported in self.runtime_events.receive(ended, is_last) {
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
        if self.memory_shortage.sheds(sample.time) {
            return self.losses.shed_samples.add(sample.origin, sample.value);
        }
        let key = match self.process_of(sample.pid, sample.tid, sample.comm, sample.time) {
            ProcessOfSample::Known(key) => key,
            ProcessOfSample::AfterWatermark => return self.early_samples.push(received),
            ProcessOfSample::NotATarget => return self.foreign.add(sample.origin, sample.value),
        };
        let waker_key = match &sample.waker {
            Some(waker) => match self.process_of(waker.pid, waker.tid, waker.comm, sample.time) {
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
                other_pid: Some(waker.pid).filter(|pid| *pid != Pid(0) && *pid != sample.pid),
            },
        });
        self.assembler.add(&mut self.symbolizer, process, &sample, stacks, waker);
    }

    fn process_of(&mut self, pid: Pid, tid: Tid, comm: Comm, time: MonotonicTime) -> ProcessOfSample {
        self.processes.process_of_sample(pid, tid, time, &comm.text())
    }
}

#[cfg(test)]
mod tests {
    use profiler_profile::{EventLedger, Loss};
    use profiler_sampler::TimerCounts;

    use super::*;
    use crate::session::{Adjustment, test_symbolizer::symbolizer};

    fn pipeline() -> Pipeline {
        let proc = Arc::new(ProcFs::live());
        let (symbolizer, events) = (symbolizer(Arc::clone(&proc)), EventPlan::cpu_samples(0));
        Pipeline::new(PipelineParts::new(proc, ProcessFilter::All, symbolizer, events))
    }

    /// The ticks and the sum of samples and losses of a profile during sampling, with these counts of ticks.
    fn ticks(pipeline: &mut Pipeline, [ticks_before, target_ticks]: [u64; 2]) -> (u64, u64) {
        let header = Header { cpus: 2, ..Header::default() };
        let [counts_before, counts] = [ticks_before, target_ticks].map(KernelCounts::of_ticks);
        let adjustment = Adjustment::default();
        let interval =
            Interval { header, ended: MonotonicTime(1), counts_before, counts, adjustment, is_last: false };
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
            pipeline.process(batch, MonotonicTime(0)).unwrap();
        }
        let timer = TimerCounts { due: u64::MAX, cpu_online: u64::MAX, ..TimerCounts::default() };
        let ticks = EventLedger {
            due: u64::MAX,
            lost: [(Loss::RingBufferFull, u64::MAX), (Loss::NoThreadId, u64::MAX)].into(),
            skipped_ticks: u64::MAX,
            ..EventLedger::default()
        };
        let counts = KernelCounts { events: vec![ticks], timer, ..KernelCounts::default() };
        for is_last in [false, true] {
            let header = Header { cpus: u32::MAX, ..Header::default() };
            let adjustment = Adjustment::default();
            let (counts_before, counts) = (counts.clone(), counts.clone());
            let interval =
                Interval { header, ended: MonotonicTime(1), counts_before, counts, adjustment, is_last };
            let profile = pipeline.finish_interval(interval, &|| false);
            assert_eq!(profile.ledger().lost_process_events, if is_last { 0 } else { u64::MAX });
        }
    }
}
