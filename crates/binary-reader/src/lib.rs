//! Bounded reads of binary files that an untrusted owner wrote.
mod budget;
mod cursor;
mod image;
mod paged_image;
mod segment;

pub use budget::{WORK_PER_READ, WorkBudget};
pub use cursor::ByteCursor;
pub use image::Image;
pub use paged_image::{ByteRange, PagedImage};
pub use segment::{Segment, SegmentLayout, elf_address};

/// Why a file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// No ELF file, or not one of this machine: another byte order, word size or architecture.
    NotElf,
    /// It contradicts itself, ends too early, or cannot be read.
    Malformed,
    /// It is beyond a limit of the profiler.
    TooLarge,
}
