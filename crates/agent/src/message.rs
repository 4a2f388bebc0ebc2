//! Messages: encoded parts of a window, each a request to the backend.

/// A request that is ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The start of the window: nanoseconds since 1970-01-01 UTC. Backends reject what is too old.
    pub started_unix_ns: u64,
    /// The samples in it: the sum that [`profiler_profile::Event::sample_count`] gives, over all events.
    pub samples: u64,
    /// The protobuf message, compressed by gzip.
    pub body: Vec<u8>,
}

/// The messages of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// To be sent in this order.
    pub messages: Vec<Message>,
    /// Samples that are in no message, because they exceed a limit of the backend.
    pub too_large: u64,
}
