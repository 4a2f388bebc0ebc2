//! Decodes EventPipe streams (nettrace) and the messages of the .NET diagnostics protocol from bytes.
//!
//! * [`ipc`]: commands to the diagnostics socket of a runtime, and their replies.
//! * [`nettrace`]: the stream of events that follows the reply to a `CollectTracing` command.
//! * [`code_events`]: the events about methods and modules in such a stream.
//! * [`runtime_events`]: the events about what the runtime does, and those of other providers.
//! * [`fields`]: the values in the payload of an event.

pub mod code_events;
pub mod fields;
pub mod ipc;
pub mod nettrace;
pub mod runtime_events;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod utf16;
