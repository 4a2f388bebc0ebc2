//! Recording a session into a capture, and replaying a capture as a session without privileges.

use std::{path::Path, sync::Arc};

use profiler_processes::{ProcFs, ProcessFilter};
use profiler_profile::Header;

use super::{
    Session, Shared,
    pipeline::{Interval, Pipeline},
    polling_interval::PollingInterval,
    reader::Reader,
    start::{EVENT_NAME, Settings, debug_file_directories, new_pipeline},
    target::TargetWatch,
};
use crate::{
    error::Result,
    sampler::{
        capture::{Capture, VERSION, proc_directory},
        replay::ReplaySource,
    },
};

/// Starts a session whose samples come from a capture.
pub(super) fn replay(settings: &Settings, directory: &Path) -> Result<Session> {
    let proc = Arc::new(ProcFs::from_capture(proc_directory(directory)));
    let source = ReplaySource::open(directory)?;
    let recorded = source.capture();
    let header = Header {
        target: recorded.target.clone(),
        event: EVENT_NAME.to_owned(),
        frequency_hz: recorded.frequency_hz,
        started_unix_ns: recorded.started_unix_ns,
        cpus: recorded.cpus,
        duration_ns: recorded.ended_ns.saturating_sub(recorded.started_ns),
        ..Header::default()
    };
    let filter = ProcessFilter::All;
    let polling_interval = PollingInterval::new(&filter);
    let directories = debug_file_directories(settings)?;
    let servers = directories.servers.clone();
    let mut pipeline = new_pipeline(settings, proc, filter, directories);
    pipeline.prefetch(&recorded.expected);
    let shared = Arc::new(Shared::new()?);
    let reader = Reader::new(Box::new(source), polling_interval, Arc::clone(&shared));
    Session::run_threads(shared, reader, pipeline, header, TargetWatch::default(), None, servers)
}

/// The first line of the capture of a session that ends with `interval`.
pub(super) fn describe(pipeline: &Pipeline, interval: &Interval, started_ns: u64) -> Capture {
    Capture {
        version: VERSION,
        target: interval.header.target.clone(),
        frequency_hz: interval.header.frequency_hz,
        cpus: interval.header.cpus,
        started_ns,
        ended_ns: interval.ended_ns,
        started_unix_ns: interval.header.started_unix_ns,
        counts: interval.counts,
        expected: pipeline.prefetched_pids().to_vec(),
    }
}
