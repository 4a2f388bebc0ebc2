//! The arguments, as clap sees them, and what they mean for the library.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{
    Arg, ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, error::ErrorKind,
    parser::ValueSource,
};

use super::{duration::parse_duration, shape::ShapeArguments};
use crate::{Builder, DEFAULT_FREQUENCY_HZ, Profiler, Target, Unwind, sampler::ebpf::CpuSet};
use profiler_profile_formats::{Format, OutputOptions};
use profiler_symbolize::SymbolDirectories;

const EXAMPLES: &str = "\
Examples:
  profiler -p 1234 -F 99 -d 30 > folded       folded stacks of a process, for any flame graph tool
  profiler -p 1234 -d 10 -o flame.svg         a flame graph
  profiler -p 1234 -d 10 -o flame.html        a page to look into: zoom, search, callers, time
  profiler -- ./program --its-own arguments   start a program and profile it until it ends
  profiler -a -d 5 --per-process > folded     everything on this machine
  profiler --container 3f2a91 -d 10 -o a.svg  a container, by the beginning of its id
  profiler -p 1234 -d 5 --inlines --lines     with inlined functions, files and lines
  profiler -p 1234 -d 30 -o run.profile       everything that was measured, for later
  profiler report run.profile -o flame.svg    any output of it, on any machine
  profiler top run.profile --focus Json       its hottest functions, of some samples
  profiler diff old.profile new.profile       what changed between two
  profiler live -p 1234                       a flame graph in the terminal, every second anew
  profiler doctor                             what this machine and these privileges allow
  profiler doctor -p 1234                     and how the frames of a process will be named

Exit codes: 0 done, 1 failed, 2 wrong arguments, 3 no sample, or the started command's own code.
Ctrl-C stops sampling and writes what there is; a second Ctrl-C leaves at once.";

const USAGE: &str = "\
profiler [OPTIONS] [-- <COMMAND>...]
       profiler [-q] [-v] <COMMAND>";

/// Shows where a process burns CPU: samples native, JIT and kernel stacks by eBPF, and names every frame.
#[derive(Debug, Parser)]
#[command(
    name = "profiler",
    version,
    after_long_help = EXAMPLES,
    override_usage = USAGE,
    after_help = "See --help for examples.",
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
    // The last one: what followed would stand below its heading.
    #[command(flatten)]
    pub(super) view: ViewArguments,
}

/// What to do in place of sampling.
#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Say what this machine and these privileges allow, and what would mend the rest
    Doctor {
        /// Say also what this process is, and how each kind of its frames will be named
        #[arg(short, long)]
        pid: Option<u32>,
    },
    /// Make a profile of a recorded capture (see --capture), without privileges
    Replay {
        /// The directory of the capture
        directory: PathBuf,
        #[command(flatten)]
        output: OutputArguments,
        #[command(flatten)]
        view: ViewArguments,
    },
    /// Show a flame graph and the hot functions in this terminal, every second anew
    #[command(mut_arg("from", |from| from.hide(true)), mut_arg("to", |to| to.hide(true)))]
    Live(Box<LiveArguments>),
    /// Write a recorded profile (-o FILE.profile) in any format, without privileges
    Report {
        /// The recorded profile; - is standard input
        recording: PathBuf,
        #[command(flatten)]
        output: OutputArguments,
        #[command(flatten)]
        view: ViewArguments,
    },
    /// Show the hottest functions and the heaviest call paths of a recorded profile
    Top {
        /// The recorded profile; - is standard input
        recording: PathBuf,
        #[command(flatten)]
        view: ViewArguments,
    },
    /// Show what changed between two recorded profiles: as a table, or with -o as folded stacks with both counts
    /// (.folded), as a flame graph in red and blue (.svg) or as a page (.html)
    Diff {
        /// The recorded profile from before
        before: PathBuf,
        /// The recorded profile from after
        after: PathBuf,
        #[command(flatten)]
        output: OutputArguments,
        #[command(flatten)]
        view: ViewArguments,
    },
}

/// What to look at while it is sampled.
#[derive(Args, Debug)]
pub(super) struct LiveArguments {
    #[command(flatten)]
    target: TargetArguments,
    /// Show this much of the past, 10m at most; w shows everything
    #[arg(short, long, value_name = "TIME", default_value = "30s", value_parser = parse_window)]
    pub(super) window: Duration,
    #[command(flatten)]
    pub(super) sampling: SamplingArguments,
    #[command(flatten)]
    pub(super) stacks: StackArguments,
    #[command(flatten)]
    pub(super) view: ViewArguments,
}

