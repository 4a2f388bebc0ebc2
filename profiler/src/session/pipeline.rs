//! Turns batches into profiles: follows the processes, symbolizes stacks and accounts for every sample.

use std::{sync::Arc, time::Instant};

use profiler_processes::{MappedFiles, ProcFs, ProcessFilter, ProcessOfSample, ProcessTable};
use profiler_profile::{EventLedger, Header, Loss, MissedTick, Profile, TimerTicks};
use profiler_symbolize::Symbolizer;

use super::{
    pre_exec::PreExecFilter,
    profile_assembler::{AwaitedStacks, ProfileAssembler, SampleStacks},
    retained_stacks::{ForgetStack, RetainedStacks},
    sample_events::{Sampled, Ticks},
    unwinding::UnwindTableThread,
};
#[cfg(feature = "capture")]
use crate::sampler::capture::{Capture, Recorder};
use crate::{
    error::Result,
    sampler::{Batch, KernelCounts, RawSample, RawStackId, TimerCounts, WallCounts},
};

/// The interval at which perf maps, jitdumps and diagnostics sockets are polled.
const JIT_POLL_INTERVAL_NS: u64 = 100_000_000;

/// The pause after a poll, in multiples of the time that it took: huge files take a tenth of the thread's time.
const PAUSE_PER_JIT_POLL: u64 = 9;

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
    early_samples: Vec<(RawSample, SampleStacks)>,
    /// For a target that is a command.
    pre_exec_filter: Option<PreExecFilter>,
    /// The ticks of all samples and records so far.
    received_ticks: Ticks,
    /// Ticks that hit ids which no longer belong to the target.
    foreign_ticks: Ticks,
    /// Skipped ticks for which later samples stand.
    represented_ticks: u64,
    #[cfg(feature = "capture")]
    recorder: Option<Recorder>,
    losses: IntervalLosses,
    /// The zero of the times in the current profile, `CLOCK_MONOTONIC` nanoseconds.
    interval_started_ns: u64,
    next_jit_poll_ns: u64,
    /// The counters that earlier profiles account for.
    accounted: KernelCounts,
}

/// Losses on the user side since the last profile.
#[derive(Debug, Default)]
struct IntervalLosses {
    missing_stacks: Ticks,
    undecodable: u64,
    lost_events: u64,
    late_events: u64,
}

impl IntervalLosses {
    fn add(&mut self, batch: &Batch) {
        self.undecodable = self.undecodable.saturating_add(batch.undecodable);
        self.lost_events = self.lost_events.saturating_add(batch.lost_events);
        self.late_events = self.late_events.saturating_add(batch.late_events);
    }
}

/// The interval that a profile covers.
#[derive(Clone, Debug)]
pub(super) struct Interval {
    pub(super) header: Header,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub(super) ended_ns: u64,
    /// The target ticks that were counted before the last batch was read.
    pub(super) ticks_before: u64,
    /// The counters after it.
    pub(super) counts: KernelCounts,
    /// Whether sampling has stopped, which makes the kernel's count of ticks final.
    pub(super) is_last: bool,
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
            pre_exec_filter: None,
            received_ticks: Ticks::default(),
            foreign_ticks: Ticks::default(),
            represented_ticks: 0,
            #[cfg(feature = "capture")]
            recorder: None,
            losses: IntervalLosses::default(),
            interval_started_ns: 0,
            next_jit_poll_ns: 0,
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

