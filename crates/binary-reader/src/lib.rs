//! Bounded reads of binary files that an untrusted owner wrote.
mod budget;
mod cursor;
mod image;
mod pieces;
mod segment;

pub use budget::{Budget, WORK_PER_READ};
pub use cursor::Bytes;
pub use image::Image;
pub use pieces::{Pieces, Span};
pub use segment::{Layout, Segment, elf_address};

/// Why a file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// No ELF file, or not one of this machine: another byte order, word size or architecture.
    NotElf,
    /// It contradicts itself, ends too early, or cannot be read.
    Malformed,
    /// It is beyond a limit of the profiler.
    TooLarge,
}
