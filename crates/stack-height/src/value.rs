//! Abstract values of registers and stack slots.

/// The largest distance from a base that is tracked, bytes. No real frame is larger.
const MAX_OFFSET: i64 = 1 << 28;

/// What is known of a 64-bit value in a register or a stack slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Value {
    /// Nothing.
    #[default]
    Unknown,
    /// The value of RBP at the start of the analysis, plus an offset.
    EntryFramePointer(i32),
    /// The canonical frame address plus an offset. In a scan, the stack pointer at its start plus an offset.
    Cfa(i32),
    /// The stack pointer after it was aligned, plus an offset. The distance to the CFA is not known.
    Aligned(i32),
    /// A constant, such as the address of a jump table.
    Constant(u64),
    /// An unsigned value below a limit, such as a checked index of a jump table.
    Below(u32),
    /// A 32-bit entry of a jump table: the distance from the table to the target. `entries` is 0 when the number of
    /// entries is not known.
    TableOffset { table: u64, entries: u32 },
    /// The target that a 32-bit entry refers to.
    TableTarget { table: u64, entries: u32 },
    /// A 64-bit entry of a jump table: the target itself.
    TablePointer { table: u64, entries: u32 },
    /// In a scan: the word that was at the start's stack pointer plus an offset.
    WordAtStackPointer(i32),
    /// In a scan: the word that was at the start's frame pointer plus an offset.
    WordAtFramePointer(i32),
}

impl Value {
    /// The value plus a number of bytes.
    pub(crate) fn plus(self, bytes: i64) -> Self {
        let moved = |offset: i32| {
            let sum = i64::from(offset).saturating_add(bytes);
            i32::try_from(sum).ok().filter(|_| sum.abs() <= MAX_OFFSET)
        };
        match self {
            Self::EntryFramePointer(offset) => moved(offset).map_or(Self::Unknown, Self::EntryFramePointer),
            Self::Cfa(offset) => moved(offset).map_or(Self::Unknown, Self::Cfa),
            Self::Aligned(offset) => moved(offset).map_or(Self::Unknown, Self::Aligned),
            Self::Constant(value) => Self::Constant(value.wrapping_add_signed(bytes)),
            _ => Self::Unknown,
        }
    }

    /// The distance in bytes from `base` to this value, if both have the same base in memory.
    pub(crate) fn distance_from(self, base: Self) -> Option<i64> {
        match (self, base) {
            (Self::EntryFramePointer(a), Self::EntryFramePointer(b))
            | (Self::Cfa(a), Self::Cfa(b))
            | (Self::Aligned(a), Self::Aligned(b)) => Some(i64::from(a) - i64::from(b)),
            _ => None,
        }
    }

    /// Whether this is an address in the stack frame.
    pub(crate) fn is_stack_address(self) -> bool {
        matches!(self, Self::EntryFramePointer(_) | Self::Cfa(_) | Self::Aligned(_))
    }
}
