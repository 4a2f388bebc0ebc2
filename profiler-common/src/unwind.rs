//! Unwind tables as the kernel side reads them: rows that say, for each piece of code, how to find the
//! caller's registers, and the maps that lead from an instruction pointer to its row.
//!
//! An instruction pointer finds its mapping in the process's [`MappingEntry`]s, there its ELF address, from
//! that the [`PageEntry`] of its 4 KiB of text, behind that the last [`Row`] at or below it, and in the row
//! the [`Rule`]. All searches are binary, over entries sorted by address.

/// Text is divided into pages of `1 << PAGE_BITS` bytes. Each begins with a row, so that no search has to
/// look at the page before.
pub const PAGE_BITS: u32 = 12;

/// Rows in one chunk, the unit in which memory for rows is made and given back: 256 KiB.
pub const CHUNK_ROWS: u32 = 64 * 1024;

/// How many chunks there can be.
pub const MAX_CHUNKS: u32 = 512;

/// How many pages all files together can have: 1 GiB of text.
pub const MAX_PAGES: u32 = 256 * 1024;

/// How many distinct rules all files together can have. A whole machine of real programs has some 2,000.
pub const MAX_RULES: u32 = 16 * 1024;

/// How many executable mappings all processes together can have.
pub const MAX_MAPPINGS: u32 = 64 * 1024;

/// How many executable mappings of one process are searched.
pub const MAX_PROCESS_MAPPINGS: u32 = 16 * 1024;

/// How many processes can have mappings in the kernel.
pub const MAX_PROCESSES: u32 = 8 * 1024;

/// Where the canonical frame address of a frame comes from: the stack pointer of its caller.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CfaRule {
    /// Nothing is known of this code: try the frame pointer.
    #[default]
    Unknown = 0,
    /// Stack pointer + offset.
    StackPointer = 1,
    /// Frame pointer + offset.
    FramePointer = 2,
    /// What is stored at stack pointer + low half of the offset, plus its high half.
    StoredAtStackPointer = 3,
    /// What is stored at frame pointer + low half of the offset, plus its high half.
    StoredAtFramePointer = 4,
    /// An entry of a procedure linkage table: 8 bytes above the stack pointer, 16 from the instruction on
    /// whose offset in the 16 bytes of its entry is the offset.
    LinkageTable = 5,
    /// The return from a signal handler: all registers stand in the signal frame at the stack pointer.
    SignalFrame = 6,
    /// The outermost function: it has no caller.
    Root = 7,
    /// The code has a rule that is none of these.
    Unsupported = 8,
}

/// Where the caller's frame pointer is.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FramePointerRule {
    /// Still in its register.
    #[default]
    Same = 0,
    /// At canonical frame address + offset.
    AtCfa = 1,
    /// At frame pointer + offset.
    AtFramePointer = 2,
    /// Nowhere: the register holds something else.
    Lost = 3,
}

/// Where the return address is.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReturnAddressRule {
    /// At canonical frame address + offset: -8 everywhere on x86-64.
    #[default]
    AtCfa = 0,
    /// Still in the link register, where the architecture has one.
    LinkRegister = 1,
}

/// Why a walk ended.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WalkEnd {
    /// At the outermost function: its code says that it has no caller, or it is of a file with rules and a return
    /// address or frame pointer of 0 says so (System V ABI AMD64, 3.4.1).
    Root = 1,
    /// At a return address or a frame pointer of 0, in code of no file with rules: it may use the register for anything.
    NoCaller = 2,
    /// At code that lies in no mapping that is known.
    NoMapping = 3,
    /// At a part of the stack that could not be read.
    UnreadableStack = 4,
    /// At code whose rule the walker does not have.
    UnsupportedRule = 5,
    /// At code without rules whose frame pointer does not point to a frame.
    BrokenFramePointer = 6,
    /// At a rule that leads down the stack again.
    Backwards = 7,
    /// At the most frames that one stack can have.
    TooDeep = 8,
}

impl WalkEnd {
    /// The end of this number, `None` where there is none.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Root,
            2 => Self::NoCaller,
            3 => Self::NoMapping,
            4 => Self::UnreadableStack,
            5 => Self::UnsupportedRule,
            6 => Self::BrokenFramePointer,
            7 => Self::Backwards,
            8 => Self::TooDeep,
            _ => return None,
        })
    }
}

/// How to find the caller of one piece of code. Offsets are bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "user", derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct Rule {
    /// A [`CfaRule`].
    pub cfa: u8,
    /// A [`FramePointerRule`].
    pub frame_pointer: u8,
    /// A [`ReturnAddressRule`].
    pub return_address: u8,
    /// 0.
    pub reserved: u8,
    /// Of the frame pointer's place.
    pub frame_pointer_offset: i16,
    /// Of the return address's place.
    pub return_address_offset: i16,
    /// Of the canonical frame address; two signed halves where that is loaded from memory.
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

    /// Where in its page the row begins.
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

/// Where the rows of one page of text are.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct PageEntry {
    /// In which chunk.
    pub chunk: u16,
    /// How many; 0 where nothing is known of the page.
    pub rows: u16,
    /// The first one's index in the chunk.
    pub first_row: u32,
}

/// One executable mapping of a process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct MappingEntry {
    /// First runtime address.
    pub start: u64,
    /// First runtime address behind it.
    pub end: u64,
    /// Load bias: runtime address - ELF address.
    pub bias: u64,
    /// The index of the file's first [`PageEntry`].
    pub page_entry: u32,
    /// The page of ELF addresses that entry stands for.
    pub first_page: u32,
    /// How many pages the file has; 0 where it has no rows.
    pub pages: u32,
    /// Of [`MappingFlags`].
    pub flags: u32,
}

/// What is known of a mapping beside its rows.
pub struct MappingFlags;

impl MappingFlags {
    /// .NET's compiler made the code: some of its functions have no frame, and show it by how they end.
    pub const SOME_FRAMELESS: u32 = 1;
}

/// Where the mappings of a process are.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct ProcessEntry {
    /// The first one's index.
    pub first_mapping: u32,
    /// How many.
    pub mappings: u32,
}

const _: () = assert!(size_of::<Rule>() == 12);
const _: () = assert!(size_of::<PageEntry>() == 8);
const _: () = assert!(size_of::<MappingEntry>() == 40);