/// What to sample.
#[derive(Args, Debug)]
#[group(id = "what", multiple = false)]
pub(super) struct TargetArguments {
    /// Sample these processes, with the threads they have and will have
    #[arg(short, long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Sample these threads
    #[arg(short, long, value_name = "TID", value_delimiter = ',')]
    tid: Vec<u32>,
    /// Sample everything on this machine
    #[arg(short, long)]
    all: bool,
    /// Sample a cgroup and what is below it: a directory, or a path as /proc/PID/cgroup shows it
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// Sample a container, by the beginning of its id (docker, containerd, cri-o)
    #[arg(long, value_name = "ID")]
    container: Option<String>,
    /// Start this command and sample it until it ends
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// How to sample.
#[derive(Args, Debug)]
pub(super) struct SamplingArguments {
    /// Samples a second on each CPU
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = DEFAULT_FREQUENCY_HZ)]
    frequency: u64,
    /// How long: 30, 1.5, 500ms, 2m; until Ctrl-C or the end of the target when not given
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) duration: Option<Duration>,
    /// Sample these CPUs alone: 0-3,8
    #[arg(short = 'C', long, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Sample children that a target process starts from now on, too
    #[arg(long)]
    children: bool,
    /// Take user frames alone
    #[arg(short = 'U', long, conflicts_with = "kernel_only")]
    user_only: bool,
    /// Take kernel frames alone
    #[arg(short = 'K', long)]
    kernel_only: bool,
    /// How user stacks are unwound
    #[arg(long, value_enum, value_name = "METHOD", default_value_t = UnwindMethod::Auto)]
    unwind: UnwindMethod,
    /// Have .NET 8 and later write a perf map meanwhile, for the names of the runtime's stubs. It is removed at the end.
    /// Costs the target a pause at the beginning, up to seconds in large programs, and a write for each method it
    /// compiles; not done where that could lock up or crash its runtime (10.0.0 to 10.0.10, and the first 5 seconds)
    #[arg(long)]
    dotnet_perf_map: bool,
    /// Record what is read of the kernel and the target, for `profiler replay`
    #[arg(long, value_name = "DIR")]
    capture: Option<PathBuf>,
}

/// As [`Unwind`], by its names on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum UnwindMethod {
    /// By unwind tables (.eh_frame), by frame pointer through code that has none
    Auto,
    /// By frame pointer alone
    Fp,
    /// By unwind tables alone
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

/// What to write, and how.
#[derive(Args, Debug)]
pub(super) struct OutputArguments {
    /// Write to this file, in the format of its extension (.folded, .txt, .svg, .html, .top; .profile to look at it later;
    /// for other tools .pb.gz, .speedscope.json, .json of the Firefox Profiler, .perf.txt, .trace.zip of PerfView); - is
    /// standard output, -.top too.
    /// Can be given more than once [default: standard output, as folded stacks; of a difference,
    /// the table]
    #[arg(short, long, value_name = "FILE", allow_hyphen_values = true)]
    pub(super) output: Vec<PathBuf>,
    /// The format of all outputs, whatever their names say: folded, svg, html, top, pprof,
    /// speedscope, firefox, perf-script, trace-zip, profile
    #[arg(long, value_name = "NAME")]
    pub(super) format: Option<Format>,
    #[command(flatten)]
    stacks: StackArguments,
}

/// How stacks are written.
#[derive(Args, Debug)]
pub(super) struct StackArguments {
    /// Mark kinds of frames in folded stacks: _[k] kernel, _[j] JIT, _[i] inlined
    #[arg(long)]
    annotate: bool,
    /// Show threads as frames, with name and id
    #[arg(long)]
    per_thread: bool,
    /// Show processes as frames, with name and id
    #[arg(long)]
    per_process: bool,
    /// Show containers as frames, with the beginning of their ids
    #[arg(long)]
    per_container: bool,
    /// Show each unsymbolized frame with its address, in place of one frame `[module]` for consecutive ones
    #[arg(long)]
    addresses: bool,
}

/// What of a profile to see.
#[derive(Args, Debug)]
pub(super) struct ViewArguments {
    #[command(flatten)]
    pub(super) naming: NamingArguments,
    #[command(flatten)]
    pub(super) shape: ShapeArguments,
}

