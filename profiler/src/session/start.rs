//! Starts a session: finds the target, loads the BPF programs and spawns the reader and pipeline threads.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, channel, sync_channel},
    },
    thread::JoinHandle,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use profiler_dotnet_symbols::managed::NameStyle;
use profiler_processes::{ProcFs, ProcessFilter, root_directory::RootDirectory};
use profiler_profile::Header;
use profiler_symbolize::{
    EventRequest, MethodEventRequests, NativeOptions, RuntimeRequests, Symbolizer,
    debug_file::DebugDirectories,
    symbol_server::{Cache, CacheDirectories, Server, SymbolServers, transport},
};

#[cfg(feature = "capture")]
use super::capture;
use super::{
    Adjustment, Request, Session, Shared, Taken,
    interval::Interval,
    message::{IntervalCounts, Message},
    pipeline::Pipeline,
    polling_interval::PollingInterval,
    probe_places,
    reader::Reader,
    target::{self, FoundTarget, Target, TargetWatch},
    unwinding::UnwindTableThread,
    wait_partners,
};
#[cfg(feature = "capture")]
use crate::sampler::capture::Recorder;
#[cfg(feature = "sandbox")]
use crate::sandbox;
use crate::{
    builder::DotnetNames,
    command_user::CommandUser,
    error::{Error, ErrorKind, Operation, Result},
    sampler::{
        EventPlan, EventSettings, Plan, SampleSource, Unwind,
        ebpf::{EbpfSource, raise_locked_memory_limit},
    },
    sys::kernel_names::KernelNames,
};

/// The capacity of the channel between reader and pipeline; beyond it the reader merges batches. Where the pipeline is slower than
/// the samples, each batch grows to the limit of `BatchQueue`, megabytes.
pub(super) const MAX_QUEUED_BATCHES: usize = 2;

/// The settings of a session.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) target: Target,
    pub(crate) events: EventSettings,
    pub(crate) max_overhead_percent: f64,
    pub(crate) cpus: Option<Vec<u32>>,
    pub(crate) kernel_stacks: bool,
    pub(crate) user_stacks: bool,
    pub(crate) unwind: Unwind,
    /// `None` is the default of the target.
    pub(crate) children: Option<bool>,
    pub(crate) silent_command: bool,
    /// `None` is the user of this process.
    pub(crate) command_user: Option<CommandUser>,
    #[cfg(feature = "sandbox")]
    pub(crate) sandbox: bool,
    #[cfg(feature = "sandbox")]
    pub(crate) sandbox_network: bool,
    pub(crate) inlines: bool,
    pub(crate) lines: bool,
    pub(crate) raw_names: bool,
    pub(crate) dotnet_tiers: bool,
    pub(crate) dotnet_names: DotnetNames,
    pub(crate) dotnet_events: bool,
    pub(crate) dotnet_perf_map: bool,
    pub(crate) dotnet_compilations: bool,
    pub(crate) runtime_events: EventRequest,
    pub(crate) debug_directories: Vec<PathBuf>,
    pub(crate) symbol_servers: Vec<Server>,
    pub(crate) symbol_cache: Option<PathBuf>,
    #[cfg(feature = "capture")]
    pub(crate) capture: Option<PathBuf>,
    #[cfg(feature = "capture")]
    pub(crate) replay: Option<PathBuf>,
}

impl Settings {
    /// Whether .NET runtimes are asked for the events of their methods.
    pub(crate) fn has_dotnet_method_events(&self) -> bool {
        self.dotnet_events && self.dotnet_names != DotnetNames::Memory
    }

