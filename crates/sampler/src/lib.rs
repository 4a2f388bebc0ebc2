//! Samples of the profiler, from the BPF programs or from a recorded capture: the plan of a session, the kinds of events with
//! their programs and counters, the loader, the unwind maps, and the raw samples and sideband events that arrive.
//!
//! A [`Plan`] says what to sample. [`LoadedSource::load`] loads the BPF programs that it needs, and
//! [`LoadedSource::start`] attaches them. From then on a [`SampleSource`] returns [`Batch`]es: samples with the ids of their
//! stacks, stacks that are new, and sideband events, in time order. Addresses have no names here: this crate knows neither files
//! nor symbols of targets.

mod available_events;
mod batch_order;
#[cfg(feature = "capture")]
pub mod capture;
mod counted_event;
mod ebpf;
mod error;
mod event_condition;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;
mod plan;
#[cfg(feature = "capture")]
mod replay;
mod sys;
pub mod system_calls;

use std::{borrow::Cow, time::Duration};

use profiler_addresses::RuntimeAddress;
use profiler_common::{COMM_BYTES, FrameFlags, system_call::SystemCallAbi, unwind::StackEndReason};
use profiler_processes::SidebandEvent;
use profiler_profile::{EventLedger, ThreadState};

use self::ebpf::Counters;
#[cfg(any(test, feature = "testing"))]
pub use self::ebpf::test_maps;
#[cfg(feature = "capture")]
pub use self::replay::ReplaySource;
pub use self::{
    available_events::{AvailableEvent, available_events},
    batch_order::BatchOrder,
    counted_event::{CountedEvent, EventSource, Probe, StaticProbeName, UnknownEvent},
    ebpf::{
        EbpfSource, INITIAL_PID_NAMESPACE, InstallError, InstalledFile, InstalledMappings, LoadedSource,
        UnwindMaps, abilities, check_present,
        events::{
            ArrivedSamples, DEFAULT_FREQUENCY_HZ, EventPlan, EventSettings, MAX_COUNTED_EVENTS, OffCpu,
            PlannedEvent, ProbePlace, ProbedFile, Waits, WallShare, add_loss,
        },
        raise_locked_memory_limit,
    },
    error::{Error, ErrorKind, Operation, Result},
    event_condition::{EventCondition, InvalidCondition},
    plan::{DEFAULT_MAX_OVERHEAD_PERCENT, Filter, Plan, StackSettings, Unwind},
    sys::{kernel_names::KernelNames, priority::raise_thread_priority, sysctl},
};

/// The id of a captured stack; `None` is no stack on that side.
pub type RawStackId = Option<std::num::NonZeroU64>;

/// A sample as it was taken: stacks by id.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "capture", derive(serde::Serialize, serde::Deserialize))]
pub struct RawSample {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// The CPU on which it was taken.
    pub cpu: u32,
    /// The process, in the profiler's PID namespace.
    pub pid: u32,
    /// The thread, in the profiler's PID namespace.
    pub tid: u32,
    /// The thread's name.
    pub comm: Comm,
    /// The stack in the kernel.
    pub kernel_stack: RawStackId,
    /// The stack in user space.
    pub user_stack: RawStackId,
    /// What was measured.
    #[cfg_attr(feature = "capture", serde(skip))]
    pub origin: Origin,
    /// In the unit of the origin.
    #[cfg_attr(feature = "capture", serde(rename = "weight", default = "own_tick"))]
    pub value: u64,
    /// The task that ended the wait, for a wait that is sampled with it.
    #[cfg_attr(feature = "capture", serde(skip))]
    pub waker: Option<Box<RawWaker>>,
    /// The system call, for an event that samples system calls.
    #[cfg_attr(feature = "capture", serde(skip))]
    pub system_call: Option<CalledSystemCall>,
}

/// The system call whose entry or exit is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CalledSystemCall {
    /// Its number in the table.
    pub number: i64,
    /// The table that has the number.
    pub abi: SystemCallAbi,
}

