//! Builder of a profiler: its settings with their defaults and checks.

mod dotnet;

use std::{path::PathBuf, time::Duration};

use profiler_sampler::{CountedEvent, OffCpu, Unwind, check_present};
use profiler_symbolize::symbol_server::Server;

use crate::{
    command_user::CommandUser,
    error::{Error, ErrorKind, Result},
    session::{Session, start},
    settings::{DotnetNames, Settings, Target},
    symbolizer::Symbolizer,
};

/// A profiler with checked settings, ready to start.
///
/// See the [crate documentation](crate) for a tour.
#[derive(Clone, Debug)]
pub struct Profiler {
    pub(crate) settings: Settings,
}

impl Profiler {
    /// A builder with default settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Loads and attaches the BPF programs and starts sampling. Dropping the session detaches them.
    ///
    /// # Errors
    /// [`NoSuchTarget`](ErrorKind::NoSuchTarget), [`NoSuchFile`](ErrorKind::NoSuchFile) for a command or directory that
    /// does not exist, [`PermissionDenied`](ErrorKind::PermissionDenied) with the refused operation, or
    /// [`Unsupported`](ErrorKind::Unsupported).
    pub fn start(self) -> Result<Session> {
        start(&self.settings)
    }

    /// Whether the target is there now, where it is not a command.
    ///
    /// # Errors
    /// As [`start`](Self::start), for the target.
    pub fn find_target(&self) -> Result<()> {
        crate::session::find_target(&self.settings.target)
    }
}

/// Builds a [`Profiler`]. Setters never fail; [`build`](Self::build) reports.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing before it is built and started"]
pub struct Builder {
    target: Option<Target>,
    symbol_servers: Vec<String>,
    settings: Settings,
}

