//! The settings of an agent, and its start.

use std::{
    io,
    net::SocketAddr,
    ops::RangeInclusive,
    sync::Arc,
    time::{Duration, Instant},
};

use profiler::sandbox;
use profiler_profile::Profile;

use super::{
    Agent, Windows, WriteWindow,
    error::AgentError,
    memory_limit::{MAX_BYTES, MemoryLimit},
    memory_use::MemoryMeter,
    memory_watch::MemoryWatch,
    resources::{Resources, Selection},
    sender::Sender,
    state::AgentState,
    status::status,
    window_plan::WindowPlan,
};
use crate::{
    Filter,
    delivery::DeliveryOptions,
    metrics::Server,
    naming::{KubeletOptions, NamingOptions},
};

/// The times of a window: they bound the requests of a fleet, and the memory of a window.
pub const WINDOW_LIMITS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(600);

/// The probabilities with which windows are sampled.
pub const PROBABILITY_LIMITS: RangeInclusive<f64> = 0.001..=1.0;

/// The time of a window by default.
const DEFAULT_WINDOW: Duration = Duration::from_secs(60);

/// The settings of an agent. Setters never fail; [`start`](Self::start) reports what is wrong.
#[must_use]
pub struct AgentBuilder {
    session: profiler::Builder,
    is_confined: bool,
    window: Duration,
    probability: f64,
    naming: Option<NamingOptions>,
    kubelet: Option<KubeletOptions>,
    selection: Selection,
    delivery: Option<DeliveryOptions>,
    write_window: Option<WriteWindow>,
    listen: Option<SocketAddr>,
    max_memory_bytes: u64,
}

impl AgentBuilder {
    pub(super) fn new(session: profiler::Builder) -> Self {
        Self {
            session,
            is_confined: false,
            window: DEFAULT_WINDOW,
            probability: 1.0,
            naming: None,
            kubelet: None,
            selection: Selection::default(),
            delivery: None,
            write_window: None,
            listen: None,
            max_memory_bytes: MAX_BYTES,
        }
    }

    /// Whether the start confines this process, with all its threads and forever: for programs whose only job is to profile. The
    /// threads of the delivery, the metrics and the kubelet then have no capabilities. See [`profiler::sandbox`]. Default: false.
    pub fn sandbox(mut self, wanted: bool) -> Self {
        self.is_confined = wanted;
        self
    }

    /// The time of one window, one of [`WINDOW_LIMITS`]. The first window is shorter, by a random time. Default: a minute.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// The probability with which a window is sampled, one of [`PROBABILITY_LIMITS`]. The values of its samples are multiplied by the
    /// inverse when they are sent. Default: 1.
    pub fn probability(mut self, probability: f64) -> Self {
        self.probability = probability;
        self
    }

    /// The names and labels of the node. Default: those of a host outside of Kubernetes ([`NamingOptions::of_node`]).
    pub fn naming(mut self, options: NamingOptions) -> Self {
        self.naming = Some(options);
        self
    }

    /// Asks a kubelet for labels and owners of pods. Default: their names come from the container runtime alone.
    pub fn kubelet(mut self, options: KubeletOptions) -> Self {
        self.kubelet = Some(options);
        self
    }

    /// Sends and writes only the samples of resources that match one of these filters, where there is one.
    pub fn only(mut self, filters: impl IntoIterator<Item = Filter>) -> Self {
        self.selection.only.extend(filters);
        self
    }

    /// Leaves out the samples of resources that match one of these filters.
    pub fn except(mut self, filters: impl IntoIterator<Item = Filter>) -> Self {
        self.selection.except.extend(filters);
        self
    }

    /// Sends each window to a backend.
    pub fn delivery(mut self, options: DeliveryOptions) -> Self {
        self.delivery = Some(options);
        self
    }

    /// Calls a function with the profile of each sampled window, before it is sent: with the selected samples and the values as
    /// measured. It runs on the thread that calls [`Agent::run`], which can write files in the [sandbox](Self::sandbox) after
    /// [`restore_file_rights`](sandbox::restore_file_rights). An error is counted and becomes
    /// [`AgentEvent::NotWritten`](super::AgentEvent::NotWritten).
    pub fn write_windows(mut self, write: impl FnMut(&Profile) -> io::Result<()> + Send + 'static) -> Self {
        self.write_window = Some(Box::new(write));
        self
    }

