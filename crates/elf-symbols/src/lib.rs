//! Symbols, debug information and call frame information of ELF files, for symbolizers that do not trust the files.
//!
//! One ELF file is read from its bytes: segments, build id, sections, symbol tables, MiniDebugInfo, debug links, call
//! frame information, and DWARF with inlined functions, split DWARF (`.dwo`, `.dwp`) and `dwz` files. Every size in the
//! file is checked against the file and against a limit before memory is allocated; a malformed file is a
//! [`ParseError`](profiler_binary_reader::ParseError) and never a panic. Files are read with `pread`, and other files are
//! opened through a trait, so that a caller decides which file system an untrusted path refers to.
//!
//! ```
//! use std::{fs::File, path::Path, sync::Arc};
//! use profiler_binary_reader::{Image, WorkBudget};
//! use profiler_elf_symbols::{DebugInfo, Elf, NoDebugFiles, SymbolTable, TableKind, demangle};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let path = Path::new("/proc/self/exe");
//! let elf = Elf::parse(Image::from_file(File::open(path)?)?)?;
//! let sections = elf.sections()?;
//! let budget = Arc::new(WorkBudget::default());
//!
//! let table = SymbolTable::load(&elf, &sections, TableKind::Static, &budget)?;
//! let mut debug_info = DebugInfo::load(&elf, path, &NoDebugFiles, &budget)?;
//! let address = sections.find(b".text").ok_or("no code")?.address();
//! if let Some(symbol) = table.map(|table| table.find(&elf, address)).transpose()?.flatten() {
//!     println!("{}", demangle(&symbol.name));
//! }
//! if let Some(debug_info) = &mut debug_info {
//!     for frame in debug_info.frames(address, &NoDebugFiles)? {
//!         println!("{:?}", frame.location);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | module | content |
//! |---|---|
//! | `elf` | [`Elf`]: headers, segments, build id |
//! | `section` | [`Sections`], [`Section`]: section headers, decompressed contents |
//! | `symbol_table` | [`SymbolTable`]: functions of `.symtab` and `.dynsym` |
//! | `export`, `gnu_hash` | [`Elf::find_exports`]; the hash table of dynamic symbols |
//! | `function_ranges` | [`FunctionRanges`]: functions of stripped files, from `.eh_frame` |
//! | `go_table` | [`GoTable`]: functions, frames, files and lines of Go programs |
//! | `relocations` | [`Elf::relative_relocations`] |
//! | `static_probes`, `probe_arguments` | [`Elf::static_probes`]: static probes (USDT); [`ProbeArgument`] |
//! | `call_frames` | [`CallFrames`]: `.eh_frame` and `.debug_frame` |
//! | `build_id`, `debug_link`, `mini_debug_info` | references to debug files; the ELF file in `.gnu_debugdata` |
//! | `dwarf` | [`DebugInfo`]: inlined functions and source locations |
//! | `demangle` | [`demangle()`]: Rust and C++ names |

mod build_id;
mod call_frames;
mod debug_link;
mod demangle;
mod dwarf;
mod elf;
mod export;
mod function_by_name;
mod function_ranges;
mod function_symbols;
mod gnu_hash;
mod go_table;
mod header;
mod machine;
#[cfg(feature = "compressed-debug-info")]
mod mini_debug_info;
mod probe_arguments;
mod program_header;
mod relocations;
mod section;
mod static_probes;
mod symbol_table;
#[cfg(any(test, feature = "testing"))]
pub mod test_file;
#[cfg(any(test, feature = "testing"))]
pub mod test_go_table;

pub use build_id::BuildId;
pub use call_frames::{CallFrameKind, CallFrames};
pub use debug_link::{AlternateLink, DebugLink, compute_crc32};
pub use demangle::demangle;
pub use dwarf::{DebugFile, DebugFileFinder, DebugInfo, DwarfFrame, NoDebugFiles};
pub use elf::Elf;
pub use function_ranges::FunctionRanges;
pub use go_table::{GoFrame, GoFunction, GoTable};
pub use machine::Machine;
pub use probe_arguments::{Operand, ProbeArgument, Register};
pub use section::{Section, Sections};
pub use static_probes::StaticProbe;
pub use symbol_table::{SymbolMatch, SymbolTable, TableKind};