impl Builder {
    /// The target to sample. Required.
    pub fn target(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    /// The sampling frequency: samples per second on each CPU. Default:
    /// [`DEFAULT_FREQUENCY_HZ`](crate::DEFAULT_FREQUENCY_HZ).
    pub fn frequency_hz(mut self, frequency_hz: u64) -> Self {
        self.settings.events.frequency_hz = frequency_hz;
        self
    }

    /// Also samples each thread of the target at this frequency, hertz, whether it runs or waits: the event `wall`, whose
    /// samples have a [`ThreadState`](crate::profile::ThreadState). Needs a kernel with BTF.
    pub fn wall_clock_hz(mut self, frequency_hz: u64) -> Self {
        self.settings.events.wall_hz = Some(frequency_hz);
        self
    }

    /// Also records each wait of a thread of the target that is at least as long as `min_block`, from its switch off a CPU to
    /// its switch onto one: the event `off-cpu`, whose values are nanoseconds, and whose samples have a
    /// [`ThreadState`](crate::profile::ThreadState). `wakers`: with the stack of the thread that ended the wait. Needs a
    /// kernel with BTF.
    pub fn off_cpu(mut self, min_block: Duration, wakers: bool) -> Self {
        self.settings.events.off_cpu = Some(OffCpu { min_block, wakers, only_disk: false });
        self
    }

    /// Also records the waits of threads of the target for block and file I/O, of any length: the event `io`, whose values are
    /// nanoseconds. They are the waits in the state [`Disk`](crate::profile::ThreadState::Disk), from the switch off a CPU to the
    /// wakeup. Replaces [`off_cpu`](Self::off_cpu). Needs a kernel with BTF.
    pub fn io_waits(mut self) -> Self {
        self.settings.events.off_cpu =
            Some(OffCpu { min_block: Duration::ZERO, wakers: false, only_disk: true });
        self
    }

    /// Also samples an event at its occurrences. At most [`MAX_COUNTED_EVENTS`](crate::MAX_COUNTED_EVENTS) can be added. Values are
    /// occurrences: what the overhead limit skips is in the value of the next sample of the CPU.
    pub fn counted_event(mut self, event: CountedEvent) -> Self {
        self.settings.events.counted.push(event);
        self
    }

    /// Whether CPU samples are taken: the event `cpu-clock`. Default: true. Without them, another event has to be requested.
    pub fn cpu_samples(mut self, wanted: bool) -> Self {
        self.settings.events.cpu_samples = wanted;
        self
    }

    /// The run time of the BPF programs that is allowed on each CPU, percent. Default:
    /// [`DEFAULT_MAX_OVERHEAD_PERCENT`](crate::DEFAULT_MAX_OVERHEAD_PERCENT). Above it, stacks are cut, down to 127 frames; where
    /// that is not enough, ticks are skipped, and the next sample of the CPU has their weight
    /// ([`Ledger::skipped_ticks`](crate::profile::Ledger)).
    pub fn max_overhead_percent(mut self, percent: f64) -> Self {
        self.settings.max_overhead_percent = percent;
        self
    }

    /// The CPUs to sample. Default: all that are online.
    pub fn cpus(mut self, cpus: impl IntoIterator<Item = u32>) -> Self {
        self.settings.cpus = Some(cpus.into_iter().collect());
        self
    }

    /// Whether kernel stacks are sampled. Default: true.
    pub fn kernel_stacks(mut self, wanted: bool) -> Self {
        self.settings.stacks.kernel = wanted;
        self
    }

    /// Whether user stacks are sampled. Default: true.
    pub fn user_stacks(mut self, wanted: bool) -> Self {
        self.settings.stacks.user = wanted;
        self
    }

    /// How user stacks are unwound. Default: [`Unwind::Auto`].
    pub fn unwind(mut self, unwind: Unwind) -> Self {
        self.settings.stacks.unwind = unwind;
        self
    }

    /// Whether processes that a target process forks while the session runs are targets too. The default is `true` for
    /// [`Target::Command`] and `false` for every other target.
    ///
    /// Following children needs kernel BTF. On a kernel without it, [`Profiler::start`] returns `Unsupported` for a
    /// process; a command is sampled without its children, and a warning is logged.
    pub fn children(mut self, wanted: bool) -> Self {
        self.settings.target.children = Some(wanted);
        self
    }

    /// Whether inlined functions are frames of their own (needs debug information). Default: false.
    pub fn inlines(mut self, wanted: bool) -> Self {
        self.settings.names.inlines = wanted;
        self
    }

    /// Whether frames have file and line (needs debug information). Default: false.
    pub fn lines(mut self, wanted: bool) -> Self {
        self.settings.names.lines = wanted;
        self
    }

    /// Whether the standard input, output and error of a [`Target::Command`] are `/dev/null`; otherwise they are those of
    /// the calling process. Default: false.
    pub fn silent_command(mut self, wanted: bool) -> Self {
        self.settings.target.silent_command = wanted;
        self
    }

    /// The user as whom a [`Target::Command`] runs. Needs root. The command keeps no privilege of the profiler and inherits
    /// no descriptor but the standard streams. Default: the user of the calling process.
    pub fn command_user(mut self, user: CommandUser) -> Self {
        self.settings.target.command_user = Some(user);
        self
    }

    /// Whether [`start`](Profiler::start) confines this process, with all its threads and forever, to what the session needs:
    /// for programs whose only job is to profile. See [`sandbox`](crate::sandbox); the calling thread can write files of
    /// other users after [`restore_file_rights`](crate::sandbox::restore_file_rights). Default: false. Needs the feature
    /// `sandbox`.
    #[cfg(feature = "sandbox")]
    pub fn sandbox(mut self, wanted: bool) -> Self {
        self.settings.sandbox.is_wanted = wanted;
        self
    }

    /// Whether other threads of this process may use the network in the [sandbox](Self::sandbox), for programs that send
    /// profiles. Default: false. Needs the feature `sandbox`.
    #[cfg(feature = "sandbox")]
    pub fn sandbox_network(mut self, wanted: bool) -> Self {
        self.settings.sandbox.network = wanted;
        self
    }

    /// Adds a directory that is searched for debug files before the standard directories.
    pub fn debug_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.settings.names.debug_directories.push(directory.into());
        self
    }

    /// Adds a symbol server, from which debug files are downloaded that do not exist on this host: a URL (`https://` or
    /// `http://`), `microsoft` for the server of Microsoft's .NET builds, or `debuginfod` for those in `DEBUGINFOD_URLS`.
    /// A server receives build ids and nothing else. Default: none. Needs the feature `symbol-server`.
    pub fn symbol_server(mut self, server: impl Into<String>) -> Self {
        self.symbol_servers.push(server.into());
        self
    }

    /// The directory for files of symbol servers. Default: `profiler` in `XDG_CACHE_HOME` or `~/.cache`.
    pub fn symbol_cache(mut self, directory: impl Into<PathBuf>) -> Self {
        self.settings.names.symbol_cache = Some(directory.into());
        self
    }

    /// Records a capture into a new directory: the records of the kernel and the files that are read of the target.
    /// [`replay`](Self::replay) makes the same profile from it. Needs the feature `capture`.
    #[cfg(feature = "capture")]
    pub fn capture(mut self, directory: impl Into<PathBuf>) -> Self {
        self.settings.capture = Some(directory.into());
        self
    }

