//! The queue of batches between the reader thread and the pipeline thread; merges batches while the pipeline is busy.

use std::sync::mpsc::{SyncSender, TrySendError};

use profiler_processes::monotonic_time;
use profiler_sampler::Batch;

use super::message::Message;

/// The least of [`BatchQueue::max_pending_records`].
const MIN_PENDING_RECORDS: usize = 64 << 10;

/// At 99 Hz, the samples of a CPU in some 20 seconds.
const PENDING_RECORDS_PER_CPU: usize = 2 << 10;

/// The sending end. While the channel is full, batches are merged into one.
#[derive(Debug)]
pub(super) struct BatchQueue<'a> {
    messages: &'a SyncSender<Message>,
    pending: Batch,
    /// The most records that the reader merges into one batch while the channel is full. With more, the reader blocks,
    /// and records that do not fit into the kernel's ring buffer are counted as lost.
    max_pending_records: usize,
}

impl<'a> BatchQueue<'a> {
    /// A queue for the samples of so many CPUs.
    pub(super) fn new(messages: &'a SyncSender<Message>, cpus: u32) -> Self {
        let max_pending_records = MIN_PENDING_RECORDS.max(PENDING_RECORDS_PER_CPU * cpus as usize);
        Self { messages, pending: Batch::default(), max_pending_records }
    }

    /// Sends a batch, or keeps it while the channel is full. Does nothing once the pipeline has ended: the pipeline has
    /// reported why.
    pub(super) fn enqueue(&mut self, batch: Batch) {
        self.pending.append(batch);
        if self.pending.records() > self.max_pending_records {
            return self.flush();
        }
        let message = Message::Batch(std::mem::take(&mut self.pending), monotonic_time());
        if let Err(TrySendError::Full(Message::Batch(batch, _))) = self.messages.try_send(message) {
            self.pending = batch;
        }
    }

    /// Sends the pending batch; blocks while the channel is full.
    pub(super) fn flush(&mut self) {
        let batch = std::mem::take(&mut self.pending);
        if !batch.is_empty() {
            let _ = self.messages.send(Message::Batch(batch, monotonic_time()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{TryRecvError, sync_channel};

    use super::*;

    fn lost(lost_events: u64) -> Batch {
        Batch { lost_events, ..Batch::default() }
    }

    #[test]
    fn batches_are_merged_while_the_channel_is_full() {
        let (messages, received) = sync_channel(1);
        let mut queue = BatchQueue::new(&messages, 1);
        for count in 1..=4 {
            queue.enqueue(lost(count));
        }
        let batch = |message| match message {
            Message::Batch(batch, _) => batch,
            Message::Request { .. } => panic!("no profile was requested"),
        };
        assert_eq!(batch(received.recv().unwrap()), lost(1));
        queue.flush();
        assert_eq!(batch(received.recv().unwrap()), lost(2 + 3 + 4));
        queue.flush();
        assert_eq!(received.try_recv().unwrap_err(), TryRecvError::Empty);
    }

    #[test]
    fn the_queue_keeps_as_many_seconds_of_samples_on_many_cpus() {
        let (messages, _received) = sync_channel(1);
        let limit = |cpus| BatchQueue::new(&messages, cpus).max_pending_records;
        assert_eq!(limit(2), 64 << 10);
        assert!(limit(128) >= 20 * 99 * 128);
        assert!(limit(8192) >= 20 * 99 * 8192);
    }

    #[test]
    fn the_queue_does_not_block_once_the_pipeline_has_ended() {
        let (messages, received) = sync_channel(1);
        drop(received);
        let mut queue = BatchQueue::new(&messages, 1);
        queue.enqueue(lost(1));
        queue.flush();
    }
}
