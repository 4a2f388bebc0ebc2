//! The queue between the thread that encodes windows and the worker, with the ledger: both change under one lock, so that the
//! ledger is exact at any time.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::sync::Notify;

use super::ledger::{DeliveryLedger, Health};
use crate::{Encoded, Message};

/// A message that waits or is being sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    /// The start of its window: nanoseconds since 1970-01-01 UTC.
    pub(super) started_unix_ns: u64,
    pub(super) samples: u64,
    pub(super) body: Bytes,
}

/// Where a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Memory,
    Spool,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settlement {
    Delivered,
    Ambiguous,
    Outage,
    TooOld,
    Rejected,
    TooLarge,
}

/// Messages in memory up to a number of bytes, and the ledger.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    /// Wakes the worker when a message was pushed.
    pushed: Notify,
    /// Ends the worker.
    stop_requested: Notify,
    /// For threads that wait until the queue is empty or the worker has ended.
    changed: Condvar,
    limit_bytes: u64,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: VecDeque<Pending>,
    ledger: DeliveryLedger,
    health: Health,
    has_ended: bool,
}

impl Queue {
    /// A queue for messages whose bodies have at most this size together.
    pub(super) fn new(limit_bytes: u64) -> Self {
        Self {
            state: Mutex::default(),
            pushed: Notify::new(),
            stop_requested: Notify::new(),
            changed: Condvar::new(),
            limit_bytes,
        }
    }

    /// Adds messages. The oldest are dropped where they exceed the limit.
    pub(super) fn push(&self, encoded: Encoded) {
        let mut state = self.lock();
        state.ledger.sampled += encoded.too_large;
        state.ledger.dropped.too_large += encoded.too_large;
        for message in encoded.messages {
            state.add(message, self.limit_bytes);
        }
        drop(state);
        self.pushed.notify_one();
    }

    /// Takes the oldest message out, for a request or the spool. It counts as queued until it is settled.
    pub(super) fn take(&self) -> Option<Pending> {
        self.lock().waiting.pop_front()
    }