    /// Reads the mappings of these processes before they are sampled.
    pub(super) fn prefetch(&mut self, pids: &[u32]) {
        for pid in pids {
            self.processes.prefetch(*pid);
        }
        self.prefetched_pids.extend(pids);
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
            let received = self.received_ticks.cpu.saturating_add(lost);
            let skipped = counts.skipped_ticks.saturating_sub(self.represented_ticks);
            // A CPU can be between the count of a tick and its record.
            let on_their_way = u64::from(interval.header.cpus).saturating_add(skipped);
            let least = interval.ticks_before.saturating_sub(on_their_way);
            received.max(least).min(counts.target_ticks)
        };
        let removed = self.pre_exec_filter.as_ref().map(PreExecFilter::removed_ticks).unwrap_or_default();
        let target_ticks = kernel_ticks.saturating_sub(removed.cpu + self.foreign_ticks.cpu);
        // Ticks of threads that still wait have no record before the end.
        let received = self.received_ticks.waiting.saturating_add(counts.wall.lost());
        let wall_ticks = if interval.is_last { counts.wall.ticks } else { received.min(counts.wall.ticks) };
        let wall_ticks = wall_ticks.saturating_sub(removed.waiting + self.foreign_ticks.waiting);
        KernelCounts { target_ticks, wall: WallCounts { ticks: wall_ticks, ..counts.wall }, ..counts }
    }

    /// Sets the start of the first interval, `CLOCK_MONOTONIC` nanoseconds.
    pub(super) fn start(&mut self, started_ns: u64) {
        self.interval_started_ns = started_ns;
        self.assembler = ProfileAssembler::new(&self.sampled, started_ns);
    }

    /// Bounds the memory of stacks: evicted ones are sent again.
    pub(super) fn bound_stacks(&mut self, forget: ForgetStack) {
        self.stacks.bound(forget);
    }

    /// Processes a batch that was read at `now_ns`.
    ///
    /// # Errors
    /// A capture that cannot be written.
    pub(super) fn process(&mut self, mut batch: Batch, now_ns: u64) -> Result<()> {
        let Ticks { cpu, waiting } = Ticks::of(&batch.samples);
        let of_cpus = batch.samples.iter().filter(|sample| sample.waited.is_none()).count() as u64;
        // The numbers of a capture are any.
        let received = &mut self.received_ticks;
        received.cpu = received.cpu.saturating_add(cpu).saturating_add(batch.undecodable);
        received.waiting = received.waiting.saturating_add(waiting);
        self.represented_ticks += cpu.saturating_sub(of_cpus);
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
        for (sample, stacks) in std::mem::take(&mut self.early_samples) {
            self.add_sample(sample, stacks);
        }
        for sample in batch.samples {
            match self.stacks_of(&sample) {
                Some(stacks) => self.add_sample(sample, stacks),
                None => self.losses.missing_stacks.add(sample.waited, sample.weight),
            }
        }
        self.stacks.advance(batch.watermark_ns);
        let assembler = &mut self.assembler;
        for process in self.processes.retire_ended(|key| assembler.awaits_symbols(key)) {
            assembler.retire(&process);
        }
        if now_ns >= self.next_jit_poll_ns {
            let begin = Instant::now();
            self.symbolizer.poll_jit(&self.processes, now_ns);
            let took_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let pause_ns = took_ns.saturating_mul(PAUSE_PER_JIT_POLL).max(JIT_POLL_INTERVAL_NS);
            self.next_jit_poll_ns = now_ns.saturating_add(pause_ns);
        }
        Ok(())
    }

    /// The profile of all samples since the last one. The last profile waits for symbols that are still on their way,
    /// as long as `may_wait` allows.
    pub(super) fn finish_interval(&mut self, interval: Interval, may_wait: &dyn Fn() -> bool) -> Profile {
        if interval.is_last {
            self.unwinding = None;
        }
        // A profile does not wait for the events up to the last reading.
        self.processes.advance(u64::MAX);
        for (sample, stacks) in std::mem::take(&mut self.early_samples) {
            self.add_sample(sample, stacks);
        }
        let lost = self.add_deferred(&interval, may_wait);
        self.losses.missing_stacks.cpu += lost.cpu;
        self.losses.missing_stacks.waiting += lost.waiting;
        let counts = self.target_counts(&interval);
        let next = ProfileAssembler::new(&self.sampled, interval.ended_ns);
        let assembler = std::mem::replace(&mut self.assembler, next);
        let losses = std::mem::take(&mut self.losses);
        let started_ns = std::mem::replace(&mut self.interval_started_ns, interval.ended_ns);
        let (of_cpu_ticks, wall) = (assembler.events().of_cpu_ticks(), assembler.events().wall());
        let mut builder = assembler.finish(|key| self.processes.get(key));
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let unrepresented_ticks =
            if interval.is_last { since(counts.skipped_ticks, self.represented_ticks) } else { 0 };
        let event = builder.event_ledger_mut(of_cpu_ticks);
        add_losses(
            event,
            [
                (Loss::OverheadLimit, unrepresented_ticks),
                (Loss::RingBufferFull, since(counts.lost_ring_buffer, self.accounted.lost_ring_buffer)),
                (Loss::NoThreadId, since(counts.lost_thread_id, self.accounted.lost_thread_id)),
                (Loss::MissingStack, losses.missing_stacks.cpu),
                (Loss::Undecodable, losses.undecodable),
            ],
        );
        event.skipped_ticks = since(counts.skipped_ticks, self.accounted.skipped_ticks);
        event.cut_stacks = since(counts.cut_stacks, self.accounted.cut_stacks);
        event.due = since(counts.target_ticks, self.accounted.target_ticks);
        if let Some((wall, on_cpu_ticks)) = wall {
            let event = builder.event_ledger_mut(wall);
            let (now, before) = (counts.wall, self.accounted.wall);
            add_losses(
                event,
                [
                    (Loss::ThreadRan, since(now.lost_awake, before.lost_awake)),
                    (Loss::RingBufferFull, since(now.lost_ring_buffer, before.lost_ring_buffer)),
                    (Loss::TooManyThreads, since(now.lost_thread, before.lost_thread)),
                    (Loss::MissingStack, losses.missing_stacks.waiting),
                ],
            );
            // Without an event of their own, the ticks of CPUs are there already.
            let on_cpu_ticks = if wall == of_cpu_ticks { 0 } else { on_cpu_ticks };
            event.due += since(now.ticks, before.ticks) + on_cpu_ticks;
        }
        let ledger = builder.ledger_mut();
        ledger.timer = timer_ticks(counts.timer, self.accounted.timer);
        ledger.lost_process_events = losses.lost_events;
        ledger.late_process_events = losses.late_events;
        ledger.malformed_jit_entries = self.symbolizer.malformed_jit_entries();
        ledger.dropped_runtime_events = self.symbolizer.dropped_runtime_events();
        ledger.lost_children = since(counts.lost_children, self.accounted.lost_children);
        ledger.cost.bpf_run_time_ns = since(counts.run_time_ns, self.accounted.run_time_ns);
        let header = Header {
            duration_ns: interval.ended_ns.saturating_sub(started_ns),
            started_monotonic_ns: started_ns,
            ..interval.header
        };
        let profile = builder.finish(header);
        #[cfg(feature = "capture")]
        if interval.is_last {
            self.symbolizer.capture_jit_names(&self.processes);
        }
        self.accounted = counts;
        self.processes.end_interval();
        let processes = &self.processes;
        // Samples of the last milliseconds are still in the ring buffer.
        self.symbolizer.end_interval(started_ns, |key| processes.get(key).is_some());
        profile
    }

    /// Adds the deferred samples. Waits for the runtimes only where the methods that were received lack a sampled one: a
    /// runtime takes 100 ms to write what it has buffered. Returns the number of samples whose process is unknown by now.
    fn add_deferred(&mut self, interval: &Interval, may_wait: &dyn Fn() -> bool) -> Ticks {
        let (symbolizer, processes) = (&mut self.symbolizer, &self.processes);
        let mut requested = symbolizer.read_received_methods(processes, interval.ended_ns);
        let awaited = self.assembler.awaited_stacks(symbolizer, processes);
        symbolizer.request_all_methods(&mut requested, &awaited.processes, interval.is_last);
        if interval.is_last {
            symbolizer.wait_for_debug_files(may_wait);
        }
        let lost = self.assembler.add_deferred(symbolizer, processes, &awaited);
        symbolizer.receive_all_methods(&requested, processes, interval.ended_ns);
        let later = self.assembler.add_deferred(symbolizer, processes, &AwaitedStacks::default());
        Ticks { cpu: lost.cpu + later.cpu, waiting: lost.waiting + later.waiting }
    }

    /// The stacks of a sample; `None` if one is missing.
    fn stacks_of(&mut self, sample: &RawSample) -> Option<SampleStacks> {
        let mut get = |id: RawStackId| id.map_or(Some(None), |_| self.stacks.get(id).map(Some));
        let (kernel, user) = (get(sample.kernel_stack)?, get(sample.user_stack)?);
        Some(SampleStacks { kernel, user, tables_outdated_since_ns: None })
    }

    /// Adds a sample to the current profile, once its process is known.
    fn add_sample(&mut self, sample: RawSample, stacks: SampleStacks) {
        let comm = sample.comm.text();
        let key = match self.processes.process_of_sample(sample.pid, sample.tid, sample.time_ns, &comm) {
            ProcessOfSample::Known(key) => key,
            ProcessOfSample::AfterWatermark => return self.early_samples.push((sample, stacks)),
            ProcessOfSample::NotATarget => {
                self.foreign_ticks.add(sample.waited, sample.weight);
                return;
            }
        };
        if let Some(process) = self.processes.get(key) {
            self.assembler.add(&mut self.symbolizer, process, &sample, stacks);
        }
    }
}

