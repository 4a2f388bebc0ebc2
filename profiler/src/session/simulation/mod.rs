//! Simulates a node: generated records of many CPUs pass the reader's time ordering and the pipeline in real time. For the
//! project's own benches.

mod node_proc;
mod source;

use std::{
    os::fd::OwnedFd,
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel, sync_channel},
    },
    thread,
    time::Duration,
};

use profiler_processes::monotonic_time;
use profiler_processes::{ProcFs, ProcessFilter};
use profiler_profile::{Header, Profile};
use profiler_sampler::SampleSource as _;

use self::source::SimulatedSource;
use super::{
    Adjustment, Parts, Request, Shared,
    debug_directories::debug_file_directories,
    interval::Interval,
    message::{IntervalCounts, Message},
    pipeline::{Pipeline, PipelineParts},
    polling_interval::PollingInterval,
    reader::Reader,
    symbolizer::new_symbolizer,
    threads::MAX_QUEUED_BATCHES,
    wake,
};
use crate::{
    Profiler, Target,
    error::{Error, ErrorKind, Result},
    sys::usage::cpu_time,
};

/// A node and the time to simulate.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// CPUs, each with a ring of its own.
    pub cpus: u32,
    /// Processes that run all the time.
    pub processes: u32,
    /// Samples a second of all CPUs, each with a stack of its own.
    pub samples_per_second: u32,
    /// Processes a second that fork, exec and exit, each on another CPU.
    pub forks_per_second: u32,
    /// The time to simulate.
    pub seconds: u32,
}

/// The cost of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Samples in the profile.
    pub samples: u64,
    /// Frames of these samples that have a symbol, as a share of all.
    pub symbolized: f64,
    /// Samples that are lost.
    pub lost: u64,
    /// Sideband events that were applied behind later ones.
    pub late_events: u64,
    /// CPU time of the reader and the pipeline, user and system.
    pub cpu: Duration,
    /// The longest time from a sample to the end of its processing.
    pub worst_delay: Duration,
}

/// Simulates a node. Its `/proc` is created in `directory`, which is empty; the modules of its processes are those of this
/// one.
///
/// # Errors
/// The directory cannot be written, or the threads end early.
pub fn simulate(node: Node, directory: &Path) -> Result<Outcome> {
    let call_sites = node_proc::write(node, directory)
        .map_err(|error| Error::with_source(ErrorKind::Io, "failed to write the simulated /proc", error))?;
    let settings = Profiler::builder().target(Target::Everything).build()?.settings;
    let proc = Arc::new(ProcFs::from_capture(directory.to_owned()));
    let directories = debug_file_directories(&settings.names)?;
    let symbolizer = new_symbolizer(&settings, Arc::clone(&proc), directories);
    let events = settings.events.plan(Vec::new());
    let mut pipeline = Pipeline::new(PipelineParts::new(proc, ProcessFilter::All, symbolizer, events));
    let shared = Arc::new(Shared::new()?);
    let waker = Arc::clone(&shared.reader_waker);
    let source = SimulatedSource::generate(node, &call_sites, Arc::clone(&waker));
    let samples = u64::from(node.samples_per_second) * u64::from(node.seconds);
    let (requests, request_receiver) = channel();
    let (messages, message_receiver) = sync_channel(MAX_QUEUED_BATCHES);
    let cpu_before = cpu_time();
    pipeline.start(source.started());
    let reader = Reader::new(Box::new(source), PollingInterval::new(&ProcessFilter::All), shared);
    let reader = thread::spawn(move || reader.run(&request_receiver, &messages));
    let (profile, worst_delay) = process(&mut pipeline, &message_receiver, (&requests, &waker), samples)?;
    let has_panicked = reader.join().is_err();
    let cpu_after = cpu_time();
    let cpu_ns = cpu_after.user_ns + cpu_after.system_ns - cpu_before.user_ns - cpu_before.system_ns;
    if has_panicked {
        return Err(ended_early());
    }
    let ledger = profile.first_ledger();
    let unsymbolized = ledger.unsymbolized.values().sum::<u64>() as f64;
    let symbolized = ledger.symbolized_total() as f64;
    Ok(Outcome {
        samples: profile.total_value(),
        symbolized: symbolized / (symbolized + unsymbolized),
        lost: ledger.lost_total(),
        late_events: profile.ledger().late_process_events,
        cpu: Duration::from_nanos(cpu_ns),
        worst_delay,
    })
}

/// Processes batches as the pipeline thread of a session does, up to the profile, which is requested when all `samples`
/// are processed.
fn process(
    pipeline: &mut Pipeline,
    messages: &Receiver<Message>,
    (requests, waker): (&Sender<Request>, &OwnedFd),
    samples: u64,
) -> Result<(Profile, Duration)> {
    let mut missing = samples;
    let mut worst_delay = Duration::ZERO;
    for message in messages {
        match message {
            Message::Batch(batch, now) => {
                let count = batch.samples.len() as u64;
                let oldest = batch.samples.iter().map(|sample| sample.time).min();
                pipeline.process(batch, now)?;
                if let Some(oldest) = oldest {
                    worst_delay = worst_delay.max(monotonic_time().saturating_since(oldest));
                }
                if missing > 0 && missing <= count {
                    let (reply, _) = channel();
                    let (header, adjustment) = (Header::default(), Adjustment::default());
                    let parts = Parts::Profile;
                    let request = Request {
                        parts,
                        header,
                        adjustment,
                        is_last: true,
                        target_has_ended: false,
                        was_stopped: false,
                        reply,
                    };
                    requests.send(request).map_err(|_| ended_early())?;
                    wake(waker);
                }
                missing = missing.saturating_sub(count);
            }
            Message::Request { request, counts, ended } => {
                let IntervalCounts { counts_before, counts } = *counts.ok_or_else(ended_early)?;
                let interval = Interval {
                    header: request.header,
                    ended,
                    counts_before,
                    counts,
                    adjustment: request.adjustment,
                    is_last: true,
                };
                let profile = pipeline.finish_interval(interval, &|| true);
                return Ok((profile, worst_delay));
            }
        }
    }
    Err(ended_early())
}

fn ended_early() -> Error {
    Error::new(ErrorKind::Io, "the simulation's reader ended early")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_of_a_simulated_node_is_in_its_profile() {
        let directory = tempfile::tempdir().unwrap();
        let node =
            Node { cpus: 4, processes: 20, samples_per_second: 2_000, forks_per_second: 20, seconds: 1 };
        let outcome = simulate(node, directory.path()).unwrap();
        assert_eq!((outcome.samples, outcome.lost, outcome.late_events), (2_000, 0, 0), "{outcome:?}");
        assert!(outcome.symbolized > 0.5, "{outcome:?}");
    }
}
