//! Decodes EventPipe streams (nettrace) and the messages of the .NET diagnostics protocol from bytes.
//!
//! * [`ipc`]: commands to the diagnostics socket of a runtime, and their replies.
//! * [`nettrace`]: the stream of events that follows the reply to a `CollectTracing` command.
//! * [`code_events`]: the events about methods and modules in such a stream.

pub mod code_events;
pub mod ipc;
pub mod nettrace;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod utf16;
