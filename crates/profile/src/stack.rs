//! Stacks: frames from leaf to root, how each frame was unwound, and why the stack ends.

use std::fmt;

use crate::FrameId;

/// Why a stack ends where it does.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StackEnd {
    /// At the root: the function that starts the process or the thread, or the kernel's entry for a thread
    /// that has no user side.
    Root,
    /// The unwinder reached its depth limit: the frames nearest to the root are missing.
    DepthLimit,
    /// The unwinder found no further caller before a known root, most often because a function keeps no frame pointer.
    Unknown,
    /// A return address is in no known mapping.
    NoMapping,
    /// A part of the stack could not be read.
    UnreadableStack,
    /// The unwind rule of the code is of a kind that the unwinder does not support.
    UnsupportedRule,
    /// The code has no call frame information and keeps no frame pointer.
    BrokenFramePointer,
    /// An unwind rule leads towards the leaf: the code or its call frame information is wrong.
    Backwards,
    /// Code was mapped, or written by a JIT compiler, where other code had been, and its unwind table was not installed yet.
    OutdatedTable,
    /// No stack was captured: only the process is known.
    Empty,
    /// A return probe has replaced a return address on the stack, and the kernel's copy of it could not be read.
    ReturnProbe,
    /// The stack of a waiting thread could not be read, because another thread was changing the mappings of the process.
    MappingsLocked,
}

impl StackEnd {
    /// Every way in which a stack ends, for tables and tests.
    pub const ALL: &'static [Self] = &[
        Self::Root,
        Self::DepthLimit,
        Self::Unknown,
        Self::NoMapping,
        Self::UnreadableStack,
        Self::UnsupportedRule,
        Self::BrokenFramePointer,
        Self::Backwards,
        Self::OutdatedTable,
        Self::Empty,
        Self::ReturnProbe,
        Self::MappingsLocked,
    ];
}

impl fmt::Display for StackEnd {
    /// A predicate of the stacks that end so: `reach their root`.
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
            Self::OutdatedTable => "end at code that was mapped or written a moment before",
            Self::Empty => "have no frames",
            Self::ReturnProbe => "end at a return address that a return probe replaced",
            Self::MappingsLocked => "end where the mappings of the process were changed",
        })
    }
}

/// How the unwinder found a frame.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FoundBy {
    /// Not recorded: the profile was not made by the unwinder.
    NotRecorded,
    /// The leaf: the instruction pointer of the sample.
    Sample,
    /// By the kernel's unwinder, in its own stack.
    Kernel,
    /// By the call frame information of its callee.
    Cfi,
    /// By frame pointer: correct only where the callee keeps one.
    FramePointer,
    /// By an epilogue scan of the callee, a managed method without a frame.
    EpilogueScan,
    /// By a signal frame: a signal interrupted the code.
    SignalFrame,
    /// By the call instruction of its caller: the function has left the stack with a jump to its callee.
    CallInstruction,
    /// By unwind rows computed from the instructions of its callee, which has no call frame information, or none of the
    /// epilogue that was interrupted.
    Instructions,
}

/// A stack: frames from the leaf to the root, and how it ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    /// Leaf first.
    pub frames: Box<[FrameId]>,
    /// How each frame was found; as long as `frames`. An inlined frame has the value of the frame that contains it.
    pub found_by: Box<[FoundBy]>,
    /// Why the stack ends.
    pub end: StackEnd,
}
