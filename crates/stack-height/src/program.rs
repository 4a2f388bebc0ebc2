//! What the analysis reads of a program: its code, its pointers and its known functions.

use std::ops::Range;

/// The highest address at which code ends: that of a process on x86-64 with page tables of four levels. Addresses behind an
/// instruction cannot overflow.
pub const MAX_CODE_ADDRESS: u64 = 1 << 47;

/// The code and the data of an executable file, by ELF address.
pub trait Program {
    /// The address ranges of executable sections, or of executable segments in a file without sections. Sorted, without
    /// overlaps, and up to [`MAX_CODE_ADDRESS`].
    fn code_ranges(&self) -> &[Range<u64>];

    /// Copies the bytes at an address; `false` where the file does not have all of them.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;

    /// The pointer at an address after relocation: the addend of a relative relocation, or the bytes in a file that is
    /// not position-independent.
    fn pointer(&self, address: u64) -> Option<u64>;
}

/// What is known of a program's functions before the analysis. The order is of no importance.
#[derive(Clone, Debug, Default, Hash)]
pub struct Hints {
    /// The entry point of a program. It has the address of `main`, and is analysed for it even if its own rows are not wanted.
    pub entry: Option<u64>,
    /// First instructions of functions: symbols, `.init_array`, `.fini_array`, targets of `IRELATIVE` relocations. Names such
    /// as `memcpy.cold` are not those of functions.
    pub function_starts: Vec<u64>,
    /// Addresses in code that data or relocations hold: functions, labels, or entries of jump tables.
    pub code_pointers: Vec<u64>,
    /// Whether the program is not position-independent, so that its instructions have addresses as constants.
    pub has_fixed_addresses: bool,
    /// Functions that never return, and slots of the global offset table that hold the address of one. See
    /// [`never_returns`](crate::never_returns).
    pub never_return: Vec<u64>,
}
