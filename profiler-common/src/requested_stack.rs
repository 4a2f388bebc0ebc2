//! Stacks of waiting threads where the task iterator cannot copy them (before Linux 5.18): a pass requests them, user space copies
//! them part by part, and a BPF program that it runs for each part unwinds them.

use crate::wall::WaitingThread;

/// The most requests of a pass. The ticks of further threads are lost and counted.
pub const MAX_STACK_REQUESTS: u32 = 4096;

/// The words of a part, a power of two.
pub const PART_WORDS: usize = 1024;

/// A thread whose user stack is not known yet.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct StackRequest {
    /// The address of its task.
    pub task: u64,
    /// The user registers.
    pub instruction_pointer: u64,
    /// As above.
    pub stack_pointer: u64,
    /// As above.
    pub frame_pointer: u64,
    /// As above.
    pub rbx: u64,
    /// The first words of `struct pt_regs`, as [`LeafRegister`](crate::unwind::LeafRegister) numbers them.
    pub leaf: [u64; 16],
    /// What the map of waiting threads will have.
    pub thread: WaitingThread,
}

/// A part of a stack that was copied.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct StackPart {
    /// The address of the first word.
    pub start: u64,
    /// The number of bytes that were copied.
    pub bytes: u64,
    /// The address of the last read outside of the part; 0 where there was none.
    pub wanted: u64,
    /// The content.
    pub words: [u64; PART_WORDS],
}

/// What a run of the unwinding program is given.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct CopiedStack {
    /// The index of the [`StackRequest`].
    pub request: u32,
    /// An [`UnwindStep`].
    pub step: u32,
    /// The last part.
    pub part: StackPart,
}

/// What a run of the unwinding program does.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnwindStep {
    /// Begins the stack, whose first part is there.
    Begin = 1,
    /// Goes on with a further part, or with the same one.
    Continue = 2,
    /// Ends the stack: no further part can be read.
    End = 3,
}

/// What a run of the unwinding program returns.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnwindResult {
    /// The stack has ended, and its thread is in the map of waiting threads, or counted as lost.
    Ended = 0,
    /// The part has further frames.
    HasFrames = 1,
    /// The part from [`StackPart::wanted`] on is needed.
    NeedsPart = 2,
}

const _: () = assert!(size_of::<StackRequest>() == 272);
const _: () = assert!(size_of::<CopiedStack>() == 32 + 8 * PART_WORDS);
