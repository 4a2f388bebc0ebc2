//! Reads the measures of the conditions at each moment: of the process, of its runtime, of counted events, of a log file and
//! of signals.

use std::{
    collections::BTreeSet,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context as _, Result, bail};
use profiler_profile::Profile;
use profiler_triggers::{LogLines, Measure, MeasureSource, ProcessMeasures, Values};
use signal_hook::{consts::SIGUSR2, flag};

use super::{
    followed_file::FollowedFile,
    runtime_values::{RuntimeValues, event_set, event_sets},
    sample_values,
};

/// The sources of the measures.
#[derive(Debug)]
pub(super) struct Measures {
    wanted: BTreeSet<Measure>,
    /// Those for which the sources were opened.
    opened: BTreeSet<Measure>,
    process: Option<ProcessMeasures>,
    runtime: RuntimeValues,
    /// The names of the events that the session counts.
    events: Vec<String>,
    log_file: Option<FollowedFile>,
    log_lines: LogLines,
    /// Whether SIGUSR2 has arrived.
    signal: Arc<AtomicBool>,
}

/// What a recorder can measure.
pub(super) struct Sources<'a> {
    /// The process, where the target is one.
    pub(super) pid: Option<u32>,
    /// The names of the events that the session counts.
    pub(super) events: Vec<String>,
    pub(super) log_file: Option<&'a Path>,
}

impl Measures {
    /// Opens the sources of the wanted measures.
    ///
    /// # Errors
    /// A measure has no source: the target is not one process, an event is not counted, or there is no log file.
    pub(super) fn open(wanted: BTreeSet<Measure>, sources: Sources<'_>) -> Result<Self> {
        let Sources { pid, events, log_file } = sources;
        let wanted_from = |source| wanted.iter().find(move |measure| measure.source() == source);
        let process = match (wanted_from(MeasureSource::Process), pid) {
            (None, _) => None,
            (Some(_), Some(pid)) => open_process(pid)?,
            (Some(measure), None) => {
                bail!(
                    "`{measure}` is measured of one process: select it with -p PID, --process NAME or -- COMMAND"
                )
            }
        };
        if let Some(measure) = wanted.iter().find(|measure| is_event_besides(measure, &events)) {
            bail!("`{measure}` is not counted: add the event with -e NAME");
        }
        let log_file = match (wanted_from(MeasureSource::LogFile), log_file) {
            (Some(_), Some(path)) => {
                let failed = || format!("failed to open the log file `{}`", path.display());
                Some(FollowedFile::open(path).with_context(failed)?)
            }
            (Some(_), None) => bail!("`file ~` compares the lines of a log file: name it with --log-file"),
            (None, Some(_)) => bail!("no condition compares the lines of --log-file with `file ~ \"REGEX\"`"),
            (None, None) => None,
        };
        let signal = Arc::new(AtomicBool::new(false));
        if wanted_from(MeasureSource::Signal).is_some() {
            flag::register(SIGUSR2, Arc::clone(&signal)).context("failed to listen for SIGUSR2")?;
        }
        let (opened, log_lines) = (wanted.clone(), LogLines::new(&wanted));
        let runtime = RuntimeValues::default();
        Ok(Self { wanted, opened, process, runtime, events, log_file, log_lines, signal })
    }

    /// Replaces the wanted measures by others that have the same sources.
    ///
    /// # Errors
    /// A measure has no source yet: the recorder has to be started again for it.
    pub(super) fn replace(&mut self, wanted: BTreeSet<Measure>) -> Result<()> {
        let sources: Vec<_> = self.opened.iter().map(Measure::source).collect();
        let requested = event_sets(&self.opened);
        let has_source = |measure: &&Measure| match measure.source() {
            MeasureSource::Process => self.process.is_some(),
            // The events of a runtime are requested at the start.
            MeasureSource::Runtime => event_set(measure).is_some_and(|set| requested.contains(&set)),
            MeasureSource::Samples => !is_event_besides(measure, &self.events),
            source => sources.contains(&source),
        };
        if let Some(measure) = wanted.iter().find(|measure| !has_source(measure)) {
            bail!("`{measure}` is not measured yet: start the recorder again");
        }
        self.log_lines = LogLines::new(&wanted);
        self.wanted = wanted;
        Ok(())
    }

    /// The values at the end of an interval (`CLOCK_MONOTONIC` nanoseconds).
    ///
    /// # Errors
    /// The log file cannot be read.
    pub(super) fn read(&mut self, interval: &Profile, now_ns: u64) -> io::Result<Values> {
        let mut values = Values::default();
        if let Some(process) = &mut self.process {
            process.read(&self.wanted, now_ns, &mut values);
        }
        self.runtime.read(interval, now_ns, &self.wanted, &mut values);
        sample_values::read(interval, &self.wanted, &mut values);
        let was_signalled = self.signal.swap(false, Ordering::Relaxed);
        values.set(Measure::Signal, Some(f64::from(u8::from(was_signalled))));
        self.read_log_file(&mut values)?;
        Ok(values)
    }

    /// Sets the values after the end of the process. `code`: its exit code, where it is a child; the kernel shows that of
    /// other processes from Linux 6.15 on.
    pub(super) fn set_exit(values: &mut Values, code: Option<u8>) {
        values.set(Measure::Exit, Some(1.0));
        if let Some(code) = code {
            values.set(Measure::ExitStatus, Some(f64::from(code)));
        }
    }

    fn read_log_file(&mut self, values: &mut Values) -> io::Result<()> {
        if let Some(log_file) = &mut self.log_file {
            let lines = &mut self.log_lines;
            log_file.read_new(|bytes| lines.push(bytes))?;
            lines.set_counts(values);
        }
        Ok(())
    }
}

/// Whether a measure is that of an event with none of these names.
fn is_event_besides(measure: &Measure, names: &[String]) -> bool {
    matches!(measure, Measure::Event { name } if !names.contains(name))
}

/// The measures of a process; `None` if it has ended already, which the session reports.
fn open_process(pid: u32) -> Result<Option<ProcessMeasures>> {
    match ProcessMeasures::open(pid) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => Ok(Some(opened.with_context(|| format!("failed to read the state of process {pid}"))?)),
    }
}
