//! The result: interned frames, stacks and strings, samples, and the ledger. Plain data.
//!
//! A [`Profile`] needs no process and no kernel to be read or written. Frames of a stack stand leaf first;
//! outputs that want the root first turn them.

mod builder;
mod condensed;
pub mod difference;
mod error;
mod frame;
mod function;
mod joined;
mod ledger;
mod profile_copy;
mod reason;
mod recording;
mod remedy;
pub mod shape;
pub mod sum;
#[cfg(any(test, feature = "testing"))]
pub mod test_profile;

pub use builder::ProfileBuilder;
pub use difference::Difference;
pub use error::{FilterError, ReadError};
pub use frame::CodeKind;
pub use frame::{Frame, FrameKind, Module, SourceLocation, SymbolSource, Symbolization};
pub use function::FunctionCount;
pub use ledger::{Cost, Ledger, Loss, UnsymbolizedFrames};
pub use profile_copy::ProfileCopy;
pub use reason::Reason;
pub use remedy::Remedy;
pub use shape::Shape;

use std::fmt;

use indexmap::IndexSet;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $name {
            /// The place of the entry in the profile's table.
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }

            /// The id of the entry at `index`; a table is bounded far below `u32::MAX` entries.
            fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).unwrap_or(u32::MAX))
            }
        }
    };
}

id! {
    /// Names a string of a profile.
    StringId
}
id! {
    /// Names a module of a profile.
    ModuleId
}
id! {
    /// Names a frame of a profile.
    FrameId
}
id! {
    /// Names a stack of a profile.
    StackId
}
id! {
    /// Names a process of a profile.
    ProcessId
}
id! {
    /// Names a thread of a profile.
    ThreadId
}

/// What was measured, for titles and headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The target in words: `pid 1234 (dotnet)`.
    pub target: String,
    /// The event that triggered samples: `cpu-clock`.
    pub event: String,
    /// Samples a second on each CPU.
    pub frequency_hz: u64,
    /// From the first to the last moment that could give a sample, nanoseconds.
    pub duration_ns: u64,
    /// When sampling began: nanoseconds since 1970-01-01 UTC.
    pub started_unix_ns: u64,
    /// When sampling began, `CLOCK_MONOTONIC` nanoseconds: the zero of [`Sample::time_ns`].
    pub started_monotonic_ns: u64,
    /// CPUs that were sampled.
    pub cpus: u32,
    /// What was done to the profile since it was measured, in words and in this order: `--focus main`.
    pub edits: Vec<String>,
}

/// A process, from its start or the beginning of sampling to its end. A reused pid is another process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// Process id in the profiler's pid namespace.
    pub pid: u32,
    /// The name of the process (of its first thread), as `/proc/PID/comm` has it.
    pub comm: StringId,
    /// The id of the container that it runs in; `None` outside of one, and where its cgroup does not show an id.
    pub container: Option<StringId>,
}

/// A thread of a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Thread {
    /// The process it belongs to.
    pub process: ProcessId,
    /// Thread id in the profiler's pid namespace.
    pub tid: u32,
    /// The thread's name when it was sampled. A thread that renames itself is two entries.
    pub comm: StringId,
}

/// Where a stack ends.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StackEnd {
    /// At the root: the function that starts the process or the thread, or the kernel's entry for a thread
    /// that has no user side.
    Root,
    /// The walk ended at the depth limit; what is nearer the root is missing.
    DepthLimit,
    /// The walk ended before a known root, most often because a function keeps no frame pointer.
    Unknown,
    /// A return address leads to code in no mapping that is known.
    NoMapping,
    /// A part of the stack could not be read.
    UnreadableStack,
    /// The code's rule for its caller is one that the walk does not have.
    UnsupportedRule,
    /// Code without such rules does not keep a frame pointer either.
    BrokenFramePointer,
    /// A rule leads down the stack: the code or its rules are not what they say.
    Backwards,
    /// There was nothing to walk: only the process is known.
    Empty,
}

impl fmt::Display for StackEnd {
    /// What stacks with this end do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Root => "reach their root",
            Self::DepthLimit => "were cut at the depth limit",
            Self::Unknown => "end before a known root",
            Self::NoMapping => "end at code in no known mapping",
            Self::UnreadableStack => "end at unreadable stack memory",
            Self::UnsupportedRule => "end at code with an unsupported unwind rule",
            Self::BrokenFramePointer => "end at code with neither unwind rules nor a frame pointer",
            Self::Backwards => "end at an unwind rule that leads backwards",
            Self::Empty => "have no frames",
        })
    }
}

