//! The interface between the worker and what sends a message.

use bytes::Bytes;

use super::outcome::Outcome;

/// Sends messages over one connection at a time.
pub(super) trait Transport {
    /// Connects, if there is no connection that can be used. An error says why it is not possible now.
    async fn connect(&mut self) -> Result<(), String>;

    /// Sends the body of a message over the connection. An error says why there is no response. A future that is
    /// dropped leaves a connection that must be closed.
    async fn send(&mut self, body: Bytes) -> Result<Outcome, String>;

    /// Closes the connection. Nothing is written to it from then on.
    fn close(&mut self);

    /// Bytes written to all connections so far, before encryption.
    fn written_bytes(&self) -> u64;
}
