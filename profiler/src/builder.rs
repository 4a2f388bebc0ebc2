//! What to sample and how, checked before anything is touched.

use std::path::PathBuf;

use crate::{
    error::{Error, ErrorKind, Result},
    sampler::Unwind,
    session::{Session, Settings, Target, start},
};
use profiler_symbolize::symbol_server::Server;

/// Samples a second on each CPU when nothing else is said: not a divisor of what programs do in lock-step.
pub const DEFAULT_FREQUENCY_HZ: u64 = 99;

/// Where the kernel's limit on the sampling frequency stands.
const MAX_RATE_SYSCTL: &str = "/proc/sys/kernel/perf_event_max_sample_rate";

/// A profiler that is ready to start.
///
/// See the [crate documentation](crate) for a tour.
#[derive(Clone, Debug)]
pub struct Profiler {
    settings: Settings,
}

impl Profiler {
    /// Says what to sample and how.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Loads the kernel side, attaches it and samples from now on. Dropping the session detaches.
    ///
    /// # Errors
    /// `NoSuchTarget`, `PermissionDenied` with the operation that was refused, or `Unsupported`.
    pub fn start(self) -> Result<Session> {
        start(&self.settings)
    }
}

/// Builds a [`Profiler`]. Setters never fail; [`build`](Self::build) reports.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing before it is built and started"]
pub struct Builder {
    target: Option<Target>,
    symbol_servers: Vec<String>,
    settings: Settings,
}

impl Default for Builder {
    fn default() -> Self {
        let settings = Settings {
            target: Target::Everything,
            frequency_hz: DEFAULT_FREQUENCY_HZ,
            cpus: None,
            kernel_stacks: true,
            user_stacks: true,
            unwind: Unwind::Auto,
            children: None,
            silent_command: false,
            inlines: false,
            lines: false,
            raw_names: false,
            dotnet_tiers: false,
            dotnet_perf_map: false,
            debug_directories: Vec::new(),
            symbol_servers: Vec::new(),
            symbol_cache: None,
            capture: None,
            replay: None,
        };
        Self { target: None, symbol_servers: Vec::new(), settings }
    }
}

