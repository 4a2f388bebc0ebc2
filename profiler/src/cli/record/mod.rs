//! `profiler record`: keeps the last minute of a session, and writes it to a file when a condition becomes true; or writes
//! consecutive files.

mod conditions;
mod file_command;
mod file_writer;
mod followed_file;
mod measures;
mod ring;
mod runtime_values;
mod sample_values;
mod trap;

use std::{io, process::Child, time::Duration};

use anyhow::{Context as _, Result, bail};
use profiler_profile::{Incident, Profile};
use profiler_triggers::{Condition, Values};

use self::{
    conditions::ConditionSource,
    file_writer::FileWriter,
    measures::{Measures, Sources},
    ring::Ring,
    trap::{Limits, Trap},
};
use super::{
    arguments::{CommonArguments, NO_TARGET, RecordArguments},
    event_log::EventLog,
    run::exit_code,
    service::ServiceManager,
    signals,
};
use crate::{Ended, Session, sampler::ebpf::monotonic_ns, sandbox};

/// The interval of one profile. A condition is seen within this time and that of the events of a runtime (0.2 s).
const INTERVAL: Duration = Duration::from_millis(800);

/// The most bytes of encoded intervals.
const MAX_RING_BYTES: usize = 32 << 20;

/// Intervals after which each measure has a value: rates need two, and counters report each second.
const INTERVALS_OF_CHECK: usize = 4;

/// Runs the recorder, and returns the exit code.
pub(super) fn run(arguments: &RecordArguments, common: &CommonArguments) -> Result<u8> {
    if arguments.view.shape.has_times() {
        bail!("--from and --to do not apply to a recorder: each file has the time of --keep and --after");
    }
    if arguments.check {
        return check(arguments, common);
    }
    let log = EventLog::new(arguments.log_format, common.quiet);
    let files = FileWriter::open(arguments, log)?;
    if files.is_complete() {
        bail!(
            "as many files as --count allows exist already: raise --count, or move the files of `{}` away",
            arguments.output.display()
        );
    }
    // The sandbox refuses new sockets.
    let service = ServiceManager::connect();
    let source = ConditionSource::new(&arguments.trigger, arguments.trigger_file.as_deref())?;
    let conditions = source.read()?;
    let session = start(arguments, &conditions, common)?;
    let measures = measures(arguments, &conditions, &session)?;
    let mode = match arguments.rotate {
        Some(every) => Mode::Rotation(every),
        None => Mode::Trap { trap: trap(arguments, &conditions, &files), source },
    };
    let ring = Ring::new(mode.kept(arguments), MAX_RING_BYTES);
    let recorder = Recorder { ring, mode, measures, files, log };
    log.write("started", &[("output", &arguments.output.to_string_lossy())]);
    service.notify_ready();
    let code = recorder.run(session, arguments.sampling.duration);
    service.notify_stopping();
    log.write("stopped", &[]);
    code
}

/// Prints the present values of each condition.
fn check(arguments: &RecordArguments, common: &CommonArguments) -> Result<u8> {
    let source = ConditionSource::new(&arguments.trigger, arguments.trigger_file.as_deref())?;
    let conditions = source.read()?;
    let mut session = start(arguments, &conditions, common)?;
    let mut measures = measures(arguments, &conditions, &session)?;
    let mut values = Values::default();
    for _ in 0..INTERVALS_OF_CHECK {
        let interval = session.take_profile(INTERVAL)?;
        values = measures.read(&interval, end_ns(&interval))?;
    }
    for condition in &conditions {
        println!("{condition}: {}", condition.describe(&values));
    }
    Ok(0)
}

/// Starts the session with the events that the conditions need.
fn start(arguments: &RecordArguments, conditions: &[Condition], common: &CommonArguments) -> Result<Session> {
    let Some(builder) = arguments.builder() else {
        bail!(NO_TARGET);
    };
    let builder = arguments.apply_user(builder, common.quiet)?;
    let events = runtime_values::event_sets(&trap::measures(conditions));
    let session = builder.runtime_events(events).sandbox(!common.no_sandbox).build()?.start()?;
    let ending = if arguments.trigger_file.is_some() { signals::OF_SERVICE } else { signals::OF_TERMINAL };
    signals::listen(ending, session.stopper(), session.command_pid())?;
    // The threads of the session have been started without them.
    sandbox::restore_file_rights()?;
    Ok(session)
}

fn measures(arguments: &RecordArguments, conditions: &[Condition], session: &Session) -> Result<Measures> {
    let sources = Sources {
        pid: session.target_pid(),
        events: arguments.event_names(),
        log_file: arguments.log_file.as_deref(),
    };
    Measures::open(trap::measures(conditions), sources)
}

/// A trap that goes on with the cooldown of the last file of the series.
fn trap(arguments: &RecordArguments, conditions: &[Condition], files: &FileWriter) -> Trap {
    let limits = Limits { after: arguments.after, cooldown: arguments.cooldown };
    let last_ns = files.age_of_newest().map(|age| monotonic_ns().saturating_sub(nanoseconds(age)));
    Trap::new(conditions, limits, last_ns)
}

/// When files are written.
#[derive(Debug)]
enum Mode {
    /// When a condition becomes true.
    Trap { trap: Trap, source: ConditionSource },
    /// One after the other, each with this time.
    Rotation(Duration),
}

