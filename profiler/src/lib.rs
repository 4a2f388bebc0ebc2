//! An in-process eBPF sampling profiler for Linux.

mod address;
mod elf;
mod error;
mod output;
mod process;
mod sampler;
pub mod profile;
mod symbolize;
mod sys;

pub use address::{ElfAddress, FileOffset, RuntimeAddress};
pub use error::{Error, ErrorKind, Operation, Result};
pub use output::{Format, OutputOptions};
pub use sampler::ebpf::CpuSet;
