//! The reader thread: empties the source without ever waiting for names.

use std::{
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, SyncSender, TryRecvError},
    },
    time::Duration,
};

use super::{Request, Shared, calm, outbox::Outbox, pace::Pace, priority::go_first, unwinding::Unwinding};
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

/// Empties a source.
pub(super) struct Reader {
    source: Box<dyn SampleSource>,
    pace: Pace,
    /// Hears what the batches say of processes.
    unwinding: Option<Unwinding>,
    shared: Arc<Shared>,
}

impl Reader {
    pub(super) fn new(
        source: Box<dyn SampleSource>,
        pace: Pace,
        unwinding: Option<Unwinding>,
        shared: Arc<Shared>,
    ) -> Self {
        Self { source, pace, unwinding, shared }
    }

    /// As [`SampleSource::started_ns`].
    pub(super) fn started_ns(&self) -> u64 {
        self.source.started_ns()
    }

    /// Reads until the last profile was asked for, or nobody can ask any more.
    pub(super) fn run(mut self, requests: &Receiver<Request>, messages: &SyncSender<Message>) {
        // What waits for too long is lost.
        go_first();
        if let Err(error) = self.try_run(requests, messages) {
            self.shared.fail(error);
        }
        self.shared.exhaust();
    }

    fn try_run(&mut self, requests: &Receiver<Request>, messages: &SyncSender<Message>) -> Result<()> {
        let mut outbox = Outbox::new(messages);
        let mut exhausted = false;
        loop {
            calm(&self.shared.reader_waker);
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
                self.source.stop()?;
            }
            let ended_ns = monotonic_ns();
            let wait = if request.is_some() { Duration::ZERO } else { self.pace.wait() };
            self.forward(&mut outbox, wait)?;
            if self.source.is_exhausted() {
                exhausted = true;
                self.shared.exhaust();
            }
            let Some(request) = request else { continue };
            outbox.flush();
            let message = Message::Profile { request, counts: self.source.counts()?, ended_ns };
            if messages.send(message).is_err() || is_last {
                return Ok(());
            }
        }
    }

    fn forward(&mut self, outbox: &mut Outbox<'_>, wait: Duration) -> Result<()> {
        let batch = self.source.read(wait)?;
        self.pace.follow(&batch);
        if let Some(unwinding) = &self.unwinding {
            unwinding.hear(&batch);
        }
        self.shared.samples.fetch_add(batch.samples.len() as u64, Ordering::Relaxed);
        if !batch.samples.is_empty() {
            self.shared.lost.store(self.source.lost()?, Ordering::Relaxed);
        }
        outbox.send(batch);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel, sync_channel};

    use super::*;
    use profiler_processes::ProcessFilter;
    use profiler_profile::Header;

    /// Always has something, and tells when it is read and when it is stopped.
    struct Source {
        reads: Sender<()>,
        stops: Sender<()>,
        stopped: bool,
    }

    impl SampleSource for Source {
        fn started_ns(&self) -> u64 {
            0
        }

        fn cpus(&self) -> u32 {
            1
        }

        fn read(&mut self, _: Duration) -> Result<Batch> {
            let _ = self.reads.send(());
            Ok(Batch { lost_events: 1, ..Batch::default() })
        }

        fn stop(&mut self) -> Result<()> {
            self.stopped = true;
            let _ = self.stops.send(());
            Ok(())
        }

        fn is_exhausted(&self) -> bool {
            self.stopped
        }

        fn counts(&self) -> Result<KernelCounts> {
            Ok(KernelCounts::default())
        }

        fn lost(&self) -> Result<u64> {
            Ok(0)
        }
    }

    #[test]
    fn sampling_goes_on_and_stops_on_time_while_the_pipeline_is_busy() {
        const DEADLINE: Duration = Duration::from_secs(10);
        const MORE_READS_THAN_FIT: usize = 100;
        let ((reads, read_seen), (stops, stop_seen)) = (channel(), channel());
        let (requests, asked) = channel();
        let (messages, received) = sync_channel(1);
        let shared = Arc::new(Shared::new().unwrap());
        let reader = std::thread::spawn(move || {
            let source = Source { reads, stops, stopped: false };
            Reader::new(Box::new(source), Pace::new(&ProcessFilter::All), None, shared)
                .run(&asked, &messages);
        });
        for _ in 0..MORE_READS_THAN_FIT {
            read_seen.recv_timeout(DEADLINE).unwrap();
        }
        let (reply, _answer) = channel();
        requests
            .send(Request { header: Header::default(), is_last: true, was_stopped: false, reply })
            .unwrap();
        stop_seen.recv_timeout(DEADLINE).unwrap();

        let mut lost_events = 0;
        for message in received {
            if let Message::Batch(batch, _) = message {
                lost_events += batch.lost_events;
            }
        }
        reader.join().unwrap();
        let reads = MORE_READS_THAN_FIT + read_seen.iter().count();
        assert_eq!(lost_events, reads as u64);
    }
}
