//! From batches to a profile: the part of a session that knows processes and names.

use std::{collections::HashMap, sync::Arc};

use super::{
    assembly::{Assembly, Sides},
    launcher::Launcher,
};
use crate::{
    error::Result,
    sampler::{
        Batch, KernelCounts, RawSample, RawStack, RawStackId,
        capture::{Capture, Recorder},
    },
};
use profiler_processes::{ProcFs, ProcessFilter, ProcessTable};
use profiler_profile::{Header, Loss, Profile};
use profiler_symbolize::Symbolizer;

/// How many distinct stacks are kept; each takes about 200 bytes.
const MAX_STACKS: usize = 512 * 1024;

/// How many samples can wait for names until the profile is taken.
const MAX_WAITING: usize = 8 << 20;

/// How often the files that runtimes write are looked at.
const JIT_POLL_INTERVAL_NS: u64 = 100_000_000;

/// Turns what comes from a source into profiles.
pub(super) struct Pipeline {
    processes: ProcessTable,
    /// Those that were asked before sampling began.
    expected: Vec<u32>,
    symbolizer: Symbolizer,
    stacks: HashMap<RawStackId, RawStack>,
    has_user_stacks: bool,
    assembly: Assembly,
    waiting: Vec<RawSample>,
    /// What executes the command, when that is the target.
    launcher: Option<Launcher>,
    recorder: Option<Recorder>,
    tally: Tally,
    /// The zero of the times in the profile that is being made.
    interval_started_ns: u64,
    next_jit_poll_ns: u64,
    /// What the profiles that were taken before account for.
    accounted: KernelCounts,
}

/// What was counted on the way since the last profile.
#[derive(Debug, Default)]
struct Tally {
    stack_table_full: u64,
    undecodable: u64,
    lost_events: u64,
}

/// What a profile covers.
#[derive(Clone, Debug)]
pub(super) struct Interval {
    pub(super) header: Header,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub(super) ended_ns: u64,
    pub(super) counts: KernelCounts,
    /// Whether sampling is over: then the kernel's count of ticks is final.
    pub(super) is_last: bool,
}

impl Pipeline {
    pub(super) fn new(
        proc: Arc<ProcFs>,
        interest: ProcessFilter,
        symbolizer: Symbolizer,
        recorder: Option<Recorder>,
        has_user_stacks: bool,
    ) -> Self {
        Self {
            processes: ProcessTable::new(proc, interest),
            expected: Vec::new(),
            symbolizer,
            stacks: HashMap::new(),
            has_user_stacks,
            assembly: Assembly::new(has_user_stacks),
            waiting: Vec::new(),
            launcher: None,
            recorder,
            tally: Tally::default(),
            interval_started_ns: 0,
            next_jit_poll_ns: 0,
            accounted: KernelCounts::default(),
        }
    }

    /// Asks these processes now, before they are sampled.
    pub(super) fn expect(&mut self, pids: &[u32]) {
        for pid in pids {
            self.processes.prefetch(*pid);
        }
        self.expected.extend(pids);
    }

    /// The processes that were asked before they were sampled.
    pub(super) fn expected(&self) -> &[u32] {
        &self.expected
    }

    /// The target is a command that this process will execute.
    pub(super) fn expect_command(&mut self, pid: u32) {
        self.launcher = Some(Launcher::new(pid));
    }

    /// What the kernel side counted, without what was not the target's.
    pub(super) fn counts_of_target(&self, counts: KernelCounts) -> KernelCounts {
        let ticks = self.launcher.as_ref().map_or(0, Launcher::ticks);
        KernelCounts { target_ticks: counts.target_ticks.saturating_sub(ticks), ..counts }
    }

    /// Sampling began at this time.
    pub(super) fn start(&mut self, started_ns: u64) {
        self.interval_started_ns = started_ns;
    }

    /// Takes in what came from the source by `now_ns`.
    pub(super) fn take_in(&mut self, mut batch: Batch, now_ns: u64) -> Result<()> {
        if let Some(launcher) = &mut self.launcher {
            launcher.take_out(&mut batch);
        }
        for event in std::mem::take(&mut batch.events) {
            // What happens to others is not for a capture to tell.
            if self.recorder.is_some() && self.processes.is_relevant(&event) {
                batch.events.push(event.clone());
            }
            self.processes.apply(event);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.record(&batch)?;
        }
        self.tally.undecodable += batch.undecodable;
        self.tally.lost_events += batch.lost_events;
        for stack in batch.stacks {
            if self.stacks.len() < MAX_STACKS {
                self.stacks.insert(stack.id, stack);
            }
        }
        let first_ns = batch.samples.first().map(|sample| sample.time_ns);
        for sample in batch.samples {
            self.place(sample, false);
        }
        if let Some(first_ns) = first_ns {
            self.processes.evict_unsampled(first_ns);
        }
        if now_ns >= self.next_jit_poll_ns {
            self.next_jit_poll_ns = now_ns + JIT_POLL_INTERVAL_NS;
            self.symbolizer.poll_jit(&self.processes, now_ns);
        }
        Ok(())
    }

