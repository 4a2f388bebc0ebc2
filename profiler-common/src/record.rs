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
    pub flags: u16,
    /// The id by which samples name this stack.
    pub id: StackId,
}

/// What is known of a captured stack beside its addresses.
pub struct StackFlags;

impl StackFlags {
    /// The walk ended at the depth limit: the root is missing.
    pub const CUT_AT_DEPTH_LIMIT: u16 = 1;
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
        _ => None,
    }
}

const _: () = assert!(size_of::<SampleRecord>() == 56);
const _: () = assert!(size_of::<StackHeader>() == 16);
