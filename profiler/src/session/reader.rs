//! The reader thread: empties the source without ever waiting for names.

use std::{
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, SyncSender, TryRecvError},
    },
    time::Duration,
};

use super::{Request, Shared, calm};
use crate::{
    error::Result,
    sampler::{Batch, KernelCounts, SampleSource, ebpf::monotonic_ns},
};

/// How long samples may wait in the kernel when there are too few to wake the reader.
const READ_INTERVAL: Duration = Duration::from_millis(100);

/// What the reader hands to the pipeline.
#[derive(Debug)]
pub(super) enum Message {
    /// What was read, and when.
    Batch(Batch, u64),
    /// Everything before this was read.
    Profile { request: Request, counts: KernelCounts, ended_ns: u64 },
}

/// Reads until the last profile was asked for, or nobody can ask any more.
pub(super) fn read(
    mut source: Box<dyn SampleSource>,
    shared: &Arc<Shared>,
    requests: &Receiver<Request>,
    messages: &SyncSender<Message>,
) {
    if let Err(error) = try_read(source.as_mut(), shared, requests, messages) {
        shared.fail(error);
    }
    shared.exhaust();
}

fn try_read(
    source: &mut dyn SampleSource,
    shared: &Arc<Shared>,
    requests: &Receiver<Request>,
    messages: &SyncSender<Message>,
) -> Result<()> {
    let mut exhausted = false;
    loop {
        calm(&shared.reader_waker);
        let request = match requests.try_recv() {
            Ok(request) => Some(request),
            Err(TryRecvError::Disconnected) => return Ok(()),
            Err(TryRecvError::Empty) if exhausted => match requests.recv() {
                Ok(request) => Some(request),
                Err(_) => return Ok(()),
            },
            Err(TryRecvError::Empty) => None,
        };
        let is_last = request.as_ref().is_some_and(|request| request.is_last);
        if is_last {
            source.stop()?;
        }
        let ended_ns = monotonic_ns();
        let wait = if request.is_some() { Duration::ZERO } else { READ_INTERVAL };
        forward(source, shared, messages, wait)?;
        if source.is_exhausted() {
            exhausted = true;
            shared.exhaust();
        }
        let Some(request) = request else { continue };
        let message = Message::Profile { request, counts: source.counts()?, ended_ns };
        if messages.send(message).is_err() || is_last {
            return Ok(());
        }
    }
}

fn forward(
    source: &mut dyn SampleSource,
    shared: &Arc<Shared>,
    messages: &SyncSender<Message>,
    wait: Duration,
) -> Result<()> {
    let batch = source.read(wait)?;
    shared.samples.fetch_add(batch.samples.len() as u64, Ordering::Relaxed);
    if !batch.samples.is_empty() {
        shared.lost.store(source.counts()?.lost_ring_buffer, Ordering::Relaxed);
    }
    // A pipeline that is gone has said why.
    let _ = messages.send(Message::Batch(batch, monotonic_ns()));
    Ok(())
}
