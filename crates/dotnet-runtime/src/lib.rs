//! Names the methods of a running .NET program from the memory of its process, and finds its threads and the owners of its locks:
//! no socket, no file, and nothing for the runtime to do.
//!
//! From .NET 9 on, CoreCLR exports a description of its own data structures ("data contracts") for debuggers:
//! `DotNetRuntimeContractDescriptor`. With it, this crate finds the method at an address of JIT code, as a debugger does. It
//! supports .NET 9.0 and 10.0 on x86-64.
//!
//! ```text
//! code address
//!   | code_ranges: range section map
//! code heap                              stubs: by templates      precompiled image: by its tables
//!   | nibble_map
//! start of the method
//!   | code_header: method, functions      the address must be within a function
//! MethodDesc
//!   | method_desc, runtime_types, modules: metadata in memory
//! name, spelled as those from EventPipe
//! ```
//!
//! [`DotNetRuntime::find_with_frames`] reads with the name what describes the frames of a method, which often has no frame pointer.
//!
//! [`DotNetRuntime::threads`] lists the managed threads, [`DotNetRuntime::monitors`] the locks that threads hold and others
//! wait for, and [`DotNetRuntime::owners`] the threads that hold these.
//!
//! Input is untrusted: whatever the memory contains, a lookup does not panic, and its reads are limited
//! ([`ReadLimits`]). What identifies the code is read again after the name: code that is freed and reused meanwhile is
//! [`LookupError::CodeChanged`], not a wrong name.
//!
//! The crate opens no file and no process. The caller implements [`Memory`].
//!
//! ```no_run
//! # use std::{fs::File, os::unix::fs::FileExt, path::Path, sync::Arc};
//! use profiler_addresses::RuntimeAddress;
//! use profiler_binary_reader::Image;
//! use profiler_dotnet_runtime::{DotNetRuntime, Memory, ReadError, ReadLimits, RuntimeSymbols};
//! use profiler_dotnet_symbols::readytorun::AssemblyFiles;
//!
//! /// The memory of a process.
//! #[derive(Debug)]
//! struct ProcessMemory(File);
//!
//! impl Memory for ProcessMemory {
//!     fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
//!         self.0.read_exact_at(into, address).map_err(|_| ReadError::NotMapped)
//!     }
//! }
//!
//! /// Opens no assembly.
//! struct NoFiles;
//!
//! impl AssemblyFiles for NoFiles {
//!     fn open(&self, _: &Path) -> Option<Image> {
//!         None
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let memory = Arc::new(ProcessMemory(File::open("/proc/1234/mem")?));
//! let symbols = RuntimeSymbols { descriptor: RuntimeAddress(0x7f00_0000_1000), dac_table: None };
//! let mut runtime = DotNetRuntime::open(memory, symbols, ReadLimits::default(), &Default::default())?;
//! let method = runtime.find(RuntimeAddress(0x7f00_1234_5678), &NoFiles)?;
//! println!("{} {:?}", method.name, method.kind);
//! # Ok(())
//! # }
//! ```

mod code_header;
mod code_ranges;
mod descriptor;
mod error;
mod freeable_code;
mod function_frames;
#[cfg(fuzzing)]
pub mod fuzz;
mod layout;
mod memory;
mod method_desc;
mod method_names;
mod modules;
mod monitors;
mod nibble_map;
mod runtime;
mod runtime_types;
mod symbols;
#[cfg(any(test, fuzzing))]
mod test_image;
#[cfg(any(test, fuzzing))]
mod test_memory;
#[cfg(any(test, fuzzing))]
mod test_threads;
#[cfg(test)]
mod tests;
mod thread_layout;
mod threads;

pub use descriptor::{ContractVersion, DataDescriptor};
pub use error::{DescriptorError, LookupError, StateError};
pub use function_frames::FunctionFrames;
pub use memory::{Memory, ReadError, ReadLimits};
pub use monitors::HeldMonitor;
pub use runtime::{CodeKind, CodeWithFrames, DotNetRuntime, RuntimeCode, RuntimeSymbols};
pub use symbols::find_symbols;
pub use threads::{GcMode, Listing, ManagedThread};
