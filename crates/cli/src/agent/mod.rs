//! `profiler agent`: samples all processes of a node all the time, and hands each window to a backend or a directory.

mod destination;
mod log_events;
mod naming;
mod window_files;

use anyhow::{Result, bail};
use profiler::{ErrorKind, sandbox};
use profiler_agent::{
    Agent, AgentBuilder, AgentError, AgentEvent, environment::Environment, naming::KubeletOptions,
};
use profiler_profile::Profile;

use self::window_files::WindowFiles;
use super::{
    arguments::{AgentArguments, CommonArguments},
    event_log::EventLog,
    service::ServiceManager,
    signals,
    wrong_arguments::WrongArguments,
};

/// The error text when no argument and no variable selects a destination.
const NO_DESTINATION: &str = "nothing to send to: give --otlp URL, --pyroscope URL or --write-dir DIR, or set OTEL_EXPORTER_OTLP_ENDPOINT (see --help)";

/// Runs the agent, and returns the exit code.
pub(super) fn run(arguments: &AgentArguments, common: &CommonArguments) -> Result<u8> {
    let log = EventLog::new(arguments.log_format, common.quiet);
    let builder = builder(arguments, log)?.sandbox(!common.no_sandbox);
    // The sandbox refuses new sockets.
    let service = ServiceManager::connect();
    let agent = builder.start().map_err(start_error)?;
    signals::listen(signals::OF_SESSION, agent.stopper(), None)?;
    if arguments.write_dir.is_some() {
        // The threads of the agent have been started without them.
        sandbox::restore_file_rights()?;
    }
    let listen = agent.metrics_address().map(|address| address.to_string()).unwrap_or_default();
    log.write("started", &[("frequency", &arguments.frequency.to_string()), ("listen", &listen)]);
    service.notify_ready();
    agent.run(arguments.duration, |event| {
        if matches!(event, AgentEvent::Stopping) {
            service.notify_stopping();
        }
        log_events::write(&log, &event);
    })?;
    Ok(0)
}

/// The settings that the arguments and the variables of OpenTelemetry select.
fn builder(arguments: &AgentArguments, log: EventLog) -> Result<AgentBuilder> {
    let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let environment = Environment::read(variable)?;
    let files = arguments.write_dir.as_deref().map(|path| WindowFiles::open(path, arguments.spool_max));
    let files = files.transpose()?;
    let delivery = destination::delivery_options(arguments, &environment)?;
    if delivery.is_none() && files.is_none() {
        bail!(WrongArguments::new(NO_DESTINATION));
    }
    let mut builder = Agent::builder(arguments.builder())
        .window(arguments.window)
        .probability(arguments.probability)
        .naming(naming::naming_options(arguments, &environment)?)
        .only(arguments.only.iter().cloned())
        .except(arguments.drop.iter().cloned());
    if let Some(url) = &arguments.kubelet {
        builder = builder.kubelet(KubeletOptions::with_service_account(url));
    }
    if let Some(options) = delivery {
        builder = builder.delivery(options);
    }
    if let Some(mut files) = files {
        builder = builder.write_windows(move |profile: &Profile| {
            let path = files.write(profile)?;
            log.write("written", &[("file", &path.to_string_lossy())]);
            Ok(())
        });
    }
    Ok(arguments.listen.into_iter().fold(builder, AgentBuilder::listen))
}

/// The error of the command line, which gives advice on errors of the library.
fn start_error(error: AgentError) -> anyhow::Error {
    match error {
        AgentError::Settings(error) if error.kind() == ErrorKind::InvalidInput => {
            WrongArguments::new(error).into()
        }
        AgentError::Settings(error) | AgentError::Start(error) => error.into(),
        AgentError::Listen { address, source } => {
            anyhow::Error::new(source).context(format!("failed to listen at {address} (--listen)"))
        }
        other => other.into(),
    }
}
