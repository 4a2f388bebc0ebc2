//! The reader thread: drains the source of samples and never waits for symbolization.

use std::{
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, SyncSender, TryRecvError},
    },
    time::Duration,
};

use profiler_addresses::MonotonicTime;
use profiler_processes::monotonic_time;
use profiler_sampler::{Batch, SampleSource, raise_thread_priority};

use super::{
    Request, Shared,
    batch_queue::BatchQueue,
    message::{IntervalCounts, Message},
    polling_interval::PollingInterval,
    reset_waker,
};
use crate::error::Result;

/// Drains a source.
pub(super) struct Reader {
    source: Box<dyn SampleSource>,
    polling_interval: PollingInterval,
    shared: Arc<Shared>,
}

impl Reader {
    pub(super) fn new(
        source: Box<dyn SampleSource>,
        polling_interval: PollingInterval,
        shared: Arc<Shared>,
    ) -> Self {
        Self { source, polling_interval, shared }
    }

    /// See [`SampleSource::started`].
    pub(super) fn started(&self) -> MonotonicTime {
        self.source.started()
    }

    /// Reads until the last profile is requested, or until the session is dropped.
    pub(super) fn run(mut self, requests: &Receiver<Request>, messages: &SyncSender<Message>) {
        // Records are lost when the ring buffer is drained too late.
        raise_thread_priority();
        if let Err(error) = self.try_run(requests, messages) {
            self.shared.fail(error);
        }
        self.shared.set_exhausted();
    }

    fn try_run(&mut self, requests: &Receiver<Request>, messages: &SyncSender<Message>) -> Result<()> {
        let mut queue = BatchQueue::new(messages, self.source.cpus());
        let mut exhausted = false;
        loop {
            reset_waker(&self.shared.reader_waker);
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
            let stopped = if is_last { Some(self.source.stop()?) } else { None };
            let mut counts_before = None;
            if let Some(request) = request.as_ref().filter(|request| request.parts.has_profile()) {
                if let Some(frequency_hz) = request.adjustment.frequency_hz {
                    self.source.set_frequency_hz(frequency_hz)?;
                }
                counts_before = Some(self.source.counts()?);
            }
            let ended = stopped.unwrap_or_else(monotonic_time);
            let batch = match &request {
                Some(_) if counts_before.is_some() => self.source.end_interval()?,
                Some(_) => self.source.read(Duration::ZERO)?,
                None => self.source.read(self.polling_interval.get())?,
            };
            self.enqueue(&mut queue, batch)?;
            if self.source.is_exhausted() {
                exhausted = true;
                self.shared.set_exhausted();
            }
            let Some(request) = request else { continue };
            queue.flush();
            let counts = match counts_before {
                Some(counts_before) => {
                    Some(Box::new(IntervalCounts { counts_before, counts: self.source.counts()? }))
                }
                None => None,
            };
            let message = Message::Request { request, counts, ended };
            if messages.send(message).is_err() || is_last {
                return Ok(());
            }
        }
    }

    fn enqueue(&mut self, queue: &mut BatchQueue<'_>, batch: Batch) -> Result<()> {
        self.polling_interval.update(&batch);
        self.shared.samples.fetch_add(batch.samples.len() as u64, Ordering::Relaxed);
        if !batch.samples.is_empty() {
            self.shared.lost.store(self.source.lost()?, Ordering::Relaxed);
        }
        queue.enqueue(batch);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel, sync_channel};

    use super::*;
    use crate::session::{Adjustment, Parts};
    use profiler_processes::ProcessFilter;
    use profiler_profile::Header;
    use profiler_sampler::{KernelCounts, Result};

    /// A source that always has records and reports each read, each end of an interval and the stop.
    struct Source {
        reads: Sender<()>,
        interval_ends: Sender<()>,
        stops: Sender<()>,
        stopped: bool,
    }

    impl SampleSource for Source {
        fn started(&self) -> MonotonicTime {
            MonotonicTime(0)
        }

