//! Starting a session: finds the target, loads the kernel side, and sets the threads going.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, channel, sync_channel},
    },
    thread::JoinHandle,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use super::{
    Session, Shared,
    pace::Pace,
    pipeline::{Interval, Pipeline},
    reader::{Message, Reader},
    target::{self, FoundTarget, Target, Watched},
    unwinding::Unwinding,
};
use crate::sys::kernel_names::KernelNames;
use crate::{
    error::{Error, ErrorKind, Operation, Result},
    sampler::{
        Plan, SampleSource, Unwind,
        capture::{self, Capture, Recorder},
        ebpf::EbpfSource,
        replay::ReplaySource,
    },
};
use profiler_dotnet_symbols::managed::NameStyle;
use profiler_processes::{ProcFs, ProcessFilter, root_directory::RootDirectory};
use profiler_profile::Header;
use profiler_symbolize::{
    NativeOptions, Symbolizer,
    debug_file::CommonPlaces,
    symbol_server::{Cache, CacheDirectories, Server, SymbolServers, transport},
};

/// The name of the event in headers.
const EVENT: &str = "cpu-clock";

/// How many batches may wait for the pipeline before the reader makes one of those that follow.
const WAITING_BATCHES: usize = 64;

/// Everything a session is started with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) target: Target,
    pub(crate) frequency_hz: u64,
    pub(crate) cpus: Option<Vec<u32>>,
    pub(crate) kernel_stacks: bool,
    pub(crate) user_stacks: bool,
    pub(crate) unwind: Unwind,
    /// `None` is the default of the target.
    pub(crate) children: Option<bool>,
    pub(crate) silent_command: bool,
    pub(crate) inlines: bool,
    pub(crate) lines: bool,
    pub(crate) raw_names: bool,
    pub(crate) dotnet_tiers: bool,
    pub(crate) dotnet_perf_map: bool,
    pub(crate) debug_directories: Vec<PathBuf>,
    pub(crate) symbol_servers: Vec<Server>,
    pub(crate) symbol_cache: Option<PathBuf>,
    pub(crate) capture: Option<PathBuf>,
    pub(crate) replay: Option<PathBuf>,
}

impl Settings {
    /// Whether processes that a target process forks are targets.
    fn follows_children(&self) -> bool {
        self.children.unwrap_or(self.is_command())
    }

    fn is_command(&self) -> bool {
        matches!(self.target, Target::Command(_))
    }
}

/// Starts it.
pub(crate) fn start(settings: &Settings) -> Result<Session> {
    match &settings.replay {
        Some(directory) => replay(settings, directory),
        None => sample(settings),
    }
}

fn sample(settings: &Settings) -> Result<Session> {
    let proc = Arc::new(match &settings.capture {
        Some(directory) => ProcFs::captured_to(capture::proc_directory(directory)),
        None => ProcFs::live(),
    });
    let recorder = settings.capture.as_deref().map(Recorder::create).transpose()?;
    let found = target::find(&settings.target, &proc, settings.follows_children(), settings.silent_command)?;
    let FoundTarget { filter, mut interest, watched, children, expected, description, command } = found;
    let mut plan = Plan {
        filter,
        frequency_hz: settings.frequency_hz,
        cpus: settings.cpus.clone(),
        kernel_stacks: settings.kernel_stacks,
        user_stacks: settings.user_stacks,
        unwind: settings.unwind,
        children,
    };
    let shared = Arc::new(Shared::new()?);
    let mut source = load(&mut plan, settings.is_command(), &shared)?;
    if let ProcessFilter::Only { children, .. } = &mut interest {
        *children = plan.children;
    }
    let follows_forks = plan.follows_forks();
    let pace = Pace::new(&interest);
    let places = places(settings)?;
    let servers = places.servers.clone();
    let mut pipeline = pipeline(settings, proc, interest, recorder, places);
    // The side band is on: what changes from here on is told, what there is now is asked.
    pipeline.expect(&expected);
    let unwinding = match source.take_unwind_maps() {
        // Before its exec, a command is still this program.
        Some(maps) => Some(
            Unwinding::start(maps, if command.is_some() { &[] } else { &expected }, follows_forks).map_err(
                |error| Error::with_source(ErrorKind::Io, "failed to start the unwinding thread", error),
            )?,
        ),
        None => None,
    };
    if let Some(command) = &command {
        pipeline.expect_command(command.pid());
    }
    source.start()?;
    // `cargo xtask bench` reads this line.
    log::debug!("sampling begins");
    let command = match command {
        Some(command) => Some(command.release().map_err(|error| {
            Error::with_source(ErrorKind::NoSuchTarget, format!("failed to execute `{description}`"), error)
        })?),
        None => None,
    };
    raise_open_files_limit();
    let header = Header {
        target: description,
        event: EVENT.to_owned(),
        frequency_hz: settings.frequency_hz,
        started_unix_ns: unix_ns(),
        cpus: source.cpus(),
        ..Header::default()
    };
    let reader = Reader::new(Box::new(source), pace, unwinding, Arc::clone(&shared));
    Session::run_threads(shared, reader, pipeline, header, watched, command, servers)
}

/// Loads the BPF programs. Where the kernel cannot follow the children of a command, the plan is changed to the command
/// alone.
fn load(plan: &mut Plan, is_command: bool, shared: &Shared) -> Result<EbpfSource> {
    let load = |plan: &Plan| EbpfSource::load(plan.clone(), Arc::clone(&shared.reader_waker));
    match load(plan) {
        Err(error) if is_command && plan.children && error.kind() == ErrorKind::Unsupported => {
            plan.children = false;
            let source = load(plan)?;
            log::warn!("only the command is sampled, not its descendants: {error}");
            Ok(source)
        }
        result => result,
    }
}