/// What to call frames.
#[derive(Args, Debug)]
pub(super) struct NamingArguments {
    /// Show inlined functions as frames (needs debug information)
    #[arg(long)]
    inlines: bool,
    /// Show file and line of each frame (needs debug information)
    #[arg(long)]
    lines: bool,
    /// Show managed (.NET) names as the runtime spells them, not as C# does; native names stay as they are
    #[arg(long)]
    raw_names: bool,
    /// Show how the code of each .NET method was compiled: [QuickJitted], [OptimizedTier1], [PreJIT] ...
    #[arg(long)]
    dotnet_tiers: bool,
    /// Look for debug files in this directory first; of a recorded profile, name what has no name yet by them. Can be
    /// given more than once
    #[arg(long, value_name = "DIR")]
    debug_dir: Vec<PathBuf>,
    /// Ask this symbol server for debug files that are nowhere else: an address; microsoft (the builds of .NET);
    /// debuginfod (the servers in DEBUGINFOD_URLS). It is told build ids. Can be given more than once
    #[arg(long, value_name = "URL")]
    symbol_server: Vec<String>,
    /// Keep what symbol servers have in this directory [default: ~/.cache/profiler]
    #[arg(long, value_name = "DIR")]
    symbol_cache: Option<PathBuf>,
}

/// How much to say.
#[derive(Args, Debug)]
pub(super) struct CommonArguments {
    /// Say nothing but errors
    #[arg(short, long, global = true)]
    pub(super) quiet: bool,
    /// Say more; twice for everything
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(super) verbose: u8,
}

impl Arguments {
    /// What the words of a command line say, the first of which is the program.
    ///
    /// # Errors
    /// Words that mean nothing, or nothing together.
    pub(super) fn of(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut command = Self::command();
        let matches = command.try_get_matches_from_mut(words)?;
        let given =
            |option: &&Arg| matches.value_source(option.get_id().as_str()) == Some(ValueSource::CommandLine);
        let of_sampling = command.get_arguments().filter(|option| !option.is_global_set()).find(given);
        if let (Some(action), Some(option)) = (matches.subcommand_name(), of_sampling) {
            let message = format!("`{option}` is for sampling: `{action}` takes its options after its name");
            return Err(command.error(ErrorKind::ArgumentConflict, message));
        }
        Self::from_arg_matches(&matches)
    }

    /// The profiler that the arguments describe; `None` when they name no target.
    pub(super) fn builder(&self) -> Option<Builder> {
        let builder = Profiler::builder().target(self.target.target()?);
        Some(self.sampling.apply(self.view.naming.apply(builder)))
    }
}

impl LiveArguments {
    /// As [`Arguments::builder`].
    pub(super) fn builder(&self) -> Option<Builder> {
        let builder = Profiler::builder().target(self.target.target()?);
        Some(self.sampling.apply(self.view.naming.apply(builder)))
    }
}

impl SamplingArguments {
    fn apply(&self, builder: Builder) -> Builder {
        let builder = builder
            .frequency_hz(self.frequency)
            .children(self.children)
            .kernel_stacks(!self.user_only)
            .user_stacks(!self.kernel_only)
            .unwind(self.unwind.into())
            .dotnet_perf_map(self.dotnet_perf_map);
        let builder = self.cpus.iter().fold(builder, |builder, cpus| builder.cpus(cpus.iter()));
        self.capture.iter().fold(builder, Builder::capture)
    }
}

impl TargetArguments {
    fn target(&self) -> Option<Target> {
        if !self.pid.is_empty() {
            Some(Target::Pids(self.pid.clone()))
        } else if !self.tid.is_empty() {
            Some(Target::Tids(self.tid.clone()))
        } else if self.all {
            Some(Target::Everything)
        } else if let Some(path) = &self.cgroup {
            Some(Target::Cgroup(path.clone()))
        } else if let Some(id) = &self.container {
            Some(Target::Container(id.clone()))
        } else if !self.command.is_empty() {
            Some(Target::Command(self.command.clone()))
        } else {
            None
        }
    }
}

impl OutputArguments {
    /// How to write.
    pub(super) fn options(&self) -> OutputOptions {
        self.stacks.options()
    }
}

impl StackArguments {
    /// How to write.
    pub(super) fn options(&self) -> OutputOptions {
        OutputOptions {
            annotate: self.annotate,
            per_thread: self.per_thread,
            per_process: self.per_process,
            per_container: self.per_container,
            addresses: self.addresses,
            ..OutputOptions::default()
        }
    }
}

