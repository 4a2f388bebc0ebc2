//! `profiler agent`: samples all processes of a node all the time, and hands each window to a backend or a directory.

mod destination;
mod memory_limit;
mod memory_use;
mod memory_watch;
mod resources;
mod sender;
mod state;
mod status;
mod window_files;
mod window_plan;

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use profiler::{Ended, Session, sandbox};
use profiler_agent::{
    Window,
    delivery::DeliveryLedger,
    environment::Environment,
    metrics::Server,
    selection::{sample_count, selected},
};
use profiler_profile::Profile;

use self::{
    memory_limit::{MemoryAction, MemoryLimit},
    memory_use::MemoryMeter,
    memory_watch::{MEASURE_INTERVAL, MemoryWatch},
    resources::Resources,
    sender::{Sender, Sent},
    state::State,
    window_files::WindowFiles,
    window_plan::WindowPlan,
};
use super::{
    arguments::{AgentArguments, CommonArguments},
    event_log::EventLog,
    service::ServiceManager,
    signals,
    wrong_arguments::{self, WrongArguments},
};

/// The error text when no argument and no variable selects a destination.
const NO_DESTINATION: &str = "nothing to send to: give --otlp URL, --pyroscope URL or --write-dir DIR, or set OTEL_EXPORTER_OTLP_ENDPOINT (see --help)";

/// Runs the agent, and returns the exit code.
pub(super) fn run(arguments: &AgentArguments, common: &CommonArguments) -> Result<u8> {
    let log = EventLog::new(arguments.log_format, common.quiet);
    let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let environment = Environment::read(variable)?;
    let files = arguments.write_dir.as_deref().map(|path| WindowFiles::open(path, arguments.spool_max));
    let files = files.transpose()?;
    let options = destination::delivery_options(arguments, &environment)?;
    if options.is_none() && files.is_none() {
        bail!(WrongArguments::new(NO_DESTINATION));
    }
    // The sandbox refuses new sockets that listen, and threads with other rights.
    let service = ServiceManager::connect();
    let is_confined = !common.no_sandbox;
    let resources = Resources::new(arguments, &environment, is_confined)?;
    let sender = options.map(|options| Sender::start(options, is_confined)).transpose()?;
    let delivery = sender.as_ref().map(Sender::delivery);
    let state = Arc::new(State::new(arguments.window, delivery, arguments.spool.is_some()));
    let server = arguments.listen.map(|address| serve(address, &state, is_confined)).transpose()?;
    let session = start(arguments, common)?;
    state.begin_sampling();
    let listen = server.as_ref().map(|server| server.address().to_string()).unwrap_or_default();
    log.write("started", &[("frequency", &arguments.frequency.to_string()), ("listen", &listen)]);
    service.notify_ready();
    let meter = MemoryMeter::of_this_process();
    let memory = MemoryLimit::new(&meter, arguments.frequency);
    let watch = MemoryWatch::start(meter.clone(), memory.bounds(), session.memory_shortage());
    let mut agent = Agent {
        plan: WindowPlan::new(arguments.window, arguments.probability, fastrand::f64, Instant::now()),
        meter,
        memory,
        watch: watch.context("failed to start a thread")?,
        resources,
        files,
        sender,
        state,
        log,
    };
    let outcome = agent.run(session, arguments.duration);
    service.notify_stopping();
    // It has the state, and with it the delivery.
    drop(server);
    let ledger = agent.into_sender().and_then(Sender::stop);
    let account = ledger.as_ref().map(account_fields).unwrap_or_default();
    log.write("stopped", &as_fields(&account));
    outcome.map(|()| 0)
}

fn serve(address: SocketAddr, state: &Arc<State>, is_confined: bool) -> Result<Server> {
    let state = Arc::clone(state);
    let start = || Server::start(address, move || status::status(&state));
    let server = if is_confined { sandbox::start_confined(&[], start)? } else { start() };
    server.with_context(|| format!("failed to listen at {address} (--listen)"))
}

/// Starts the session of all processes.
fn start(arguments: &AgentArguments, common: &CommonArguments) -> Result<Session> {
    let builder = arguments.builder().sandbox(!common.no_sandbox).sandbox_network(true);
    let session = wrong_arguments::build(builder)?.start()?;
    signals::listen(signals::OF_SESSION, session.stopper(), None)?;
    if arguments.write_dir.is_some() {
        // The threads of the session have been started without them.
        sandbox::restore_file_rights()?;
    }
    Ok(session)
}

/// A running agent.
struct Agent {
    plan: WindowPlan,
    meter: MemoryMeter,
    memory: MemoryLimit,
    watch: MemoryWatch,
    resources: Resources,
    files: Option<WindowFiles>,
    sender: Option<Sender>,
    state: Arc<State>,
    log: EventLog,
}

