//! The node agent: samples all the time, and hands each window to a backend, to the program that runs it, or to both.

mod builder;
mod error;
mod event;
mod memory_limit;
mod memory_use;
mod memory_watch;
mod resources;
mod sender;
mod state;
mod status;
mod window_plan;

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use profiler::{Ended, Session, Stopper};
use profiler_profile::Profile;

pub use self::{
    builder::{AgentBuilder, PROBABILITY_LIMITS, WINDOW_LIMITS},
    error::{AccountError, AgentError},
    event::{AgentEvent, WindowAccount},
    memory_limit::MemoryAction,
    memory_use::MemoryUse,
    sender::Sent,
};
use self::{
    memory_limit::MemoryLimit,
    memory_use::MemoryMeter,
    memory_watch::{MEASURE_INTERVAL, MemoryWatch},
    resources::Resources,
    sender::Sender,
    state::AgentState,
    window_plan::WindowPlan,
};
use crate::{Window, metrics::Server, selection::sample_count};

/// The function that writes windows.
type WriteWindow = Box<dyn FnMut(&Profile) -> io::Result<()> + Send>;

/// A running agent. Dropping it ends sampling at once, and leaves what was not sent yet in the spool.
///
/// ```no_run
/// use profiler::{Profiler, Target};
/// use profiler_agent::{Agent, AgentEvent, delivery::{DeliveryOptions, Destination}};
///
/// let backend = Destination::OtlpHttp { url: "http://collector:4318".to_owned() };
/// let agent = Agent::builder(Profiler::builder().target(Target::Everything).frequency_hz(19))
///     .delivery(DeliveryOptions::new(backend))
///     .listen(([127, 0, 0, 1], 9464).into())
///     .start()?;
/// agent.run(None, |event| match event {
///     AgentEvent::Window(account) => println!("{} samples", account.samples),
///     other => println!("{other:?}"),
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Agent {
    session: Session,
    server: Option<Server>,
    windows: Windows,
}

/// Names, selects, writes and sends the windows of a session.
struct Windows {
    plan: WindowPlan,
    meter: MemoryMeter,
    memory: MemoryLimit,
    watch: MemoryWatch,
    resources: Resources,
    write_window: Option<WriteWindow>,
    sender: Option<Sender>,
    state: Arc<AgentState>,
}

impl Agent {
    /// The settings of an agent with this session: its target, frequency and events. The settings of the sandbox are those of
    /// [`AgentBuilder::sandbox`].
    pub fn builder(session: profiler::Builder) -> AgentBuilder {
        AgentBuilder::new(session)
    }

    /// Ends [`run`](Self::run) from another thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.session.stopper()
    }

    /// The address of the metrics, with its port.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(Server::address)
    }

    /// Samples until a [`Stopper`] is used, the target has ended or the time limit is over, sends the last window and waits at
    /// most five seconds for the backend. `observe` is called for each event, on this thread.
    ///
    /// # Errors
    /// The first error of a thread of the session. The events of the end are reported nevertheless.
    pub fn run(self, limit: Option<Duration>, mut observe: impl FnMut(AgentEvent)) -> profiler::Result<()> {
        let Self { session, server, mut windows } = self;
        let outcome = windows.run(session, limit, &mut observe);
        observe(AgentEvent::Stopping);
        // It has the state, and with it the delivery.
        drop(server);
        let ledger = windows.into_sender().and_then(Sender::stop);
        observe(AgentEvent::Stopped(ledger));
        outcome
    }
}

impl Windows {
    fn run(
        &mut self,
        mut session: Session,
        limit: Option<Duration>,
        observe: &mut dyn FnMut(AgentEvent),
    ) -> profiler::Result<()> {
        let end = limit.map(|limit| Instant::now() + limit);
        let mut weight = self.plan.draw_weight();
        loop {
            let next = end.map_or(self.plan.end(), |end| end.min(self.plan.end()));
            let ended = self.wait_for_end_of_window(&mut session, next);
            if ended != Ended::Elapsed || end.is_some_and(|end| end <= Instant::now()) {
                let profile = session.stop()?;
                self.finish_window(profile, weight, observe);
                return Ok(());
            }
            let next_weight = self.plan.draw_weight();
            self.limit_memory(&mut session, observe);
            session.set_frequency_hz(next_weight.map_or(0, |_| self.memory.frequency_hz()));
            let profile = session.take_profile(Duration::ZERO)?;
            self.finish_window(profile, weight, observe);
            weight = next_weight;
            self.plan.begin_next(Instant::now());
        }
    }

