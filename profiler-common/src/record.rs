//! Ring buffer records: samples, stacks, and reports of stale mappings.

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
    /// A [`StackHeader`], followed by its frames.
    Stack = 2,
    /// A [`StaleMappingsRecord`].
    StaleMappings = 3,
    /// A [`WaitRecord`](crate::wall::WaitRecord).
    Wait = 4,
    /// An [`OffCpuRecord`](crate::off_cpu::OffCpuRecord).
    OffCpu = 5,
    /// An [`EventRecord`](crate::event::EventRecord).
    Event = 6,
}

/// One tick on a target.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct SampleRecord {
    /// [`RecordKind::Sample`], or [`RecordKind::Event`] at the front of an [`EventRecord`](crate::event::EventRecord).
    pub kind: u32,
    /// The CPU on which the task ran.
    pub cpu: u16,
    /// The weight of a tick: its own, and the ticks skipped since the previous sample of the CPU.
    pub weight: u16,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// Process id in the profiler's PID namespace.
    pub pid: u32,
    /// Thread id in the profiler's PID namespace.
    pub tid: u32,
    /// The kernel frames, 0 when the tick interrupted user mode.
    pub kernel_stack: StackId,
    /// The user frames, 0 when there are none.
    pub user_stack: StackId,
    /// The thread's name, padded with NUL.
    pub comm: [u8; COMM_BYTES],
}

/// The header of a stack record; `frames` 64-bit addresses follow it, leaf first.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct StackHeader {
    /// [`RecordKind::Stack`].
    pub kind: u32,
    /// The number of addresses that follow.
    pub frames: u16,
    /// [`StackFlags`].
    pub flags: u8,
    /// The [`StackEndReason`](crate::unwind::StackEndReason) of a stack with [`StackFlags::UNWOUND`], else 0.
    pub end_reason: u8,
    /// The id by which samples refer to this stack.
    pub id: StackId,
}

/// How a stack was captured.
pub struct StackFlags;

impl StackFlags {
    /// `bpf_get_stack` reached its depth limit: the root is missing.
    pub const TRUNCATED: u8 = 1;
    /// The unwinder captured the stack: each address but the first carries [`FrameFlags`].
    pub const UNWOUND: u8 = 2;
}

/// How a frame was found, in the upper bits of each address of an unwound stack: user addresses end at bit 56
/// (`TASK_SIZE_MAX` with five-level page tables, `arch/x86/include/asm/page_64_types.h`).
pub struct FrameFlags;

impl FrameFlags {
    /// Unwound by frame pointer.
    pub const BY_FRAME_POINTER: u64 = 1 << 63;
    /// Interrupted by a signal: the address is that of the next instruction, not a return address.
    pub const INTERRUPTED: u64 = 1 << 62;
    /// Unwound by an epilogue scan of the callee, which has no frame.
    pub const BY_EPILOGUE_SCAN: u64 = 1 << 61;
    /// Unwound by rows computed from the instructions of the callee, which has no CFI.
    pub const BY_INSTRUCTIONS: u64 = 1 << 60;
    /// All flags.
    pub const ALL: u64 =
        Self::BY_FRAME_POINTER | Self::INTERRUPTED | Self::BY_EPILOGUE_SCAN | Self::BY_INSTRUCTIONS;
}

/// The unwinder found an address in no known mapping of a process, or the process executed another program, or it was
/// reaped: its mappings and unwind tables are to be read again.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct StaleMappingsRecord {
    /// [`RecordKind::StaleMappings`].
    pub kind: u32,
    /// Process id in the profiler's PID namespace.
    pub pid: u32,
}

/// The kind of the record that starts with these bytes, `None` when it is too short or unknown.
#[must_use]
pub fn decode_kind(bytes: &[u8]) -> Option<RecordKind> {
    let word = bytes.first_chunk::<4>()?;
    match u32::from_ne_bytes(*word) {
        1 => Some(RecordKind::Sample),
        2 => Some(RecordKind::Stack),
        3 => Some(RecordKind::StaleMappings),
        4 => Some(RecordKind::Wait),
        5 => Some(RecordKind::OffCpu),
        6 => Some(RecordKind::Event),
        _ => None,
    }
}

const _: () = assert!(size_of::<SampleRecord>() == 56);
const _: () = assert!(size_of::<StackHeader>() == 16);
const _: () = assert!(size_of::<StaleMappingsRecord>() == 8);
