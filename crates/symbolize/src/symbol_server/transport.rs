//! The transport of symbol servers: a trait with HTTP as its only implementation outside of tests.

use std::{fmt, io::Read, time::Duration};

/// Requests files from a server.
pub trait Transport: fmt::Debug + Send {
    /// Requests the file at a URL. The time limit includes the whole body.
    ///
    /// # Errors
    /// When the server does not have the file, or the request fails.
    fn get(&self, url: &str, time_limit: Duration) -> Result<Response, TransportError>;
}

/// A response with a file.
pub struct Response {
    /// Size of the file, when the response contains it.
    pub length_bytes: Option<u64>,
    /// The content of the file.
    pub body: Box<dyn Read + Send>,
}

/// Why there is no file.
#[derive(Debug, PartialEq, Eq)]
pub enum TransportError {
    /// The server does not have it.
    NotFound,
    /// The server is not reachable, or its response is not as expected.
    Failed(String),
}
