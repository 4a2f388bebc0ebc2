//! From an address to names: a source for each mapping, and one shape for all their answers.

pub(crate) mod symbol;
