//! Layout of the unwind tables in BPF maps: mappings, pages, rows and rules compiled from call frame information (CFI).
//!
//! The unwinder looks up an instruction pointer in the [`MappingEntry`]s of its process, subtracts the load bias, takes
//! the [`PageEntry`] of that 4 KiB page of text, among its rows the last [`Row`] at or below the address, and from the
//! row the [`Rule`]. All searches are binary, over entries sorted by address.

/// Text is divided into pages of `1 << PAGE_BITS` bytes. Each begins with a row, so that no lookup has to
/// consult the previous page.
pub const PAGE_BITS: u32 = 12;

/// Rows in one chunk, the unit in which memory for rows is allocated: 256 KiB.
pub const ROWS_PER_CHUNK: u32 = 64 * 1024;

/// The most chunks of rows.
pub const MAX_ROW_CHUNKS: u32 = 512;

/// The most pages of all files together: 1 GiB of text.
pub const MAX_PAGES: u32 = 256 * 1024;

/// The most distinct rules of all files together. A whole machine of real programs has some 2,000.
pub const MAX_RULES: u32 = 16 * 1024;

/// The most executable mappings of all processes together.
pub const MAX_MAPPINGS: u32 = 64 * 1024;

/// The most executable mappings of one process.
pub const MAX_MAPPINGS_PER_PROCESS: u32 = 16 * 1024;

/// The most executable segments of files with unwind tables that are found without the mappings of a process.
pub const MAX_SEGMENTS: u32 = 4 * 1024;

/// The most processes with unwind tables.
pub const MAX_PROCESSES: u32 = 8 * 1024;

/// How the canonical frame address (CFA) of a frame is computed. It is the stack pointer of the caller.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CfaRule {
    /// There is no CFI for this code: it is unwound by frame pointer.
    #[default]
    Unknown = 0,
    /// Stack pointer + offset.
    StackPointer = 1,
    /// Frame pointer + offset.
    FramePointer = 2,
    /// The value at stack pointer + low half of the offset, plus the high half.
    StoredAtStackPointer = 3,
    /// The value at frame pointer + low half of the offset, plus the high half.
    StoredAtFramePointer = 4,
    /// A PLT entry of 16 bytes: the CFA is the stack pointer + 8, and the stack pointer + 16 from the instruction on
    /// whose position in the entry is the offset.
    Plt = 5,
    /// The return trampoline of a signal handler: the signal frame at the stack pointer holds all registers.
    SignalFrame = 6,
    /// The outermost function: it has no caller.
    Root = 7,
    /// The CFI of the code uses another rule.
    Unsupported = 8,
    /// rbx + offset (x86-64). The dynamic loader resolves functions of the PLT in such frames.
    Rbx = 9,
    /// Frame pointer + offset, which can be on another stack than the stack pointer: the code has switched stacks, and has kept the
    /// frame pointer.
    FramePointerOfAnyStack = 10,
    /// The stack pointer that Go's runtime has saved for the goroutine that the thread executes, whose scheduling stack the code has
    /// switched to ([`GoLayout`]). The return address is at its value + the offset of the [`ReturnAddressRule`]. Where the thread or
    /// its goroutine is not known, as [`CfaRule::FramePointerOfAnyStack`] + 16. The offset is that of `m.curg`, and the offset of the
    /// frame pointer that of `g.sched.bp`.
    ExecutedGoroutine = 11,
    /// As [`CfaRule::ExecutedGoroutine`], for the goroutine whose address is stored at the stack pointer + offset. A goroutine that has
    /// saved the stack pointer of its caller, and has continued or ended since, is not followed: the frame is a root.
    StoredGoroutine = 12,
    /// As [`CfaRule::ExecutedGoroutine`], for code that has saved all registers of its caller: the return address is the saved
    /// instruction pointer.
    SuspendedGoroutine = 13,
}

/// Where structures of Go's runtime have what leads back to the stack of a goroutine, bytes: `g` and `m` in `runtime/runtime2.go`, on
/// 64-bit machines, in Go 1.17 to 1.27. [`GoLayout::UNTIL_1_24`] and [`GoLayout::SINCE_1_25`] differ by `gobuf.ret`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GoLayout {
    /// `g.sched.bp`.
    pub g_frame_pointer: i16,
    /// `m.curg`, the goroutine that the thread executes.
    pub m_goroutine: i32,
}

