//! Newtypes for addresses in process memory, addresses in ELF files, file offsets and points in time.
//!
//! A profiler handles three kinds of 64-bit numbers that must not be mixed: the address of code in a running process,
//! the address of the same code in its ELF file, and the offset of its bytes in that file. Each has a type of its own
//! here, so that the compiler rejects a confusion. [`MonotonicTime`] is a point in time on the clock of samples and
//! events. [`CodeMap`] finds the code that was at an address at a time.
//!
//! ```
//! use profiler_addresses::{ElfAddress, RuntimeAddress};
//!
//! let load_bias = 0x7f00_0000_0000;
//! let return_address = RuntimeAddress(0x7f00_0000_1234);
//! let call = return_address.call_site();
//! assert_eq!(ElfAddress(call.0 - load_bias), ElfAddress(0x1233));
//! assert!(return_address < RuntimeAddress::KERNEL_START);
//! ```

mod code_map;
mod monotonic_time;

use std::fmt;

pub use self::code_map::{CodeMap, Entry, InsertError, LateEntry};
pub use self::monotonic_time::MonotonicTime;

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    };
}

address! {
    /// An address in the memory of a running process or of the kernel.
    RuntimeAddress
}
address! {
    /// A virtual address as stated in an ELF file (`st_value`, `p_vaddr`): what `nm` prints and `addr2line` takes.
    ElfAddress
}
address! {
    /// A byte offset in a file.
    FileOffset
}

impl RuntimeAddress {
    /// The lowest address of the kernel, on x86-64 and on AArch64.
    pub const KERNEL_START: Self = Self(0xffff_0000_0000_0000);

    /// The address at which a return address is looked up: one byte lower, inside the call instruction.
    ///
    /// A call can be the last instruction of its function or line. The return address then belongs to the next one.
    #[must_use]
    pub fn call_site(self) -> Self {
        Self(self.0.wrapping_sub(1))
    }
}

/// A mapping of a file: the bytes of the file from `offset` on are in memory from `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMapping {
    /// The first address.
    pub start: RuntimeAddress,
    /// The file offset of the byte at `start`.
    pub offset: FileOffset,
}

impl FileMapping {
    /// The file offset of the byte at an address; `None` before the mapping.
    #[must_use]
    pub fn file_offset(self, address: RuntimeAddress) -> Option<FileOffset> {
        let distance = address.0.checked_sub(self.start.0)?;
        self.offset.0.checked_add(distance).map(FileOffset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_offset_of_an_address_is_relative_to_its_mapping() {
        let mapping = FileMapping { start: RuntimeAddress(0x7000), offset: FileOffset(0x1000) };
        assert_eq!(mapping.file_offset(RuntimeAddress(0x7010)), Some(FileOffset(0x1010)));
        assert_eq!(mapping.file_offset(RuntimeAddress(0x6fff)), None);
        assert_eq!(mapping.file_offset(RuntimeAddress(u64::MAX)), Some(FileOffset(u64::MAX - 0x6000)));
    }

    #[test]
    fn a_return_address_is_looked_up_in_its_call() {
        assert_eq!(RuntimeAddress(0x1000).call_site(), RuntimeAddress(0xfff));
    }
}
