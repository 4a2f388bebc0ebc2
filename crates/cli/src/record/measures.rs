//! Reads the measures of the conditions at each moment: of the kernel, of the runtime, of counted events, of a log file and
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
use profiler::MeasuredTarget;
use profiler_processes::Pid;
use profiler_profile::Profile;
use profiler_triggers::{
    CgroupMeasures, LogLines, MachineMeasures, Measure, MeasureSource, ProcessMeasures, Values,
};
use signal_hook::{consts::SIGUSR2, flag};

use super::{
    followed_file::FollowedFile,
    runtime_values::{RuntimeValues, event_set, event_sets},
    sample_values,
};
use crate::wrong_arguments::WrongArguments;

/// The sources of the measures.
#[derive(Debug)]
pub(super) struct Measures {
    wanted: BTreeSet<Measure>,
    /// Those for which the sources were opened.
    opened: BTreeSet<Measure>,
    kernel: Option<KernelMeasures>,
    runtime: RuntimeValues,
    /// The names of the events that the session counts.
    events: Vec<String>,
    log_file: Option<FollowedFile>,
    log_lines: LogLines,
    /// Whether SIGUSR2 has arrived.
    signal: Arc<AtomicBool>,
}

/// The measures of the kernel, by the target.
#[derive(Debug)]
enum KernelMeasures {
    Process(ProcessMeasures),
    Cgroup(CgroupMeasures),
    Machine(MachineMeasures),
}

/// What a recorder can measure.
pub(super) struct Sources<'a> {
    /// `None` for several processes, and for threads.
    pub(super) target: Option<MeasuredTarget<'a>>,
    /// The names of the events that the session counts.
    pub(super) events: Vec<String>,
    pub(super) log_file: Option<&'a Path>,
}

impl Measures {
    /// Opens the sources of the wanted measures.
    ///
    /// # Errors
    /// A measure has no source: the target is several processes, an event is not counted, or there is no log file.
    pub(super) fn open(wanted: BTreeSet<Measure>, sources: Sources<'_>) -> Result<Self> {
        let Sources { target, events, log_file } = sources;
        let wanted_from = |source| wanted.iter().find(move |measure| measure.source() == source);
        let kernel = match (wanted_from(MeasureSource::Kernel), target) {
            (None, _) => None,
            (Some(_), Some(target)) => KernelMeasures::open(target)?,
            (Some(measure), None) => {
                bail!(WrongArguments::new(format!(
                    "`{measure}` is measured of one process, of a cgroup or of the machine: record each process on its own, or use \
                     --cgroup, --container, --pod or -a"
                )))
            }
        };
        if let Some(measure) = wanted.iter().find(|measure| is_event_besides(measure, &events)) {
            bail!(WrongArguments::new(format!("`{measure}` is not counted: add the event with -e NAME")));
        }
        let log_file = match (wanted_from(MeasureSource::LogFile), log_file) {
            (Some(_), Some(path)) => {
                let failed = || format!("failed to open the log file `{}`", path.display());
                Some(FollowedFile::open(path).with_context(failed)?)
            }
            (Some(_), None) => bail!(WrongArguments::new(
                "`file ~` compares the lines of a log file: name it with --log-file"
            )),
            (None, Some(_)) => bail!(WrongArguments::new(
                "no condition compares the lines of --log-file with `file ~ \"REGEX\"`"
            )),
            (None, None) => None,
        };
        let signal = Arc::new(AtomicBool::new(false));
        if wanted_from(MeasureSource::Signal).is_some() {
            flag::register(SIGUSR2, Arc::clone(&signal)).context("failed to listen for SIGUSR2")?;
        }
        let (opened, log_lines) = (wanted.clone(), LogLines::new(&wanted));
        let runtime = RuntimeValues::default();
        Ok(Self { wanted, opened, kernel, runtime, events, log_file, log_lines, signal })
    }

    /// Replaces the wanted measures by others that have the same sources.
    ///
    /// # Errors
    /// A measure has no source yet: the recorder has to be started again for it.
    pub(super) fn replace(&mut self, wanted: BTreeSet<Measure>) -> Result<()> {
        let sources: Vec<_> = self.opened.iter().map(Measure::source).collect();
        let requested = event_sets(&self.opened);
        let has_source = |measure: &&Measure| match measure.source() {
            MeasureSource::Kernel => self.kernel.is_some(),
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
        if let Some(kernel) = &mut self.kernel {
            kernel.read(&self.wanted, now_ns, &mut values);
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

impl KernelMeasures {
    /// The measures of a target; `None` if it has ended already, which the session reports.
    fn open(target: MeasuredTarget<'_>) -> Result<Option<Self>> {
        let (opened, what) = match target {
            MeasuredTarget::Process(pid) => {
                (ProcessMeasures::open(Pid(pid)).map(Self::Process), format!("process {pid}"))
            }
            MeasuredTarget::Cgroup(directory) => {
                let what = format!("the cgroup `{}`", directory.display());
                (CgroupMeasures::open(directory).map(Self::Cgroup), what)
            }
            MeasuredTarget::Machine => return Ok(Some(Self::Machine(MachineMeasures::default()))),
        };
        match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => Ok(Some(opened.with_context(|| format!("failed to read the state of {what}"))?)),
        }
    }

    fn read(&mut self, wanted: &BTreeSet<Measure>, now_ns: u64, values: &mut Values) {
        match self {
            Self::Process(process) => process.read(wanted, now_ns, values),
            Self::Cgroup(cgroup) => cgroup.read(wanted, now_ns, values),
            Self::Machine(machine) => machine.read(wanted, now_ns, values),
        }
    }
}