/// Adds the losses that are not 0.
fn add_losses<const N: usize>(event: &mut EventLedger, losses: [(Loss, u64); N]) {
    for (loss, count) in losses.into_iter().filter(|(_, count)| *count > 0) {
        *event.lost.entry(loss).or_default() += count;
    }
}

/// The ticks of the timers between two counts.
fn timer_ticks(now: TimerCounts, before: TimerCounts) -> TimerTicks {
    // Ticks between the readings of both counters seem to be missing, and to be too many in the next interval.
    let missed_between = |missed: fn(TimerCounts) -> u64| missed(now).saturating_sub(missed(before));
    let missed = missed_between(|counts| counts.due.saturating_sub(counts.delivered));
    let idle = missed_between(|counts| counts.idle_due.saturating_sub(counts.idle_delivered)).min(missed);
    let without_timer =
        if now.is_throttled || before.is_throttled { MissedTick::Throttled } else { MissedTick::NoInterrupt };
    let missed = [
        (without_timer, missed - idle),
        (MissedTick::IdleCpu, idle),
        (MissedTick::CpuOnline, missed_between(|counts| counts.cpu_online)),
    ];
    let due = |counts: TimerCounts| counts.due.saturating_add(counts.cpu_online);
    TimerTicks {
        due: due(now).saturating_sub(due(before)),
        missed: missed.into_iter().filter(|(_, ticks)| *ticks > 0).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::test_symbolizer::symbolizer;

    fn pipeline() -> Pipeline {
        let proc = Arc::new(ProcFs::live());
        Pipeline::new(Arc::clone(&proc), ProcessFilter::All, symbolizer(proc), Sampled::default())
    }

    /// The ticks and the sum of samples and losses of a profile during sampling, with these counts of ticks.
    fn ticks(pipeline: &mut Pipeline, [ticks_before, target_ticks]: [u64; 2]) -> (u64, u64) {
        let header = Header { cpus: 2, ..Header::default() };
        let counts = KernelCounts { target_ticks, ..KernelCounts::default() };
        let interval = Interval { header, ended_ns: 1, ticks_before, counts, is_last: false };
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
            let interval = Interval { header, ended_ns: 1, ticks_before: u64::MAX, counts, is_last };
            let profile = pipeline.finish_interval(interval, &|| false);
            assert_eq!(profile.ledger().lost_process_events, if is_last { 0 } else { u64::MAX });
        }
    }

    #[test]
    fn ticks_missed_while_a_cpu_was_idle_have_that_cause() {
        let before = TimerCounts {
            due: 100,
            delivered: 90,
            idle_due: 50,
            idle_delivered: 45,
            ..TimerCounts::default()
        };
        let after = |due, delivered, idle_due, idle_delivered| {
            timer_ticks(TimerCounts { due, delivered, idle_due, idle_delivered, ..before }, before)
        };
        let missed = |idle, other| {
            let causes = [(MissedTick::IdleCpu, idle), (MissedTick::NoInterrupt, other)];
            causes.into_iter().filter(|(_, ticks)| *ticks > 0).collect()
        };
        assert_eq!(after(300, 190, 150, 45), TimerTicks { due: 200, missed: missed(100, 0) });
        assert_eq!(after(300, 180, 150, 55), TimerTicks { due: 200, missed: missed(90, 20) });
        // Idle time in units of 10 ms is more than what was missed.
        assert_eq!(after(300, 285, 160, 135), TimerTicks { due: 200, missed: missed(5, 0) });
    }
}
