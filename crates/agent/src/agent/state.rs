//! What the agent has done so far, shared with the threads of its metrics.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::delivery::Delivery;

/// Windows without which the agent counts as hung.
const MAX_MISSED_WINDOWS: u32 = 3;

/// The counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Windows that were sampled.
    pub(super) sampled_windows: u64,
    /// Windows that were not, because of the probability.
    pub(super) skipped_windows: u64,
    /// Samples of windows that were sampled.
    pub(super) samples: u64,
    /// Samples that were due and are lost.
    pub(super) lost: u64,
    /// Of the samples, those of resources that are not sent.
    pub(super) filtered: u64,
    /// Samples in windows that were not sampled.
    pub(super) skipped: u64,
    /// Frames of the samples with a symbol.
    pub(super) symbolized_frames: u64,
    /// Frames of the samples without a symbol.
    pub(super) unsymbolized_frames: u64,
    /// Windows that were written.
    pub(super) written_files: u64,
    /// Windows that could not be written.
    pub(super) failed_files: u64,
    /// Times at which stacks were evicted because of the memory limit.
    pub(super) evictions: u64,
    /// Times at which the frequency was lowered because of the memory limit.
    pub(super) lowered: u64,
    /// The frequency of CPU samples, hertz; that of sampled windows.
    pub(super) frequency_hz: u64,
    /// The memory limit, bytes.
    pub(super) memory_limit_bytes: u64,
}

/// The state of the agent.
pub(super) struct AgentState {
    window: Duration,
    delivery: Option<Arc<Delivery>>,
    has_spool: bool,
    changing: Mutex<Changing>,
}

#[derive(Clone, Copy, Debug)]
struct Changing {
    counts: Counts,
    /// Whether the session has started.
    is_sampling: bool,
    /// The end of the last window, or the start.
    last_end: Instant,
}

impl AgentState {
    /// The state at the start of an agent with windows of this length.
    pub(super) fn new(window: Duration, delivery: Option<Arc<Delivery>>, has_spool: bool) -> Self {
        let changing = Changing { counts: Counts::default(), is_sampling: false, last_end: Instant::now() };
        Self { window, delivery, has_spool, changing: Mutex::new(changing) }
    }

    /// The delivery, where there is a backend.
    pub(super) fn delivery(&self) -> Option<&Delivery> {
        self.delivery.as_deref()
    }

    /// The counts.
    pub(super) fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Changes the counts.
    pub(super) fn update(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.lock().counts);
    }

    /// The session has started.
    pub(super) fn begin_sampling(&self) {
        let mut changing = self.lock();
        (changing.is_sampling, changing.last_end) = (true, Instant::now());
    }

    /// A window has ended.
    pub(super) fn end_window(&self) {
        self.lock().last_end = Instant::now();
    }

    /// Whether windows end; else since when they do not.
    pub(super) fn health(&self) -> Result<(), String> {
        let age = self.lock().last_end.elapsed();
        if age <= self.window * MAX_MISSED_WINDOWS {
            return Ok(());
        }
        Err(format!("the last window ended {} s ago", age.as_secs()))
    }

    /// Whether the agent samples, and what it samples is delivered or kept; else what is missing.
    pub(super) fn readiness(&self) -> Result<(), String> {
        let Changing { counts, is_sampling, .. } = *self.lock();
        if !is_sampling {
            return Err("the session has not started".to_owned());
        }
        match self.delivery() {
            Some(delivery) => {
                let health = delivery.health();
                match (health.last_success_unix_seconds, health.spool_error) {
                    (Some(_), _) => Ok(()),
                    (None, None) if self.has_spool => Ok(()),
                    (None, Some(error)) => {
                        Err(format!("nothing was delivered, and the spool fails: {error}"))
                    }
                    (None, None) => Err("nothing was delivered yet, and there is no spool".to_owned()),
                }
            }
            None if counts.written_files > 0 || counts.failed_files == 0 => Ok(()),
            None => Err("no file could be written".to_owned()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Changing> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_ready_when_it_samples_and_writes() {
        let state = AgentState::new(Duration::from_secs(60), None, false);
        assert!(state.readiness().unwrap_err().contains("has not started"));
        state.begin_sampling();
        assert_eq!((state.health(), state.readiness()), (Ok(()), Ok(())));
        state.update(|counts| counts.failed_files += 1);
        assert!(state.readiness().unwrap_err().contains("no file"));
        state.update(|counts| counts.written_files += 1);
        assert_eq!(state.readiness(), Ok(()));
        assert_eq!(state.counts().written_files, 1);
    }

    #[test]
    fn an_agent_without_windows_is_not_healthy() {
        let state = AgentState::new(Duration::ZERO, None, false);
        while state.lock().last_end.elapsed().is_zero() {
            std::thread::yield_now();
        }
        assert!(state.health().unwrap_err().contains("the last window ended"));
    }
}
