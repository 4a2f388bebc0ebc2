//! The thread that runs the passes of wall-clock samples.
//!
//! It waits for the time of each pass itself. A pass has to leave out the thread of the target that it displaced from its CPU, and
//! recognizes it by its own arrival there (`is_displaced` in `waiting_task.rs` of the BPF program): another thread that woke
//! first would have displaced one that the pass does not recognize. And a target can delay a pass, which delays the reader
//! only up to a deadline.
//!
//! The thread has real-time priority, where the profiler has the privilege. Behind threads of the target, it would run when one of
//! them begins to wait: threads that nap would be found waiting too often.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

use super::{iterator_pass::Blockage, wall::WallPasses};
use crate::{
    batch::Batch,
    error::{Error, Result},
    sample::RawSample,
    sys::priority::{end_real_time, raise_thread_priority, start_real_time},
};

/// How long a pass may take before the reader goes on without it.
const DEADLINE: Duration = Duration::from_secs(1);

/// The CPU time of a pass after which the thread gives up its real-time priority: threads of the target would wait that long for
/// their CPU.
const MAX_REAL_TIME: Duration = Duration::from_millis(5);

/// The thread. Dropping it ends the thread, unless a target blocks it: then it ends with its pass.
#[derive(Debug)]
pub(super) struct WallThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    blockage: Blockage,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<PassState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PassState {
    /// When the pass began that runs.
    pass_began: Option<Instant>,
    interval: Interval,
    /// Whether the thread has to end.
    stops: bool,
    has_ended: bool,
    /// Samples without a record, for the next batch.
    samples: Vec<RawSample>,
    /// See [`WallPasses::flushed_ticks`].
    flushed_ticks: u64,
    error: Option<Error>,
}

/// The interval of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Interval {
    #[default]
    Runs,
    /// A pass has to run that adds the samples of threads that still wait.
    Ends,
    /// It has run. No other pass runs until the next read begins, so that the counters are those of the samples.
    HasEnded,
}

impl WallThread {
    /// Starts the thread, and its first period.
    pub(super) fn start(mut passes: WallPasses) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("passes".to_owned()).spawn(move || {
            raise_thread_priority();
            passes.start();
            run(&mut passes, &of_thread);
            drop(passes);
            of_thread.lock().has_ended = true;
            of_thread.changed.notify_all();
        })?;
        Ok(Self { shared, thread: Some(thread), blockage: Blockage::default() })
    }

    /// Runs the pass that ends an interval, and adds the samples of threads that still wait to a batch. No pass follows before
    /// [`resume`](Self::resume).
    pub(super) fn run_last(&mut self, batch: &mut Batch) -> Result<()> {
        drop(self.shared.end_interval());
        self.read(batch)
    }

    /// Lets passes run after the end of an interval whose samples were read.
    pub(super) fn resume(&self) {
        self.shared.resume();
    }

    /// Adds the samples without a record to a batch.
    pub(super) fn read(&mut self, batch: &mut Batch) -> Result<()> {
        let mut state = self.shared.lock();
        self.blockage.set(state.is_blocked(), "threads that wait are not sampled");
        batch.samples.append(&mut state.samples);
        state.error.take().map_or(Ok(()), Err)
    }

    /// The ticks that became samples without a record.
    pub(super) fn flushed_ticks(&self) -> u64 {
        self.shared.lock().flushed_ticks
    }
}

impl Drop for WallThread {
    fn drop(&mut self) {
        self.shared.lock().stops = true;
        self.shared.changed.notify_all();
        let has_ended = self.shared.wait_while(|state| !state.has_ended).has_ended;
        if let Some(thread) = self.thread.take_if(|_| has_ended) {
            // It does not panic, and has nothing to return.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, PassState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_interval(&self, interval: Interval) {
        self.lock().interval = interval;
        self.changed.notify_all();
    }

    /// Ends the interval, and waits for its last pass.
    fn end_interval(&self) -> MutexGuard<'_, PassState> {
        self.set_interval(Interval::Ends);
        self.wait_while(|state| state.interval == Interval::Ends && !state.has_ended)
    }

    fn resume(&self) {
        let mut state = self.lock();
        if state.interval == Interval::HasEnded {
            state.interval = Interval::Runs;
            self.changed.notify_all();
        }
    }

    /// Waits while a condition holds, and no target blocks the pass.
    fn wait_while(&self, condition: impl Fn(&PassState) -> bool) -> MutexGuard<'_, PassState> {
        let mut state = self.lock();
        let called = Instant::now();
        while condition(&state) {
            let began = state.pass_began.unwrap_or(called);
            let left = DEADLINE.saturating_sub(began.elapsed());
            if left.is_zero() {
                break;
            }
            (state, _) = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }
}

impl PassState {
    fn is_blocked(&self) -> bool {
        self.pass_began.is_some_and(|began| began.elapsed() >= DEADLINE)
    }
}

/// Runs the passes until the thread has to end, or one fails.
fn run(passes: &mut WallPasses, shared: &Shared) {
    let mut is_real_time = start_real_time();
    let mut state = shared.lock();
    while !state.stops {
        let interval = state.interval;
        let wait = match interval {
            Interval::Runs => passes.time_to_next(),
            Interval::Ends => {
                passes.plan_flush();
                Duration::ZERO
            }
            Interval::HasEnded => Duration::MAX,
        };
        if !wait.is_zero() {
            (state, _) = shared.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        state.pass_began = Some(Instant::now());
        drop(state);
        let began = cpu_time();
        let result = passes.run();
        if is_real_time && cpu_time().saturating_sub(began) > MAX_REAL_TIME {
            end_real_time();
            is_real_time = false;
        }
        state = shared.lock();
        state.pass_began = None;
        if interval == Interval::Ends {
            state.interval = Interval::HasEnded;
        }
        state.flushed_ticks = passes.flushed_ticks();
        match result {
            Ok(samples) => state.samples.extend(samples),
            Err(error) => {
                state.error = Some(error);
                return;
            }
        }
        shared.changed.notify_all();
    }
}

/// The CPU time of the calling thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pass after it would have ticks without samples.
    #[test]
    fn no_pass_runs_after_the_end_of_an_interval_until_the_next_read_begins() {
        let shared = Shared::default();
        shared.resume();
        shared.set_interval(Interval::Ends);
        shared.resume();
        assert_eq!(shared.lock().interval, Interval::Ends, "its pass has not run");
        shared.set_interval(Interval::HasEnded);
        assert_eq!(shared.lock().interval, Interval::HasEnded);
        shared.resume();
        assert_eq!(shared.lock().interval, Interval::Runs);
    }

    #[test]
    fn the_end_of_an_interval_waits_for_its_last_pass() {
        let shared = Shared::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let ends = shared.wait_while(|state| state.interval != Interval::Ends);
                drop(ends);
                shared.set_interval(Interval::HasEnded);
            });
            assert_eq!(shared.end_interval().interval, Interval::HasEnded);
        });
    }
}