    /// Serves `/metrics`, `/healthz` and `/readyz` at an address; port 0 is a free one. Default: none.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(address);
        self
    }

    /// The limit of the resident memory of this process, bytes. In a cgroup with a limit, it is 80% of that at most. Beyond it, the
    /// session evicts stacks, windows end early, and then the frequency is lowered. Default: 64 MiB, for a process that does
    /// nothing else.
    pub fn max_memory_bytes(mut self, bytes: u64) -> Self {
        self.max_memory_bytes = bytes;
        self
    }

    /// Starts the threads and the session. The backend need not be reachable yet.
    ///
    /// # Errors
    /// A setting is not valid, a file of them cannot be read, the address is in use, or the session cannot start.
    pub fn start(self) -> Result<Agent, AgentError> {
        self.check()?;
        let is_confined = self.is_confined;
        // The sandbox refuses new sockets that listen, and threads with other rights.
        let resources = Resources::new(self.naming, self.kubelet, self.selection, is_confined)?;
        let has_spool = self.delivery.as_ref().is_some_and(|options| options.spool.is_some());
        let sender = self.delivery.map(|options| Sender::start(options, is_confined)).transpose()?;
        let delivery = sender.as_ref().map(Sender::delivery);
        let state = Arc::new(AgentState::new(self.window, delivery, has_spool));
        let server = self.listen.map(|address| serve(address, &state, is_confined)).transpose()?;
        let builder = self.session.sandbox(is_confined).sandbox_network(true);
        let session = builder.build().map_err(AgentError::Settings)?.start()?;
        state.begin_sampling();
        let meter = MemoryMeter::of_this_process();
        // A session without CPU samples has no frequency that could be lowered.
        let frequency_hz = session.max_frequency_hz().unwrap_or_default();
        let memory = MemoryLimit::new(&meter, self.max_memory_bytes, frequency_hz);
        state.update(|counts| {
            counts.frequency_hz = memory.frequency_hz();
            counts.memory_limit_bytes = memory.max_bytes();
        });
        let watch = MemoryWatch::start(meter.clone(), memory.bounds(), session.memory_shortage());
        let windows = Windows {
            plan: WindowPlan::new(self.window, self.probability, fastrand::f64, Instant::now()),
            meter,
            memory,
            watch: watch.map_err(AgentError::Thread)?,
            resources,
            write_window: self.write_window,
            sender,
            state,
        };
        Ok(Agent { session, server, windows })
    }

    fn check(&self) -> Result<(), AgentError> {
        if !WINDOW_LIMITS.contains(&self.window) {
            return Err(AgentError::Window(self.window));
        }
        if !PROBABILITY_LIMITS.contains(&self.probability) {
            return Err(AgentError::Probability(self.probability));
        }
        if self.delivery.is_none() && self.write_window.is_none() {
            return Err(AgentError::NoOutput);
        }
        Ok(())
    }
}

fn serve(address: SocketAddr, state: &Arc<AgentState>, is_confined: bool) -> Result<Server, AgentError> {
    let state = Arc::clone(state);
    let start = || Server::start(address, move || status(&state));
    let server = if is_confined { sandbox::start_confined(&[], start)? } else { start() };
    server.map_err(|source| AgentError::Listen { address, source })
}

#[cfg(test)]
mod tests {
    use profiler::{Profiler, Target};

    use super::*;

    fn builder() -> AgentBuilder {
        Agent::builder(Profiler::builder().target(Target::Everything)).write_windows(|_| Ok(()))
    }

    /// The error of a start that needs no privilege to fail.
    fn error_of(builder: AgentBuilder) -> AgentError {
        builder.start().err().expect("the settings are wrong")
    }

    #[test]
    fn wrong_settings_are_errors_before_anything_starts() {
        for window in [Duration::from_millis(999), Duration::from_secs(601)] {
            assert!(matches!(error_of(builder().window(window)), AgentError::Window(_)));
        }
        for probability in [0.0, 1.5, f64::NAN] {
            assert!(matches!(error_of(builder().probability(probability)), AgentError::Probability(_)));
        }
        assert!(matches!(error_of(AgentBuilder { write_window: None, ..builder() }), AgentError::NoOutput));
        let session = Profiler::builder().target(Target::Everything).frequency_hz(0);
        assert!(matches!(error_of(AgentBuilder { session, ..builder() }), AgentError::Settings(_)));
    }

    #[test]
    fn an_address_in_use_is_an_error() {
        let other = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let error = error_of(builder().listen(other.local_addr().unwrap()));
        assert!(matches!(error, AgentError::Listen { .. }), "{error}");
    }
}
