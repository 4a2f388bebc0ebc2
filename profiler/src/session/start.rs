//! Starts a session in stages: the target is found, the BPF programs are loaded, sampling runs.

use std::{
    io,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use profiler_dotnet_diagnostics::EventSources;
use profiler_processes::{ProcFs, ProcessFilter};
use profiler_profile::Header;
use profiler_sampler::{LoadedSource, Plan, SampleSource, raise_locked_memory_limit};

use super::{
    Session, Shared,
    capture::{SessionRecorder, replay},
    debug_directories::debug_file_directories,
    pipeline::{Pipeline, PipelineParts},
    polling_interval::PollingInterval,
    probe_places,
    reader::Reader,
    symbolizer::new_symbolizer,
    target::{self, FoundTarget},
    unwinding::UnwindTableThread,
};
use crate::{
    command_user::CommandUser,
    error::{Error, ErrorKind, Result},
    sandbox::SessionSandbox,
    settings::Settings,
    sys::command::GatedCommand,
};

/// Starts a session that samples, or that replays a capture.
pub(crate) fn start(settings: &Settings) -> Result<Session> {
    match replay(settings)? {
        Some(session) => Ok(session),
        None => Found::find(settings)?.load()?.run(),
    }
}

/// The target is found, and its command forked: it has the rights and limits that this process has now.
struct Found<'a> {
    settings: &'a Settings,
    proc: Arc<ProcFs>,
    recorder: SessionRecorder,
    target: FoundTarget,
    plan: Plan,
}

/// The BPF programs are loaded, and sideband events enabled: later changes of processes arrive as events, and the present state
/// can be read from `/proc`.
struct Loaded<'a> {
    settings: &'a Settings,
    sandbox: SessionSandbox,
    proc: Arc<ProcFs>,
    recorder: SessionRecorder,
    /// Without processes that have ended.
    target: FoundTarget,
    plan: Plan,
    source: LoadedSource,
    shared: Arc<Shared>,
}

impl<'a> Found<'a> {
    fn find(settings: &'a Settings) -> Result<Self> {
        let recorder = SessionRecorder::create(settings)?;
        let proc = recorder.open_proc()?;
        let target = target::find(&settings.target, &proc)?;
        let first_pid = target.initial_pids.first().copied();
        let counted = probe_places::plan(&settings.events.counted, &proc, first_pid)?;
        let plan = Plan {
            filter: target.filter.clone(),
            events: settings.events.plan(counted),
            cpus: settings.cpus.clone(),
            stacks: settings.stacks,
            children: target.children,
            max_overhead_percent: settings.max_overhead_percent,
        };
        Ok(Self { settings, proc, recorder, target, plan })
    }

    /// Loads the BPF programs, with the rights of the session alone.
    fn load(self) -> Result<Loaded<'a>> {
        let Self { settings, proc, recorder, mut target, plan } = self;
        let shared = Arc::new(Shared::new()?);
        // Before the capability for it is given up.
        raise_locked_memory_limit();
        raise_open_files_limit();
        let sandbox = SessionSandbox::new(settings);
        sandbox.reduce_rights()?;
        let (plan, source) = load(plan, settings, &shared)?;
        target.watch.remove_ended(&mut target.process_filter, &mut target.initial_pids)?;
        if let ProcessFilter::Only { children, .. } = &mut target.process_filter {
            *children = plan.children;
        }
        Ok(Loaded { settings, sandbox, proc, recorder, target, plan, source, shared })
    }
}