    /// Puts a message that was taken back to its place.
    pub(super) fn put_back(&self, message: Pending) {
        self.lock().waiting.push_front(message);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    /// Drops messages of windows that started before this time.
    pub(super) fn drop_older_than(&self, unix_ns: u64) {
        let mut state = self.lock();
        while state.waiting.front().is_some_and(|oldest| oldest.started_unix_ns < unix_ns) {
            let Some(message) = state.waiting.pop_front() else { break };
            state.settle_in_memory(&message, Settlement::TooOld);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Accounts for a message of the queue that was taken.
    pub(super) fn settle(&self, message: &Pending, settlement: Settlement) {
        self.lock().settle_in_memory(message, settlement);
        self.changed.notify_all();
    }

    /// Accounts for a message that was taken and is in a file of `file_bytes` now.
    pub(super) fn move_to_spool(&self, message: &Pending, file_bytes: u64) {
        let mut state = self.lock();
        state.ledger.queued -= message.samples;
        state.ledger.queue_bytes -= message.body.len() as u64;
        state.ledger.spooled += message.samples;
        state.ledger.spool_bytes += file_bytes;
        state.health.spool_error = None;
        drop(state);
        self.changed.notify_all();
    }

    /// Accounts for the samples of a file of the spool that was removed.
    pub(super) fn settle_spooled(&self, samples: u64, file_bytes: u64, settlement: Settlement) {
        let mut state = self.lock();
        state.ledger.spooled -= samples;
        state.ledger.spool_bytes -= file_bytes;
        state.count(samples, settlement);
    }

    /// Changes the counts that are not of samples, and those of the spool at its start.
    pub(super) fn count(&self, change: impl FnOnce(&mut DeliveryLedger)) {
        change(&mut self.lock().ledger);
    }

    /// Counts the profiles of a partially successful response.
    pub(super) fn count_rejected_profiles(&self, profiles: u64) {
        self.count(|ledger| ledger.rejected_profiles = ledger.rejected_profiles.saturating_add(profiles));
    }

    /// Remembers and logs why an attempt failed.
    pub(super) fn report_failure(&self, reason: String) {
        let mut state = self.lock();
        state.health.consecutive_failures += 1;
        state.report(reason);
    }

    /// Remembers and logs why the backend refused a message.
    pub(super) fn report_refusal(&self, reason: String) {
        let mut state = self.lock();
        state.health.consecutive_failures = 0;
        state.report(reason);
    }

    /// Remembers that the backend accepted a message.
    pub(super) fn report_success(&self, unix_seconds: u64) {
        let mut state = self.lock();
        if state.health.consecutive_failures > 0 {
            log::info!("the backend accepts profiles again");
        }
        state.health.consecutive_failures = 0;
        state.health.last_success_unix_seconds = Some(unix_seconds);
    }

    /// Remembers and logs why the spool cannot be used at present.
    pub(super) fn report_spool_error(&self, reason: String) {
        let mut state = self.lock();
        if state.health.spool_error.is_none() {
            log::warn!("the spool cannot be used at present: {reason}");
        }
        state.health.spool_error = Some(reason);
    }

    pub(super) fn ledger(&self) -> DeliveryLedger {
        self.lock().ledger
    }

    pub(super) fn health(&self) -> Health {
        self.lock().health.clone()
    }

    /// Waits until messages were pushed since the last call.
    pub(super) async fn pushed(&self) {
        self.pushed.notified().await;
    }

    /// Waits until the worker must end.
    pub(super) async fn stop_requested(&self) {
        self.stop_requested.notified().await;
    }

    /// Ends the worker.
    pub(super) fn request_stop(&self) {
        self.stop_requested.notify_one();
    }

    /// Called when the worker has ended: what is pushed from now on is dropped.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        state.drop_waiting();
        drop(state);
        self.changed.notify_all();
    }

    /// Blocks until no message is in memory, the worker has ended, or the time limit. Whether no message is in memory.
    pub(super) fn wait_until_empty(&self, limit: Duration) -> bool {
        let is_empty = |state: &QueueState| state.ledger.queue_bytes == 0 && state.ledger.queued == 0;
        self.wait(limit, |state| is_empty(state) || state.has_ended);
        is_empty(&self.lock())
    }

    /// Blocks until the worker has ended, or the time limit.
    pub(super) fn wait_until_ended(&self, limit: Duration) {
        self.wait(limit, |state| state.has_ended);
    }

    fn wait(&self, limit: Duration, is_done: impl Fn(&QueueState) -> bool) {
        let deadline = Instant::now().checked_add(limit);
        let mut state = self.lock();
        while !is_done(&state) {
            let left = deadline.map_or(limit, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // Each change of the state is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    fn add(&mut self, message: Message, limit_bytes: u64) {
        // Without the unused capacity, which would not be counted.
        let body = Bytes::from(message.body.into_boxed_slice());
        let (started_unix_ns, samples) = (message.started_unix_ns, message.samples);
        self.ledger.sampled += samples;
        if body.len() as u64 > limit_bytes {
            self.ledger.dropped.too_large += samples;
            return;
        }
        self.ledger.queued += samples;
        self.ledger.queue_bytes += body.len() as u64;
        self.waiting.push_back(Pending { started_unix_ns, samples, body });
        while self.ledger.queue_bytes > limit_bytes {
            // A message of the current request counts, and cannot be dropped.
            let Some(oldest) = self.waiting.pop_front() else { break };
            self.settle_in_memory(&oldest, Settlement::Outage);
        }
        if self.has_ended {
            self.drop_waiting();
        }
    }

    fn drop_waiting(&mut self) {
        while let Some(message) = self.waiting.pop_front() {
            self.settle_in_memory(&message, Settlement::Outage);
        }
    }

    fn settle_in_memory(&mut self, message: &Pending, settlement: Settlement) {
        self.ledger.queued -= message.samples;
        self.ledger.queue_bytes -= message.body.len() as u64;
        self.count(message.samples, settlement);
    }

    fn count(&mut self, samples: u64, settlement: Settlement) {
        let ledger = &mut self.ledger;
        let count = match settlement {
            Settlement::Delivered => &mut ledger.delivered,
            Settlement::Ambiguous => &mut ledger.ambiguous,
            Settlement::Outage => &mut ledger.dropped.outage,
            Settlement::TooOld => &mut ledger.dropped.too_old,
            Settlement::Rejected => &mut ledger.dropped.rejected,
            Settlement::TooLarge => &mut ledger.dropped.too_large,
        };
        *count += samples;
    }

    /// The same reason is logged once, until another one follows.
    fn report(&mut self, reason: String) {
        if self.health.last_error.as_ref() != Some(&reason) || self.health.consecutive_failures == 1 {
            log::warn!("profiles were not delivered: {reason}");
        }
        self.health.last_error = Some(reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(messages: &[(u64, usize)]) -> Encoded {
        let messages = messages.iter().map(|(samples, bytes)| Message {
            started_unix_ns: *samples,
            samples: *samples,
            body: vec![0; *bytes],
        });
        Encoded { messages: messages.collect(), too_large: 0 }
    }

    #[test]
    fn the_oldest_messages_are_dropped_where_they_exceed_the_limit() {
        let queue = Queue::new(100);
        queue.push(encoded(&[(1, 40), (2, 40), (4, 40), (8, 40)]));
        let ledger = queue.ledger();
        assert_eq!((ledger.sampled, ledger.queued, ledger.dropped.outage), (15, 12, 3));
        assert_eq!(ledger.queue_bytes, 80);
        assert!(ledger.is_exact(), "{ledger:?}");
        assert_eq!(queue.take().map(|message| message.samples), Some(4));
    }

    #[test]
    fn a_message_of_the_current_request_counts_and_remains() {
        let queue = Queue::new(100);
        queue.push(encoded(&[(1, 90)]));
        let current = queue.take().unwrap();
        queue.push(encoded(&[(2, 20)]));
        let ledger = queue.ledger();
        assert_eq!((ledger.queued, ledger.dropped.outage, ledger.queue_bytes), (1, 2, 90));
        assert!(ledger.is_exact(), "{ledger:?}");
        queue.settle(&current, Settlement::Delivered);
        assert_eq!((queue.ledger().delivered, queue.ledger().queue_bytes), (1, 0));
    }

    #[test]
    fn samples_in_no_message_and_messages_above_the_limit_are_too_large() {
        let queue = Queue::new(100);
        queue.push(Encoded { too_large: 5, ..encoded(&[(1, 101), (2, 100)]) });
        let ledger = queue.ledger();
        assert_eq!((ledger.sampled, ledger.dropped.too_large, ledger.queued), (8, 6, 2));
        assert!(ledger.is_exact(), "{ledger:?}");
    }

    #[test]
    fn the_count_of_rejected_profiles_does_not_overflow() {
        let queue = Queue::new(100);
        for _ in 0..3 {
            queue.count_rejected_profiles(u64::MAX / 2);
        }
        assert_eq!(queue.ledger().rejected_profiles, u64::MAX);
    }

    #[test]
    fn old_messages_are_dropped_and_later_ones_remain() {
        let queue = Queue::new(100);
        queue.push(encoded(&[(1, 1), (2, 1), (3, 1)]));
        queue.drop_older_than(3);
        let ledger = queue.ledger();
        assert_eq!((ledger.dropped.too_old, ledger.queued), (3, 3));
    }

    #[test]
    fn what_is_pushed_after_the_end_is_counted_as_dropped() {
        let queue = Queue::new(100);
        queue.push(encoded(&[(1, 1)]));
        queue.end();
        queue.push(encoded(&[(2, 1)]));
        assert_eq!(queue.ledger().dropped.outage, 3);
        assert!(queue.ledger().is_exact());
        assert!(queue.wait_until_empty(Duration::MAX));
    }
}
