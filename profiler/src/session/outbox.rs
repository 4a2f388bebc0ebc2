//! Hands batches from the reader to the pipeline, without ever waiting while there is room.

use std::sync::mpsc::{SyncSender, TrySendError};

use super::reader::Message;
use crate::sampler::{Batch, ebpf::monotonic_ns};

/// How many records the reader holds for a pipeline that is busy. Beyond it the reader waits, and what then does not
/// fit into the kernel's buffer is counted as lost.
const MAX_HELD_RECORDS: usize = 64 << 10;

/// The reader's end of the queue. While the queue is full, batches become one.
#[derive(Debug)]
pub(super) struct Outbox<'a> {
    messages: &'a SyncSender<Message>,
    held: Batch,
}

impl<'a> Outbox<'a> {
    pub(super) fn new(messages: &'a SyncSender<Message>) -> Self {
        Self { messages, held: Batch::default() }
    }

    /// Sends a batch, or holds it. A pipeline that is gone has said why.
    pub(super) fn send(&mut self, batch: Batch) {
        self.held.append(batch);
        if self.held.records() > MAX_HELD_RECORDS {
            return self.flush();
        }
        let message = Message::Batch(std::mem::take(&mut self.held), monotonic_ns());
        if let Err(TrySendError::Full(Message::Batch(batch, _))) = self.messages.try_send(message) {
            self.held = batch;
        }
    }

    /// Sends what is held, and waits for room.
    pub(super) fn flush(&mut self) {
        let batch = std::mem::take(&mut self.held);
        if !batch.is_empty() {
            let _ = self.messages.send(Message::Batch(batch, monotonic_ns()));
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
    fn a_busy_pipeline_makes_nobody_wait_and_loses_nothing() {
        let (messages, received) = sync_channel(1);
        let mut outbox = Outbox::new(&messages);
        for count in 1..=4 {
            outbox.send(lost(count));
        }
        let batch = |message| match message {
            Message::Batch(batch, _) => batch,
            Message::Profile { .. } => panic!("nobody asked"),
        };
        assert_eq!(batch(received.recv().unwrap()), lost(1));
        outbox.flush();
        assert_eq!(batch(received.recv().unwrap()), lost(2 + 3 + 4));
        outbox.flush();
        assert_eq!(received.try_recv().unwrap_err(), TryRecvError::Empty);
    }

    #[test]
    fn a_pipeline_that_is_gone_is_no_reason_to_wait() {
        let (messages, received) = sync_channel(1);
        drop(received);
        let mut outbox = Outbox::new(&messages);
        outbox.send(lost(1));
        outbox.flush();
    }
}