        fn cpus(&self) -> u32 {
            1
        }

        fn read(&mut self, _: Duration) -> Result<Batch> {
            let _ = self.reads.send(());
            Ok(Batch { lost_events: 1, ..Batch::default() })
        }

        fn end_interval(&mut self) -> Result<Batch> {
            let _ = self.interval_ends.send(());
            self.read(Duration::ZERO)
        }

        fn stop(&mut self) -> Result<MonotonicTime> {
            self.stopped = true;
            let _ = self.stops.send(());
            Ok(MonotonicTime(0))
        }

        fn is_exhausted(&self) -> bool {
            self.stopped
        }

        fn counts(&mut self) -> Result<KernelCounts> {
            Ok(KernelCounts::default())
        }

        fn lost(&self) -> Result<u64> {
            Ok(0)
        }
    }

    #[test]
    fn the_source_is_drained_and_stopped_while_the_pipeline_is_busy() {
        const DEADLINE: Duration = Duration::from_secs(60);
        const MORE_READS_THAN_THE_QUEUE_HOLDS: usize = 100;
        let ((reads, read_seen), (stops, stop_seen)) = (channel(), channel());
        let (interval_ends, _) = channel();
        let (requests, request_receiver) = channel();
        let (messages, received) = sync_channel(1);
        let shared = Arc::new(Shared::new().unwrap());
        let reader = std::thread::spawn(move || {
            let source = Source { reads, interval_ends, stops, stopped: false };
            Reader::new(Box::new(source), PollingInterval::new(&ProcessFilter::All), shared)
                .run(&request_receiver, &messages);
        });
        for _ in 0..MORE_READS_THAN_THE_QUEUE_HOLDS {
            read_seen.recv_timeout(DEADLINE).unwrap();
        }
        let (reply, _answer) = channel();
        requests
            .send(Request {
                parts: Parts::Profile,
                header: Header::default(),
                adjustment: Adjustment::default(),
                is_last: true,
                target_has_ended: false,
                was_stopped: false,
                reply,
            })
            .unwrap();
        stop_seen.recv_timeout(DEADLINE).unwrap();

        let mut lost_events = 0;
        for message in received {
            if let Message::Batch(batch, _) = message {
                lost_events += batch.lost_events;
            }
        }
        reader.join().unwrap();
        let reads = MORE_READS_THAN_THE_QUEUE_HOLDS + read_seen.iter().count();
        assert_eq!(lost_events, reads as u64);
    }

    #[test]
    fn measures_do_not_end_the_interval_of_the_source() {
        let ((reads, _), (interval_ends, ends_seen), (stops, _)) = (channel(), channel(), channel());
        let (requests, request_receiver) = channel();
        let (messages, received) = sync_channel(1);
        let shared = Arc::new(Shared::new().unwrap());
        let (reply, _taken) = channel();
        for parts in [Parts::Measures, Parts::Measures, Parts::ProfileAndMeasures] {
            let (header, adjustment) = (Header::default(), Adjustment::default());
            let is_last = parts.has_profile();
            let request = Request {
                parts,
                header,
                adjustment,
                is_last,
                target_has_ended: false,
                was_stopped: false,
                reply: reply.clone(),
            };
            requests.send(request).unwrap();
        }
        let reader = std::thread::spawn(move || {
            let source = Source { reads, interval_ends, stops, stopped: false };
            Reader::new(Box::new(source), PollingInterval::new(&ProcessFilter::All), shared)
                .run(&request_receiver, &messages);
        });
        let requests = received.into_iter().filter_map(|message| match message {
            Message::Request { request, counts, .. } => Some((request.parts, counts.is_some())),
            Message::Batch(..) => None,
        });
        let expected =
            [(Parts::Measures, false), (Parts::Measures, false), (Parts::ProfileAndMeasures, true)];
        assert_eq!(requests.collect::<Vec<_>>(), expected);
        reader.join().unwrap();
        assert_eq!(ends_seen.iter().count(), 1);
    }
}
