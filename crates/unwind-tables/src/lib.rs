//! How to find the caller of any piece of code: from what a file says of its frames to the rows that the
//! kernel side walks stacks by.
//!
//! ```text
//! .eh_frame of an ELF file ─────────┐
//!                                   ├─ functions, by address ─ rows of each ─ rules, each once ─ pages ─> UnwindTable
//! UNWIND_INFO of a .NET image (PE) ─┘
//! ```
//!
//! A file is not trusted: what it states is read within limits, and what cannot be used leaves code of which
//! nothing is known, counted.

mod architecture;
#[cfg(test)]
mod comparison;
mod eh_frame;
mod elf_source;
mod precompiled;
mod row_writer;
mod rule;
mod source;
mod table;
#[cfg(any(test, feature = "testing"))]
pub mod test_frames;

#[cfg(fuzzing)]
pub use eh_frame::tables_of_section;
#[cfg(fuzzing)]
pub use precompiled::table_of_descriptions;
pub use source::TableSource;
pub use table::UnwindTable;
