//! Definition of the command line (clap) and its translation into the settings of the library.

mod agent;
mod groups;
mod output;
mod record;
mod symbols;
mod target;
mod unknown_word;

use std::{ffi::OsString, num::NonZeroU64, path::PathBuf, sync::LazyLock, time::Duration};

use anyhow::{Result, bail};
use clap::{
    Arg, ArgAction, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum,
    error::ErrorKind, parser::ValueSource,
};
use profiler::{
    Builder, CountedEvent, CpuSet, DEFAULT_FREQUENCY_HZ, DEFAULT_MAX_OVERHEAD_PERCENT, DotnetNames,
    EventCondition, EventProvider, Profiler, Unwind,
};

use self::target::{TargetArguments, parse_id};
pub(super) use self::{
    agent::AgentArguments,
    output::{OutputArguments, StackArguments},
    record::RecordArguments,
    symbols::SymbolArguments,
};
use super::{
    command_user,
    duration::{parse_duration, parse_duration_or_zero},
    event_sets::EventSets,
    shape::{ShapeArguments, TimeRange, parse_time_range},
    wrong_arguments::WrongArguments,
};

/// The error text when no argument selects a target.
pub(super) const NO_TARGET: &str = "nothing to sample: give -p PID, --process, -t TID, -a, --cgroup, --container, --pod or -- COMMAND (see --help)";

/// The former name of the filter `--in-process`, where it is not the option for the target.
const PROCESS_FILTER_ALIAS: &str = "process";

const EXAMPLES: &str = "\
Examples:
  profiler -p 1234 -F 99 -d 30 > folded       folded stacks of a process, for any flame graph tool
  profiler -p 1234 -d 10 -o flame.svg         a flame graph
  profiler -p 1234 -d 10 -o flame.html        an interactive page: zoom, search, callers, time
  profiler -- ./program --its-own arguments   a command and its descendants, until the command ends
  profiler -a -d 5 --per-process > folded     all processes of this machine
  profiler --container 3f2a91 -d 10 -o a.svg  a container, by a prefix of its id
  profiler --pod web-0 -n shop -d 10          a Kubernetes pod of this node
  profiler -p 1234 -d 5 --inlines --lines     with inlined functions, source files and lines
  profiler -p 1234 -d 10 --events default     with what a .NET runtime did: collections, exceptions, locks
  profiler -p 1234 -d 10 --io -o io.svg       where it waits for block and file I/O, and how long
  profiler -p 1234 -d 30 -o run.profile       a recorded profile, for the commands below
  profiler report run.profile -o flame.svg    writes it in another format, on any machine
  profiler top run.profile --focus Json       its hot functions, for stacks with a matching frame
  profiler diff old.profile new.profile       compares two recorded profiles
  profiler live -p 1234                       a flame graph in the terminal, updated every second
  profiler record -p 1234 --trigger exit      a file with the last minute, when the process ends
  profiler agent --otlp http://HOST:4318      each minute of this node, to an OpenTelemetry receiver
  profiler doctor                             which abilities and privileges this machine has
  profiler doctor -p 1234                     also the symbol sources of a process

Exit codes: 0 success, 1 failure, 2 wrong arguments, 3 no sample; with -- COMMAND its own, unless 0.
Ctrl-C stops sampling and writes the outputs. A second Ctrl-C exits at once.";

const USAGE: &str = "\
profiler [OPTIONS] [-- <COMMAND>...]
       profiler [-q] [-v] <COMMAND>";

/// The version of the program, and that of the OTLP messages that it sends.
static VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{} (OTLP {})", env!("CARGO_PKG_VERSION"), profiler_agent::otlp::PROTO_VERSION));

