//! The threads of a session: the reader, and the pipeline with the requests that it replies to.

use std::{
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, channel, sync_channel},
    },
    thread::JoinHandle,
    time::Instant,
};

use profiler_addresses::MonotonicTime;
use profiler_profile::Header;
use profiler_symbolize::symbol_server::SymbolServers;

use super::{
    Adjustment, Request, Session, Shared, Taken,
    interval::Interval,
    message::{IntervalCounts, Message},
    pipeline::Pipeline,
    reader::Reader,
    target::TargetWatch,
    wait_partners,
};
use crate::error::{Error, ErrorKind, Result};

/// The capacity of the channel between reader and pipeline; beyond it the reader merges batches. Where the pipeline is slower than
/// the samples, each batch grows to the limit of `BatchQueue`, megabytes.
pub(super) const MAX_QUEUED_BATCHES: usize = 2;

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
        let started = reader.started();
        let reader = spawn("reader", move || reader.run(&request_receiver, &messages))?;
        let pipeline = spawn("pipeline", {
            let shared = Arc::clone(&shared);
            move || run_pipeline(pipeline, started, &message_receiver, &shared)
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
fn run_pipeline(
    mut pipeline: Pipeline,
    started: MonotonicTime,
    messages: &Receiver<Message>,
    shared: &Arc<Shared>,
) {
    shared.pipeline_deadline.use_in_this_thread();
    pipeline.start(started);
    for message in messages {
        let result = match message {
            Message::Batch(batch, now) => pipeline.process(batch, now),
            Message::Request { request, counts, ended } => {
                reply_to(&mut pipeline, request, counts, ended, shared)
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
    ended: MonotonicTime,
    shared: &Shared,
) -> Result<()> {
    let Request { parts, header, adjustment, is_last, target_has_ended, was_stopped, reply } = request;
    if parts.has_measures() {
        pipeline.begin_measures();
    }
    let interval = counts.map(|counts| {
        let IntervalCounts { counts_before, counts } = *counts;
        Interval { header, ended, counts_before, counts, adjustment, is_last }
    });
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
            pipeline.receive_runtime_events(ended, false);
            None
        }
    };
    if is_last && target_has_ended {
        pipeline.warn_of_living_processes();
    }
    let measures = if parts.has_measures() { pipeline.take_measures(ended) } else { None };
    // The session may have been dropped.
    let _ = reply.send(Taken { profile, measures });
    if is_last {
        pipeline.finish_recording()?;
    }
    Ok(())
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(|error| Error::with_source(ErrorKind::Io, "failed to start a thread", error))
}
