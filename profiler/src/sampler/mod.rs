//! Sources of samples: the kernel, or a recorded capture.

pub(crate) mod capture;
pub(crate) mod ebpf;
pub(crate) mod replay;

use std::{borrow::Cow, path::PathBuf, time::Duration};

use profiler_common::{COMM_BYTES, FrameMarks, unwind::WalkEnd};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use profiler_addresses::RuntimeAddress;
use profiler_processes::ProcessEvent;

/// The id of a captured stack; `None` is no stack on that side.
pub(crate) type RawStackId = Option<std::num::NonZeroU64>;

/// A sample as it was taken: stacks by id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RawSample {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub(crate) time_ns: u64,
    pub(crate) cpu: u32,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// The thread's name.
    pub(crate) comm: Comm,
    pub(crate) kernel_stack: RawStackId,
    pub(crate) user_stack: RawStackId,
}

/// A thread's name, padded with NUL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Comm(pub(crate) [u8; COMM_BYTES]);

impl Comm {
    /// The name as text.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        let end = memchr::memchr(0, &self.0).unwrap_or(self.0.len());
        String::from_utf8_lossy(&self.0[..end])
    }
}

/// A captured stack: sent once, named by id from then on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RawStack {
    pub(crate) id: RawStackId,
    /// Leaf first. Those of a walk by tables carry [`FrameMarks`].
    pub(crate) addresses: Vec<u64>,
    /// The kernel's own walk ended at its depth limit.
    pub(crate) cut: bool,
    /// The number of the [`WalkEnd`] of a walk by tables; 0 for the kernel's own walk.
    #[serde(default)]
    pub(crate) walk_end: u8,
}

/// One frame of a stack as it was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawFrame {
    /// Where to look it up: one byte before a return address, in its call.
    pub(crate) address: RuntimeAddress,
    pub(crate) found: FrameFound,
}

/// How a frame was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameFound {
    /// The tick hit it.
    Sampled,
    /// By the kernel's own walk: of its own stack, or of a user stack by frame pointer.
    ByKernel,
    /// By the rule of the callee's code.
    ByTable,
    /// By the frame pointer, because the callee's code has no rule.
    ByFramePointer,
    /// By the callee's code, which has neither a rule nor a frame.
    ByCode,
    /// A signal interrupted it.
    Interrupted,
}

impl RawStack {
    /// Why a walk by tables ended; `None` for the kernel's own walk.
    pub(crate) fn walk_end(&self) -> Option<WalkEnd> {
        WalkEnd::from_number(self.walk_end)
    }

    /// The frames, leaf first. All but the first and those that a signal interrupted are return addresses, whose calls
    /// stand one byte earlier.
    pub(crate) fn frames(&self) -> impl Iterator<Item = RawFrame> + '_ {
        let is_walked = self.walk_end().is_some();
        self.addresses.iter().enumerate().map(move |(depth, marked)| {
            let (address, marks) =
                if is_walked { (marked & !FrameMarks::ALL, marked & FrameMarks::ALL) } else { (*marked, 0) };
            let address = RuntimeAddress(address);
            let found = match marks {
                _ if depth == 0 => FrameFound::Sampled,
                FrameMarks::INTERRUPTED => FrameFound::Interrupted,
                FrameMarks::BY_FRAME_POINTER => FrameFound::ByFramePointer,
                FrameMarks::BY_CODE => FrameFound::ByCode,
                _ if is_walked => FrameFound::ByTable,
                _ => FrameFound::ByKernel,
            };
            let is_call = !matches!(found, FrameFound::Sampled | FrameFound::Interrupted);
            RawFrame { address: if is_call { address.call_site() } else { address }, found }
        })
    }
}

/// What came from a source at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Batch {
    /// Stacks that are new.
    pub(crate) stacks: Vec<RawStack>,
    /// Samples, in the order of each CPU.
    pub(crate) samples: Vec<RawSample>,
    /// What happened to processes, by time. Everything that happened before a sample of this batch is here or
    /// in an earlier one.
    pub(crate) events: Vec<ProcessEvent>,
    /// Processes in which a walk by tables met code that it has no table for.
    #[serde(skip)]
    pub(crate) unknown_code: Vec<u32>,
    /// Records of samples and stacks that could not be decoded.
    pub(crate) undecodable: u64,
    /// Side-band records that the kernel could not hand over, or that could not be decoded.
    pub(crate) lost_events: u64,
}

impl Batch {
    /// Whether nothing came.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// How much there is.
    pub(crate) fn records(&self) -> usize {
        self.stacks.len() + self.samples.len() + self.events.len()
    }