impl GoLayout {
    /// Go 1.17 to 1.24.
    pub const UNTIL_1_24: Self = Self { g_frame_pointer: 0x68, m_goroutine: 0xc0 };
    /// Since Go 1.25.
    pub const SINCE_1_25: Self = Self { g_frame_pointer: 0x60, m_goroutine: 0xb8 };
    /// The register that has the address of the running `g` (`src/cmd/compile/abi-internal.md`): r14.
    pub const G_REGISTER: u8 = 1;
    /// `g.stack`: the lowest address of its stack, and the address behind it.
    pub const G_STACK: u64 = 0;
    /// `g.m`, the thread.
    pub const G_THREAD: u64 = 0x30;
    /// `g.sched.sp`. `g.sched.pc` is the next word.
    pub const G_STACK_POINTER: u64 = 0x38;
}

/// A register of the leaf in place of a [`CfaRule`], a [`FramePointerRule`] or the kind of a [`ReturnAddressRule`]: the
/// interrupted thread has all of its registers, and its callers have only those that the unwinder restores.
pub struct LeafRegister;

impl LeafRegister {
    /// The number of registers.
    pub const COUNT: usize = 15;
    /// Set in each rule that names a register; the lower bits are its position in `struct pt_regs`
    /// (`arch/x86/include/asm/ptrace.h`): r15 is 0 and rdi 14.
    pub const FLAG: u8 = 0x10;
    /// The bits of the position.
    pub const POSITION: u8 = 0xf;
}

/// How the caller's frame pointer is restored.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FramePointerRule {
    /// The register still has the caller's value.
    #[default]
    Same = 0,
    /// Saved at CFA + offset.
    AtCfa = 1,
    /// Saved at frame pointer + offset.
    AtFramePointer = 2,
    /// The caller's value cannot be restored.
    Undefined = 3,
}

/// How a [`Rule`] was found and what is known of the caller, in the upper bits of [`Rule::return_address`].
pub struct RuleFlags;

impl RuleFlags {
    /// A signal interrupted the caller (`S` in the augmentation of the CIE, DWARF extension of `.eh_frame`): its address is that
    /// of an instruction, not a return address.
    pub const INTERRUPTS_CALLER: u8 = 0x20;
    /// Computed from the instructions of the function, whose CFI is missing, or does not describe its epilogues.
    pub const BY_INSTRUCTIONS: u8 = 0x40;
    /// The rule holds only if the return address follows a call instruction.
    pub const RETURNS_BEHIND_CALL: u8 = 0x80;
    /// All flags.
    pub const ALL: u8 = Self::INTERRUPTS_CALLER | Self::BY_INSTRUCTIONS | Self::RETURNS_BEHIND_CALL;
}

/// How the caller's rbx is restored (x86-64): one of the constants, or 1 + the number of words between the CFA and the slot
/// below it that has the value.
pub struct RbxRule;

impl RbxRule {
    /// The caller's value cannot be restored. Only files with a CFA at rbx have other rules.
    pub const UNDEFINED: u8 = 0;
    /// The register still has the caller's value.
    pub const SAME: u8 = 1;
}

/// How the return address is found.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReturnAddressRule {
    /// Saved at CFA + offset: -8 everywhere on x86-64.
    #[default]
    AtCfa = 0,
    /// In the link register, on architectures that have one.
    LinkRegister = 1,
}

/// Why an unwound stack ended.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StackEndReason {
    /// The outermost function: its CFI says that it has no caller (an undefined return address, DWARF 5, 6.4.4).
    Root = 1,
    /// A return address or frame pointer of 0: the outermost function of a thread (System V ABI AMD64, 3.4.1), or code that has
    /// switched to another stack or uses the register for another purpose. User space decides by the function.
    NullCaller = 2,
    /// The instruction pointer is in no known mapping.
    NoMapping = 3,
    /// The stack memory could not be read.
    UnreadableStack = 4,
    /// The CFI of the code has a rule that the unwinder does not support.
    UnsupportedRule = 5,
    /// The code has no CFI and its frame pointer does not point to a frame.
    BrokenFramePointer = 6,
    /// The rule computes a CFA that is not above the stack pointer.
    Backwards = 7,
    /// The stack has the most frames that can be captured.
    DepthLimit = 8,
    /// The task has no user stack any more: it executes another program, or it exits.
    NoUserStack = 9,
    /// A return probe has replaced the return address, and the kernel's copy of it was not found.
    ReturnProbe = 10,
    /// The stack could not be copied, because another thread was changing the mappings of the process.
    MappingsLocked = 11,
}

impl StackEndReason {
    /// The reason with this number, `None` for an unknown number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Root,
            2 => Self::NullCaller,
            3 => Self::NoMapping,
            4 => Self::UnreadableStack,
            5 => Self::UnsupportedRule,
            6 => Self::BrokenFramePointer,
            7 => Self::Backwards,
            8 => Self::DepthLimit,
            9 => Self::NoUserStack,
            10 => Self::ReturnProbe,
            11 => Self::MappingsLocked,
            _ => return None,
        })
    }
}