    /// The profile of all samples since the last one. The last of all waits for what is on its way, as long as
    /// `may_wait`.
    pub(super) fn finish(&mut self, interval: Interval, may_wait: &dyn Fn() -> bool) -> Profile {
        self.symbolizer.settle_jit(&self.processes, interval.ended_ns, interval.is_last);
        if interval.is_last {
            self.symbolizer.wait_for_debug_files(may_wait);
        }
        for sample in std::mem::take(&mut self.waiting) {
            self.place(sample, true);
        }
        let assembly = std::mem::replace(&mut self.assembly, Assembly::new(self.has_user_stacks));
        let tally = std::mem::take(&mut self.tally);
        let started_ns = std::mem::replace(&mut self.interval_started_ns, interval.ended_ns);
        let mut builder = assembly.finish(|key| self.processes.get(key));
        let ledger = builder.ledger_mut();
        let lost = |now: u64, before: u64| now.saturating_sub(before);
        let counts = interval.counts;
        for (loss, count) in [
            (Loss::RingBufferFull, lost(counts.lost_ring_buffer, self.accounted.lost_ring_buffer)),
            (Loss::NoThreadId, lost(counts.lost_thread_id, self.accounted.lost_thread_id)),
            (Loss::StackTableFull, tally.stack_table_full),
            (Loss::Undecodable, tally.undecodable),
        ] {
            if count > 0 {
                ledger.lost.insert(loss, count);
            }
        }
        ledger.lost_process_events = tally.lost_events;
        ledger.malformed_jit_entries = self.symbolizer.malformed_jit_entries();
        ledger.dropped_runtime_events = self.symbolizer.dropped_runtime_events();
        ledger.lost_children = lost(counts.lost_children, self.accounted.lost_children);
        ledger.cost.bpf_run_time_ns = lost(counts.run_time_ns, self.accounted.run_time_ns);
        if interval.is_last {
            ledger.target_ticks = lost(counts.target_ticks, self.accounted.target_ticks);
        }
        let header = Header {
            duration_ns: interval.ended_ns.saturating_sub(started_ns),
            started_monotonic_ns: started_ns,
            ..interval.header
        };
        let profile = builder.finish(header);
        if interval.is_last {
            self.symbolizer.capture_jit_names(&self.processes);
        }
        self.accounted =
            KernelCounts { target_ticks: self.accounted.target_ticks + accounted_ticks(&profile), ..counts };
        self.processes.evict_ended();
        let processes = &self.processes;
        self.symbolizer.retain_processes(|key| processes.get(key).is_some());
        profile
    }

    /// Ends the recording of a capture, where there is one.
    pub(super) fn finish_recording(&mut self, capture: &Capture) -> Result<()> {
        match self.recorder.take() {
            Some(recorder) => recorder.finish(capture),
            None => Ok(()),
        }
    }

    fn place(&mut self, sample: RawSample, names_are_complete: bool) {
        let sides = Sides {
            kernel: sample.kernel_stack.and_then(|_| self.stacks.get(&sample.kernel_stack)),
            user: sample.user_stack.and_then(|_| self.stacks.get(&sample.user_stack)),
        };
        let is_known = sides.kernel.is_some() == sample.kernel_stack.is_some()
            && sides.user.is_some() == sample.user_stack.is_some();
        if !is_known {
            self.tally.stack_table_full += 1;
            return;
        }
        let key = self.processes.process_of_sample(sample.pid, sample.time_ns, &sample.comm.text());
        let Some(process) = self.processes.get(key) else { return };
        let is_placed = self.assembly.add(
            &mut self.symbolizer,
            process,
            &sample,
            sides,
            self.interval_started_ns,
            names_are_complete,
        );
        if is_placed {
            return;
        }
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push(sample);
        } else {
            self.tally.stack_table_full += 1;
        }
    }
}

/// The ticks that a profile accounts for. Those still on their way while it was taken belong to the next.
fn accounted_ticks(profile: &Profile) -> u64 {
    profile.ledger().reported + profile.ledger().lost_total()
}