    /// When .NET runtimes are asked for the events of their methods. Memory has no tier, and a runtime that is contacted for other
    /// events reports its methods as well.
    fn dotnet_method_events(&self) -> MethodEventRequests {
        let requests_events = self.dotnet_tiers
            || self.dotnet_perf_map
            || self.dotnet_compilations
            || !self.runtime_events.is_empty();
        match self.dotnet_names {
            _ if !self.has_dotnet_method_events() => MethodEventRequests::Never,
            DotnetNames::Auto if !requests_events => MethodEventRequests::WhereMemoryLacks,
            _ => MethodEventRequests::Always,
        }
    }

    /// Whether processes that a target process forks are targets.
    pub(super) fn follows_children(&self) -> bool {
        self.children.unwrap_or(self.is_command())
    }

    pub(crate) fn is_command(&self) -> bool {
        matches!(self.target, Target::Command(_))
    }

    /// Whether threads of the session write files: a capture, the symbol cache, or the removal of a perf map.
    #[cfg(feature = "sandbox")]
    pub(crate) fn writes_files_while_sampling(&self) -> bool {
        #[cfg(feature = "capture")]
        let captures = self.capture.is_some();
        #[cfg(not(feature = "capture"))]
        let captures = false;
        captures || self.dotnet_perf_map || !self.symbol_servers.is_empty()
    }
}

/// Starts a session that samples, or that replays a capture.
pub(crate) fn start(settings: &Settings) -> Result<Session> {
    #[cfg(feature = "capture")]
    if let Some(directory) = &settings.replay {
        return capture::replay(settings, directory);
    }
    sample(settings)
}

fn sample(settings: &Settings) -> Result<Session> {
    #[cfg(feature = "capture")]
    let recorder = settings.capture.as_deref().map(Recorder::create).transpose()?;
    #[cfg(feature = "capture")]
    let proc = Arc::new(open_proc(recorder.as_ref())?);
    #[cfg(not(feature = "capture"))]
    let proc = Arc::new(ProcFs::live());
    let found = target::find(settings, &proc)?;
    let FoundTarget { filter, mut process_filter, watch, children, mut initial_pids, description, command } =
        found;
    let counted = probe_places::plan(&settings.events.counted, &proc, initial_pids.first().copied())?;
    let mut plan = Plan {
        filter,
        events: settings.events.plan(counted),
        cpus: settings.cpus.clone(),
        kernel_stacks: settings.kernel_stacks,
        user_stacks: settings.user_stacks,
        unwind: settings.unwind,
        children,
        max_overhead_percent: settings.max_overhead_percent,
    };
    let shared = Arc::new(Shared::new()?);
    // The command has been forked: it has the original rights and limits.
    // Before the capability for it is given up.
    raise_locked_memory_limit();
    raise_open_files_limit();
    #[cfg(feature = "sandbox")]
    if settings.sandbox {
        sandbox::reduce_rights(settings)?;
    }
    let mut source = load(&mut plan, settings, &shared)?;
    watch.remove_ended(&mut process_filter, &mut initial_pids)?;
    if let ProcessFilter::Only { children, .. } = &mut process_filter {
        *children = plan.children;
    }
    let follows_forks = plan.follows_forks();
    let polling_interval = PollingInterval::new(&process_filter);
    let directories = debug_file_directories(settings)?;
    let servers = directories.servers.clone();
    let debug_directories = Arc::clone(&directories);
    let mut pipeline = new_pipeline(settings, proc, process_filter, directories, plan.events.clone());
    #[cfg(feature = "capture")]
    if let Some(recorder) = recorder {
        pipeline.record(recorder);
    }
    pipeline.shed_samples_during(shared.memory_shortage.clone());
    pipeline.bound_stacks(Box::new(source.forget_sent_stack()?));
    // Sideband events are enabled: later changes arrive as events, the present state is read from /proc.
    pipeline.prefetch(&initial_pids);
    if !settings.runtime_events.is_empty() {
        // The runtime of a process that waits has events as well.
        pipeline.prefetch(&watch.unnamed_processes(&ProcFs::live()));
        pipeline.poll_runtime_events();
    }
    if let Some(maps) = source.take_unwind_maps() {
        let follows_forks = follows_forks && !maps.searches_vmas();
        let unwinding = UnwindTableThread::start(
            maps,
            pipeline.mapped_files(),
            debug_directories,
            shared.memory_shortage.clone(),
        );
        let unwinding = unwinding.map_err(|error| {
            Error::with_source(ErrorKind::Io, "failed to start the unwinding thread", error)
        })?;
        // Before its exec, a command has the mappings of the profiler.
        let unwound_pids = if command.is_some() { &[][..] } else { &initial_pids };
        pipeline.install_unwind_tables(unwinding, unwound_pids, follows_forks);
    }
    if let Some(command) = &command {
        pipeline.ignore_before_exec(command.pid());
    }
    source.start()?;
    // `cargo xtask bench` reads this line.
    log::debug!("sampling begins");
    let command = match command {
        Some(command) => {
            let user = settings.command_user.as_ref().map(CommandUser::name);
            Some(command.release().map_err(|error| exec_error(&description, user, error))?)
        }
        None => None,
    };
    // Samples wait for this in the ring buffer; before them, it would delay the first one.
    #[cfg(feature = "sandbox")]
    if settings.sandbox && settings.kernel_stacks {
        pipeline.load_kernel_names();
    }
    let header =
        Header { target: description, started_unix_ns: unix_ns(), cpus: source.cpus(), ..Header::default() };
    let reader = Reader::new(Box::new(source), polling_interval, Arc::clone(&shared));
    let symbol_budget = servers.is_none().then(|| pipeline.symbol_budget());
    let mut session = Session::run_threads(shared, reader, pipeline, header, watch, command, servers)?;
    session.symbol_budget = symbol_budget;
    session.max_frequency_hz = settings.events.cpu_samples.then_some(settings.events.frequency_hz);
    session.selected_cpus = settings.cpus.clone().unwrap_or_default();
    #[cfg(feature = "sandbox")]
    if settings.sandbox {
        sandbox::filter_system_calls(settings)?;
    }
    Ok(session)
}

