//! Replays a capture as a session without privileges.

#[cfg(fuzzing)]
use std::time::Duration;
use std::{path::Path, sync::Arc};

#[cfg(fuzzing)]
use profiler_processes::monotonic_time;
use profiler_processes::{ProcFs, ProcessFilter};
use profiler_profile::Header;
#[cfg(fuzzing)]
use profiler_profile::Profile;
#[cfg(fuzzing)]
use profiler_sampler::SampleSource as _;
use profiler_sampler::{ReplaySource, capture::proc_directory};
use profiler_symbolize::symbol_server::SymbolServers;

#[cfg(fuzzing)]
use crate::session::{Adjustment, interval::Interval};
use crate::{
    error::Result,
    session::{
        Session, Shared,
        debug_directories::debug_file_directories,
        pipeline::{Pipeline, PipelineParts},
        polling_interval::PollingInterval,
        reader::Reader,
        symbolizer::new_symbolizer,
        target::TargetWatch,
    },
    settings::Settings,
};

/// Starts a session whose samples come from the capture that the settings name; `None` if they name none.
pub(in crate::session) fn replay(settings: &Settings) -> Result<Option<Session>> {
    let Some(directory) = &settings.replay else { return Ok(None) };
    let Replay { source, header, pipeline, servers } = Replay::open(settings, directory)?;
    let polling_interval = PollingInterval::new(&ProcessFilter::All);
    let shared = Arc::new(Shared::new()?);
    let reader = Reader::new(Box::new(source), polling_interval, Arc::clone(&shared));
    let watch = TargetWatch::default();
    Session::run_threads(shared, reader, pipeline, header, watch, None, servers).map(Some)
}

/// Replays a capture without threads, which would wait for each other on a busy machine.
#[cfg(fuzzing)]
pub(crate) fn replay_in_this_thread(settings: &Settings, directory: &Path) -> Result<Profile> {
    let Replay { mut source, header, mut pipeline, .. } = Replay::open(settings, directory)?;
    pipeline.start(source.started());
    while !source.is_exhausted() {
        pipeline.process(source.read(Duration::ZERO)?, monotonic_time())?;
    }
    let counts = source.counts()?;
    let counts_before = counts.clone();
    let adjustment = Adjustment::default();
    let interval =
        Interval { header, ended: monotonic_time(), counts_before, counts, adjustment, is_last: true };
    let mut profile = pipeline.finish_interval(interval, &|| true);
    profiler_findings::analyze(&mut profile);
    Ok(profile)
}

/// The parts of a session that replays a capture.
struct Replay {
    source: ReplaySource,
    header: Header,
    pipeline: Pipeline,
    servers: Option<Arc<SymbolServers>>,
}

impl Replay {
    fn open(settings: &Settings, directory: &Path) -> Result<Self> {
        let proc = Arc::new(ProcFs::from_capture(proc_directory(directory)));
        let source = ReplaySource::open(directory)?;
        let recorded = source.capture();
        let header = Header {
            target: recorded.target.clone(),
            started_unix_ns: recorded.started_unix_ns,
            cpus: recorded.cpus,
            duration_ns: recorded.ended.nanoseconds_since(recorded.started),
            ..Header::default()
        };
        let directories = debug_file_directories(&settings.names)?;
        let servers = directories.servers.clone();
        let symbolizer = new_symbolizer(settings, Arc::clone(&proc), directories);
        let parts = PipelineParts::new(proc, recorded.filter.clone(), symbolizer, recorded.event_plan());
        let mut pipeline = Pipeline::new(PipelineParts {
            has_user_stacks: recorded.has_user_stacks,
            command_pid: recorded.command_pid,
            ..parts
        });
        pipeline.prefetch(&recorded.expected);
        Ok(Self { source, header, pipeline, servers })
    }
}
