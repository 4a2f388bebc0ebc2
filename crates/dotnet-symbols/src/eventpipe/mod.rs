//! EventPipe streams (nettrace) and the messages of the diagnostics protocol, from bytes.

mod bytes;
pub mod ipc;
pub mod nettrace;
#[cfg(any(test, feature = "testing"))]
pub mod test_stream;

pub use bytes::{Bytes, Short};
