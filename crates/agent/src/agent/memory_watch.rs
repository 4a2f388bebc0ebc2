//! Measures the agent's memory during windows, and has the session use less while it exceeds its limit.

use std::{
    io,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::Duration,
};

use profiler::{MemoryShortage, raise_thread_priority};

use super::{memory_limit::MemoryBounds, memory_use::MemoryMeter};

/// The interval at which memory is measured: samples that wait can take megabytes in a second.
pub(super) const MEASURE_INTERVAL: Duration = Duration::from_millis(250);

/// The thread that measures. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct MemoryWatch {
    shortage: MemoryShortage,
    /// `None` once the thread has to end.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryWatch {
    /// Starts the thread, which reports to a session.
    pub(super) fn start(
        meter: MemoryMeter,
        bounds: MemoryBounds,
        shortage: MemoryShortage,
    ) -> io::Result<Self> {
        let (end, ended) = channel();
        let reported = shortage.clone();
        let thread = thread::Builder::new().name("memory".to_owned()).spawn(move || {
            // On a busy machine, samples wait as well.
            raise_thread_priority();
            while ended.recv_timeout(MEASURE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                reported.set(bounds.are_exceeded_by(meter.read()));
            }
        })?;
        Ok(Self { shortage, end: Some(end), thread: Some(thread) })
    }

    /// Whether the last measurement exceeded the bounds.
    pub(super) fn is_short(&self) -> bool {
        self.shortage.is_present()
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.end = None;
        // It has panicked otherwise, and the agent ends anyway.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