impl NamingArguments {
    /// What has to be known while sampling.
    pub(super) fn apply(&self, builder: Builder) -> Builder {
        let builder = builder
            .inlines(self.inlines)
            .lines(self.lines)
            .raw_names(self.raw_names)
            .dotnet_tiers(self.dotnet_tiers);
        let builder = self.debug_dir.iter().fold(builder, Builder::debug_directory);
        let builder = self.symbol_server.iter().fold(builder, Builder::symbol_server);
        self.symbol_cache.iter().fold(builder, Builder::symbol_cache)
    }

    /// What a profile that was recorded can still be given, if anything.
    pub(super) fn symbols(&self) -> Option<SymbolDirectories> {
        let directories = self.debug_dir.clone();
        (!directories.is_empty()).then_some(SymbolDirectories {
            directories,
            inlines: self.inlines,
            lines: self.lines,
        })
    }
}

/// A duration that is not too much to be gone through every second.
fn parse_window(text: &str) -> Result<Duration, String> {
    const LONGEST: Duration = Duration::from_secs(600);
    match parse_duration(text)? {
        window if window > LONGEST => Err("the longest window is 10m; w shows everything".to_owned()),
        window => Ok(window),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::of(std::iter::once("profiler").chain(line.split_whitespace()).map(OsString::from))
    }

    fn target(line: &str) -> Target {
        parse(line).unwrap().target.target().unwrap()
    }

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_target_can_be_named() {
        assert_eq!(target("-p 1,2"), Target::Pids(vec![1, 2]));
        assert_eq!(target("-t 3"), Target::Tids(vec![3]));
        assert_eq!(target("-a"), Target::Everything);
        assert_eq!(target("--cgroup /a/b"), Target::Cgroup("/a/b".into()));
        assert_eq!(target("--container abc"), Target::Container("abc".to_owned()));
        assert_eq!(target("-F 9 -- ls -l"), Target::Command(vec!["ls".into(), "-l".into()]));
    }

    #[test]
    fn two_targets_contradict_each_other() {
        for line in ["-p 1 -a", "-t 1 -- ls", "--cgroup /a --container b"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_library() {
        let arguments = parse("-p 1").unwrap();
        let library = Profiler::builder().target(Target::Pids(vec![1]));
        assert_eq!(format!("{:?}", arguments.builder().unwrap()), format!("{library:?}"));
        assert_eq!(arguments.output.options(), OutputOptions::default());
    }

    #[test]
    fn flags_reach_the_library() {
        let line = "-p 1 -F 999 -C 0-1 --children -U --inlines --lines --raw-names --dotnet-tiers \
                    --dotnet-perf-map --debug-dir /d --capture /c --symbol-server microsoft --symbol-server http://s \
                    --symbol-cache /s";
        let library = Profiler::builder()
            .target(Target::Pids(vec![1]))
            .frequency_hz(999)
            .cpus([0, 1])
            .children(true)
            .kernel_stacks(false)
            .inlines(true)
            .lines(true)
            .raw_names(true)
            .dotnet_tiers(true)
            .dotnet_perf_map(true)
            .debug_directory("/d")
            .symbol_server("microsoft")
            .symbol_server("http://s")
            .symbol_cache("/s")
            .capture("/c");
        assert_eq!(format!("{:?}", parse(line).unwrap().builder().unwrap()), format!("{library:?}"));
    }

    #[test]
    fn the_live_view_takes_what_sampling_takes() {
        let line = "-F 999 --children --inlines --debug-dir /d -C 0 -p 7";
        let Some(Action::Live(live)) = parse(&format!("live --window 5 {line}")).unwrap().action else {
            panic!("another action")
        };
        let sampling = parse(line).unwrap().builder().unwrap();
        assert_eq!(format!("{:?}", live.builder().unwrap()), format!("{sampling:?}"));
        assert_eq!(live.window, Duration::from_secs(5));
        for wrong in ["live -p 7 -o x.svg", "live -p 7 --window 11m", "live -p 7 -a"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_every_action_has_may_stand_before_it() {
        for line in ["-qvv report x", "report x -qvv", "-q report x -vv"] {
            let common = parse(line).unwrap().common;
            assert_eq!((common.quiet, common.verbose), (true, 2), "{line}");
        }
        for line in ["-p 7 report x", "-o x.svg report x", "--focus a top x", "-a doctor"] {
            let error = parse(line).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{line}");
        }
        assert!(parse("-p 7 report x").unwrap_err().to_string().contains("`--pid <PID>` is for sampling"));
    }

    #[test]
    fn nonsense_is_refused() {
        for line in
            ["-p x", "-F -1 -p 1", "-d 0x -p 1", "-C 3-1 -p 1", "--format nope -p 1", "-U -K -p 1", "--nope"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
