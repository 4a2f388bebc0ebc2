//! The reader thread: empties the source without ever waiting for names.

use std::{
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, SyncSender, TryRecvError},
    },
    time::Duration,
};

use rustix::process::{getpriority_process, setpriority_process};

use super::{Request, Shared, calm, pace::Pace};
use crate::{
    error::Result,
    sampler::{Batch, KernelCounts, SampleSource, ebpf::monotonic_ns},
};

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
    mut pace: Pace,
    shared: &Arc<Shared>,
    requests: &Receiver<Request>,
    messages: &SyncSender<Message>,
) {
    go_first();
    if let Err(error) = try_read(source.as_mut(), &mut pace, shared, requests, messages) {
        shared.fail(error);
    }
    shared.exhaust();
}

/// Who reads goes before who is sampled, where that is allowed: what waits for too long is lost. It reads for a moment
/// now and then, so nobody is kept from anything.
fn go_first() {
    const STEP: i32 = 10;
    let moved = getpriority_process(None).and_then(|nice| setpriority_process(None, nice - STEP));
    if let Err(error) = moved {
        log::debug!("the reader's priority stays as it is: {error}");
    }
}

fn try_read(
    source: &mut dyn SampleSource,
    pace: &mut Pace,
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
        let wait = if request.is_some() { Duration::ZERO } else { pace.wait() };
        let batch = source.read(wait)?;
        pace.follow(&batch);
        forward(batch, source, shared, messages)?;
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
    batch: Batch,
    source: &dyn SampleSource,
    shared: &Arc<Shared>,
    messages: &SyncSender<Message>,
) -> Result<()> {
    shared.samples.fetch_add(batch.samples.len() as u64, Ordering::Relaxed);
    if !batch.samples.is_empty() {
        shared.lost.store(source.lost()?, Ordering::Relaxed);
    }
    // A pipeline that is gone has said why.
    let _ = messages.send(Message::Batch(batch, monotonic_ns()));
    Ok(())
}
