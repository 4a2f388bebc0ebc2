//! An in-process eBPF sampling profiler for Linux: native, JIT (.NET, Node.js, Java) and kernel stacks with function names.
//!
//! A [`Builder`] configures what to sample, a [`Session`] samples, and a [`Profile`] is the result: plain data to analyze
//! or to write in one of several formats. Sampling needs root, or the capabilities that [`doctor::examine`] lists; nothing
//! has to be installed on the host or in the target.
//!
//! # A tour
//!
//! Ten seconds of a process, as folded stacks:
//!
//! ```no_run
//! # #[cfg(feature = "formats")] {
//! use std::time::Duration;
//! use profiler::{Format, Profiler, Target};
//!
//! let profile = Profiler::builder()
//!     .target(Target::Pid(1234))
//!     .frequency_hz(99)
//!     .build()? // checks the settings
//!     .start()? // loads, attaches; dropping the session detaches
//!     .run_for(Duration::from_secs(10))?;
//! Format::Folded.write(&profile, std::io::stdout().lock())?;
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The hottest function of the whole machine each minute, without gaps:
//!
//! ```no_run
//! # use std::{collections::HashMap, time::Duration};
//! # use profiler::{Profiler, Target};
//! let session = Profiler::builder().target(Target::Everything).build()?.start()?;
//! for profile in session.intervals(Duration::from_secs(60)) {
//!     let (profile, mut counts) = (profile?, HashMap::new());
//!     for sample in profile.sample_views() {
//!         let name = sample.stack().leaf().map_or("no stack", |frame| frame.name());
//!         *counts.entry(name).or_insert(0) += sample.value();
//!     }
//!     println!("{:?}", counts.into_iter().max_by_key(|(_, count)| *count));
//! }
//! # Ok::<(), profiler::Error>(())
//! ```
//!
//! The functions at addresses of another process, without sampling:
//!
//! ```no_run
//! # use profiler::{Address, Profiler};
//! let mut symbolizer = Profiler::builder().inlines(true).lines(true).symbolizer()?;
//! for symbol in symbolizer.symbolize(1234, &[Address::Instruction(0x7f12_3456_0000)])? {
//!     println!("{symbol}");
//! }
//! # Ok::<(), profiler::Error>(())
//! ```
//!
//! A profile contains samples with time, CPU, thread and stack; stacks of frames, leaf first; and a ledger that accounts
//! for every tick, stack and frame. This one is built by hand and needs no privilege:
//!
//! ```
//! # #[cfg(feature = "formats")] {
//! use profiler::{ElfAddress, Format};
//! use profiler::profile::{Frame, FrameKind, Header, ProfileBuilder, StackEnd, SymbolSource, Symbolization};
//!
//! let mut builder = ProfileBuilder::default();
//! let mut frame = |name: &str, address| {
//!     let name = builder.string(name);
//!     let symbolization = Symbolization::Symbol(SymbolSource::SymbolTable);
//!     let address = ElfAddress(address);
//!     builder.frame(Frame { name, kind: FrameKind::Native, module: None, address, location: None, symbolization })
//! };
//! let frames = vec![frame("work", 0x1130), frame("main", 0x1100)];
//! let stack = builder.stack(frames, StackEnd::Root);
//! let process = builder.process(1234, "demo");
//! let thread = builder.thread(process, 1234, "demo");
//! builder.sample(0, 0, thread, stack, 42);
//! let profile = builder.finish(Header::default());
//!
//! let mut folded = Vec::new();
//! Format::Folded.write(&profile, &mut folded)?;
//! assert_eq!(folded, b"demo;main;work 42\n");
//! assert!(profile.ledger().adds_up());
//! # }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A profile can be saved and read again ([`Profile::write_recording`], [`Profile::read`]), filtered
//! ([`Profile::shaped`]), symbolized later ([`SymbolDirectories::symbolize_profile`]) and compared with another ([`Difference`]).
//!
//! Failed operations return an [`Error`] with a [kind](Error::kind) to branch on. An unsymbolized frame is no error: it
//! has a [`Reason`](profile::Reason).
//!
//! # Features
//!
//! The default features name as much as the command line does, and write profiles. An embedder that reads profiles as data
//! uses `default-features = false` and adds those that it needs:
//!
//! | feature | adds |
//! |---|---|
//! | `formats` | `Format`: profiles in the formats of other tools |
//! | `capture` | `Builder::capture` and `Builder::replay`: the raw input of a session, to replay without privileges |
//! | `compressed-debug-info` | symbols in `.gnu_debugdata`, which Fedora and RHEL have in stripped files, and in zstd-compressed sections |
//! | `cpp-demangle` | C++ names are demangled, as Rust names always are |
//! | `dotnet-memory` | names of .NET methods from the memory of the process, without the runtime's events |
//! | `filters` | `Shape`: selects samples and frames of a profile, by regular expressions too |
//! | `pods` | `Target::Pod`, and the Kubernetes names of containers in profiles |
//! | `sandbox` | [`Builder::sandbox`]: confines a process that only profiles |
//! | `stream` | [`PolledIntervals`] is a stream for any executor |
//! | `symbol-server` | debug files over the network, from servers given to [`Builder::symbol_server`] |

mod builder;
mod command_user;
pub mod doctor;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;
mod kernel_names;
mod kernel_release;
pub mod proc_mount;
#[cfg(feature = "sandbox")]
pub mod sandbox;
#[cfg(not(feature = "sandbox"))]
#[path = "no_sandbox.rs"]
mod sandbox;
mod session;
mod settings;
mod static_probes;
mod symbolizer;
mod sys;
mod user_database;

pub use builder::{Builder, Profiler};
pub use command_user::CommandUser;
pub use error::{Error, ErrorKind, Operation, Result};
pub use profiler_addresses::{ElfAddress, FileOffset, RuntimeAddress};
pub use profiler_dotnet_diagnostics::{
    EventProvider, EventSet, EventStream, InvalidEventProvider, StreamEnd,
};
pub use profiler_findings as findings;
pub use profiler_processes::{CpuSet, InvalidCpuSet};
#[cfg(feature = "filters")]
pub use profiler_profile::Shape;
pub use profiler_profile::{self as profile, Difference, Profile, difference};
#[cfg(feature = "formats")]
pub use profiler_profile_formats::{Format, OutputOptions, UnknownFormat};
pub use profiler_sampler::{
    AvailableEvent, CountedEvent, DEFAULT_FREQUENCY_HZ, DEFAULT_MAX_OVERHEAD_PERCENT, EventCondition,
    InvalidCondition, MAX_COUNTED_EVENTS, UnknownEvent, Unwind, available_events, raise_thread_priority,
};
pub use profiler_symbolize::{OpenDirectoryError, SymbolDirectories, symbol_server::Download};
pub use session::analyze_running;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub use session::simulation;
pub use session::{
    Downloads, Ended, Intervals, MeasuredTarget, MemoryShortage, PolledIntervals, Progress, Session, Stopper,
};
pub use settings::{DotnetNames, Target};
pub use static_probes::static_probes;
pub use symbolizer::{Address, Function, Symbol, Symbolizer};
pub use sys::allocator::return_freed_memory;
