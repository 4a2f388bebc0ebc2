//! An in-process eBPF sampling profiler for Linux: where does a process burn CPU, with every frame by name.
//!
//! A [`Profiler`] says what to sample, a [`Session`] samples, and a [`Profile`] is the result: plain data, to
//! look at or to write in one of the [`Format`]s. Sampling needs root, or the capabilities that
//! [`doctor::examine`] lists; nothing else has to be installed.
//!
//! # A tour
//!
//! Ten seconds of a process, as folded stacks:
//!
//! ```no_run
//! use std::time::Duration;
//! use profiler::{Format, Profiler, Target, WriteFormat as _};
//!
//! let profile = Profiler::builder()
//!     .target(Target::Pid(1234))
//!     .frequency_hz(99)
//!     .build()? // checks the settings
//!     .start()? // loads, attaches; dropping the session detaches
//!     .run_for(Duration::from_secs(10))?;
//! profile.write(Format::Folded, std::io::stdout().lock())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A profile every minute, without a gap between them:
//!
//! ```no_run
//! # use std::time::Duration;
//! # use profiler::{Profiler, Target};
//! let mut session = Profiler::builder().target(Target::Everything).build()?.start()?;
//! loop {
//!     let profile = session.take_profile(Duration::from_secs(60))?;
//!     println!("{} samples, {} lost", profile.sample_count(), profile.ledger().lost_total());
//! }
//! # Ok::<(), profiler::Error>(())
//! ```
//!
//! What a profile holds: samples with time, CPU, thread and stack; stacks of frames, leaf first; and the ledger
//! of what became of every tick, stack and frame. This one is built by hand, and needs no privilege:
//!
//! ```
//! use profiler::{ElfAddress, Format, WriteFormat as _};
//! use profiler::profile::{Frame, FrameKind, Header, Naming, ProfileBuilder, StackEnd, SymbolSource};
//!
//! let mut builder = ProfileBuilder::default();
//! let mut frame = |name: &str, address| {
//!     let name = builder.string(name);
//!     let naming = Naming::Symbol(SymbolSource::SymbolTable);
//!     let address = ElfAddress(address);
//!     builder.frame(Frame { name, kind: FrameKind::Native, module: None, address, location: None, naming })
//! };
//! let frames = vec![frame("work", 0x1130), frame("main", 0x1100)];
//! let stack = builder.stack(frames, StackEnd::Root);
//! let process = builder.process(1234, "demo");
//! let thread = builder.thread(process, 1234, "demo");
//! builder.sample(0, 0, thread, stack, 42);
//! let profile = builder.finish(Header::default());
//!
//! let mut folded = Vec::new();
//! profile.write(Format::Folded, &mut folded)?;
//! assert_eq!(folded, b"demo;main;work 42\n");
//! assert!(profile.ledger().adds_up());
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A profile can be kept as a file and read again ([`Profile::write_recording`], [`Profile::read`]), shown in part
//! ([`Profile::shaped`]), given names that were missing ([`Symbols::name_frames`]) and compared with another
//! ([`Difference`]).
//!
//! What cannot be done is an [`Error`] with a [kind](Error::kind) to branch on. What has no name is no error:
//! its frame carries a [`Reason`](profile::Reason).
//!
//! # Features
//!
//! `cli` (default): the command line of the `profiler` binary. An embedder turns it off with
//! `default-features = false`. `symbol-server`, part of `cli`: debug files over the network, when
//! [`Builder::symbol_server`] allows it.

mod builder;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
pub mod doctor;
mod error;
mod sampler;
mod session;
mod sys;

pub use builder::{Builder, DEFAULT_FREQUENCY_HZ, Profiler};
pub use error::{Error, ErrorKind, Operation, Result};
pub use profiler_addresses::{ElfAddress, FileOffset, RuntimeAddress};
pub use profiler_profile::{self as profile, Difference, Profile, Shape, difference, shape};
#[cfg(feature = "formats")]
pub use profiler_profile_formats::{
    Format, OutputOptions, UnknownFormat, WriteFormat, frame_label, printable,
};
pub use profiler_symbolize::{OpenDirectoryError, Symbols, symbol_server::Download};
pub use sampler::{Unwind, ebpf::CpuSet};
pub use session::{Downloads, Ended, Progress, Session, Stopper, Target};