    /// Takes in the batch that came after this one.
    pub(crate) fn append(&mut self, next: Self) {
        let Self { stacks, samples, events, unknown_code, undecodable, lost_events } = next;
        self.stacks.extend(stacks);
        self.samples.extend(samples);
        self.events.extend(events);
        self.unknown_code.extend(unknown_code);
        self.undecodable += undecodable;
        self.lost_events += lost_events;
    }
}

/// What the kernel side counted since the beginning, all CPUs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KernelCounts {
    pub(crate) target_ticks: u64,
    pub(crate) lost_ring_buffer: u64,
    pub(crate) lost_thread_id: u64,
    pub(crate) lost_children: u64,
    pub(crate) run_time_ns: u64,
}

/// Where samples come from.
pub(crate) trait SampleSource: Send {
    /// The moment sampling began, `CLOCK_MONOTONIC` nanoseconds.
    fn started_ns(&self) -> u64;

    /// How many CPUs are sampled.
    fn cpus(&self) -> u32;

    /// Waits until there is something, at most `wait`, and takes all there is.
    fn read(&mut self, wait: Duration) -> Result<Batch>;

    /// Takes no sample from now on. What was taken before can still be read.
    fn stop(&mut self) -> Result<()>;

    /// Whether there will never be more.
    fn is_exhausted(&self) -> bool;

    /// Samples lost so far because the reader was too slow.
    fn lost(&self) -> Result<u64>;

    /// What the kernel side counted.
    fn counts(&self) -> Result<KernelCounts>;
}

/// How user stacks are unwound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Unwind {
    /// By the tables that compilers leave in `.eh_frame`; by frame pointer through code that has none.
    #[default]
    Auto,
    /// By frame pointer alone, as the kernel's own walk does it: wrong wherever code was built without.
    FramePointer,
    /// By tables alone: a stack ends at code that has none.
    Dwarf,
}

/// What the kernel lets through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    Everything,
    Processes(Vec<u32>),
    Threads(Vec<u32>),
    /// A directory of the cgroup v2 hierarchy, and everything below it.
    CgroupV2(PathBuf),
    /// A directory of a cgroup v1 hierarchy, and everything below it.
    CgroupV1 {
        directory: PathBuf,
        /// A controller of that hierarchy: `cpu`, `memory`.
        controller: String,
    },
}

/// What to sample, and how.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) filter: Filter,
    pub(crate) frequency_hz: u64,
    /// Only these CPUs; `None` is every CPU that is online, now or later.
    pub(crate) cpus: Option<Vec<u32>>,
    pub(crate) kernel_stacks: bool,
    pub(crate) user_stacks: bool,
    pub(crate) unwind: Unwind,
    /// Whether processes forked by a target process become targets.
    pub(crate) children: bool,
}

impl Plan {
    /// Whether user stacks are walked by tables.
    pub(crate) fn walks(&self) -> bool {
        self.user_stacks && self.unwind != Unwind::FramePointer
    }

    /// Whether a process that a sampled one forks is sampled.
    pub(crate) fn follows_forks(&self) -> bool {
        match self.filter {
            Filter::Processes(_) => self.children,
            Filter::Threads(_) => false,
            Filter::Everything | Filter::CgroupV2(_) | Filter::CgroupV1 { .. } => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn return_addresses_are_looked_up_in_their_calls_and_the_leaf_where_it_is() {
        let stack = RawStack { addresses: vec![0x1000, 0x2000, 0x3000], ..RawStack::default() };
        let frames = frames(&stack);
        let by_kernel = FrameFound::ByKernel;
        assert_eq!(frames, [(0x1000, FrameFound::Sampled), (0x1fff, by_kernel), (0x2fff, by_kernel)]);
    }

    #[test]
    fn what_a_signal_interrupted_is_looked_up_where_it_is() {
        let marked = [0x3000 | FrameMarks::INTERRUPTED, 0x4000 | FrameMarks::BY_FRAME_POINTER];
        let addresses = [&[0x1000, 0x2000][..], &marked, &[0x5000 | FrameMarks::BY_CODE]].concat();
        let stack = RawStack { addresses, walk_end: WalkEnd::Root as u8, ..RawStack::default() };
        let expected = [
            (0x1000, FrameFound::Sampled),
            (0x1fff, FrameFound::ByTable),
            (0x3000, FrameFound::Interrupted),
            (0x3fff, FrameFound::ByFramePointer),
            (0x4fff, FrameFound::ByCode),
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