    /// Takes the samples from a capture, without a target and without privileges. Needs the feature `capture`.
    #[cfg(feature = "capture")]
    pub fn replay(mut self, directory: impl Into<PathBuf>) -> Self {
        self.settings.replay = Some(directory.into());
        self
    }

    /// A [`Symbolizer`] with these settings of names. It needs no target, and none of the other settings.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput): an invalid symbol server.
    /// [`Unsupported`](ErrorKind::Unsupported): a symbol server without the feature `symbol-server`.
    /// [`NoSuchFile`](ErrorKind::NoSuchFile): a directory for debug files that does not exist.
    pub fn symbolizer(self) -> Result<Symbolizer> {
        let mut settings = self.settings;
        settings.names.symbol_servers = parse_symbol_servers(&self.symbol_servers)?;
        // What describes frames is for unwinding.
        settings.stacks.user = false;
        Symbolizer::new(&settings)
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput): no target, a frequency of 0 or above the kernel's limit, neither user nor
    /// kernel stacks, an empty list of CPUs or one with a CPU that does not exist, an invalid symbol server, or contradictory
    /// settings.
    /// [`Unsupported`](ErrorKind::Unsupported): a symbol server without the feature `symbol-server`.
    pub fn build(self) -> Result<Profiler> {
        let mut settings = self.settings;
        if settings.replay.is_none() {
            settings.target.target = self.target.ok_or_else(|| invalid("there is no target to sample"))?;
            check_target(&settings.target.target)?;
            settings.events.check_sampling()?;
        }
        if !settings.stacks.kernel && !settings.stacks.user {
            return Err(invalid("without user and kernel stacks there is nothing to sample"));
        }
        if !(settings.max_overhead_percent > 0.0 && settings.max_overhead_percent <= 100.0) {
            return Err(invalid("the overhead limit is not above 0 and at most 100 percent"));
        }
        if settings.dotnet.names == DotnetNames::Memory && !cfg!(feature = "dotnet-memory") {
            return Err(invalid("names of .NET methods from memory need the feature `dotnet-memory`"));
        }
        if settings.dotnet.perf_map && !settings.dotnet.has_method_events() {
            return Err(invalid("a runtime that is not contacted cannot be asked for a perf map"));
        }
        if settings.dotnet.compilations && !settings.dotnet.has_method_events() {
            return Err(invalid("a runtime that is not contacted cannot be asked what it compiles"));
        }
        let requests_events = !settings.dotnet.runtime_events.is_empty();
        if requests_events && !settings.dotnet.contacts_runtimes {
            return Err(invalid("a runtime that is not contacted cannot be asked for events"));
        }
        if settings.dotnet.runtime_events.stream.is_some() {
            check_event_stream(&settings)?;
        }
        if settings.dotnet.compilations && settings.capture.is_some() {
            return Err(invalid("a capture has no compiled methods"));
        }
        if requests_events && settings.capture.is_some() {
            return Err(invalid("a capture has no runtime events"));
        }
        settings.events.check_counted()?;
        if settings.cpus.as_ref().is_some_and(Vec::is_empty) {
            return Err(invalid("the list of CPUs is empty"));
        }
        check_present(settings.cpus.as_deref().unwrap_or_default())?;
        let follows = matches!(
            settings.target.target,
            Target::Pid(_) | Target::Pids(_) | Target::ProcessName(_) | Target::Command(_)
        );
        if settings.target.children == Some(true) && !follows {
            return Err(invalid("children can be followed only for processes and commands"));
        }
        settings.names.symbol_servers = parse_symbol_servers(&self.symbol_servers)?;
        Ok(Profiler { settings })
    }
}

fn check_event_stream(settings: &Settings) -> Result<()> {
    if settings.dotnet.runtime_events.is_empty() {
        return Err(invalid(
            "a stream of runtime events is requested without events: name sets of them (--events)",
        ));
    }
    let is_one = match &settings.target.target {
        Target::Pid(_) | Target::Command(_) => true,
        Target::Pids(pids) => pids.len() == 1,
        _ => false,
    };
    if is_one {
        Ok(())
    } else {
        Err(invalid("a stream of runtime events is that of one process: select it (-p PID), or a command"))
    }
}

