//! The first line of captures of version 1, whose sessions had ticks of CPUs alone.

use profiler_addresses::MonotonicTime;
use profiler_processes::{Pid, ProcessFilter};
use profiler_profile::Loss;
use serde::Deserialize;

use super::metadata::{Capture, RecordedCounts, RecordedLedger};
use crate::{counts::TimerCounts, ebpf::events::EventSettings};

/// The metadata of a capture.
#[derive(Debug, Deserialize)]
pub(super) struct CaptureOfTicks {
    target: String,
    frequency_hz: u64,
    cpus: u32,
    started_ns: u64,
    ended_ns: u64,
    started_unix_ns: u64,
    counts: TickCounts,
    #[serde(default)]
    expected: Vec<Pid>,
}

/// The counters at the end.
#[derive(Debug, Deserialize)]
struct TickCounts {
    target_ticks: u64,
    lost_ring_buffer: u64,
    lost_thread_id: u64,
    lost_children: u64,
    run_time_ns: u64,
    #[serde(default)]
    skipped_ticks: u64,
    #[serde(default)]
    cut_stacks: u64,
    #[serde(default)]
    timer: TimerCounts,
}

impl From<CaptureOfTicks> for Capture {
    fn from(capture: CaptureOfTicks) -> Self {
        let counts = capture.counts;
        let lost =
            [(Loss::RingBufferFull, counts.lost_ring_buffer), (Loss::NoThreadId, counts.lost_thread_id)];
        let ticks = RecordedLedger {
            due: counts.target_ticks,
            lost: lost.into_iter().filter(|(_, count)| *count > 0).collect(),
            skipped_ticks: counts.skipped_ticks,
            cut_stacks: counts.cut_stacks,
            ..RecordedLedger::default()
        };
        Self {
            version: 1,
            target: capture.target,
            // Every sample is of the target: those before the exec of a command were left out.
            filter: ProcessFilter::All,
            command_pid: None,
            expected: capture.expected,
            events: EventSettings { frequency_hz: capture.frequency_hz, ..EventSettings::default() },
            has_user_stacks: true,
            cpus: capture.cpus,
            started: MonotonicTime(capture.started_ns),
            ended: MonotonicTime(capture.ended_ns),
            started_unix_ns: capture.started_unix_ns,
            counts: RecordedCounts {
                lost_children: counts.lost_children,
                run_time_ns: counts.run_time_ns,
                timer: counts.timer,
                events: vec![ticks],
            },
        }
    }
}
