//! An in-process eBPF sampling profiler for Linux.

mod address;
mod builder;
#[cfg(feature = "cli")]
pub mod cli;
mod elf;
mod error;
#[cfg(fuzzing)]
pub mod fuzz;
mod output;
mod process;
pub mod profile;
mod sampler;
mod session;
mod symbolize;
mod sys;

pub use address::{ElfAddress, FileOffset, RuntimeAddress};
pub use builder::{Builder, DEFAULT_FREQUENCY_HZ, Profiler};
pub use error::{Error, ErrorKind, Operation, Result};
pub use output::{Format, OutputOptions};
pub use profile::Profile;
pub use sampler::ebpf::CpuSet;
pub use session::{Ended, Progress, Session, Stopper, Target};
