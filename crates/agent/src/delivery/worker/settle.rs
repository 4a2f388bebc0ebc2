//! Accounts for the outcome of a request, and moves messages between memory and the spool.

use std::time::Duration;

use tokio::time::Instant;

use super::{Current, Worker};
use crate::delivery::{
    outcome::Outcome,
    queue::{Pending, Place, Settlement},
    spool::ReadError,
    transport::Transport,
};

impl<T: Transport, C: Fn() -> Duration> Worker<T, C> {
    /// Accounts for the response to the current request. The health is updated before the ledger: a thread that waits for the
    /// ledger then reads the health of this request.
    pub(super) fn settle(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Delivered { warning } => {
                if let Some(warning) = warning {
                    log::warn!("the backend accepted profiles with a warning: {warning}");
                }
                self.queue.report_success((self.clock)().as_secs());
                self.end_request(Settlement::Delivered);
                self.backoff.reset();
            }
            Outcome::PartlyRejected { profiles, reason } => {
                self.queue.count_rejected_profiles(profiles);
                self.refuse(Settlement::Ambiguous, reason);
            }
            Outcome::Rejected(reason) => self.refuse(Settlement::Rejected, reason),
            Outcome::TooLarge(reason) => self.refuse(Settlement::TooLarge, reason),
            Outcome::Retry { after, reason } => {
                self.return_message();
                self.delay(after, reason);
            }
            Outcome::Ambiguous(reason) => {
                self.delay(None, reason);
                self.end_request(Settlement::Ambiguous);
            }
        }
    }

    /// Accounts for the current request, which got no response.
    pub(super) fn settle_without_response(&mut self, reason: String) {
        // Before it is decided what was written.
        self.transport.close();
        if self.may_be_delivered() {
            self.settle(Outcome::Ambiguous(reason));
        } else {
            self.settle(Outcome::Retry { after: None, reason });
        }
    }

    /// Whether the backend may have read the whole current request: a request is longer than its body.
    fn may_be_delivered(&self) -> bool {
        let written = self.transport.written_bytes();
        self.current.as_ref().is_some_and(|current| {
            written.saturating_sub(current.written_before) > current.message.body.len() as u64
        })
    }

    fn refuse(&mut self, settlement: Settlement, reason: String) {
        self.queue.report_refusal(reason);
        self.end_request(settlement);
        self.backoff.reset();
    }

    /// The current message is settled.
    fn end_request(&mut self, settlement: Settlement) {
        let Some(current) = self.take_current() else { return };
        match (current.place, &mut self.spool) {
            (Place::Spool, Some(spool)) => {
                if let Some(file) = spool.remove_oldest() {
                    self.queue.settle_spooled(file.samples, file.file_bytes, settlement);
                }
            }
            _ => self.queue.settle(&current.message, settlement),
        }
    }

    /// The current message is the oldest one again.
    fn return_message(&mut self) {
        let Some(current) = self.take_current() else { return };
        match (current.place, &mut self.spool) {
            (Place::Spool, Some(spool)) => spool.end_sending(),
            _ => self.queue.put_back(current.message),
        }
    }

    fn take_current(&mut self) -> Option<Current> {
        let current = self.current.take()?;
        let written = self.transport.written_bytes().saturating_sub(current.written_before);
        self.queue.count(|ledger| ledger.sent_bytes += written);
        Some(current)
    }

    /// Begins the back-off.
    pub(super) fn delay(&mut self, retry_after: Option<Duration>, reason: String) {
        self.next_attempt = Some(Instant::now() + self.backoff.next_delay(retry_after));
        self.queue.report_failure(reason);
    }

    pub(super) fn timeout_reason(&self, action: &str) -> String {
        format!("the backend did not {action} within {:?}", self.limits.timeout)
    }

    pub(super) fn has_messages(&self) -> bool {
        self.spool.as_ref().is_some_and(|spool| spool.oldest().is_some()) || !self.queue.is_empty()
    }

    /// Reads the oldest message of the spool. Damaged files are removed. An error says why it cannot be read now.
    pub(super) fn read_spooled(&mut self) -> Result<Option<Pending>, String> {
        let Some(spool) = &mut self.spool else { return Ok(None) };
        while spool.oldest().is_some() {
            match spool.begin_sending() {
                Ok(message) => return Ok(Some(message)),
                Err(ReadError::Failed(error)) => {
                    let reason = format!("failed to read a message: {error}");
                    self.queue.report_spool_error(reason.clone());
                    return Err(reason);
                }
                Err(ReadError::Damaged(reason)) => {
                    log::warn!("a damaged file of the spool is removed: {reason}");
                    if let Some(file) = spool.remove_oldest() {
                        self.queue.settle_spooled(file.samples, file.file_bytes, Settlement::Outage);
                    }
                    self.queue.count(|ledger| ledger.damaged_spool_files += 1);
                }
            }
        }
        Ok(None)
    }

    /// Moves the messages in memory to the spool, if they cannot be sent at once: during the back-off, and while there are
    /// older ones.
    pub(super) fn fill_spool(&mut self) {
        let Some(spool) = &mut self.spool else { return };
        if self.next_attempt.is_none() && spool.oldest().is_none() {
            return;
        }
        while let Some(message) = self.queue.take() {
            while let Some(file) = spool.remove_oldest_for(&message) {
                self.queue.settle_spooled(file.samples, file.file_bytes, Settlement::Outage);
            }
            match spool.append(&message) {
                Ok(file_bytes) => self.queue.move_to_spool(&message, file_bytes),
                Err(error) => {
                    self.queue.put_back(message);
                    return self.queue.report_spool_error(format!("failed to write a message: {error}"));
                }
            }
        }
    }

    /// Drops what the backend would reject for its age.
    pub(super) fn drop_too_old(&mut self) {
        let Some(max_age) = self.limits.max_age else { return };
        let oldest_accepted = (self.clock)().saturating_sub(max_age).as_nanos();
        let oldest_accepted = u64::try_from(oldest_accepted).unwrap_or(u64::MAX);
        if let Some(spool) = &mut self.spool {
            while spool.oldest().is_some_and(|file| file.started_unix_ns < oldest_accepted) {
                let Some(file) = spool.remove_oldest() else { break };
                self.queue.settle_spooled(file.samples, file.file_bytes, Settlement::TooOld);
            }
        }
        self.queue.drop_older_than(oldest_accepted);
    }

    /// Settles the current request as it is, and keeps what is in memory in the spool. The rest is dropped with the queue.
    pub(super) fn finish(&mut self) {
        if self.current.is_some() {
            self.settle_without_response("the agent stops".to_owned());
        }
        self.transport.close();
        // From now on, no message can be sent at once.
        self.next_attempt = Some(Instant::now());
        self.fill_spool();
    }
}
