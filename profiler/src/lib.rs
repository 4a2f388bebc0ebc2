//! An in-process eBPF sampling profiler for Linux.

mod address;
pub mod doctor;
mod elf;
mod error;
mod process;
pub mod profile;
mod sampler;
mod symbolize;
mod sys;

pub use address::{ElfAddress, FileOffset, RuntimeAddress};
pub use error::{Error, ErrorKind, Operation, Result};
