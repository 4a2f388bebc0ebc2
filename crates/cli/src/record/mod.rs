//! `profiler record`: keeps the last minute of a session, and writes it to a file when a condition becomes true; or writes
//! consecutive files.

mod conditions;
mod file_command;
mod file_writer;
mod followed_file;
mod follower;
mod measures;
mod ring;
mod runtime_values;
mod sample_values;
mod trap;

use std::{io, os::unix::process::parent_id, process::Child, time::Duration};

use anyhow::{Context as _, Result, bail};
use profiler::{Ended, Error, ErrorKind, Session, analyze_running, sandbox};
use profiler_processes::monotonic_time;
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
    exit,
    service::ServiceManager,
    signals,
    standard_streams::write_result,
    wrong_arguments::{self, WrongArguments},
};

/// The time between two moments at which conditions are evaluated. A condition is seen within this time and that of the events
/// of a runtime (0.2 s). An interval of a profile is longer: it has several moments.
const MOMENT_INTERVAL: Duration = Duration::from_millis(800);

/// The most runtime events of an interval, which ends earlier then: until its profile is encoded, they take more memory.
const MAX_RUNTIME_EVENTS: usize = 1 << 15;

/// The most bytes of encoded intervals.
const MAX_RING_BYTES: usize = 32 << 20;

/// Intervals after which each measure has a value: rates need two, and counters report each second.
const INTERVALS_OF_CHECK: usize = 4;