impl Agent {
    /// Samples until a signal arrives or the duration is over.
    fn run(&mut self, mut session: Session, limit: Option<Duration>) -> Result<()> {
        let end = limit.map(|limit| Instant::now() + limit);
        self.state.update(|counts| {
            counts.frequency_hz = self.memory.frequency_hz();
            counts.memory_limit_bytes = self.memory.max_bytes();
        });
        let mut weight = self.plan.draw_weight();
        loop {
            let next = end.map_or(self.plan.end(), |end| end.min(self.plan.end()));
            let ended = self.wait_for_end_of_window(&mut session, next);
            if ended != Ended::Elapsed || end.is_some_and(|end| end <= Instant::now()) {
                let profile = session.stop()?;
                self.finish_window(profile, weight);
                return Ok(());
            }
            let next_weight = self.plan.draw_weight();
            self.limit_memory(&mut session);
            session.set_frequency_hz(next_weight.map_or(0, |_| self.memory.frequency_hz()));
            let profile = session.take_profile(Duration::ZERO)?;
            self.finish_window(profile, weight);
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

    /// What sends, without all else.
    fn into_sender(self) -> Option<Sender> {
        self.sender
    }

    /// Evicts what takes memory, or changes the frequency, where the limit asks for it.
    fn limit_memory(&mut self, session: &mut Session) {
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
        let action = match action {
            MemoryAction::Evict => "evict",
            MemoryAction::Lower => "lower-frequency",
            MemoryAction::Raise => "raise-frequency",
        };
        let [resident, charged, frequency] =
            [used.resident_bytes, used.charged_bytes, frequency_hz].map(|number| number.to_string());
        let fields = [
            ("action", action),
            ("resident", &*resident),
            ("charged", &*charged),
            ("frequency", &*frequency),
        ];
        self.log.write("memory-limit", &fields);
    }

    /// Sends and writes a window, and logs its account.
    fn finish_window(&mut self, profile: Profile, weight: Option<u64>) {
        let samples = sample_count(&profile);
        let lost: u64 = profile.ledger().events.iter().map(|event| event.lost_total()).sum();
        let Some(weight) = weight else {
            self.state.update(|counts| {
                counts.skipped_windows += 1;
                counts.skipped += samples;
                counts.lost += lost;
            });
            self.state.end_window();
            return self.log.write("skipped", &[("samples", &samples.to_string())]);
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
        self.write_file(window.profile());
        let sent = self.send(window, weight);
        self.state.end_window();
        self.log_window(
            [("samples", samples), ("lost", lost), ("filtered", filtered), ("weight", weight)],
            sent,
        );
    }

    fn write_file(&mut self, profile: &Profile) {
        let Some(files) = &mut self.files else { return };
        match files.write(profile) {
            Ok(path) => {
                self.state.update(|counts| counts.written_files += 1);
                self.log.write("written", &[("file", &path.to_string_lossy())]);
            }
            Err(error) => {
                self.state.update(|counts| counts.failed_files += 1);
                self.log.write_failure("write the file of a window", &error.to_string());
            }
        }
    }

    /// Sends the samples of a window with their weight.
    fn send(&self, window: Window, weight: u64) -> Option<Sent> {
        let sender = self.sender.as_ref()?;
        let weighted = if weight == 1 { window } else { selected(&window, |_| true, weight) };
        match sender.send(&weighted) {
            Ok(sent) => Some(sent),
            Err(error) => {
                self.log.write_failure("account for a window", &error.to_string());
                None
            }
        }
    }

    fn log_window(&self, counts: [(&str, u64); 4], sent: Option<Sent>) {
        let mut fields: Vec<_> = counts.map(|(name, count)| (name.to_owned(), count.to_string())).into();
        if let Some(Sent { messages, bytes, too_large, .. }) = sent {
            fields.extend([
                ("messages".to_owned(), messages.to_string()),
                ("bytes".to_owned(), bytes.to_string()),
                ("too-large".to_owned(), too_large.to_string()),
            ]);
        }
        if let Some(delivery) = self.state.delivery() {
            fields.extend(account_fields(&delivery.ledger()));
        }
        self.log.write("window", &as_fields(&fields));
    }
}

/// The account of the delivery since its start: `sampled + recovered` is the sum of the other samples.
fn account_fields(ledger: &DeliveryLedger) -> Vec<(String, String)> {
    let fields = [
        ("sampled", ledger.sampled),
        ("recovered", ledger.recovered),
        ("delivered", ledger.delivered),
        ("queued", ledger.queued),
        ("spooled", ledger.spooled),
        ("ambiguous", ledger.ambiguous),
        ("dropped-outage", ledger.dropped.outage),
        ("dropped-too-old", ledger.dropped.too_old),
        ("dropped-rejected", ledger.dropped.rejected),
        ("dropped-too-large", ledger.dropped.too_large),
        ("requests", ledger.requests),
        ("retries", ledger.retries),
    ];
    fields.map(|(name, count)| (name.to_owned(), count.to_string())).into()
}

fn as_fields(fields: &[(String, String)]) -> Vec<(&str, &str)> {
    fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

/// The symbolized and the unsymbolized frames of all samples.
fn frames(profile: &Profile) -> (u64, u64) {
    let events = &profile.ledger().events;
    let symbolized = events.iter().map(|event| event.symbolized_total()).sum();
    (symbolized, events.iter().map(|event| event.unsymbolized_total()).sum())
}