/// Loads the BPF programs. What the kernel does not support is left out of the plan, with a warning, where samples remain.
fn load(plan: &mut Plan, settings: &Settings, shared: &Shared) -> Result<EbpfSource> {
    let load = |plan: &Plan| EbpfSource::load(plan.clone(), Arc::clone(&shared.reader_waker));
    let unsupported = match load(plan) {
        Err(error) if error.kind() == ErrorKind::Unsupported => error,
        result => return result,
    };
    for (reduced, warning) in reduced_plans(plan, settings) {
        match load(&reduced) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            result => {
                log::warn!("{warning}: {unsupported}");
                *plan = reduced;
                return result;
            }
        }
    }
    Err(unsupported)
}

/// Plans without what a kernel may not support, and the warning for each. Samples remain in all of them.
fn reduced_plans(plan: &Plan, settings: &Settings) -> Vec<(Plan, &'static str)> {
    const NO_CHILDREN: &str = "only the command is sampled, not its descendants";
    const NO_CHILDREN_NO_WAITS: &str =
        "the descendants of the command and threads that wait are not sampled (--wall, --off-cpu)";
    let reduced = plan.events.reduced().into_iter();
    let mut plans: Vec<_> =
        reduced.map(|(events, warning)| (Plan { events, ..plan.clone() }, warning)).collect();
    if settings.is_command() && plan.children {
        let without_children = |plan: &Plan| Plan { children: false, ..plan.clone() };
        let without_both = plans.last().map(|(plan, _)| (without_children(plan), NO_CHILDREN_NO_WAITS));
        plans.insert(0, (without_children(plan), NO_CHILDREN));
        plans.extend(without_both);
    }
    plans
}