/// CPU profiler for Linux on eBPF: samples native, JIT and kernel stacks and symbolizes every frame
#[derive(Debug, Parser)]
#[command(
    name = "profiler",
    version = VERSION.as_str(),
    after_long_help = EXAMPLES,
    override_usage = USAGE,
    after_help = "See --help for examples and for all options: waits, events, names, filters, limits.",
    max_term_width = 100
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) action: Option<Action>,
    #[command(flatten)]
    pub(super) target: TargetArguments,
    #[command(flatten)]
    pub(super) sampling: SamplingArguments,
    #[command(flatten)]
    pub(super) output: OutputArguments,
    #[command(flatten)]
    pub(super) common: CommonArguments,
    // Last, because clap puts all arguments that follow under the heading of these.
    #[command(flatten)]
    pub(super) view: ViewArguments,
}

/// The commands other than sampling.
#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Check which abilities and privileges for profiling this machine has
    ///
    /// It says how to get the missing ones.
    Doctor {
        /// Also report the runtime of this process and the symbol source of each kind of its frames
        #[arg(short, long, value_parser = parse_id)]
        pid: Option<u32>,
    },
    /// List the events for -e that this machine has, with the fields of tracepoints
    List {
        /// Only events whose name contains this text; with usdt:FILE, the static probes of this file
        pattern: Option<String>,
    },
    /// Make a profile from a capture (see --capture), without privileges
    #[command(mut_arg("in_process", |filter| filter.alias(PROCESS_FILTER_ALIAS)))]
    Replay {
        /// The directory of the capture
        directory: PathBuf,
        #[command(flatten)]
        output: OutputArguments,
        #[command(flatten)]
        view: ViewArguments,
    },
    /// Show a flame graph and the hot functions in the terminal, updated every second
    #[command(mut_arg("from", |from| from.hide(true)), mut_arg("to", |to| to.hide(true)))]
    Live(Box<LiveArguments>),
    /// Keep the last minute, and write it to a file when a condition becomes true
    #[command(mut_arg("from", |from| from.hide(true)), mut_arg("to", |to| to.hide(true)))]
    #[command(mut_arg("capture", |capture| capture.hide(true)), after_long_help = record::conditions_help())]
    Record(Box<RecordArguments>),
    /// Sample all processes of this node all the time, and send each window to a backend
    Agent(Box<AgentArguments>),
    /// Write a recorded profile (-o FILE.profile) in any format, without privileges
    #[command(mut_arg("in_process", |filter| filter.alias(PROCESS_FILTER_ALIAS)))]
    Report {
        /// The recorded profile; - is standard input
        recording: PathBuf,
        #[command(flatten)]
        output: OutputArguments,
        #[command(flatten)]
        view: ViewArguments,
    },
    /// Show the hot functions and the heaviest call paths of a recorded profile
    #[command(mut_arg("in_process", |filter| filter.alias(PROCESS_FILTER_ALIAS)))]
    Top {
        /// The recorded profile; - is standard input
        recording: PathBuf,
        #[command(flatten)]
        view: ViewArguments,
    },
    /// Compare two recorded profiles
    ///
    /// As a table, or with -o as folded stacks with both counts (.folded), as a differential flame graph (.svg) or as a page (.html)
    #[command(mut_arg("in_process", |filter| filter.alias(PROCESS_FILTER_ALIAS)))]
    Diff {
        /// The recorded profile from before
        before: PathBuf,
        /// The recorded profile from after
        #[arg(required_unless_present = "with")]
        after: Option<PathBuf>,
        /// Compare with this time of the same profile, since the start of sampling: 10s..20s, or 10s.. up to its end. --from and --to
        /// select the time before
        #[arg(long, value_name = "FROM..TO", conflicts_with = "after", value_parser = parse_time_range)]
        with: Option<TimeRange>,
        #[command(flatten)]
        output: OutputArguments,
        #[command(flatten)]
        view: ViewArguments,
    },
    /// Print the completions of a shell
    ///
    /// `profiler completions bash > /etc/bash_completion.d/profiler`
    Completions {
        /// The shell
        shell: CompletedShell,
    },
    /// Print a man page: `profiler man | man -l -`
    Man {
        /// The command that it describes [default: sampling]
        command: Option<String>,
    },
}