    /// Waits until the end of a window, or until memory exceeds its limit: what a window has taken is freed at its end.
    fn wait_for_end_of_window(&self, session: &mut Session, end: Instant) -> Ended {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let ended = session.wait(Some(left.min(MEASURE_INTERVAL)));
            let ends_early = self.watch.is_short() && self.memory.ends_windows_early();
            if ended != Ended::Elapsed || left <= MEASURE_INTERVAL || ends_early {
                return ended;
            }
        }
    }

    /// Evicts what takes memory, or changes the frequency, where the limit asks for it.
    fn limit_memory(&mut self, session: &mut Session, observe: &mut dyn FnMut(AgentEvent)) {
        let used = self.meter.read();
        let Some(action) = self.memory.apply(used) else { return };
        if action != MemoryAction::Raise {
            session.evict_stacks();
        }
        let frequency_hz = self.memory.frequency_hz();
        self.state.update(|counts| {
            counts.evictions += u64::from(action != MemoryAction::Raise);
            counts.lowered += u64::from(action == MemoryAction::Lower);
            counts.frequency_hz = frequency_hz;
        });
        observe(AgentEvent::MemoryLimited { action, used, frequency_hz });
    }

    /// Writes and sends a window, and reports its account.
    fn finish_window(&mut self, profile: Profile, weight: Option<u64>, observe: &mut dyn FnMut(AgentEvent)) {
        let samples = sample_count(&profile);
        let lost: u64 = profile.ledger().events.iter().map(|event| event.lost_total()).sum();
        let Some(weight) = weight else {
            self.state.update(|counts| {
                counts.skipped_windows += 1;
                counts.skipped += samples;
                counts.lost += lost;
            });
            self.state.end_window();
            return observe(AgentEvent::Skipped { samples });
        };
        let (symbolized, unsymbolized) = frames(&profile);
        let window = self.resources.window(profile);
        let filtered = samples - sample_count(window.profile());
        self.state.update(|counts| {
            counts.sampled_windows += 1;
            counts.samples += samples;
            counts.lost += lost;
            counts.filtered += filtered;
            counts.symbolized_frames += symbolized;
            counts.unsymbolized_frames += unsymbolized;
        });
        self.write(window.profile(), observe);
        let sent = self.send(&window.weighted(weight), observe);
        self.state.end_window();
        let delivery = self.state.delivery().map(|delivery| delivery.ledger());
        observe(AgentEvent::Window(WindowAccount { samples, lost, filtered, weight, sent, delivery }));
    }

    fn write(&mut self, profile: &Profile, observe: &mut dyn FnMut(AgentEvent)) {
        let Some(write) = &mut self.write_window else { return };
        let outcome = write(profile);
        self.state.update(|counts| {
            counts.written_files += u64::from(outcome.is_ok());
            counts.failed_files += u64::from(outcome.is_err());
        });
        if let Err(error) = outcome {
            observe(AgentEvent::NotWritten(error));
        }
    }

    fn send(&self, window: &Window, observe: &mut dyn FnMut(AgentEvent)) -> Option<Sent> {
        let sent = self.sender.as_ref()?.send(window);
        sent.map_err(|error| observe(AgentEvent::WrongAccount(error))).ok()
    }

    /// Ends all but the delivery.
    fn into_sender(self) -> Option<Sender> {
        self.sender
    }
}

/// The symbolized and the unsymbolized frames of all samples.
fn frames(profile: &Profile) -> (u64, u64) {
    let events = &profile.ledger().events;
    let symbolized = events.iter().map(|event| event.symbolized_total()).sum();
    (symbolized, events.iter().map(|event| event.unsymbolized_total()).sum())
}
