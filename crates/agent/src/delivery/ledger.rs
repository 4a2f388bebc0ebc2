//! The account of the samples that a delivery was given, and its health.

/// What became of each sample. All fields but the last six count samples.
///
/// At any time: `sampled + recovered = delivered + queued + spooled + ambiguous + dropped.total()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryLedger {
    /// Samples of [`Encoded`](crate::Encoded)s that were pushed, those that are in no message included.
    pub sampled: u64,
    /// Samples that an earlier process left in the spool.
    pub recovered: u64,
    /// Samples that the backend has confirmed.
    pub delivered: u64,
    /// Samples in memory, those of the current request included.
    pub queued: u64,
    /// Samples in files of the spool, those of the current request included.
    pub spooled: u64,
    /// Samples that the backend may or may not have: the whole request was written and no complete response arrived, or
    /// the response rejects some profiles of the message and does not say which. They are not sent again, because
    /// backends do not recognize a repeated request.
    pub ambiguous: u64,
    /// Samples that were given up.
    pub dropped: DroppedSamples,
    /// Attempts to send a message, those that failed to connect included.
    pub requests: u64,
    /// The attempts that repeat a failed one.
    pub retries: u64,
    /// Bytes written to connections, before encryption.
    pub sent_bytes: u64,
    /// Bytes of the messages in memory, without one that was read from the spool.
    pub queue_bytes: u64,
    /// Bytes of the spool, in whole blocks of 4 KiB.
    pub spool_bytes: u64,
    /// Files of the spool that were removed because they were damaged. If the samples in one were known, they are
    /// in [`DroppedSamples::outage`].
    pub damaged_spool_files: u64,
    /// Profiles that partially successful responses rejected. Their samples are [`Self::ambiguous`].
    pub rejected_profiles: u64,
}

/// Samples that were given up, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DroppedSamples {
    /// The queue or the spool was full, or the process ended, before the backend accepted them.
    pub outage: u64,
    /// They were older than the backend accepts.
    pub too_old: u64,
    /// The backend refused them.
    pub rejected: u64,
    /// They exceed a limit of the backend or of the queue.
    pub too_large: u64,
}

impl DeliveryLedger {
    /// Whether every sample is counted exactly once.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        let settled = self.delivered + self.ambiguous + self.dropped.total();
        self.sampled + self.recovered == settled + self.queued + self.spooled
    }
}

impl DroppedSamples {
    /// The sum over all causes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.outage + self.too_old + self.rejected + self.too_large
    }
}

/// Whether the backend accepts messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// When the backend last accepted a message, in seconds since 1970-01-01 UTC.
    pub last_success_unix_seconds: Option<u64>,
    /// Attempts that failed since the backend last responded to a message.
    pub consecutive_failures: u64,
    /// The last failed attempt or refused message. It remains after a success.
    pub last_error: Option<String>,
    /// Why the spool cannot be used at present. New messages remain in memory then.
    pub spool_error: Option<String>,
}