/// Arguments of `profiler live`.
#[derive(Args, Debug)]
pub(super) struct LiveArguments {
    #[command(flatten)]
    target: TargetArguments,
    /// Show the samples of this time, at most 10m; the key w switches to all samples
    #[arg(short, long, value_name = "TIME", default_value = "30s", value_parser = parse_window)]
    pub(super) window: Duration,
    #[command(flatten)]
    pub(super) sampling: SamplingArguments,
    #[command(flatten)]
    pub(super) stacks: StackArguments,
    #[command(flatten)]
    pub(super) view: ViewArguments,
}

/// Arguments that control sampling.
#[derive(Args, Debug)]
pub(super) struct SamplingArguments {
    /// Samples per second on each CPU [default: 99]
    #[arg(short = 'F', long, value_name = "HZ")]
    frequency: Option<u64>,
    /// Sample every thread of the target at this frequency, whether it runs or waits [default: 49]
    ///
    /// With -F, CPU samples are taken as well. Needs a kernel with BTF
    #[arg(
        long,
        value_name = "HZ",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "49"
    )]
    wall: Option<u64>,
    /// Record each wait of the target's threads, from the switch off a CPU to the switch onto one; with -F, CPU samples are
    /// taken as well. Needs a kernel with BTF
    #[arg(long)]
    off_cpu: bool,
    /// Record waits of at least this length, and count shorter ones: 100us, 20ms, 0
    #[arg(long, value_name = "TIME", value_parser = parse_duration_or_zero, default_value = "1ms", requires = "off_cpu")]
    min_block: Duration,
    /// Record also which thread ended each wait: its stack follows that of the thread that waited
    #[arg(long, requires = "off_cpu")]
    wakers: bool,
    /// Show where threads wait for block and file I/O: each wait in the state disk, with its length; with -F, CPU samples are
    /// taken as well. Needs a kernel with BTF
    #[arg(long, conflicts_with = "off_cpu")]
    io: bool,
    /// Record what .NET runtimes report, beside the samples: default, or a list of sets
    ///
    /// The sets are default (gc, threadpool, exceptions, contention), alloc, jit, loader, counters, http (http-server, http-client);
    /// separated by commas
    #[arg(long, value_name = "LIST", conflicts_with_all = ["no_dotnet_events", "capture"])]
    events: Vec<EventSets>,
    /// Record the events of this provider of .NET runtimes, such as an EventSource of the target: NAME[:KEYWORDS[:LEVEL]],
    /// keywords in hexadecimal, level 1 to 5 [default: all keywords, level 4]. Can be repeated
    #[arg(long, value_name = "NAME", conflicts_with_all = ["no_dotnet_events", "capture"])]
    event_provider: Vec<EventProvider>,
    /// Sample this event at its occurrences; with -F, CPU samples are taken as well. Software: page-faults, major-faults,
    /// context-switches, cpu-migrations; hardware: cycles, instructions, cache-misses, branch-misses, rNNN; a tracepoint:
    /// sched:sched_switch, syscalls:sys_enter_read; a probe: uprobe:FILE:FUNCTION, usdt:FILE:PROVIDER:NAME; the time of system
    /// calls: syscall-time. Can be repeated
    #[arg(short = 'e', value_name = "EVENT")]
    counted_events: Vec<CountedEvent>,
    /// Show where new memory is touched: -e page-faults
    #[arg(long)]
    faults: bool,
    /// Show where system calls come from, by their names, and how long they take: -e raw_syscalls:sys_enter -e syscall-time
    #[arg(long)]
    syscalls: bool,
    /// Show where memory is allocated, in bytes: the sum of arg1 of -e uprobe:libc:malloc
    #[arg(long)]
    alloc: bool,
    /// Sample every Nth occurrence of the events of -e [default: 1; 1000003 for hardware events]
    #[arg(short = 'c', value_name = "N", requires = "counted_events")]
    period: Option<NonZeroU64>,
    /// Sum this field of the events of -e in place of counting: an argument of a tracepoint, or a member of it (prev.pid); arg1
    /// to arg6 of a uprobe, a system call or a static probe; ret of a uretprobe or of the exit of a system call, and duration,
    /// nanoseconds, of the latter
    #[arg(long, value_name = "FIELD", requires = "counted_events")]
    weight: Option<String>,
    /// Count the events of -e only where a field compares so with a number: "id == 0", "arg1 >= 4096"
    #[arg(long, value_name = "CONDITION", requires = "counted_events")]
    filter: Option<EventCondition>,
    /// The most time that the BPF programs may take on each CPU, percent: beyond it, stacks are cut, then ticks are skipped
    #[arg(long, value_name = "PERCENT", default_value_t = DEFAULT_MAX_OVERHEAD_PERCENT)]
    max_overhead: f64,
    /// Sampling time: 30, 1.5, 500ms, 2m [default: until Ctrl-C or the end of the target]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) duration: Option<Duration>,
    /// Sample only on these CPUs: 0-3,8
    #[arg(short = 'C', long, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Also sample processes that a target process (-p, --process) forks from now on; a command is always sampled with them
    #[arg(long)]
    children: bool,
    /// Sample a command without its descendants
    #[arg(long, conflicts_with = "children")]
    no_children: bool,
    /// Run the command as this user, a name or an id [default: the caller of sudo, else the caller of the profiler]
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Take only user frames
    #[arg(short = 'U', long, conflicts_with = "kernel_only")]
    user_only: bool,
    /// Take only kernel frames
    #[arg(short = 'K', long)]
    kernel_only: bool,
    /// How user stacks are unwound
    #[arg(long, value_enum, value_name = "METHOD", default_value_t = UnwindMethod::Auto)]
    unwind: UnwindMethod,
    /// Where the names of .NET methods come from, besides perf maps
    #[arg(long, value_enum, value_name = "SOURCE", default_value_t = DotnetNamesSource::Auto)]
    dotnet_names: DotnetNamesSource,
    /// Contact no .NET runtime: JIT code has the names in perf maps and in the runtime's memory. For .NET up to 6.0.11 and 7.0.0, which can crash
    /// when a tool connects again and again
    #[arg(long)]
    no_dotnet_events: bool,
    /// Have .NET 8 and later write a perf map while sampling, which names the runtime's stubs; it is removed at the end.
    /// The target pauses at the start (seconds in large programs) and writes a line for each method it compiles. Not
    /// used for runtimes that can deadlock or crash (10.0.0 to 10.0.10, and younger than 5 seconds)
    #[arg(long, conflicts_with = "no_dotnet_events")]
    dotnet_perf_map: bool,
    /// Show the method that a .NET runtime's JIT compiles: a frame such as [compiling app!Shop.Cart.Get(int)]
    #[arg(long, conflicts_with_all = ["no_dotnet_events", "capture"])]
    dotnet_compilations: bool,
    /// Record the input of the profiler from the kernel and the target, for `profiler replay`; the directory must not
    /// exist
    #[arg(long, value_name = "DIR")]
    capture: Option<PathBuf>,
}