/// The task that ended a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawWaker {
    /// 0 is the idle task.
    pub pid: u32,
    /// The thread, in the profiler's PID namespace.
    pub tid: u32,
    /// The thread's name.
    pub comm: Comm,
    /// The stack in the kernel.
    pub kernel_stack: RawStackId,
    /// The stack in user space.
    pub user_stack: RawStackId,
}

/// What a sample measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The index of its event in the plan. Ticks of CPUs are the first one where there are any.
    pub event: u16,
    /// The state of the thread, for an event that has states.
    pub state: Option<ThreadState>,
    /// Whether the value is a length of time, nanoseconds, at whose end the sample was taken. Else it is a number of occurrences
    /// or ticks: its own, and those that were skipped before it.
    pub is_duration: bool,
}

impl Origin {
    /// The number of samples that the ledger counts for a value.
    pub fn sample_count(self, value: u64) -> u64 {
        if self.is_duration { 1 } else { value }
    }
}

/// The value of a tick before which no other was skipped.
#[cfg(feature = "capture")]
fn own_tick() -> u64 {
    1
}

/// A thread's name, padded with NUL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "capture", derive(serde::Serialize, serde::Deserialize))]
pub struct Comm(pub [u8; COMM_BYTES]);

impl Comm {
    /// The name as text.
    pub fn text(&self) -> Cow<'_, str> {
        let end = memchr::memchr(0, &self.0).unwrap_or(self.0.len());
        String::from_utf8_lossy(&self.0[..end])
    }
}

/// A captured stack: sent once, named by id from then on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "capture", derive(serde::Serialize, serde::Deserialize))]
pub struct RawStack {
    /// The id by which samples name it.
    pub id: RawStackId,
    /// Leaf first. Those of an unwound stack carry [`FrameFlags`].
    pub addresses: Vec<u64>,
    /// `bpf_get_stack` reached its depth limit.
    #[cfg_attr(feature = "capture", serde(rename = "cut"))]
    pub is_truncated: bool,
    /// The number of the [`StackEndReason`] of an unwound stack; 0 for a stack of `bpf_get_stack`.
    #[cfg_attr(feature = "capture", serde(default, rename = "walk_end"))]
    pub end_reason: u8,
}

/// One frame of a captured stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFrame {
    /// The address to symbolize: one byte before a return address, in the call instruction.
    pub address: RuntimeAddress,
    /// How the unwinder came to it.
    pub found: FrameFound,
}

/// How a frame was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFound {
    /// The leaf, which the tick interrupted.
    Sampled,
    /// By `bpf_get_stack`: a kernel stack, or a user stack by frame pointer.
    ByGetStack,
    /// Unwound by the CFI of the callee's code.
    ByCfi,
    /// Unwound by frame pointer, because the callee's code has no CFI.
    ByFramePointer,
    /// Unwound by an epilogue scan of the callee, which has neither CFI nor a frame.
    ByEpilogueScan,
    /// Unwound by rows computed from the instructions of the callee, which has no CFI.
    ByInstructions,
    /// Unwound by a signal frame: a signal interrupted it.
    Interrupted,
}

impl RawStack {
    /// Why an unwound stack ended; `None` for a stack of `bpf_get_stack`.
    pub fn end_reason(&self) -> Option<StackEndReason> {
        StackEndReason::from_number(self.end_reason)
    }