impl Loaded<'_> {
    /// Reads what is there of the target, and starts sampling and the command.
    fn run(self) -> Result<Session> {
        let Self { settings, sandbox, proc, mut recorder, target, plan, mut source, shared } = self;
        let FoundTarget { process_filter, watch, initial_pids, description, command, .. } = target;
        let polling_interval = PollingInterval::new(&process_filter);
        let directories = debug_file_directories(&settings.names)?;
        let servers = directories.servers.clone();
        let follows_forks = plan.follows_forks();
        let command_pid = command.as_ref().map(GatedCommand::pid);
        recorder.note_session(&process_filter, command_pid, &plan.events);
        let symbolizer = new_symbolizer(settings, Arc::clone(&proc), Arc::clone(&directories));
        let runtime_events =
            EventSources::new(settings.dotnet.runtime_events.clone(), symbolizer.event_budget().clone());
        let mut pipeline = Pipeline::new(PipelineParts {
            symbolizer,
            runtime_events,
            proc,
            filter: process_filter,
            events: plan.events,
            has_user_stacks: settings.stacks.user,
            forget_stack: Some(Box::new(source.forget_sent_stack()?)),
            memory_shortage: shared.memory_shortage.clone(),
            command_pid,
            recorder,
        });
        pipeline.prefetch(&initial_pids);
        if !settings.dotnet.runtime_events.is_empty() {
            // The runtime of a process that waits has events as well.
            pipeline.prefetch(&watch.unnamed_processes(&ProcFs::live()));
            pipeline.poll_runtime_events();
        }
        if let Some(maps) = source.take_unwind_maps() {
            let follows_forks = follows_forks && !maps.searches_vmas();
            let files = pipeline.mapped_files();
            let shortage = shared.memory_shortage.clone();
            let unwinding =
                UnwindTableThread::start(maps, files, directories, shortage).map_err(|error| {
                    Error::with_source(ErrorKind::Io, "failed to start the unwinding thread", error)
                })?;
            // Before its exec, a command has the mappings of the profiler.
            let unwound_pids = if command.is_some() { &[][..] } else { &initial_pids };
            pipeline.install_unwind_tables(unwinding, unwound_pids, follows_forks);
        }
        let source = source.start()?;
        // `cargo xtask bench` reads this line.
        log::debug!("sampling begins");
        let command = match command {
            Some(command) => {
                let user = settings.target.command_user.as_ref().map(CommandUser::name);
                Some(command.release().map_err(|error| exec_error(&description, user, error))?)
            }
            None => None,
        };
        // Samples wait for this in the ring buffer; before them, it would delay the first one.
        if sandbox.confines() && settings.stacks.kernel {
            pipeline.load_kernel_names();
        }
        let header = Header {
            target: description,
            started_unix_ns: unix_ns(),
            cpus: source.cpus(),
            ..Header::default()
        };
        let reader = Reader::new(Box::new(source), polling_interval, Arc::clone(&shared));
        let symbol_budget = servers.is_none().then(|| pipeline.symbol_budget());
        let mut session = Session::run_threads(shared, reader, pipeline, header, watch, command, servers)?;
        session.symbol_budget = symbol_budget;
        session.max_frequency_hz = settings.events.cpu_samples.then_some(settings.events.frequency_hz);
        session.selected_cpus = settings.cpus.clone().unwrap_or_default();
        sandbox.filter_system_calls()?;
        Ok(session)
    }
}

/// Loads the BPF programs. What the kernel does not support is left out of the plan, with a warning, where samples remain.
fn load(plan: Plan, settings: &Settings, shared: &Shared) -> Result<(Plan, LoadedSource)> {
    let load = |plan: &Plan| LoadedSource::load(plan.clone(), Arc::clone(&shared.reader_waker));
    let unsupported = match load(&plan) {
        Err(error) if error.kind == ErrorKind::Unsupported => error,
        result => return Ok((plan, result?)),
    };
    for (reduced, warning) in reduced_plans(&plan, settings) {
        match load(&reduced) {
            Err(error) if error.kind == ErrorKind::Unsupported => {}
            result => {
                log::warn!("{warning}: {unsupported}");
                return Ok((reduced, result?));
            }
        }
    }
    Err(unsupported.into())
}

/// Plans without what a kernel may not support, and the warning for each. Samples remain in all of them.
fn reduced_plans(plan: &Plan, settings: &Settings) -> Vec<(Plan, &'static str)> {
    const NO_CHILDREN: &str = "only the command is sampled, not its descendants";
    const NO_CHILDREN_NO_WAITS: &str =
        "the descendants of the command and threads that wait are not sampled (--wall, --off-cpu)";
    let reduced = plan.events.reduced().into_iter();
    let mut plans: Vec<_> =
        reduced.map(|(events, warning)| (Plan { events, ..plan.clone() }, warning)).collect();
    if settings.target.is_command() && plan.children {
        let without_children = |plan: &Plan| Plan { children: false, ..plan.clone() };
        let without_both = plans.last().map(|(plan, _)| (without_children(plan), NO_CHILDREN_NO_WAITS));
        plans.insert(0, (without_children(plan), NO_CHILDREN));
        plans.extend(without_both);
    }
    plans
}

/// The error of a command that cannot be executed. A refusal is no missing privilege of the profiler: the file has no
/// execute permission.
fn exec_error(command: &str, user: Option<&str>, error: io::Error) -> Error {
    let user = user.map(|name| format!(" as the user `{name}`")).unwrap_or_default();
    let kind = match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NoSuchFile,
        _ => ErrorKind::Io,
    };
    Error::with_source(kind, format!("failed to execute `{command}`{user}"), error)
}

/// Raises the limit on open files: each CPU has several perf events, and every mapped file that is sampled stays open.
fn raise_open_files_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        log::debug!("cannot raise the limit on open files: {error}");
    }
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_does_not_exist_is_a_missing_file() {
        let error = exec_error("./no-such-program", None, io::ErrorKind::NotFound.into());
        assert_eq!(error.kind(), ErrorKind::NoSuchFile);
        let error = exec_error("./README.md", Some("me"), io::ErrorKind::PermissionDenied.into());
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().ends_with("README.md` as the user `me`"), "{error}");
    }
}