/// The shells that have completions.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum CompletedShell {
    Bash,
    Zsh,
    Fish,
}

/// The values of `--unwind`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum UnwindMethod {
    /// By CFI (.eh_frame), and by frame pointer in code without CFI
    Auto,
    /// By frame pointer only
    Fp,
    /// By CFI only
    Dwarf,
}

impl From<UnwindMethod> for Unwind {
    fn from(method: UnwindMethod) -> Self {
        match method {
            UnwindMethod::Auto => Self::Auto,
            UnwindMethod::Fp => Self::FramePointer,
            UnwindMethod::Dwarf => Self::Dwarf,
        }
    }
}

/// The values of `--dotnet-names`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum DotnetNamesSource {
    /// From the runtime's memory (.NET 9 and 10); from its events for what is not there
    Auto,
    /// From the runtime's memory only: the runtime is not contacted for them
    Memory,
    /// From the runtime's events only
    Events,
}

impl From<DotnetNamesSource> for DotnetNames {
    fn from(source: DotnetNamesSource) -> Self {
        match source {
            DotnetNamesSource::Auto => Self::Auto,
            DotnetNamesSource::Memory => Self::Memory,
            DotnetNamesSource::Events => Self::Events,
        }
    }
}

/// Arguments that control which part of a profile is shown, and with which symbols.
#[derive(Args, Debug)]
pub(super) struct ViewArguments {
    #[command(flatten)]
    pub(super) symbols: SymbolArguments,
    #[command(flatten)]
    pub(super) shape: ShapeArguments,
}

