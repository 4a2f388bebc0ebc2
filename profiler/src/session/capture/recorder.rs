//! Records the capture of a session, where one is requested.

use std::sync::Arc;

use profiler_processes::ProcFs;
use profiler_sampler::{
    Batch, EventPlan,
    capture::{Capture, RecordedCounts, Recorder, VERSION},
};

use crate::{error::Result, session::interval::Interval, settings::Settings};

/// Records what the pipeline of a session processes. Does nothing if no capture is requested.
#[derive(Debug, Default)]
pub(in crate::session) struct SessionRecorder {
    recorder: Option<Recorder>,
    /// The processes whose mappings were read before sampling began.
    prefetched_pids: Vec<u32>,
    /// The first line of the capture, from the end of the last interval on.
    metadata: Option<Capture>,
}

impl SessionRecorder {
    /// Creates the directory of the capture that the settings request.
    pub(in crate::session) fn create(settings: &Settings) -> Result<Self> {
        let recorder = settings.capture.as_deref().map(Recorder::create).transpose()?;
        Ok(Self { recorder, ..Self::default() })
    }

    /// The files of the running processes. What is read of them is copied to the capture.
    pub(in crate::session) fn open_proc(&self) -> Result<Arc<ProcFs>> {
        let proc = match &self.recorder {
            Some(recorder) => ProcFs::with_capture(recorder.create_proc_directory()?),
            None => ProcFs::live(),
        };
        Ok(Arc::new(proc))
    }

    /// Whether a capture is recorded.
    pub(in crate::session) fn is_recording(&self) -> bool {
        self.recorder.is_some()
    }

    /// Notes processes whose mappings are read before sampling begins.
    pub(in crate::session) fn note_prefetched(&mut self, pids: &[u32]) {
        self.prefetched_pids.extend(pids);
    }

    /// Adds a batch.
    pub(in crate::session) fn record(&mut self, batch: &Batch) -> Result<()> {
        self.recorder.as_mut().map_or(Ok(()), |recorder| Ok(recorder.record(batch)?))
    }

    /// Describes the session, which started at `started_ns` and ends with `interval`.
    pub(in crate::session) fn describe(&mut self, interval: &Interval, events: &EventPlan, started_ns: u64) {
        self.metadata = Some(Capture {
            version: VERSION,
            target: interval.header.target.clone(),
            frequency_hz: events.timer_hz,
            cpus: interval.header.cpus,
            started_ns,
            ended_ns: interval.ended_ns,
            started_unix_ns: interval.header.started_unix_ns,
            counts: RecordedCounts::new(&interval.counts, events.ticks_index()),
            expected: self.prefetched_pids.clone(),
        });
    }

    /// Completes the capture of a session that was described.
    pub(in crate::session) fn finish(&mut self) -> Result<()> {
        match (self.recorder.take(), &self.metadata) {
            (Some(recorder), Some(metadata)) => Ok(recorder.finish(metadata)?),
            _ => Ok(()),
        }
    }
}