impl Mode {
    /// How long the ring keeps intervals; `None` until they are written.
    fn kept(&self, arguments: &RecordArguments) -> Option<Duration> {
        match self {
            Self::Trap { .. } => Some(arguments.keep + arguments.after),
            Self::Rotation(_) => None,
        }
    }
}

/// A running recorder.
struct Recorder {
    ring: Ring,
    mode: Mode,
    measures: Measures,
    files: FileWriter,
    log: EventLog,
}

impl Recorder {
    /// Records until the target ends, a signal arrives, the duration is over or all files are written. Returns the exit code.
    fn run(mut self, mut session: Session, limit: Option<Duration>) -> Result<u8> {
        loop {
            let left = limit.map(|limit| limit.saturating_sub(session.elapsed()));
            let ended = session.wait(Some(left.map_or(INTERVAL, |left| left.min(INTERVAL))));
            if ended != Ended::Elapsed || left.is_some_and(|left| left <= INTERVAL) {
                return self.end(session, ended);
            }
            self.add(session.take_profile(Duration::ZERO)?)?;
            if self.files.is_complete() {
                return self.end(session, Ended::Stopped);
            }
        }
    }

    /// Adds an interval, and writes a file if it is time for one.
    fn add(&mut self, interval: Profile) -> Result<()> {
        let (now_ns, interval_ns) = (end_ns(&interval), interval.header().duration_ns);
        let values = self.read_measures(&interval, now_ns);
        self.ring.push(interval).context("failed to keep an interval")?;
        match &mut self.mode {
            Mode::Trap { trap, source } => {
                if source.is_requested_again() {
                    read_again(trap, source, &mut self.measures, self.log);
                }
                if let Some(incident) = trap.apply(now_ns, interval_ns, &values) {
                    let fields = [("condition", &*incident.condition), ("values", &*incident.value)];
                    self.log.write("incident", &fields);
                }
                if let Some(incident) = trap.take_complete(now_ns) {
                    self.write_incident(&incident)?;
                }
            }
            Mode::Rotation(every) => {
                if self.ring.duration() >= *every || self.ring.is_nearly_full() {
                    self.write_rotated()?;
                }
            }
        }
        Ok(())
    }

    /// Stops the session, writes a pending file, and returns the exit code.
    fn end(mut self, mut session: Session, ended: Ended) -> Result<u8> {
        let command = session.take_command();
        let is_complete = self.files.is_complete();
        let interval = session.stop()?;
        let code = match command {
            Some(command) if ended == Ended::TargetExited => Some(wait(command)?),
            _ => None,
        };
        if !is_complete {
            self.add_last(interval, ended, code)?;
        }
        self.files.finish()?;
        Ok(code.unwrap_or(0))
    }

    fn add_last(&mut self, interval: Profile, ended: Ended, code: Option<u8>) -> Result<()> {
        let (now_ns, interval_ns) = (end_ns(&interval), interval.header().duration_ns);
        let mut values = self.read_measures(&interval, now_ns);
        if ended == Ended::TargetExited {
            Measures::set_exit(&mut values, code);
        }
        self.ring.push(interval).context("failed to keep an interval")?;
        match &mut self.mode {
            Mode::Trap { trap, .. } => {
                trap.apply(now_ns, interval_ns, &values);
                if let Some(incident) = trap.take() {
                    self.write_incident(&incident)?;
                }
            }
            Mode::Rotation(_) => self.write_rotated()?,
        }
        Ok(())
    }

    fn read_measures(&mut self, interval: &Profile, now_ns: u64) -> Values {
        self.measures.read(interval, now_ns).unwrap_or_else(|error| {
            self.log.write_failure("read the log file", &error.to_string());
            Values::default()
        })
    }

    fn write_incident(&mut self, incident: &profiler_triggers::Incident) -> Result<()> {
        let mut profile = self.profile()?;
        let started_ns = profile.header().started_monotonic_ns;
        profile.set_incident(Incident {
            since_ns: incident.since_ns.saturating_sub(started_ns),
            time_ns: incident.time_ns.saturating_sub(started_ns),
            condition: incident.condition.clone(),
            values: incident.value.clone(),
        });
        profiler_findings::analyze(&mut profile);
        self.files.write(&profile);
        Ok(())
    }

    fn write_rotated(&mut self) -> Result<()> {
        let mut profile = self.profile()?;
        profiler_findings::analyze(&mut profile);
        self.files.write(&profile);
        self.ring.clear();
        Ok(())
    }

    /// The profile of all intervals that are kept.
    fn profile(&self) -> Result<Profile> {
        self.ring.profile().context("failed to read the intervals that were kept")
    }
}

/// Replaces the conditions by those that the file has now. Where that fails, the present ones stay.
fn read_again(trap: &mut Trap, source: &ConditionSource, measures: &mut Measures, log: EventLog) {
    let conditions = source.read().and_then(|conditions| {
        measures.replace(trap::measures(&conditions))?;
        Ok(conditions)
    });
    match conditions {
        Ok(conditions) => {
            trap.replace(&conditions);
            log.write("reloaded", &[("conditions", &conditions.len().to_string())]);
        }
        Err(error) => log.write_failure("read the conditions again", &format!("{error:#}")),
    }
}

fn wait(mut command: Child) -> io::Result<u8> {
    command.wait().map(exit_code)
}

/// The end of an interval, `CLOCK_MONOTONIC` nanoseconds.
fn end_ns(interval: &Profile) -> u64 {
    interval.header().started_monotonic_ns.saturating_add(interval.header().duration_ns)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
