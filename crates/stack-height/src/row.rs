//! Unwind rows: how to find the caller from one range of code.

/// How to find the caller from the code between [`address`](Self::address) and that of the next row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackRow {
    /// The ELF address of the row's first instruction.
    pub address: u64,
    /// The frame of the function; `None` where it is not known.
    pub frame: Option<Frame>,
    /// How far the row can be relied on.
    pub confidence: Confidence,
}

/// Where the caller's registers are. The return address is at CFA - 8 (System V ABI AMD64, 3.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// The canonical frame address.
    pub cfa: Cfa,
    /// The caller's frame pointer.
    pub frame_pointer: SavedFramePointer,
}

/// How the canonical frame address (CFA) is computed. It is the stack pointer of the caller. Offsets are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cfa {
    /// Stack pointer + offset.
    StackPointer(i32),
    /// Frame pointer + offset.
    FramePointer(i32),
    /// The value at stack pointer + `offset`, plus `add`: a function that aligned its stack.
    StoredAtStackPointer {
        /// The distance of the stored value from the stack pointer.
        offset: i16,
        /// What is added to the stored value.
        add: i16,
    },
    /// The value at frame pointer + `offset`, plus `add`.
    StoredAtFramePointer {
        /// The distance of the stored value from the frame pointer.
        offset: i16,
        /// What is added to the stored value.
        add: i16,
    },
    /// The return trampoline of a signal handler: the signal frame at the stack pointer holds all registers.
    SignalFrame,
    /// The start of a program or of a thread: it has no caller.
    Root,
}

/// Where the caller's frame pointer is. Offsets are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SavedFramePointer {
    /// The register still has the caller's value.
    Same,
    /// Saved at CFA + offset.
    AtCfa(i16),
    /// Saved at frame pointer + offset: a function that aligned its stack.
    AtFramePointer(i16),
    /// The caller's value cannot be restored.
    Unknown,
}

/// How far a row can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Confidence {
    /// The function's start is certain or its pointer was found, and a `ret` confirms its rows: as reliable as CFI.
    Full,
    /// The return address that the row leads to has to follow a call instruction. Else the row is wrong.
    ReturnMustFollowCall,
}

impl Frame {
    /// The frame in the return trampoline of a signal handler.
    pub(crate) const SIGNAL: Self = Self { cfa: Cfa::SignalFrame, frame_pointer: SavedFramePointer::Unknown };
    /// The frame of code that has no caller.
    pub(crate) const ROOT: Self = Self { cfa: Cfa::Root, frame_pointer: SavedFramePointer::Unknown };

    /// Whether instructions with a known effect were recognized, so that no analysis of a function applies to them.
    pub(crate) fn is_recognized(&self) -> bool {
        matches!(self.cfa, Cfa::SignalFrame | Cfa::Root)
    }
}
