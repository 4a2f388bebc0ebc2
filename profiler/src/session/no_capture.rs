//! Records and replays no capture: the feature `capture` is off.

use std::sync::Arc;

use profiler_addresses::MonotonicTime;
use profiler_processes::{Pid, ProcFs, ProcessFilter};
use profiler_sampler::{Batch, EventPlan};

use super::{Session, interval::Interval};
use crate::{error::Result, settings::Settings};

/// Records nothing.
#[derive(Debug, Default)]
pub(super) struct SessionRecorder {}

impl SessionRecorder {
    pub(super) fn create(_: &Settings) -> Result<Self> {
        Ok(Self {})
    }

    pub(super) fn open_proc(&self) -> Result<Arc<ProcFs>> {
        Ok(Arc::new(ProcFs::live()))
    }

    pub(super) fn is_recording(&self) -> bool {
        false
    }

    pub(super) fn note_session(&mut self, _: &ProcessFilter, _: Option<Pid>, _: &EventPlan) {}

    pub(super) fn note_prefetched(&mut self, _: &[Pid]) {}

    pub(super) fn record(&mut self, _: &Batch) -> Result<()> {
        Ok(())
    }

    pub(super) fn note_end(&mut self, _: &Interval, _: MonotonicTime) {}

    pub(super) fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

pub(super) fn replay(_: &Settings) -> Result<Option<Session>> {
    Ok(None)
}