/// Arguments of all commands.
#[derive(Args, Debug)]
pub(super) struct CommonArguments {
    /// Print only errors
    #[arg(short, long, global = true)]
    pub(super) quiet: bool,
    /// Print all lines of the summary, and log messages; -vv prints debug messages
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(super) verbose: u8,
    /// Keep all rights of the caller, where a restriction of this machine conflicts with the sandbox
    #[arg(long, global = true)]
    pub(super) no_sandbox: bool,
}

impl Arguments {
    /// Parses a command line, whose first word is the program.
    ///
    /// # Errors
    /// Unknown or contradicting arguments, and requests for help or the version.
    pub(super) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut command = Self::definition();
        let matches = command
            .try_get_matches_from_mut(words)
            .map_err(|error| unknown_word::with_hint(error, &mut command))?;
        let is_given =
            |option: &&Arg| matches.value_source(option.get_id().as_str()) == Some(ValueSource::CommandLine);
        let sampling_option = command.get_arguments().filter(|option| !option.is_global_set()).find(is_given);
        if let (Some(action), Some(option)) = (matches.subcommand_name(), sampling_option) {
            let message = format!("`{option}` is for sampling: `{action}` takes its options after its name");
            return Err(command.error(ErrorKind::ArgumentConflict, message));
        }
        let arguments = Self::from_arg_matches(&matches)?;
        let checked = arguments.shape().map_or(Ok(()), ShapeArguments::check);
        checked.map_err(|message| command.error(ErrorKind::ValueValidation, message))?;
        Ok(arguments)
    }

    /// The definition of the command line, with its options in groups.
    pub(super) fn definition() -> Command {
        groups::grouped(Self::command())
    }

    /// The providers of `--event-provider`.
    pub(super) fn event_providers(&self) -> &[EventProvider] {
        &self.sampling.event_provider
    }

    /// The filters of what is written; `None` for commands that write no profile.
    fn shape(&self) -> Option<&ShapeArguments> {
        match &self.action {
            None => Some(&self.view.shape),
            Some(
                Action::Replay { view, .. }
                | Action::Report { view, .. }
                | Action::Top { view, .. }
                | Action::Diff { view, .. },
            ) => Some(&view.shape),
            Some(_) => None,
        }
    }

    /// Whether the command samples processes.
    pub(super) fn samples(&self) -> bool {
        matches!(self.action, None | Some(Action::Record(_) | Action::Agent(_) | Action::Live(_)))
    }

    /// Whether the command reads `/proc` of other processes.
    pub(super) fn reads_processes(&self) -> bool {
        self.samples() || matches!(self.action, Some(Action::Doctor { .. }))
    }

    /// A builder with the settings of the arguments; `None` if they select no target.
    pub(super) fn builder(&self) -> Option<Builder> {
        self.sampling.builder(&self.target, &self.view.symbols)
    }

    /// Sets the user of a command.
    ///
    /// # Errors
    /// There is no such user, or this process may not run a command as another user.
    pub(super) fn apply_user(&self, builder: Builder, quiet: bool) -> Result<Builder> {
        self.sampling.apply_user(&self.target, builder, quiet)
    }
}

impl LiveArguments {
    /// A builder with the settings of the arguments; `None` if they select no target.
    pub(super) fn builder(&self) -> Option<Builder> {
        self.sampling.builder(&self.target, &self.view.symbols)
    }

