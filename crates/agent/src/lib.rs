//! Sends what a node did to an existing backend: window by window, with an exact account of every sample.
//!
//! A [`Window`] is the profile of one interval, with a [`Resource`] for each of its processes. An encoder makes
//! [`Message`]s of it, which the delivery sends. [`Agent`] does all of it: it samples, names, selects, encodes and delivers.
//!
//! ```
//! use profiler_agent::{Resource, Window, pyroscope};
//! use profiler_profile::{Header, ProfileBuilder, StackEnd};
//!
//! let mut builder = ProfileBuilder::default();
//! let process = builder.process(1234, "shop");
//! let thread = builder.thread(process, 1234, "shop");
//! let stack = builder.stack(Vec::new(), StackEnd::Root);
//! builder.sample(0, 0, thread, stack, 42);
//! let service = |_: &_, _| Resource { attributes: [("service.name".to_owned(), "shop".to_owned())].into() };
//! let window = Window::new(builder.finish(Header::default()), service);
//! let encoded = pyroscope::encode(&window, &pyroscope::PyroscopeOptions::default());
//! assert_eq!(encoded.messages.iter().map(|message| message.samples).sum::<u64>(), 42);
//! ```
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `sampling` | yes | [`Agent`]; without it, windows are encoded and delivered alone, and the crate does not depend on `profiler` |

#[cfg(feature = "sampling")]
mod agent;
pub mod delivery;
pub mod environment;
mod filter;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;
mod message;
pub mod metrics;
pub mod naming;
pub mod otlp;
pub mod pyroscope;
mod resource;
pub mod selection;
#[cfg(test)]
mod tests;
mod window;

#[cfg(feature = "sampling")]
pub use self::agent::{
    AccountError, Agent, AgentBuilder, AgentError, AgentEvent, MemoryAction, MemoryUse, PROBABILITY_LIMITS,
    Sent, WINDOW_LIMITS, WindowAccount,
};
pub use self::{
    filter::{Filter, InvalidFilter},
    message::{Encoded, Message},
    resource::Resource,
    window::Window,
};
