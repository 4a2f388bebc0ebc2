//! From an address to names: a source for each mapping, and one shape for all their answers.

pub(crate) mod debug_file;
mod demangle;
mod dwarf;
mod function_names;
pub(crate) mod native;
mod split_dwarf;
pub(crate) mod symbol;
