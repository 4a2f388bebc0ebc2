//! Compact unwind tables for stack unwinding in a BPF program, compiled from the unwind information of binaries.
//!
//! A BPF program cannot interpret DWARF. This crate compiles the call frame information of an ELF file, or the
//! `UNWIND_INFO` of .NET code, to rows of four bytes and a small set of distinct rules, which a BPF program
//! searches with a bounded number of steps. Files are not trusted: they are read within limits, compilation can be
//! cancelled, and functions with unusable unwind information are counted and left out.
//!
//! ```text
//! .eh_frame, .debug_frame,           ┐
//! .gopclntab (ELF) ──────────────────┤
//!                                    ├─ functions by address ── rows ── distinct rules ── pages ─> UnwindTable
//! UNWIND_INFO (ReadyToRun image,     │
//! JIT code of .NET) ─────────────────┘
//! ```
//!
//! ```
//! use std::fs::File;
//! use profiler_binary_reader::{Image, ParseError};
//! use profiler_unwind_tables::TableSource;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let image = Image::from_file(File::open("/proc/self/exe")?)?;
//! let source = TableSource::read(image)?.ok_or("no code of this machine")?;
//! let table = source.compile(&|| true)?;
//! println!("{} rows, {} rules: {:?}", table.row_count(), table.rules().len(), table.statistics());
//! # assert!(table.statistics().functions > 0);
//! # Ok(())
//! # }
//! ```
//!
//! | module | content |
//! |---|---|
//! | `source` | [`TableSource`]: the unwind information of one file |
//! | `elf_source` | `.gopclntab`, `.eh_frame`, `.debug_frame` and PLTs of an ELF file |
//! | `cfi_entries`, `cfi_excerpt` | CIEs and FDEs of a section, read in blocks |
//! | `cfi` | CIEs and FDEs to rows |
//! | `jit_source` | [`JitFunction`]: call frame information of JIT code |
//! | `coverage` | the code that FDEs cover, and gaps |
//! | `rule` | a CFI row to a rule |
//! | `architecture` | registers and PLTs of x86-64 and AArch64 |
//! | `instruction_rows` | rows computed from machine code, where a file has no call frame information |
//! | `small_gaps` | rows computed from machine code, of functions in assembly in a file with call frame information |
//! | `go_rows` | rows from the sizes of frames in the function table of Go |
//! | `managed_code` | rows of epilogues, which the unwind information of NativeAOT and of the JIT of .NET does not describe |
//! | `managed_function` | [`ManagedFunction`]: `UNWIND_INFO` and epilogues of the JIT code of .NET to rows |
//! | `precompiled` | `UNWIND_INFO` and epilogues of a ReadyToRun image to rows |
//! | `rule_set` | the distinct rules |
//! | `row_writer`, `packed_rows`, `table` | [`UnwindTable`] |

mod architecture;
mod cfi;
mod cfi_entries;
mod cfi_excerpt;
mod coverage;
mod elf_source;
mod go_rows;
mod instruction_rows;
mod jit_source;
mod managed_code;
mod managed_function;
mod packed_rows;
mod precompiled;
mod row_writer;
mod rule;
mod rule_set;
mod small_gaps;
mod source;
mod table;
#[cfg(any(test, feature = "testing"))]
#[cfg_attr(not(test), allow(dead_code, reason = "other crates use a part of it"))]
pub mod test_cfi;

#[cfg(fuzzing)]
pub use cfi::compile_section;
pub use jit_source::JitFunction;
pub use managed_function::ManagedFunction;
#[cfg(fuzzing)]
pub use precompiled::compile_unwind_info;
pub use source::TableSource;
pub use table::{TableStatistics, UnwindTable};

#[cfg(test)]
mod tests {
    mod cfi_comparison;
    mod function_edges;
    mod native_aot_returns;
}
