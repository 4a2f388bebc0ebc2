//! From an address to names: a source for each mapping, and one shape for all their answers.

pub(crate) mod code_map;
mod hexadecimal;
pub(crate) mod jit;
pub(crate) mod jitdump;
pub(crate) mod kernel;
pub(crate) mod managed;
pub(crate) mod names;
pub(crate) mod perf_map;
#[cfg(test)]
mod random;
pub(crate) mod symbol;
