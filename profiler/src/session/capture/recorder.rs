//! Records the capture of a session, where one is requested.

use std::sync::Arc;

use profiler_addresses::MonotonicTime;
use profiler_processes::{Pid, ProcFs, ProcessFilter};
use profiler_sampler::{
    Batch, EventPlan,
    capture::{Capture, Recorder, VERSION},
};

use crate::{error::Result, session::interval::Interval, settings::Settings};

/// Records what the pipeline of a session processes. Does nothing if no capture is requested.
#[derive(Debug, Default)]
pub(in crate::session) struct SessionRecorder {
    recorder: Option<Recorder>,
    /// The first line of the capture, which is complete at the end of the last interval.
    metadata: Capture,
    has_ended: bool,
}

impl SessionRecorder {
    /// Creates the directory of the capture that the settings request.
    pub(in crate::session) fn create(settings: &Settings) -> Result<Self> {
        let recorder = settings.capture.as_deref().map(Recorder::create).transpose()?;
        let metadata =
            Capture { version: VERSION, has_user_stacks: settings.stacks.user, ..Capture::default() };
        Ok(Self { recorder, metadata, has_ended: false })
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

    /// Notes what is sampled. `command_pid` is the process of a command.
    pub(in crate::session) fn note_session(
        &mut self,
        filter: &ProcessFilter,
        command_pid: Option<Pid>,
        events: &EventPlan,
    ) {
        self.metadata.filter = filter.clone();
        self.metadata.command_pid = command_pid;
        self.metadata.events = events.settings();
    }

    /// Notes processes whose mappings are read before sampling begins.
    pub(in crate::session) fn note_prefetched(&mut self, pids: &[Pid]) {
        self.metadata.expected.extend(pids);
    }

    /// Adds a batch.
    pub(in crate::session) fn record(&mut self, batch: &Batch) -> Result<()> {
        self.recorder.as_mut().map_or(Ok(()), |recorder| Ok(recorder.record(batch)?))
    }

    /// Notes the last interval of the session, which started at `started`.
    pub(in crate::session) fn note_end(&mut self, interval: &Interval, started: MonotonicTime) {
        self.has_ended = true;
        let metadata = &mut self.metadata;
        metadata.target.clone_from(&interval.header.target);
        metadata.cpus = interval.header.cpus;
        metadata.started = started;
        metadata.ended = interval.ended;
        metadata.started_unix_ns = interval.header.started_unix_ns;
        metadata.counts = (&interval.counts).into();
    }

    /// Completes the capture of a session that has ended.
    pub(in crate::session) fn finish(&mut self) -> Result<()> {
        match self.recorder.take() {
            Some(recorder) if self.has_ended => Ok(recorder.finish(&self.metadata)?),
            _ => Ok(()),
        }
    }
}
