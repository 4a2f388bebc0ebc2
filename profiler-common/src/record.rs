//! Records in the ring buffer: samples and stacks.

/// Bytes of a task's name, `TASK_COMM_LEN` of `include/linux/sched.h`, the closing NUL included.
pub const COMM_BYTES: usize = 16;

/// The 64-bit hash of a stack's addresses; 0 is no stack.
pub type StackId = u64;

/// The first word of every record.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A [`SampleRecord`].
    Sample = 1,
    /// A [`StackHeader`] with its frames behind it.
    Stack = 2,
    /// An [`UnknownCodeRecord`].
    UnknownCode = 3,
}

/// One tick on the target.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct SampleRecord {
    /// [`RecordKind::Sample`].
    pub kind: u32,
    /// The CPU the tick came from.
    pub cpu: u32,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// Process id in the profiler's pid namespace.
    pub pid: u32,
    /// Thread id in the profiler's pid namespace.
    pub tid: u32,
    /// The kernel's frames, 0 when the tick hit user mode.
    pub kernel_stack: StackId,
    /// The user frames, 0 when there are none.
    pub user_stack: StackId,
    /// The thread's name, padded with NUL.
    pub comm: [u8; COMM_BYTES],
}

/// What is before the frames of a stack in the ring buffer: `frames` 64-bit addresses follow, leaf first.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct StackHeader {
    /// [`RecordKind::Stack`].
    pub kind: u32,
    /// How many addresses follow.
    pub frames: u16,
    /// [`StackFlags`].
    pub flags: u8,
    /// The [`WalkEnd`](crate::unwind::WalkEnd) of a stack that is [`WALKED`](StackFlags::WALKED), else 0.
    pub end: u8,
    /// The id by which samples name this stack.
    pub id: StackId,
}

/// What is known of a captured stack beside its addresses.
pub struct StackFlags;

impl StackFlags {
    /// The walk ended at the depth limit: the root is missing.
    pub const CUT_AT_DEPTH_LIMIT: u8 = 1;
    /// The kernel side's own walk made it: each address but the first carries [`FrameMarks`].
    pub const WALKED: u8 = 2;
}

/// What stands in the upper bits of a walked stack's addresses: user addresses end at bit 56
/// (`TASK_SIZE_MAX` with five-level page tables, `arch/x86/include/asm/page_64_types.h`).
pub struct FrameMarks;

impl FrameMarks {
    /// Found by the frame pointer.
    pub const BY_FRAME_POINTER: u64 = 1 << 63;
    /// Interrupted by a signal: the address is that of the next instruction, not one behind a call.
    pub const INTERRUPTED: u64 = 1 << 62;
    /// Found by the code of its callee, which has no frame.
    pub const BY_CODE: u64 = 1 << 61;
    /// All marks.
    pub const ALL: u64 = Self::BY_FRAME_POINTER | Self::INTERRUPTED | Self::BY_CODE;
}

/// The walker met code that no table was made for, in a process that can be asked.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct UnknownCodeRecord {
    /// [`RecordKind::UnknownCode`].
    pub kind: u32,
    /// Process id in the profiler's pid namespace.
    pub pid: u32,
    /// Where; 0 when nothing at all is known of the process.
    pub address: u64,
}

/// Bytes of a stack record with `frames` addresses.
#[must_use]
pub const fn stack_record_bytes(frames: usize) -> usize {
    size_of::<StackHeader>() + frames * size_of::<u64>()
}

/// The kind of the record that starts with these bytes, `None` when it is too short or unknown.
#[must_use]
pub fn decode_kind(bytes: &[u8]) -> Option<RecordKind> {
    let word = bytes.first_chunk::<4>()?;
    match u32::from_ne_bytes(*word) {
        1 => Some(RecordKind::Sample),
        2 => Some(RecordKind::Stack),
        3 => Some(RecordKind::UnknownCode),
        _ => None,
    }
}

const _: () = assert!(size_of::<SampleRecord>() == 56);
const _: () = assert!(size_of::<StackHeader>() == 16);
const _: () = assert!(size_of::<UnknownCodeRecord>() == 16);
