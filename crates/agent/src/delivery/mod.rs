//! Sends messages to a backend, with an exact account of their samples.
//!
//! [`Delivery::push`] adds messages to a queue in memory. One thread sends them in order, repeats what the protocol allows to be
//! repeated, and keeps them in the spool while the backend accepts nothing.

mod backoff;
mod client;
mod error;
mod ledger;
mod options;
mod outcome;
mod queue;
mod spool;
mod transport;
mod worker;

use std::{
    fmt,
    sync::Arc,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::runtime;

use self::{
    client::Client,
    queue::Queue,
    spool::Spool,
    worker::{Limits, Worker},
};
#[cfg(fuzzing)]
pub use self::{
    client::check_response,
    spool::{check_spool, message_file},
};
pub use self::{
    error::DeliveryError,
    ledger::{DeliveryLedger, DroppedSamples, Health},
    options::{DeliveryOptions, Destination, SpoolOptions},
};
use crate::Encoded;

/// The largest message, and the limit of all messages in memory, in bytes. About ten windows of a busy node.
pub const MAX_QUEUE_BYTES: u64 = 6 << 20;

/// Pyroscope's default of `reject_older_than` (`pkg/validation/limits.go`).
const PYROSCOPE_MAX_AGE: Duration = Duration::from_secs(3600);

/// The time to write the remaining messages to the spool when a delivery stops.
const STOP_TIME_LIMIT: Duration = Duration::from_secs(2);

/// A thread that sends messages to a backend.
///
/// It has its own runtime and starts no other thread after [`Delivery::start`], so that it can be started before the process
/// confines itself. Dropping it ends the thread without waiting; [`Delivery::stop`] waits.
pub struct Delivery {
    queue: Arc<Queue>,
}

impl Delivery {
    /// Opens the spool, and starts the thread. It does not connect yet: a backend that is not there is no error.
    ///
    /// # Errors
    /// An option is invalid, a file of them cannot be read, or the thread cannot be started.
    pub fn start(options: DeliveryOptions) -> Result<Self, DeliveryError> {
        let client = Client::new(&options)?;
        let DeliveryOptions { destination, spool, timeout, .. } = options;
        let queue = Arc::new(Queue::new(MAX_QUEUE_BYTES));
        let spool = spool.map(|options| Spool::open(&options, &queue)).transpose()?;
        let limits = Limits { timeout, max_age: max_age(&destination) };
        let worker = Worker::new(client, unix_time, Arc::clone(&queue), spool, limits);
        let runtime = runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(DeliveryError::Thread)?;
        let ending = EndOfWorker(Arc::clone(&queue));
        let run = move || {
            let ending = ending;
            runtime.block_on(worker.run());
            // Connections are closed before the end is reported.
            drop(runtime);
            drop(ending);
        };
        thread::Builder::new().name("delivery".to_owned()).spawn(run).map_err(DeliveryError::Thread)?;
        Ok(Self { queue })
    }

    /// Adds messages to the queue. It never waits for the backend or a disk. Where the queue exceeds
    /// [`MAX_QUEUE_BYTES`], the oldest messages are dropped.
    pub fn push(&self, encoded: Encoded) {
        self.queue.push(encoded);
    }

    /// The account of all samples so far.
    #[must_use]
    pub fn ledger(&self) -> DeliveryLedger {
        self.queue.ledger()
    }

    /// Whether the backend accepts messages.
    #[must_use]
    pub fn health(&self) -> Health {
        self.queue.health()
    }

    /// Waits until no message is in memory: all are sent, in the spool or dropped. It does not shorten the back-off.
    /// Returns whether it is so within the time limit.
    pub fn flush(&self, limit: Duration) -> bool {
        self.queue.wait_until_empty(limit)
    }

    /// Flushes until the limit, and ends the thread. What is still in memory goes to the spool, or is dropped. If a disk
    /// does not respond within two more seconds, some samples are still [`DeliveryLedger::queued`].
    #[must_use]
    pub fn stop(self, limit: Duration) -> DeliveryLedger {
        self.queue.wait_until_empty(limit);
        self.queue.request_stop();
        self.queue.wait_until_ended(STOP_TIME_LIMIT);
        self.queue.ledger()
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.queue.request_stop();
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Delivery").field("ledger", &self.ledger()).finish_non_exhaustive()
    }
}

/// Reports the end of the worker, also when it panics.
struct EndOfWorker(Arc<Queue>);

impl Drop for EndOfWorker {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The age from which the backend rejects a message. OTLP has no such limit.
fn max_age(destination: &Destination) -> Option<Duration> {
    match destination {
        Destination::OtlpHttp { .. } | Destination::OtlpGrpc { .. } => None,
        Destination::Pyroscope { .. } => Some(PYROSCOPE_MAX_AGE),
    }
}

/// The time since 1970-01-01 UTC. A clock before that counts as 1970.
fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