/// How a frame was found.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FoundBy {
    /// Nobody said: a profile that was built by hand.
    Unsaid,
    /// It is where the sample hit.
    Sample,
    /// By the kernel's own walk of its stack.
    Kernel,
    /// By the call frame information of its callee.
    Cfi,
    /// By the frame pointer: right only as far as its callees keep one.
    FramePointer,
    /// By the code of its callee, a managed method without a frame, and the return address that this code leads to.
    Code,
    /// In a signal frame: it was interrupted.
    SignalFrame,
}

/// A stack: frames from the leaf to the root, and how it ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    /// Leaf first.
    pub frames: Box<[FrameId]>,
    /// How each of them was found; as long as `frames`. Inlined frames were found with the one around them.
    pub found_by: Box<[FoundBy]>,
    /// Whether the root is there.
    pub end: StackEnd,
}

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Nanoseconds since sampling began.
    pub time_ns: u64,
    /// The CPU it was taken on.
    pub cpu: u32,
    /// The thread that ran.
    pub thread: ThreadId,
    /// What it ran.
    pub stack: StackId,
    /// How many samples this one stands for.
    pub count: u64,
}

/// The result of a session. Built by [`ProfileBuilder`].
#[derive(Clone, Debug, Default)]
pub struct Profile {
    header: Header,
    strings: IndexSet<Box<str>>,
    modules: IndexSet<Module>,
    frames: IndexSet<Frame>,
    stacks: IndexSet<Stack>,
    processes: Vec<Process>,
    threads: IndexSet<Thread>,
    samples: Vec<Sample>,
    ledger: Ledger,
}

impl Profile {
    /// What was measured.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The samples, by time.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// What happened to every tick, stack and frame.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The text of a string.
    #[must_use]
    pub fn string(&self, id: StringId) -> &str {
        &self.strings[id.index()]
    }

    /// A module.
    #[must_use]
    pub fn module(&self, id: ModuleId) -> &Module {
        &self.modules[id.index()]
    }

    /// A frame.
    #[must_use]
    pub fn frame(&self, id: FrameId) -> &Frame {
        &self.frames[id.index()]
    }

    /// A stack.
    #[must_use]
    pub fn stack(&self, id: StackId) -> &Stack {
        &self.stacks[id.index()]
    }

    /// A process.
    #[must_use]
    pub fn process(&self, id: ProcessId) -> &Process {
        &self.processes[id.index()]
    }

    /// A thread.
    #[must_use]
    pub fn thread(&self, id: ThreadId) -> &Thread {
        &self.threads[id.index()]
    }

    /// All strings, in the order of their ids.
    pub fn strings(&self) -> impl ExactSizeIterator<Item = &str> {
        self.strings.iter().map(|text| &**text)
    }

    /// All modules, in the order of their ids.
    pub fn modules(&self) -> impl ExactSizeIterator<Item = &Module> {
        self.modules.iter()
    }

    /// All frames, in the order of their ids.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = &Frame> {
        self.frames.iter()
    }

    /// All stacks, in the order of their ids.
    pub fn stacks(&self) -> impl ExactSizeIterator<Item = &Stack> {
        self.stacks.iter()
    }

    /// All threads, in the order of their ids.
    pub fn threads(&self) -> impl ExactSizeIterator<Item = &Thread> {
        self.threads.iter()
    }

    /// The processes, in the order in which they were first sampled.
    #[must_use]
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// How many distinct stacks there are.
    #[must_use]
    pub fn stack_count(&self) -> usize {
        self.stacks.len()
    }

    /// Notes what the profiler used.
    pub fn set_cost(&mut self, cost: Cost) {
        self.ledger.cost = Cost { bpf_run_time_ns: self.ledger.cost.bpf_run_time_ns, ..cost };
    }

    /// How many samples the entries of [`samples`](Self::samples) stand for together; [`u64::MAX`] where they are more.
    #[must_use]
    pub fn sample_count(&self) -> u64 {
        sum::of(self.samples.iter().map(|sample| sample.count))
    }
}
