//! The worker: takes the oldest message, sends it, and repeats what failed after a delay.

mod settle;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{
    backoff::Backoff,
    queue::{Pending, Place, Queue},
    spool::Spool,
    transport::Transport,
};

/// The first delay between attempts, as in the SDKs of OpenTelemetry.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);

/// The longest delay between attempts, without jitter: one window.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// Limits of requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Of the time of a request with its connection.
    pub(super) timeout: Duration,
    /// Of the age of a window.
    pub(super) max_age: Option<Duration>,
}

/// Sends the messages of a queue. `C` is the time since 1970-01-01 UTC.
pub(super) struct Worker<T, C> {
    transport: T,
    clock: C,
    queue: Arc<Queue>,
    spool: Option<Spool>,
    limits: Limits,
    backoff: Backoff,
    /// The end of the back-off, if the last attempt failed.
    next_attempt: Option<Instant>,
    current: Option<Current>,
}

/// The message of the current request.
struct Current {
    message: Pending,
    place: Place,
    /// [`Transport::written_bytes`] before it.
    written_before: u64,
}

impl<T: Transport, C: Fn() -> Duration> Worker<T, C> {
    pub(super) fn new(
        transport: T,
        clock: C,
        queue: Arc<Queue>,
        spool: Option<Spool>,
        limits: Limits,
    ) -> Self {
        let backoff = Backoff::new(INITIAL_BACKOFF, MAX_BACKOFF);
        Self { transport, clock, queue, spool, limits, backoff, next_attempt: None, current: None }
    }

    /// Sends messages until the queue is stopped.
    pub(super) async fn run(mut self) {
        let queue = Arc::clone(&self.queue);
        loop {
            tokio::select! {
                biased;
                () = queue.stop_requested() => break,
                () = self.advance() => {}
            }
        }
        self.finish();
    }

    /// Waits for a message or the end of the back-off, or attempts to send a message.
    async fn advance(&mut self) {
        self.fill_spool();
        self.drop_too_old();
        if !self.has_messages() {
            // Servers and load balancers close idle connections, and a request at that time would be ambiguous.
            self.transport.close();
            return self.queue.pushed().await;
        }
        if let Some(next_attempt) = self.next_attempt.filter(|time| Instant::now() < *time) {
            tokio::select! {
                () = sleep_until(next_attempt) => {}
                () = self.queue.pushed() => {}
            }
            return;
        }
        self.attempt().await;
    }

    async fn attempt(&mut self) {
        let is_retry = self.next_attempt.take().is_some();
        self.queue.count(|ledger| {
            ledger.requests += 1;
            ledger.retries += u64::from(is_retry);
        });
        let deadline = Instant::now() + self.limits.timeout;
        match timeout_at(deadline, self.transport.connect()).await {
            Ok(Ok(())) => {}
            Ok(Err(reason)) => return self.delay(None, reason),
            Err(_) => {
                self.transport.close();
                return self.delay(None, self.timeout_reason("accept a connection"));
            }
        }
        let Some(body) = self.begin() else { return };
        match timeout_at(deadline, self.transport.send(body)).await {
            Ok(Ok(outcome)) => self.settle(outcome),
            Ok(Err(reason)) => self.settle_without_response(reason),
            Err(_) => self.settle_without_response(self.timeout_reason("respond")),
        }
    }

    /// Makes the oldest message the current one. The spool has older messages than the queue.
    fn begin(&mut self) -> Option<Bytes> {
        let spooled = self.read_spooled();
        let (message, place) = match (spooled, self.queue.is_empty()) {
            (Ok(Some(message)), _) => (message, Place::Spool),
            (Err(reason), true) => {
                self.delay(None, reason);
                return None;
            }
            // Those in memory do not wait for a disk that fails.
            (Ok(None) | Err(_), _) => (self.queue.take()?, Place::Memory),
        };
        let body = message.body.clone();
        let written_before = self.transport.written_bytes();
        self.current = Some(Current { message, place, written_before });
        Some(body)
    }
}