#[cfg(feature = "capture")]
fn open_proc(recorder: Option<&Recorder>) -> Result<ProcFs> {
    recorder
        .map_or(Ok(ProcFs::live()), |recorder| Ok(ProcFs::with_capture(recorder.create_proc_directory()?)))
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

pub(super) fn new_pipeline(
    settings: &Settings,
    proc: Arc<ProcFs>,
    filter: ProcessFilter,
    directories: Arc<DebugDirectories>,
    events: EventPlan,
) -> Pipeline {
    let options =
        NativeOptions { inlines: settings.inlines, lines: settings.lines, raw_names: settings.raw_names };
    let style = NameStyle { raw: settings.raw_names, tiers: settings.dotnet_tiers };
    let mut symbolizer =
        Symbolizer::new(Arc::clone(&proc), directories, options, style, KernelNames::load_boxed);
    symbolizer.set_runtime_requests(RuntimeRequests {
        events: settings.dotnet_method_events(),
        memory: settings.dotnet_names != DotnetNames::Events,
        frames: settings.user_stacks && settings.unwind != Unwind::FramePointer,
        perf_maps: settings.dotnet_perf_map,
        compilations: settings.dotnet_compilations,
    });
    symbolizer.set_event_request(settings.runtime_events.clone());
    Pipeline::new(proc, filter, symbolizer, events, settings.user_stacks)
}

/// The directories that are searched for debug files, besides the root directory of the target.
pub(super) fn debug_file_directories(settings: &Settings) -> Result<Arc<DebugDirectories>> {
    let open = |path: &Path| {
        RootDirectory::open(path).map(Arc::new).map_err(|error| {
            let message = format!("failed to open the directory `{}`", path.display());
            Error::from_io(Operation::OpenFile, message, error)
        })
    };
    let given = settings.debug_directories.iter().map(|path| open(path)).collect::<Result<Vec<_>>>()?;
    let host = open(Path::new("/"))?;
    let CacheDirectories { own, others } =
        CacheDirectories::from_environment(settings.symbol_cache.clone(), |name| std::env::var_os(name));
    let servers = symbol_servers(settings, own.as_deref())?.map(Arc::new);
    // A user who can write to the profiler's cache could name the functions of all targets.
    let is_refused = |own: &PathBuf| {
        let refused = Cache::check(own).err().filter(|error| error.kind() != io::ErrorKind::NotFound);
        refused
            .inspect(|error| log::warn!("the symbol cache `{}` is not used: {error}", own.display()))
            .is_some()
    };
    let own = own.filter(|own| !is_refused(own));
    // Most of these directories do not exist.
    let caches = own.iter().chain(&others).filter_map(|path| open(path).ok()).collect();
    Ok(Arc::new(DebugDirectories { configured: given, host, caches, servers }))
}

fn symbol_servers(settings: &Settings, cache: Option<&Path>) -> Result<Option<SymbolServers>> {
    // A transport reads certificates.
    if settings.symbol_servers.is_empty() {
        return Ok(None);
    }
    let Some(transport) = transport() else { return Ok(None) };
    let Some(directory) = cache else {
        let message = "there is no directory for files of symbol servers: name one, or set HOME";
        return Err(Error::new(ErrorKind::InvalidInput, message));
    };
    let cache = Cache::create(directory).map_err(|error| {
        let message = format!("failed to create the symbol cache `{}`", directory.display());
        Error::with_source(ErrorKind::Io, message, error)
    })?;
    let servers = SymbolServers::start(settings.symbol_servers.clone(), transport, cache);
    let failed = |error| Error::with_source(ErrorKind::Io, "failed to start a thread", error);
    servers.map(Some).map_err(failed)
}

impl Session {
    pub(super) fn run_threads(
        shared: Arc<Shared>,
        reader: Reader,
        pipeline: Pipeline,
        header: Header,
        watch: TargetWatch,
        command: Option<std::process::Child>,
        servers: Option<Arc<SymbolServers>>,
    ) -> Result<Self> {
        let (requests, request_receiver) = channel();
        let (messages, message_receiver) = sync_channel(MAX_QUEUED_BATCHES);
        let started_ns = reader.started_ns();
        let reader = spawn("reader", move || reader.run(&request_receiver, &messages))?;
        let pipeline = spawn("pipeline", {
            let shared = Arc::clone(&shared);
            move || run_pipeline(pipeline, started_ns, &message_receiver, &shared)
        })?;
        Ok(Self {
            shared,
            requests,
            reader: Some(reader),
            pipeline: Some(pipeline),
            watch,
            command,
            servers,
            symbol_budget: None,
            header,
            adjustment: Adjustment::default(),
            max_frequency_hz: None,
            selected_cpus: Vec::new(),
            started: Instant::now(),
        })
    }
}

/// Processes messages of the reader until it ends.
fn run_pipeline(mut pipeline: Pipeline, started_ns: u64, messages: &Receiver<Message>, shared: &Arc<Shared>) {
    shared.pipeline_deadline.use_in_this_thread();
    pipeline.start(started_ns);
    for message in messages {
        let result = match message {
            Message::Batch(batch, now_ns) => pipeline.process(batch, now_ns),
            Message::Request { request, counts, ended_ns } => {
                reply_to(&mut pipeline, request, counts, ended_ns, shared)
            }
        };
        if let Err(error) = result {
            shared.fail(error);
        }
    }
}

/// Sends the parts of a request. Completes the capture after the last one.
fn reply_to(
    pipeline: &mut Pipeline,
    request: Request,
    counts: Option<Box<IntervalCounts>>,
    ended_ns: u64,
    shared: &Shared,
) -> Result<()> {
    let Request { parts, header, adjustment, is_last, target_has_ended, was_stopped, reply } = request;
    if parts.has_measures() {
        pipeline.begin_measures();
    }
    let interval = counts.map(|counts| {
        let IntervalCounts { counts_before, counts } = *counts;
        Interval { header, ended_ns, counts_before, counts, adjustment, is_last }
    });
    #[cfg(feature = "capture")]
    let capture = interval.as_ref().filter(|_| is_last).map(|interval| capture::describe(pipeline, interval));
    let may_wait = || was_stopped || !shared.stop.load(Ordering::Acquire);
    let profile = match interval {
        Some(interval) => {
            let mut profile = pipeline.finish_interval(interval, &may_wait);
            if parts.has_findings() {
                wait_partners::analyze(&mut profile, pipeline.proc());
            }
            Some(profile)
        }
        None => {
            pipeline.receive_runtime_events(ended_ns, false);
            None
        }
    };
    if is_last && target_has_ended {
        pipeline.warn_of_living_processes();
    }
    let measures = if parts.has_measures() { pipeline.take_measures(ended_ns) } else { None };
    // The session may have been dropped.
    let _ = reply.send(Taken { profile, measures });
    #[cfg(feature = "capture")]
    if let Some(capture) = capture {
        pipeline.finish_recording(&capture)?;
    }
    Ok(())
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(|error| Error::with_source(ErrorKind::Io, "failed to start a thread", error))
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
    use crate::Profiler;

    #[test]
    fn a_command_that_does_not_exist_is_a_missing_file() {
        let error = exec_error("./no-such-program", None, io::ErrorKind::NotFound.into());
        assert_eq!(error.kind(), ErrorKind::NoSuchFile);
        let error = exec_error("./README.md", Some("me"), io::ErrorKind::PermissionDenied.into());
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().ends_with("README.md` as the user `me`"), "{error}");
    }

    #[test]
    fn a_debug_directory_that_does_not_exist_is_a_missing_file() {
        let profiler =
            Profiler::builder().target(Target::Everything).debug_directory("/typo").build().unwrap();
        let error = debug_file_directories(&profiler.settings).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSuchFile);
        assert!(error.to_string().contains("/typo"), "{error}");
    }
}