/// How to restore the caller's registers from one range of code. Offsets are bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "user", derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct Rule {
    /// A [`CfaRule`] or a [`LeafRegister`].
    pub cfa: u8,
    /// A [`FramePointerRule`] or a [`LeafRegister`].
    pub frame_pointer: u8,
    /// A [`ReturnAddressRule`] or a [`LeafRegister`], with [`RuleFlags`].
    pub return_address: u8,
    /// An [`RbxRule`].
    pub rbx: u8,
    /// The offset of the [`FramePointerRule`].
    pub frame_pointer_offset: i16,
    /// The offset of the [`ReturnAddressRule`].
    pub return_address_offset: i16,
    /// The offset of the [`CfaRule`]; two signed halves where the CFA is loaded from memory.
    pub cfa_offset: i32,
}

/// One row: the code from an address in its page up to that of the next row, and its rule.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct Row(pub u32);

impl Row {
    /// The row for the code from `offset` in its page on; `rule` is an index into the rules.
    #[must_use]
    pub const fn new(offset: u16, rule: u16) -> Self {
        Self(offset as u32 | (rule as u32) << 16)
    }

    /// The offset in its page at which the row begins, bytes.
    #[must_use]
    pub const fn offset(self) -> u32 {
        self.0 & 0xffff
    }

    /// The index of its rule.
    #[must_use]
    pub const fn rule(self) -> u32 {
        self.0 >> 16
    }
}

/// The rows of one page of text.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct PageEntry {
    /// The chunk that holds the rows.
    pub chunk: u16,
    /// The number of rows; 0 where the page has no CFI.
    pub rows: u16,
    /// The index of the first row in the chunk.
    pub first_row: u32,
}

/// One executable mapping of a process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct MappingEntry {
    /// First runtime address.
    pub start: u64,
    /// First runtime address behind the mapping.
    pub end: u64,
    /// Load bias: runtime address - ELF address.
    pub bias: u64,
    /// The index of the file's first [`PageEntry`].
    pub page_entry: u32,
    /// The page number (ELF address >> [`PAGE_BITS`]) of that entry.
    pub first_page: u32,
    /// The number of the file's pages; 0 where it has no unwind table.
    pub pages: u32,
    /// [`MappingFlags`].
    pub flags: u32,
}

/// How the unwinder treats the code of a mapping.
pub struct MappingFlags;

impl MappingFlags {
    /// JIT code of .NET: functions without a frame are unwound by epilogue scan.
    pub const SCAN_EPILOGUES: u32 = 1;
}

/// The mappings of one process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct ProcessEntry {
    /// The index of the first [`MappingEntry`].
    pub first_mapping: u32,
    /// The number of mappings.
    pub mappings: u32,
    /// The [`MappingFlags`] of mappings without an unwind table that the process added since.
    pub new_mapping_flags: u32,
    /// The number of the installation of these mappings, which no other one has. A forked child has that of its parent.
    pub generation: u32,
    /// The time of the last sample, see [`SegmentTable::used_ns`].
    pub used_ns: u64,
}

/// An executable segment of a file, identified by what the VMA of its mapping points to.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "user", derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct FileSegment {
    /// Inode number.
    pub inode: u64,
    /// The inode's change time, seconds: a file that was modified is another one.
    pub changed_s: i64,
    /// The nanoseconds of that time.
    pub changed_ns: u32,
    /// The device number as the kernel has it: 20 bits are the minor number (`include/linux/kdev_t.h`).
    pub device: u32,
    /// The offset in the file, in pages of 4 KiB.
    pub page_offset: u64,
}

/// The unwind table of a [`FileSegment`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct SegmentTable {
    /// The ELF address of the segment's first byte.
    pub address: u64,
    /// The last use, `CLOCK_MONOTONIC` nanoseconds, at most [`USE_PRECISION_NS`] too early.
    pub used_ns: u64,
    /// See [`MappingEntry::page_entry`].
    pub page_entry: u32,
    /// See [`MappingEntry::first_page`].
    pub first_page: u32,
    /// See [`MappingEntry::pages`].
    pub pages: u32,
    /// 0.
    pub reserved: u32,
}

/// The precision of times of use, which all CPUs write.
pub const USE_PRECISION_NS: u64 = 1_000_000_000;

const _: () = assert!(size_of::<Rule>() == 12);
const _: () = assert!(size_of::<FileSegment>() == 32);
const _: () = assert!(size_of::<SegmentTable>() == 32);
const _: () = assert!(size_of::<ProcessEntry>() == 24);
const _: () = assert!(size_of::<PageEntry>() == 8);
const _: () = assert!(size_of::<MappingEntry>() == 40);
