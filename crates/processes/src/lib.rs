//! Processes on Linux over time: their mappings, sideband events, root directories, cgroups and containers.
//!
//! A profiler or tracer gets a PID, an address and a time with each sample. By the time it evaluates the sample, the
//! process may have exited, executed another program or replaced the mapping, and another process may have its PID. A
//! [`ProcessTable`] applies mmap, comm, fork, exec and exit events in time order and returns the mapping that contained
//! the address at that time.
//!
//! Files of a target are read by its rules, not by those of the host: [`RootDirectory`](root_directory::RootDirectory)
//! opens files in the mount namespace of a process and does not follow links out of it. [`cgroup`] finds cgroups of both
//! versions, and containers by id. [`ProcFs`] can copy all that it reads into a directory, from which the same code runs
//! again later, without the processes.
//!
//! ```
//! use profiler_addresses::{FileOffset, MonotonicTime, RuntimeAddress};
//! use profiler_processes::{AddressSpace, Backing, maps};
//!
//! let text = b"\
//! 7f1c26000000-7f1c26155000 r-xp 00026000 fd:01 12345      /usr/lib/libc.so.6
//! 7f1c27000000-7f1c27010000 rwxp 00000000 00:00 0
//! 7f1c28000000-7f1c28021000 rw-p 00000000 00:00 0          [heap]
//! ";
//! let mappings = maps::parse_executable(text);
//! assert_eq!(mappings.len(), 2);
//! assert_eq!(mappings[0].offset, FileOffset(0x26000));
//! assert!(matches!(&mappings[0].backing, Backing::File { path, .. } if &**path == "/usr/lib/libc.so.6"));
//!
//! let address_space = AddressSpace::from_snapshot(mappings);
//! let mapping = address_space.find(RuntimeAddress(0x7f1c_2700_0010), MonotonicTime::ZERO).unwrap();
//! assert_eq!(mapping.backing, Backing::Jit);
//! ```
//!
//! * [`ProcessTable`], [`Process`]: processes by PID and time
//! * [`AddressSpace`], [`maps`]: executable mappings over time, and the parser of `/proc/PID/maps`
//! * [`SidebandEvent`], [`Pid`], [`Tid`], [`TimeOrdered`]: the events that a table applies with the ids of their processes and
//!   threads, and their order across CPUs
//! * [`ProcFs`], [`Status`], [`Stat`], [`FutexWait`]: reading `/proc`, and its copy in a capture
//! * [`find_processes_by_name`]: the processes with a name
//! * [`MappedFiles`], [`FileVersion`]: the open files of mappings, one descriptor each
//! * [`root_directory`]: files in the root directory of a process
//! * [`cgroup`]: cgroups and containers
//! * [`kubernetes`]: pods, and the names of their containers

mod address_space;
mod ancestors;
mod capture;
pub mod cgroup;
mod clock;
mod confined_open;
mod copied_text;
mod cpu_set;
mod error;
mod file_version;
mod futex_waits;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;
mod jit_directories;
pub mod kubernetes;
mod mapped_files;
pub mod maps;
mod pid;
mod process;
#[cfg(feature = "pods")]
mod process_context;
mod process_filter;
mod process_name;
mod process_reader;
mod procfs;
mod program;
pub mod root_directory;
#[cfg(feature = "pods")]
mod service_name;
mod sideband;
mod stat;
mod status;
mod table;
mod temporary_files;
pub mod tenants;
mod thread_ids;
mod tid;
mod time_ordered;
mod wait_partners;

pub use address_space::AddressSpace;
pub use ancestors::Ancestor;
pub use clock::monotonic_time;
pub use cpu_set::{CpuSet, InvalidCpuSet};
pub use error::{FindError, LookupError};
pub use file_version::FileVersion;
pub use futex_waits::FutexWait;
pub use mapped_files::{MappedFile, MappedFiles, MappingOwner, OpenError};
pub use maps::{Backing, FileId, Mapping};
pub use pid::Pid;
pub use process::{Identity, JIT_DIRECTORY_VARIABLES, Process, ProcessKey};
pub use process_filter::ProcessFilter;
pub use process_name::{NameSearch, NamedProcess, find_processes_by_name};
pub use procfs::ProcFs;
pub use sideband::{SidebandEvent, SidebandEventKind};
pub use stat::Stat;
pub use status::Status;
pub use table::{
    Installation, MappingChange, MappingSnapshot, ProcessOfSample, ProcessTable, RetiredProcess,
};
pub use temporary_files::{jit_file_directories, temporary_directories};
pub use thread_ids::{innermost_tid, thread_in_namespace};
pub use tid::Tid;
pub use time_ordered::TimeOrdered;
pub use wait_partners::{KnownListeners, PartnerRole, WaitPartner};
