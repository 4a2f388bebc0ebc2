//! Symbolizes addresses of running processes and of the kernel: native code, JIT code and precompiled .NET code.
//!
//! A [`Symbolizer`] finds the mapping of an address and reads the symbols from the source that fits it:
//!
//! | code | sources |
//! |---|---|
//! | native | ELF symbol tables and DWARF of the file, of its debug file (build id, debug link, `debuginfod` and SSQP symbol servers), of split DWARF |
//! | JIT | perf maps, jitdumps, the diagnostics socket of .NET runtimes, their data structures in the memory of the process |
//! | native, in a stripped .NET runtime | the tables through which managed code calls its functions |
//! | native, and stubs, of a .NET runtime in a process | the memory of the process |
//! | precompiled .NET (ReadyToRun) | metadata in the images, also composite images and single-file programs |
//! | kernel | the running kernel, `/proc/kallsyms` |
//!
//! Files are opened in the mount namespace of the process, and only if they are the mapped ones. Every source has limits
//! on memory and time, because the target controls the content of the files. An address without a symbol has a
//! [`Reason`](profiler_profile::Reason).
//!
//! ```
//! use std::{io, path::Path, sync::Arc};
//!
//! use profiler_addresses::{MonotonicTime, RuntimeAddress};
//! use profiler_dotnet_symbols::managed::NameStyle;
//! use profiler_processes::{Pid, ProcFs, ProcessFilter, ProcessTable, root_directory::RootDirectory};
//! use profiler_symbolize::{NativeOptions, Symbolizer, debug_file::DebugDirectories};
//!
//! # #[inline(never)]
//! fn function_of_this_program() {}
//!
//! # fn main() -> io::Result<()> {
//! let proc = Arc::new(ProcFs::live());
//! let mut processes = ProcessTable::new(Arc::clone(&proc), ProcessFilter::All);
//! let key = processes.prefetch(Pid::own());
//! let process = processes.get(key).ok_or(io::ErrorKind::NotFound)?;
//!
//! let debug_files = Arc::new(DebugDirectories::with_host(RootDirectory::open(Path::new("/"))?));
//! let options = NativeOptions::default();
//! // Addresses of the kernel are looked up in `/proc/kallsyms` only.
//! let kernel_names = || Err(io::ErrorKind::Unsupported.into());
//! let mut symbolizer = Symbolizer::new(proc, debug_files, options, NameStyle::default(), kernel_names);
//!
//! let address = RuntimeAddress(function_of_this_program as *const () as u64);
//! let code = symbolizer.code_at(process, address, MonotonicTime::ZERO);
//! let symbolized = symbolizer.symbolize(code, process, MonotonicTime::ZERO);
//! assert!(symbolized.names.unwrap().functions[0].name.ends_with("function_of_this_program"));
//! # Ok(())
//! # }
//! ```
//!
//! * [`Symbolizer`], [`CodeKey`], [`SymbolizedCode`]: from an address to functions
//! * [`native`], [`debug_file`], [`symbol_server`]: ELF files and their debug files
//! * [`kernel`]: the kernel and its modules
//! * [`symbol_sources`]: which runtime a process has, and which symbol sources are available
//! * [`SymbolDirectories`]: symbolizes frames of a saved profile

mod attempts;
mod code;
pub mod debug_file;
mod debug_paths;
mod function_names;
mod hexadecimal;
mod jit;
mod jitdump;
pub mod kernel;
mod locks;
mod method_memory;
mod module_code;
mod modules;
pub mod native;
mod perf_map;
mod reasons;
mod resymbolize;
mod runtime_detection;
mod runtime_functions;
mod runtime_helpers;
mod runtime_memory;
mod runtime_requests;
pub mod symbol;
mod symbol_names;
pub mod symbol_server;
pub mod symbol_sources;
mod symbolizer;

pub use self::{
    code::{CodeKey, ModuleKey, SymbolizedCode, placeholder},
    jitdump::{JitCallFrames, JitFunctionFrames},
    locks::{ObservedLock, ObservedThread, ProcessLocks},
    method_memory::ManagedFunctionFrames,
    native::NativeOptions,
    reasons::lookup_error_reason,
    resymbolize::{OpenDirectoryError, SymbolDirectories},
    runtime_requests::{MethodEventRequests, RuntimeRequests},
    symbolizer::{RequestedMethods, Symbolizer},
};

/// Entry points of the fuzz targets.
#[cfg(fuzzing)]
pub mod fuzz {
    #[cfg(feature = "dotnet-memory")]
    pub use crate::method_memory::examine_memory;
    #[cfg(feature = "capture")]
    pub use crate::method_memory::replay_memory;
    pub use crate::{
        jitdump::check_split as check_split_jitdump, perf_map::check_split as check_split_perf_map,
    };
}