/// Runs the recorder, and returns the exit code.
pub(super) fn run(arguments: &RecordArguments, common: &CommonArguments) -> Result<u8> {
    if arguments.view.shape.has_times() {
        bail!(WrongArguments::new(
            "--from and --to do not apply to a recorder: each file has the time of --keep and --after"
        ));
    }
    if arguments.check {
        return check(arguments, common);
    }
    if arguments.follow {
        return follower::run(arguments, common);
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
    let session = match start(arguments, &conditions, common) {
        Err(error) if arguments.followed.is_some() && is_without_target(&error) => {
            return Ok(exit::TARGET_ENDED);
        }
        session => session?,
    };
    let measures = measures(arguments, &conditions, &session)?;
    let mode = match arguments.rotate {
        Some(every) => Mode::Rotation(every),
        None => Mode::Trap { trap: trap(arguments, &conditions, &files), source },
    };
    let ring = Ring::new(mode.kept(arguments), MAX_RING_BYTES);
    let recorder = Recorder {
        ring,
        mode,
        measures,
        files,
        log,
        follower: arguments.followed,
        profiled_ns: monotonic_time().0,
        runtime_events: 0,
    };
    log.write("started", &[("output", &arguments.output.to_string_lossy())]);
    service.notify_ready();
    let code = recorder.run(session, arguments.sampling.duration);
    service.notify_stopping();
    log.write("stopped", &[]);
    code
}

/// Whether there is no such target.
fn is_without_target(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Error>().is_some_and(|error| error.kind() == ErrorKind::NoSuchTarget)
}

/// Prints the present values of each condition.
fn check(arguments: &RecordArguments, common: &CommonArguments) -> Result<u8> {
    let source = ConditionSource::new(&arguments.trigger, arguments.trigger_file.as_deref())?;
    let conditions = source.read()?;
    let mut session = start(arguments, &conditions, common)?;
    let mut measures = measures(arguments, &conditions, &session)?;
    let mut values = Values::default();
    for _ in 0..INTERVALS_OF_CHECK {
        session.wait(Some(MOMENT_INTERVAL));
        let measured = session.take_measures()?;
        values = measures.read(&measured, end_ns(&measured))?;
    }
    let line = |condition: &Condition| format!("{condition}: {}", condition.describe(&values));
    write_result(|to| conditions.iter().try_for_each(|condition| writeln!(to, "{}", line(condition))))?;
    Ok(0)
}

/// Starts the session with the events that the conditions need.
fn start(arguments: &RecordArguments, conditions: &[Condition], common: &CommonArguments) -> Result<Session> {
    let Some(builder) = arguments.builder() else {
        bail!(WrongArguments::new(NO_TARGET));
    };
    let builder = arguments.apply_user(builder, common.quiet)?;
    let events = runtime_values::event_sets(&trap::measures(conditions));
    let builder = builder.runtime_events(events).sandbox(!common.no_sandbox);
    signals::survive_condition_signal()?;
    let session = wrong_arguments::build(builder)?.start()?;
    let ending = match arguments.trigger_file {
        Some(_) => signals::OF_RELOADING_RECORDER,
        None => signals::OF_RECORDER,
    };
    signals::listen(ending, session.stopper(), session.command_pid())?;
    // The threads of the session have been started without them.
    sandbox::restore_file_rights()?;
    Ok(session)
}

fn measures(arguments: &RecordArguments, conditions: &[Condition], session: &Session) -> Result<Measures> {
    let sources = Sources {
        target: session.measured_target(),
        events: arguments.event_names(),
        log_file: arguments.log_file.as_deref(),
    };
    Measures::open(trap::measures(conditions), sources)
}

/// A trap that goes on with the cooldown of the last file of the series.
fn trap(arguments: &RecordArguments, conditions: &[Condition], files: &FileWriter) -> Trap {
    let limits = Limits { after: arguments.after, cooldown: arguments.cooldown };
    let last_ns = files.age_of_newest().map(|age| monotonic_time().0.saturating_sub(nanoseconds(age)));
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

    /// How long the next interval may be.
    fn longest_interval(&self, ring: &Ring) -> Duration {
        match self {
            Self::Trap { .. } => ring.time_to_encode(),
            Self::Rotation(every) => ring.time_to_encode().min(every.saturating_sub(ring.duration())),
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
    /// The process that goes on with the next target of the same name.
    follower: Option<u32>,
    /// The end of the last profile, `CLOCK_MONOTONIC` nanoseconds.
    profiled_ns: u64,
    /// Runtime events since then.
    runtime_events: usize,
}

impl Recorder {
    /// Records until the target ends, a signal arrives, the duration is over or all files are written. Returns the exit code.
    fn run(mut self, mut session: Session, limit: Option<Duration>) -> Result<u8> {
        loop {
            let left = limit.map(|limit| limit.saturating_sub(session.elapsed()));
            let ended = session.wait(Some(left.map_or(MOMENT_INTERVAL, |left| left.min(MOMENT_INTERVAL))));
            if ended != Ended::Elapsed || left.is_some_and(|left| left <= MOMENT_INTERVAL) {
                return self.end(session, ended);
            }
            self.evaluate(&mut session)?;
            let is_orphan = self.follower.is_some_and(|follower| follower != parent_id());
            if self.files.is_complete() || is_orphan {
                return self.end(session, Ended::Stopped);
            }
        }
    }

    /// Evaluates the conditions at a moment, and writes a file if it is time for one.
    fn evaluate(&mut self, session: &mut Session) -> Result<()> {
        let measured = if self.is_interval_over() {
            let (interval, measured) = session.take_profile_and_measures()?;
            self.keep(interval)?;
            measured
        } else {
            let measured = session.take_measures()?;
            self.runtime_events += measured.runtime_events().len();
            measured
        };
        let (now_ns, interval_ns) = (end_ns(&measured), measured.header().duration_ns);
        let values = self.read_measures(&measured, now_ns);
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
                    if self.profiled_ns < now_ns {
                        self.keep(session.take_profile(Duration::ZERO)?)?;
                    }
                    self.write_incident(&incident, analyze_running)?;
                }
            }
            Mode::Rotation(every) => {
                if self.ring.duration() >= *every || self.ring.is_nearly_full() {
                    self.write_rotated(analyze_running)?;
                }
            }
        }
        Ok(())
    }

    /// Whether the interval of the next profile is long enough.
    fn is_interval_over(&self) -> bool {
        let length = Duration::from_nanos(monotonic_time().0.saturating_sub(self.profiled_ns));
        self.runtime_events >= MAX_RUNTIME_EVENTS || length >= self.mode.longest_interval(&self.ring)
    }

    fn keep(&mut self, interval: Profile) -> Result<()> {
        self.profiled_ns = end_ns(&interval);
        self.runtime_events = 0;
        self.ring.push(interval).context("failed to keep an interval")
    }

    /// Stops the session, writes a pending file, and returns the exit code.
    fn end(mut self, mut session: Session, ended: Ended) -> Result<u8> {
        let command = session.take_command();
        let is_complete = self.files.is_complete();
        let (interval, measured) = session.stop_with_measures()?;
        let code = match command {
            Some(command) if ended == Ended::TargetExited => Some(wait(command)?),
            _ => None,
        };
        if !is_complete {
            self.keep(interval)?;
            self.evaluate_last(&measured, ended, code)?;
        }
        let is_followed =
            self.follower.is_some() && ended == Ended::TargetExited && !self.files.is_complete();
        self.files.finish()?;
        Ok(code.unwrap_or(if is_followed { exit::TARGET_ENDED } else { 0 }))
    }

    fn evaluate_last(&mut self, measured: &Profile, ended: Ended, code: Option<u8>) -> Result<()> {
        let (now_ns, interval_ns) = (end_ns(measured), measured.header().duration_ns);
        let mut values = self.read_measures(measured, now_ns);
        if ended == Ended::TargetExited {
            Measures::set_exit(&mut values, code);
        }
        // Other processes can have the ids of those that ended.
        let analyze = match ended {
            Ended::TargetExited => profiler_findings::analyze,
            _ => analyze_running,
        };
        match &mut self.mode {
            Mode::Trap { trap, .. } => {
                trap.apply(now_ns, interval_ns, &values);
                if let Some(incident) = trap.take() {
                    self.write_incident(&incident, analyze)?;
                }
            }
            Mode::Rotation(_) => self.write_rotated(analyze)?,
        }
        Ok(())
    }

    fn read_measures(&mut self, measured: &Profile, now_ns: u64) -> Values {
        self.measures.read(measured, now_ns).unwrap_or_else(|error| {
            self.log.write_failure("read the log file", &error.to_string());
            Values::default()
        })
    }

    fn write_incident(
        &mut self,
        incident: &profiler_triggers::Incident,
        analyze: fn(&mut Profile),
    ) -> Result<()> {
        let mut profile = self.profile()?;
        let started_ns = profile.header().started_monotonic_ns;
        profile.set_incident(Incident {
            since_ns: incident.since_ns.saturating_sub(started_ns),
            time_ns: incident.time_ns.saturating_sub(started_ns),
            condition: incident.condition.clone(),
            values: incident.value.clone(),
        });
        analyze(&mut profile);
        self.files.write(&profile);
        Ok(())
    }

    fn write_rotated(&mut self, analyze: fn(&mut Profile)) -> Result<()> {
        let mut profile = self.profile()?;
        analyze(&mut profile);
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
    command.wait().map(exit::code_of_command)
}

/// The end of an interval, `CLOCK_MONOTONIC` nanoseconds.
fn end_ns(interval: &Profile) -> u64 {
    interval.header().started_monotonic_ns.saturating_add(interval.header().duration_ns)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use profiler_profile::test_profile::second;

    use super::*;

    #[test]
    fn an_interval_ends_with_the_segment_and_with_the_file() {
        let mut ring = Ring::new(None, usize::MAX);
        let seconds = |seconds| Mode::Rotation(Duration::from_secs(seconds));
        let longest = |mode: &Mode, ring: &Ring| mode.longest_interval(ring).as_secs();
        assert_eq!((longest(&seconds(60), &ring), longest(&seconds(2), &ring)), (5, 2));
        (0..7).for_each(|number| ring.push(second(number)).unwrap());
        assert_eq!((longest(&seconds(60), &ring), longest(&seconds(8), &ring)), (3, 1));
        assert_eq!(longest(&seconds(2), &ring), 0);
    }
}