impl Builder {
    /// What to sample. It has to be said.
    pub fn target(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    /// Samples a second on each CPU; [`DEFAULT_FREQUENCY_HZ`] when not said.
    pub fn frequency_hz(mut self, frequency_hz: u64) -> Self {
        self.settings.frequency_hz = frequency_hz;
        self
    }

    /// Only these CPUs; all that are online when not said.
    pub fn cpus(mut self, cpus: impl IntoIterator<Item = u32>) -> Self {
        self.settings.cpus = Some(cpus.into_iter().collect());
        self
    }

    /// Whether kernel frames are taken; they are when not said.
    pub fn kernel_stacks(mut self, wanted: bool) -> Self {
        self.settings.kernel_stacks = wanted;
        self
    }

    /// Whether user frames are taken; they are when not said.
    pub fn user_stacks(mut self, wanted: bool) -> Self {
        self.settings.user_stacks = wanted;
        self
    }

    /// How user stacks are unwound; [`Unwind::Auto`] when not said.
    pub fn unwind(mut self, unwind: Unwind) -> Self {
        self.settings.unwind = unwind;
        self
    }

    /// Whether processes that a target process forks while the session runs are targets too. The default is `true` for
    /// [`Target::Command`] and `false` for every other target.
    ///
    /// Following children needs kernel BTF. On a kernel without it, [`Profiler::start`] returns `Unsupported` for a
    /// process; a command is sampled without its children, and a warning is logged.
    pub fn children(mut self, wanted: bool) -> Self {
        self.settings.children = Some(wanted);
        self
    }

    /// Whether functions that the compiler inlined are frames of their own (needs debug information); not
    /// when not said.
    pub fn inlines(mut self, wanted: bool) -> Self {
        self.settings.inlines = wanted;
        self
    }

    /// Whether frames have file and line (needs debug information); not when not said.
    pub fn lines(mut self, wanted: bool) -> Self {
        self.settings.lines = wanted;
        self
    }

    /// Whether managed (.NET) methods are named as the runtime spells them
    /// (``Dictionary`2[System.__Canon,System.Int32].FindValue(!0)``, `<PlaceAsync>d__7.MoveNext()`) and not as C# does
    /// (`Dictionary<__Canon,int>.FindValue(__Canon)`, `PlaceAsync`); not when not said.
    pub fn raw_names(mut self, wanted: bool) -> Self {
        self.settings.raw_names = wanted;
        self
    }

    /// Whether the name of a .NET method says how its code was compiled, as in `[OptimizedTier1]` or `[PreJIT]`: each
    /// tier of a method is a frame of its own then; not when not said.
    pub fn dotnet_tiers(mut self, wanted: bool) -> Self {
        self.settings.dotnet_tiers = wanted;
        self
    }

    /// Whether .NET runtimes (.NET 8 and later) are asked to write a perf map while sampling goes on, which names their
    /// stubs; not when not said. It is switched off and removed at the end. A runtime writes all methods that it has at
    /// the beginning, and a line for each that it compiles. Where that could lock it up or crash it, it is not asked, and
    /// a warning is logged.
    pub fn dotnet_perf_map(mut self, wanted: bool) -> Self {
        self.settings.dotnet_perf_map = wanted;
        self
    }

    /// Whether the standard input, output and error of a [`Target::Command`] are `/dev/null` and not the profiler's own;
    /// not when not said.
    pub fn silent_command(mut self, wanted: bool) -> Self {
        self.settings.silent_command = wanted;
        self
    }

    /// A directory to look for debug files in, before the usual places. Can be said more than once.
    pub fn debug_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.settings.debug_directories.push(directory.into());
        self
    }

    /// A symbol server that may be asked for the debug files of modules without symbols, when they are nowhere on this
    /// machine: an address that begins with `https://` or `http://`, `microsoft` for that of the .NET builds of
    /// Microsoft, or `debuginfod` for those in `DEBUGINFOD_URLS`. Can be said more than once; none is asked when not
    /// said. It is told build ids, nothing else. Needs the feature `symbol-server`.
    pub fn symbol_server(mut self, server: impl Into<String>) -> Self {
        self.symbol_servers.push(server.into());
        self
    }

    /// Where to keep what symbol servers have; `profiler` in `XDG_CACHE_HOME` or `~/.cache` when not said.
    pub fn symbol_cache(mut self, directory: impl Into<PathBuf>) -> Self {
        self.settings.symbol_cache = Some(directory.into());
        self
    }

    /// Records what comes from the kernel and what is read of the target into a directory, from which
    /// [`replay`](Self::replay) makes the same profile.
    pub fn capture(mut self, directory: impl Into<PathBuf>) -> Self {
        self.settings.capture = Some(directory.into());
        self
    }