fn replay(settings: &Settings, directory: &Path) -> Result<Session> {
    let proc = Arc::new(ProcFs::of_capture(capture::proc_directory(directory)));
    let source = ReplaySource::open(directory)?;
    let recorded = source.capture();
    let header = Header {
        target: recorded.target.clone(),
        event: EVENT.to_owned(),
        frequency_hz: recorded.frequency_hz,
        started_unix_ns: recorded.started_unix_ns,
        cpus: recorded.cpus,
        duration_ns: recorded.ended_ns.saturating_sub(recorded.started_ns),
        ..Header::default()
    };
    let interest = ProcessFilter::All;
    let pace = Pace::new(&interest);
    let places = places(settings)?;
    let servers = places.servers.clone();
    let mut pipeline = pipeline(settings, proc, interest, None, places);
    pipeline.expect(&recorded.expected);
    let shared = Arc::new(Shared::new()?);
    let reader = Reader::new(Box::new(source), pace, None, Arc::clone(&shared));
    Session::run_threads(shared, reader, pipeline, header, Watched::default(), None, servers)
}

fn pipeline(
    settings: &Settings,
    proc: Arc<ProcFs>,
    interest: ProcessFilter,
    recorder: Option<Recorder>,
    places: Arc<CommonPlaces>,
) -> Pipeline {
    let options = NativeOptions { inlines: settings.inlines, lines: settings.lines };
    let style = NameStyle { raw: settings.raw_names, tiers: settings.dotnet_tiers };
    let mut symbolizer = Symbolizer::new(Arc::clone(&proc), places, options, style, KernelNames::load_boxed);
    symbolizer.request_perf_maps(settings.dotnet_perf_map);
    Pipeline::new(proc, interest, symbolizer, recorder, settings.user_stacks)
}

/// Where debug files are looked for, beside the target's own root.
fn places(settings: &Settings) -> Result<Arc<CommonPlaces>> {
    let open = |path: &Path| {
        RootDirectory::open(path).map(Arc::new).map_err(|error| {
            let message = format!("failed to open the directory `{}`", path.display());
            Error::from_io(Operation::OpenTargetFile, message, error)
        })
    };
    let given = settings.debug_directories.iter().map(|path| open(path)).collect::<Result<Vec<_>>>()?;
    let host = open(Path::new("/"))?;
    let CacheDirectories { own, others } =
        CacheDirectories::of(settings.symbol_cache.clone(), |name| std::env::var_os(name));
    let servers = symbol_servers(settings, own.as_deref())?.map(Arc::new);
    // Most of them are not there.
    let caches = own.iter().chain(&others).filter_map(|path| open(path).ok()).collect();
    Ok(Arc::new(CommonPlaces { given, host, caches, servers }))
}

fn symbol_servers(settings: &Settings, cache: Option<&Path>) -> Result<Option<SymbolServers>> {
    let Some(transport) = transport().filter(|_| !settings.symbol_servers.is_empty()) else {
        return Ok(None);
    };
    let Some(directory) = cache else {
        let message =
            "there is no place to keep what symbol servers have: name a directory for it, or set HOME";
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
    fn run_threads(
        shared: Arc<Shared>,
        reader: Reader,
        pipeline: Pipeline,
        header: Header,
        watched: Watched,
        command: Option<std::process::Child>,
        servers: Option<Arc<SymbolServers>>,
    ) -> Result<Self> {
        let (requests, asked) = channel();
        let (messages, received) = sync_channel(WAITING_BATCHES);
        let started_ns = reader.started_ns();
        let reader = spawn("reader", move || reader.run(&asked, &messages))?;
        let pipeline = spawn("pipeline", {
            let shared = Arc::clone(&shared);
            move || run_pipeline(pipeline, started_ns, &received, &shared)
        })?;
        Ok(Self {
            shared,
            requests,
            reader: Some(reader),
            pipeline: Some(pipeline),
            watched,
            command,
            servers,
            header,
            started: Instant::now(),
        })
    }
}

/// Names what the reader read, until there is no reader any more.
fn run_pipeline(mut pipeline: Pipeline, started_ns: u64, messages: &Receiver<Message>, shared: &Arc<Shared>) {
    pipeline.start(started_ns);
    for message in messages {
        let result = match message {
            Message::Batch(batch, now_ns) => pipeline.take_in(batch, now_ns),
            Message::Profile { request, counts, ended_ns } => {
                let counts = pipeline.counts_of_target(counts);
                let interval =
                    Interval { header: request.header, ended_ns, counts, is_last: request.is_last };
                let capture = Capture {
                    version: capture::VERSION,
                    target: interval.header.target.clone(),
                    frequency_hz: interval.header.frequency_hz,
                    cpus: interval.header.cpus,
                    started_ns,
                    ended_ns,
                    started_unix_ns: interval.header.started_unix_ns,
                    counts,
                    expected: pipeline.expected().to_vec(),
                };
                let may_wait = || request.was_stopped || !shared.stop.load(Ordering::Acquire);
                let profile = pipeline.finish(interval, &may_wait);
                // Who asked may be gone.
                let _ = request.reply.send(profile);
                if request.is_last { pipeline.finish_recording(&capture) } else { Ok(()) }
            }
        };
        if let Err(error) = result {
            shared.fail(error);
        }
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(|error| Error::with_source(ErrorKind::Io, "failed to start a thread", error))
}

/// Every mapped file that is sampled stays open. Raised after the command was started: what it inherits
/// stays as it was.
fn raise_open_files_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        log::debug!("the limit on open files stays as it is: {error}");
    }
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
