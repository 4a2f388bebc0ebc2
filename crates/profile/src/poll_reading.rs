//! What the main threads of processes wait for in poll(2) and select(2), as it was read while they waited.

use crate::ThreadId;

/// A thread in poll(2) or select(2) at a time.
///
/// Main threads are read about four times a second. Between two readings, a thread can have waited for something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollReading {
    /// Nanoseconds since the start of sampling.
    pub time_ns: u64,
    /// The thread.
    pub thread: ThreadId,
    /// Whether one of the descriptors for which it waited was a socket that listens: the thread then waits for new connections.
    pub awaits_connections: bool,
}
