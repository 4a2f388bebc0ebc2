//! The HTTP client.

use std::{fmt, io::Read, time::Duration};

/// Asks a server for a file.
pub trait Transport: fmt::Debug + Send {
    /// The file at an address, the last byte of which comes within a time.
    fn get(&self, url: &str, time_limit: Duration) -> Result<Reply, Refusal>;
}

/// A file that comes.
pub struct Reply {
    /// How long it is, when the server says so.
    pub length_bytes: Option<u64>,
    pub body: Box<dyn Read + Send>,
}

/// Why a file does not come.
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(
    not(any(test, feature = "symbol-server")),
    expect(dead_code, reason = "only a client refuses, and without the feature there is none")
)]
pub enum Refusal {
    /// The server does not have it.
    NotThere,
    /// The server cannot be reached, or does not answer as it should.
    Failed(String),
}