    /// Takes the samples from a capture in place of the kernel: no target, no privilege.
    pub fn replay(mut self, directory: impl Into<PathBuf>) -> Self {
        self.settings.replay = Some(directory.into());
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// `InvalidInput`: no target, a frequency of 0 or above the kernel's limit, neither user nor kernel
    /// frames, an empty list of CPUs, a symbol server that is none, or settings that contradict each other.
    /// `Unsupported`: a symbol server without the feature `symbol-server`.
    pub fn build(self) -> Result<Profiler> {
        let mut settings = self.settings;
        if settings.replay.is_none() {
            settings.target = self.target.ok_or_else(|| invalid("there is no target to sample"))?;
            check_target(&settings.target)?;
            check_frequency(settings.frequency_hz, max_frequency_hz())?;
        }
        if !settings.kernel_stacks && !settings.user_stacks {
            return Err(invalid("without user and without kernel frames there is nothing to take"));
        }
        if settings.cpus.as_ref().is_some_and(Vec::is_empty) {
            return Err(invalid("the list of CPUs is empty"));
        }
        let follows = matches!(settings.target, Target::Pid(_) | Target::Pids(_) | Target::Command(_));
        if settings.children == Some(true) && !follows {
            return Err(invalid(
                "children can be followed of processes and of a command, not of other targets",
            ));
        }
        settings.symbol_servers = parse_symbol_servers(&self.symbol_servers)?;
        Ok(Profiler { settings })
    }
}

fn parse_symbol_servers(names: &[String]) -> Result<Vec<Server>> {
    if !names.is_empty() && cfg!(not(feature = "symbol-server")) {
        let message = "symbol servers are not in this build: it lacks the feature symbol-server";
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let mut servers = Vec::new();
    for name in names {
        let parsed = Server::of_name(name, |variable| std::env::var(variable).ok());
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
        Target::Everything | Target::Cgroup(_) => false,
    };
    if is_empty { Err(invalid("the target is empty")) } else { Ok(()) }
}

fn check_frequency(frequency_hz: u64, max_hz: Option<u64>) -> Result<()> {
    if frequency_hz == 0 {
        return Err(invalid("a sampling frequency of 0 Hz takes no sample"));
    }
    match max_hz {
        Some(max) if frequency_hz > max => {
            let message = format!(
                "a sampling frequency of {frequency_hz} Hz is above the kernel's limit of {max} Hz \
                 (kernel.perf_event_max_sample_rate)"
            );
            Err(Error::new(ErrorKind::InvalidInput, message))
        }
        _ => Ok(()),
    }
}

fn max_frequency_hz() -> Option<u64> {
    std::fs::read_to_string(MAX_RATE_SYSCTL).ok()?.trim().parse().ok()
}

fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
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
    fn the_defaults_are_a_complete_plan() {
        let settings = own().build().unwrap().settings;
        assert_eq!(settings.frequency_hz, 99);
        assert!(settings.kernel_stacks && settings.user_stacks);
        assert!(settings.children.is_none() && !settings.inlines && !settings.lines);
        assert!(!settings.raw_names && !settings.dotnet_tiers);
    }

    #[test]
    fn a_target_has_to_be_said_and_must_not_be_empty() {
        assert!(refused(Profiler::builder()).contains("no target"));
        for target in
            [Target::Pids(vec![]), Target::Pid(0), Target::Command(vec![]), Target::Container(String::new())]
        {
            assert!(refused(Profiler::builder().target(target)).contains("empty"));
        }
    }

    #[test]
    fn a_frequency_outside_of_what_the_kernel_takes_is_refused_with_the_limit() {
        assert!(refused(own().frequency_hz(0)).contains("0 Hz"));
        let error = check_frequency(5_000, Some(4_000)).unwrap_err();
        assert!(error.to_string().contains("4000 Hz"), "{error}");
        assert!(check_frequency(4_000, Some(4_000)).is_ok());
        assert!(check_frequency(4_000, None).is_ok());
    }

    #[cfg(feature = "symbol-server")]
    #[test]
    fn a_symbol_server_is_a_name_or_an_address() {
        assert!(own().build().unwrap().settings.symbol_servers.is_empty());
        let servers = own().symbol_server("microsoft").symbol_server("http://symbols.example").build();
        assert_eq!(servers.unwrap().settings.symbol_servers.len(), 2);
        assert!(refused(own().symbol_server("symbols.example")).contains("no symbol server"));
    }

    #[cfg(not(feature = "symbol-server"))]
    #[test]
    fn without_the_feature_a_symbol_server_is_refused() {
        let error = own().symbol_server("microsoft").build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn contradictions_are_refused() {
        assert!(refused(own().kernel_stacks(false).user_stacks(false)).contains("nothing to take"));
        assert!(refused(own().cpus([])).contains("CPUs"));
        assert!(refused(Profiler::builder().target(Target::Everything).children(true)).contains("children"));
    }
}
