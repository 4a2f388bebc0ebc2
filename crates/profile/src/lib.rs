//! The data model of a sampling profile: what a profiler measured, as plain data.
//!
//! A [`Profile`] holds interned strings, modules, frames and stacks, the samples with their time, CPU, thread and stack,
//! and a [`Ledger`] that accounts for every tick, every stack and every frame: what became a sample, what was lost and
//! why, which frames have no symbol and for what [`Reason`]. It needs no process and no kernel: it can be built by hand
//! ([`ProfileBuilder`]), saved and read ([`Profile::write_recording`], [`Profile::read`]), filtered
//! ([`Profile::shaped`]), joined ([`Profile::joined`]) and compared ([`Difference`]).
//!
//! Frames of a stack are leaf first. Formats that want the root first reverse them.
//!
//! ```
//! use profiler_addresses::ElfAddress;
//! use profiler_profile::{
//!     Frame, FrameKind, Header, ProfileBuilder, StackEnd, SymbolSource, Symbolization,
//! };
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
//! assert_eq!(profile.total_value(), 42);
//! assert!(profile.ledger().adds_up());
//! ```

mod builder;
mod condensed;
pub mod difference;
mod error;
mod event;
mod event_session;
mod finding;
mod finding_facts;
mod folded_waits;
mod frame;
mod function;
mod ids;
mod incident;
mod joined;
mod language_runtime;
mod ledger;
mod lock_owner;
mod managed_thread;
mod omitted_events;
mod poll_reading;
mod profile;
mod profile_copy;
mod reason;
mod recording;
mod remedy;
mod runtime_event;
#[cfg(feature = "filters")]
pub mod shape;
mod single_event;
mod stack;
mod states;
pub mod sum;
#[cfg(any(test, feature = "testing"))]
pub mod test_profile;
#[cfg(test)]
mod tests;
mod unsymbolized;
mod views;

pub use builder::{MAX_ATTRIBUTES, ProfileBuilder};
pub use difference::Difference;
#[cfg(feature = "filters")]
pub use error::FilterError;
pub use error::ReadError;
pub use event::{Event, Sampling, ThreadState, UnknownState};
pub use event_session::EventSessionCause;
pub use finding::{Finding, FindingKind};
pub use finding_facts::{Certainty, FindingFacts, Partner, Place, Proof, Selection, Share, Whole};
pub use frame::{CodeKind, Frame, FrameKind, Module, SourceLocation, SymbolSource, Symbolization};
pub use function::FunctionCount;
pub use ids::{EventId, FrameId, ModuleId, ProcessId, StackId, StringId, ThreadId};
pub use incident::Incident;
pub use language_runtime::LanguageRuntime;
pub use ledger::{Cost, EventLedger, Ledger, Loss, MissedTick, TimerTicks, UnsymbolizedFrames};
pub use lock_owner::LockOwner;
pub use managed_thread::{GcMode, ManagedThread};
pub use omitted_events::{EventTotals, OmittedEvents};
pub use poll_reading::PollReading;
pub use profile::{Attribute, Header, KubernetesNames, Process, Profile, Sample, Thread};
pub use profile_copy::ProfileCopy;
pub use reason::Reason;
#[cfg(fuzzing)]
pub use recording::recording_of_section_bodies;
pub use remedy::Remedy;
pub use runtime_event::{EventField, FieldValue, RuntimeEvent, RuntimeEventKind};
#[cfg(feature = "filters")]
pub use shape::Shape;
pub use stack::{FoundBy, Stack, StackEnd};
pub use views::{FrameView, LocationView, ModuleView, ProcessView, SampleView, StackView, ThreadView};
