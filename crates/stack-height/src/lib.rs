//! Unwind rows computed from x86-64 machine code, for code without call frame information (CFI).
//!
//! The analysis follows the instructions of each function and computes how far the stack pointer, and copies of it, are
//! from the canonical frame address (CFA): stack height analysis in Dyninst, what objtool does to write ORC tables of the
//! Linux kernel. It reads no unwind information. Programs are not trusted: every input is analysed within limits of work
//! and memory, and the analysis can be cancelled.
//!
//! What makes the rows reliable is a check: where a function is left by `ret`, the stack pointer must be CFA - 8 and RBP
//! must have the caller's value. Nothing is known of code from which a `ret` can be reached that fails the check.
//!
//! ```
//! use std::ops::Range;
//! use profiler_stack_height::{Cfa, Hints, Program, analyze};
//!
//! /// `push %rbx; pop %rbx; ret` at address 0x1000.
//! struct Function([Range<u64>; 1]);
//!
//! impl Program for Function {
//!     fn code_ranges(&self) -> &[Range<u64>] {
//!         &self.0
//!     }
//!     fn read(&self, address: u64, into: &mut [u8]) -> bool {
//!         let start = (address - 0x1000) as usize;
//!         let bytes = [0x53, 0x5b, 0xc3];
//!         let found = bytes.get(start..start + into.len());
//!         found.map(|bytes| into.copy_from_slice(bytes)).is_some()
//!     }
//!     fn pointer(&self, _: u64) -> Option<u64> {
//!         None
//!     }
//! }
//!
//! let program = Function([0x1000..0x1003]);
//! let hints = Hints { function_starts: vec![0x1000], ..Hints::default() };
//! let rows = analyze(&program, &hints, program.code_ranges(), &|| true)?;
//! assert_eq!(rows[1].address, 0x1001);
//! assert_eq!(rows[1].frame.unwrap().cfa, Cfa::StackPointer(16));
//! # Ok::<(), profiler_stack_height::Error>(())
//! ```
//!
//! | module | content |
//! |---|---|
//! | `program` | [`Program`], [`Hints`]: the input |
//! | `row` | [`StackRow`], [`Frame`]: the output |
//! | `analysis` | [`analyze`], [`analyze_in_parts`] |
//! | `discovery`, `entry` | starts of functions, and functions that never return |
//! | `function`, `blocks` | data flow over the code of one function |
//! | `function_rows`, `run` | frames to rows |
//! | `epilogue` | [`for_each_epilogue`]: epilogues that call frame information does not describe |
//! | `extent` | [`end_of_function`]: the extent of a symbol without a size |
//! | `gaps`, `scan` | code that no known function reaches |
//! | `padding` | [`behind_padding`]: what fills the space between functions |
//! | `root` | starts of programs and threads |
//! | `signal_return` | return trampolines of signal handlers |
//! | `state`, `value`, `step` | abstract registers and stack slots, and the effect of instructions |
//! | `knowledge` | what is known of all functions; jump tables |
//! | `code`, `address_set`, `work` | decoder, sets of addresses, limits |
//! | `never_returns` | names of functions that never return |

mod address_set;
mod analysis;
mod blocks;
mod code;
mod discovery;
mod entry;
mod epilogue;
mod error;
mod extent;
mod function;
mod function_rows;
mod gaps;
mod knowledge;
mod never_returns;
mod padding;
mod program;
mod root;
mod row;
mod run;
mod scan;
mod signal_return;
mod state;
mod step;
mod value;
mod work;

pub use analysis::{analyze, analyze_in_parts};
pub use epilogue::{Epilogue, for_each_epilogue};
pub use error::Error;
pub use extent::end_of_function;
pub use never_returns::never_returns;
pub use padding::behind_padding;
pub use program::{Hints, MAX_CODE_ADDRESS, Program};
pub use root::{MAX_PROGRAM_START_BYTES, ProgramStart};
pub use row::{Cfa, Confidence, Frame, SavedFramePointer, StackRow};
pub use signal_return::signal_return_at;

#[cfg(test)]
mod tests {
    mod sequences;
}