    /// The frames, leaf first. All but the leaf and those that a signal interrupted are return addresses, whose call
    /// instruction ends one byte earlier.
    pub fn frames(&self) -> impl Iterator<Item = RawFrame> + '_ {
        let is_unwound = self.end_reason().is_some();
        self.addresses.iter().enumerate().map(move |(depth, word)| {
            let (address, flags) =
                if is_unwound { (word & !FrameFlags::ALL, word & FrameFlags::ALL) } else { (*word, 0) };
            let address = RuntimeAddress(address);
            let found = match flags {
                _ if depth == 0 => FrameFound::Sampled,
                FrameFlags::INTERRUPTED => FrameFound::Interrupted,
                FrameFlags::BY_FRAME_POINTER => FrameFound::ByFramePointer,
                FrameFlags::BY_EPILOGUE_SCAN => FrameFound::ByEpilogueScan,
                FrameFlags::BY_INSTRUCTIONS => FrameFound::ByInstructions,
                _ if is_unwound => FrameFound::ByCfi,
                _ => FrameFound::ByGetStack,
            };
            let is_call = !matches!(found, FrameFound::Sampled | FrameFound::Interrupted);
            RawFrame { address: if is_call { address.call_site() } else { address }, found }
        })
    }
}

/// What one read of a source returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "capture", derive(serde::Serialize, serde::Deserialize))]
pub struct Batch {
    /// Stacks that are new.
    pub stacks: Vec<RawStack>,
    /// Samples, by time.
    pub samples: Vec<RawSample>,
    /// Sideband events, by time. All events before a sample of this batch are here or in an earlier batch.
    pub events: Vec<SidebandEvent>,
    /// All events before this time are in this batch or an earlier one, `CLOCK_MONOTONIC` nanoseconds.
    #[cfg_attr(feature = "capture", serde(skip))]
    pub watermark_ns: u64,
    /// Whether events are missing, or a ring of them was full.
    #[cfg_attr(feature = "capture", serde(default))]
    pub may_lack_events: bool,
    /// Events of this batch that belong before those of an earlier one.
    #[cfg_attr(feature = "capture", serde(default))]
    pub late_events: u64,
    /// Processes whose mappings in the unwind maps are missing or stale.
    #[cfg_attr(feature = "capture", serde(skip))]
    pub stale_mappings: Vec<u32>,
    /// Records of samples and stacks that could not be decoded.
    pub undecodable: u64,
    /// Sideband records that the kernel dropped, or that could not be decoded.
    pub lost_events: u64,
}

impl Batch {
    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The number of stacks, samples and events.
    pub fn records(&self) -> usize {
        self.stacks.len() + self.samples.len() + self.events.len()
    }

    /// Appends the next batch.
    pub fn append(&mut self, next: Self) {
        let Self {
            stacks,
            samples,
            events,
            watermark_ns,
            may_lack_events,
            late_events,
            stale_mappings,
            undecodable,
            lost_events,
        } = next;
        self.stacks.extend(stacks);
        self.samples.extend(samples);
        self.events.extend(events);
        self.watermark_ns = self.watermark_ns.max(watermark_ns);
        self.may_lack_events |= may_lack_events;
        // The numbers of a capture are any.
        self.late_events = self.late_events.saturating_add(late_events);
        self.stale_mappings.extend(stale_mappings);
        self.undecodable = self.undecodable.saturating_add(undecodable);
        self.lost_events = self.lost_events.saturating_add(lost_events);
    }
}

/// The counters of the BPF programs since the start, summed over all CPUs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelCounts {
    /// Processes that a target process forked and that could not become targets: the map of targets was full.
    pub lost_children: u64,
    /// The run time of the BPF programs, nanoseconds.
    pub run_time_ns: u64,
    /// The ticks of the timers.
    pub timer: TimerCounts,
    /// What is due and lost of each event of the plan, by index, as the BPF programs count it.
    pub events: Vec<EventLedger>,
}

#[cfg(any(test, feature = "testing"))]
impl KernelCounts {
    /// The counters of a session whose first event has these ticks.
    pub fn of_ticks(due: u64) -> Self {
        Self { events: vec![EventLedger { due, ..EventLedger::default() }], ..Self::default() }
    }
}