    /// Sets the user of a command.
    ///
    /// # Errors
    /// There is no such user, or this process may not run a command as another user.
    pub(super) fn apply_user(&self, builder: Builder, quiet: bool) -> Result<Builder> {
        self.sampling.apply_user(&self.target, builder, quiet)
    }
}

impl SamplingArguments {
    /// A builder with these settings; `None` if the arguments select no target.
    fn builder(&self, target: &TargetArguments, symbols: &SymbolArguments) -> Option<Builder> {
        let builder = Profiler::builder().target(target.target()?);
        Some(self.apply(symbols.apply(builder)))
    }

    fn apply(&self, builder: Builder) -> Builder {
        let has_waits = self.wall.is_some() || self.off_cpu || self.io;
        let has_other_event = has_waits || self.counted_events().next().is_some();
        let builder = builder
            .cpu_samples(self.frequency.is_some() || !has_other_event)
            .frequency_hz(self.frequency.unwrap_or(DEFAULT_FREQUENCY_HZ));
        let builder = self.wall.into_iter().fold(builder, Builder::wall_clock_hz);
        let builder = if self.off_cpu { builder.off_cpu(self.min_block, self.wakers) } else { builder };
        let builder = if self.io { builder.io_waits() } else { builder };
        let builder = self.counted_events().fold(builder, Builder::counted_event);
        let builder = builder
            .max_overhead_percent(self.max_overhead)
            .kernel_stacks(!self.user_only)
            .user_stacks(!self.kernel_only)
            .unwind(self.unwind.into())
            .dotnet_names(self.dotnet_names.into())
            .dotnet_events(!self.no_dotnet_events)
            .dotnet_perf_map(self.dotnet_perf_map)
            .dotnet_compilations(self.dotnet_compilations)
            .runtime_events(self.events.iter().flat_map(EventSets::iter));
        let builder = self.event_provider.iter().cloned().fold(builder, Builder::event_provider);
        let builder = match (self.children, self.no_children) {
            (false, false) => builder,
            (children, _) => builder.children(children),
        };
        let builder = self.cpus.iter().fold(builder, |builder, cpus| builder.cpus(cpus.iter()));
        self.capture.iter().fold(builder, Builder::capture)
    }
}

impl SamplingArguments {
    /// The events of `-e`, with what other options say of them, and those of questions with a name of their own.
    fn counted_events(&self) -> impl Iterator<Item = CountedEvent> + '_ {
        let requested = self.counted_events.iter().cloned().map(|event| {
            let event = self.period.into_iter().fold(event, CountedEvent::every);
            let event = self.weight.iter().fold(event, |event, field| event.weighted_by(field));
            self.filter.iter().cloned().fold(event, CountedEvent::only_where)
        });
        let named = [
            (self.faults, "page-faults", None),
            (self.syscalls, "raw_syscalls:sys_enter", None),
            (self.syscalls, "syscall-time", None),
            (self.alloc, "uprobe:libc:malloc", Some("arg1")),
        ];
        let named = named.into_iter().filter(|(is_wanted, ..)| *is_wanted).filter_map(|(_, name, field)| {
            let event: CountedEvent = name.parse().ok()?;
            Some(field.map_or(event.clone(), |field| event.weighted_by(field)))
        });
        requested.chain(named)
    }

    fn apply_user(&self, target: &TargetArguments, builder: Builder, quiet: bool) -> Result<Builder> {
        match &self.user {
            // clap does not check that an argument is given which another one excludes.
            Some(_) if !target.is_command() => bail!(WrongArguments::new("--user is for -- COMMAND")),
            _ if !target.is_command() => Ok(builder),
            user => command_user::apply(builder, user.as_deref(), quiet),
        }
    }
}

/// Parses `--window`. The limit bounds the samples that the live view aggregates every second.
fn parse_window(text: &str) -> Result<Duration, String> {
    const MAX_WINDOW: Duration = Duration::from_secs(600);
    match parse_duration(text)? {
        window if window > MAX_WINDOW => {
            Err("the longest window is 10m; the key w switches to all samples".to_owned())
        }
        window => Ok(window),
    }
}

#[cfg(test)]
mod tests;