fn parse_symbol_servers(names: &[String]) -> Result<Vec<Server>> {
    if !names.is_empty() && cfg!(not(feature = "symbol-server")) {
        let message = "this build does not include the feature symbol-server";
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let mut servers = Vec::new();
    for name in names {
        let parsed = Server::from_name(name, |variable| std::env::var(variable).ok());
        servers.extend(parsed.map_err(|message| Error::new(ErrorKind::InvalidInput, message))?);
    }
    Ok(servers)
}

fn check_target(target: &Target) -> Result<()> {
    let is_empty = match target {
        Target::Pids(ids) | Target::Tids(ids) => ids.is_empty(),
        Target::Pid(id) | Target::Tid(id) => *id == 0,
        Target::Command(words) => words.is_empty(),
        Target::Container(id) => id.is_empty(),
        Target::ProcessName(name) => name.is_empty(),
        #[cfg(feature = "pods")]
        Target::Pod { name, .. } => name.is_empty(),
        Target::Everything | Target::Cgroup(_) => false,
    };
    if is_empty {
        return Err(invalid("the target is empty"));
    }
    match target {
        // The process of the scheduler, which has no entry in /proc.
        Target::Pids(ids) | Target::Tids(ids) if ids.contains(&0) => {
            Err(invalid("0 is the id of no process and no thread"))
        }
        _ => Ok(()),
    }
}

fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use profiler_dotnet_diagnostics::{EventSet, EventStream};

    use super::*;

    fn refused(builder: Builder) -> String {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        error.to_string()
    }

    fn own() -> Builder {
        Profiler::builder().target(Target::Pid(std::process::id()))
    }

    #[test]
    fn the_defaults_need_only_a_target() {
        let settings = own().build().unwrap().settings;
        assert_eq!(settings.events.frequency_hz, 99);
        assert!(settings.stacks.kernel && settings.stacks.user);
        assert!(settings.target.children.is_none() && !settings.names.inlines && !settings.names.lines);
        assert!(!settings.names.raw && !settings.dotnet.tiers);
    }

    #[test]
    fn a_missing_or_empty_target_is_refused() {
        assert!(refused(Profiler::builder()).contains("no target"));
        for target in [
            Target::Pids(vec![]),
            Target::Pid(0),
            Target::Command(vec![]),
            Target::Container(String::new()),
            Target::ProcessName(String::new()),
        ] {
            assert!(refused(Profiler::builder().target(target)).contains("empty"));
        }
    }

    #[test]
    fn each_set_of_events_is_requested_once() {
        let twice =
            own().runtime_events(EventSet::DEFAULT.iter().copied()).runtime_events([EventSet::Exceptions]);
        assert_eq!(twice.build().unwrap().settings.dotnet.runtime_events.sets, EventSet::DEFAULT);
    }

    #[test]
    fn a_frequency_and_an_overhead_limit_are_above_0() {
        assert!(refused(own().frequency_hz(0)).contains("0 Hz"));
        for percent in [0.0, -1.0, 100.5, f64::NAN] {
            assert!(refused(own().max_overhead_percent(percent)).contains("overhead limit"));
        }
    }

    #[test]
    fn a_profile_has_at_least_one_event() {
        assert!(refused(own().cpu_samples(false)).contains("another event"));
        assert!(own().cpu_samples(false).wall_clock_hz(49).build().is_ok());
        assert!(own().cpu_samples(false).off_cpu(Duration::ZERO, false).build().is_ok());
        assert!(refused(own().wall_clock_hz(0)).contains("0 Hz"));
    }

    #[cfg(feature = "symbol-server")]
    #[test]
    fn a_symbol_server_is_a_name_or_a_url() {
        assert!(own().build().unwrap().settings.names.symbol_servers.is_empty());
        let servers = own().symbol_server("microsoft").symbol_server("http://symbols.example").build();
        assert_eq!(servers.unwrap().settings.names.symbol_servers.len(), 2);
        assert!(refused(own().symbol_server("symbols.example")).contains("not a symbol server"));
    }

    #[cfg(not(feature = "symbol-server"))]
    #[test]
    fn a_symbol_server_without_the_feature_is_refused() {
        let error = own().symbol_server("microsoft").build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn contradictory_settings_are_refused() {
        assert!(refused(own().kernel_stacks(false).user_stacks(false)).contains("nothing to sample"));
        assert!(refused(own().cpus([])).contains("CPUs"));
        let silent = || own().dotnet_events(false);
        assert!(refused(silent().dotnet_perf_map(true)).contains("perf map"));
        assert!(refused(silent().dotnet_compilations(true)).contains("compiles"));
        assert!(refused(silent().runtime_events([EventSet::Exceptions])).contains("events"));
        assert!(refused(own().event_stream(EventStream::default())).contains("--events"));
        let of_two =
            Profiler::builder().target(Target::Pids(vec![1, 2])).event_stream(EventStream::default());
        assert!(refused(of_two.runtime_events([EventSet::Exceptions])).contains("one process"));
        assert!(refused(silent().event_provider("A".parse().unwrap())).contains("events"));
        assert!(refused(Profiler::builder().target(Target::Everything).children(true)).contains("children"));
    }
}