/// The ticks of the timers since the start, summed over all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "capture", derive(serde::Serialize, serde::Deserialize))]
pub struct TimerCounts {
    /// The time for which the timers were enabled, times their frequencies.
    pub due: u64,
    /// Ticks at which the BPF program ran.
    pub delivered: u64,
    /// Those of `due` for which the CPU was idle.
    #[cfg_attr(feature = "capture", serde(default))]
    pub idle_due: u64,
    /// Those of `delivered` that hit no task.
    #[cfg_attr(feature = "capture", serde(default))]
    pub idle_delivered: u64,
    /// Whether the kernel now suspends timers at this frequency.
    pub is_throttled: bool,
    /// Ticks due on CPUs that had come online, before their timers were open. They are not among those due.
    pub cpu_online: u64,
}

/// A source of samples and sideband events.
pub trait SampleSource: Send {
    /// The start of sampling, `CLOCK_MONOTONIC` nanoseconds.
    fn started_ns(&self) -> u64;

    /// The number of CPUs that are sampled.
    fn cpus(&self) -> u32;

    /// Waits for records, at most `wait`, and returns all that are pending.
    fn read(&mut self, wait: Duration) -> Result<Batch>;

    /// Returns the last batch of an interval: all records that are pending, and the waits so far of threads that still wait.
    fn end_interval(&mut self) -> Result<Batch> {
        self.read(Duration::ZERO)
    }

    /// Changes the frequency of CPU samples, hertz, at most to that of the start; 0 takes no CPU sample.
    fn set_frequency_hz(&mut self, _frequency_hz: u64) -> Result<()> {
        Ok(())
    }

    /// Stops sampling, and returns its end, `CLOCK_MONOTONIC` nanoseconds. Pending records can still be read.
    fn stop(&mut self) -> Result<u64>;

    /// Whether no further records will come.
    fn is_exhausted(&self) -> bool;

    /// Samples lost so far because the reader was too slow.
    fn lost(&self) -> Result<u64>;

    /// The counters of the BPF programs.
    fn counts(&mut self) -> Result<KernelCounts>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn return_addresses_are_symbolized_in_their_call_and_the_leaf_at_its_address() {
        let stack = RawStack { addresses: vec![0x1000, 0x2000, 0x3000], ..RawStack::default() };
        let frames = frames(&stack);
        let by_get_stack = FrameFound::ByGetStack;
        assert_eq!(frames, [(0x1000, FrameFound::Sampled), (0x1fff, by_get_stack), (0x2fff, by_get_stack)]);
    }

    #[test]
    fn an_interrupted_frame_is_symbolized_at_its_address() {
        let flagged = [0x3000 | FrameFlags::INTERRUPTED, 0x4000 | FrameFlags::BY_FRAME_POINTER];
        let scanned = [0x5000 | FrameFlags::BY_EPILOGUE_SCAN, 0x6000 | FrameFlags::BY_INSTRUCTIONS];
        let addresses = [&[0x1000, 0x2000][..], &flagged, &scanned].concat();
        let stack = RawStack { addresses, end_reason: StackEndReason::Root as u8, ..RawStack::default() };
        let expected = [
            (0x1000, FrameFound::Sampled),
            (0x1fff, FrameFound::ByCfi),
            (0x3000, FrameFound::Interrupted),
            (0x3fff, FrameFound::ByFramePointer),
            (0x4fff, FrameFound::ByEpilogueScan),
            (0x5fff, FrameFound::ByInstructions),
        ];
        assert_eq!(frames(&stack), expected);
    }

    fn frames(stack: &RawStack) -> Vec<(u64, FrameFound)> {
        stack.frames().map(|frame| (frame.address.0, frame.found)).collect()
    }

    #[test]
    fn a_name_ends_at_its_padding() {
        assert_eq!(Comm(*b"dotnet\0\0\0\0\0\0\0\0\0\0").text(), "dotnet");
        assert_eq!(Comm(*b"sixteen_bytes_xx").text(), "sixteen_bytes_xx");
        assert_eq!(Comm([0xff; 16]).text(), "\u{fffd}".repeat(16));
    }
}
