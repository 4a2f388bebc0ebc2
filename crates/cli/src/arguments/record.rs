//! Arguments of `profiler record`.

use std::{fmt::Write as _, path::PathBuf, time::Duration};

use anyhow::{Result, bail};
use clap::Args;
use profiler::Builder;
use profiler_profile_formats::Format;
use profiler_triggers::{Condition, GRAMMAR, Measure};

use super::{SamplingArguments, StackArguments, TargetArguments, ViewArguments};
use crate::{
    byte_size::parse_byte_size,
    duration::{parse_duration, parse_duration_or_zero},
    event_log::LogFormat,
    wrong_arguments::WrongArguments,
};

/// Arguments of `profiler record`.
#[derive(Args, Debug)]
pub(crate) struct RecordArguments {
    #[command(flatten)]
    target: TargetArguments,
    /// Write a file when this condition becomes true: 'cpu < 20% for 10s and requests > 0', 'gc-pause > 200ms',
    /// 'exceptions > 50/s', 'exit', 'signal' (SIGUSR2). Can be repeated. --help lists the measures
    #[arg(long, value_name = "CONDITION", required_unless_present_any = ["rotate", "trigger_file"])]
    pub(crate) trigger: Vec<Condition>,
    /// Conditions from this file, one a line; SIGHUP has it read again
    #[arg(long, value_name = "FILE")]
    pub(crate) trigger_file: Option<PathBuf>,
    /// The time before the incident that a file has, at most 1h
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_keep)]
    pub(crate) keep: Duration,
    /// The time after the incident that a file has
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration_or_zero)]
    pub(crate) after: Duration,
    /// End when this many files of the series have been written, also by a recorder before
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// The shortest time from one recorded incident to the next, also across a restart of the recorder
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_duration_or_zero)]
    pub(crate) cooldown: Duration,
    /// Write one file after the other, each with this time, without gaps
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with_all = ["trigger", "trigger_file", "cooldown", "count"])]
    pub(crate) rotate: Option<Duration>,
    /// Remove the oldest files of the series beyond this number
    #[arg(long, value_name = "N")]
    pub(crate) keep_files: Option<usize>,
    /// Remove the oldest files of the series beyond this size in all: 500M, 2G
    #[arg(long, value_name = "BYTES", value_parser = parse_byte_size)]
    pub(crate) max_disk: Option<u64>,
    /// Run this command of sh(1) for each file, which is its $1
    #[arg(long, value_name = "COMMAND")]
    pub(crate) exec: Option<String>,
    /// The log file whose new lines `file ~ "REGEX"` compares; - is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
    /// When the target of --process, --cgroup or --pod has ended, wait for the next one with the name, and go on
    #[arg(long, conflicts_with_all = ["check", "duration"])]
    pub(crate) follow: bool,
    /// This is a recorder of the process with this id, which has --follow
    #[arg(long, hide = true, conflicts_with = "follow")]
    pub(crate) followed: Option<u32>,
    /// Print the present value of each condition, and exit
    #[arg(long, conflicts_with = "rotate")]
    pub(crate) check: bool,
    /// The format of the lines on standard output
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Logfmt)]
    pub(crate) log_format: LogFormat,
    /// Write files with these names, in the format of the extension. %t is the time (UTC), %n the number, %% a percent sign
    #[arg(short, long, value_name = "FILE", default_value = "trap-%t-%n.profile")]
    pub(crate) output: PathBuf,
    /// The format of the files, whatever their extension is
    #[arg(long, value_name = "NAME")]
    pub(crate) format: Option<Format>,
    #[command(flatten)]
    pub(crate) sampling: SamplingArguments,
    #[command(flatten)]
    pub(crate) stacks: StackArguments,
    #[command(flatten)]
    pub(crate) view: ViewArguments,
}

impl RecordArguments {
    /// A builder with the settings of the arguments; `None` if they select no target.
    pub(crate) fn builder(&self) -> Option<Builder> {
        self.sampling.builder(&self.target, &self.view.symbols)
    }

    /// Whether the target has a name that another process, cgroup or pod can have later.
    pub(crate) fn has_named_target(&self) -> bool {
        self.target.is_named()
    }

    /// The names of the events of `-e`, and of those of questions with a name of their own.
    pub(crate) fn event_names(&self) -> Vec<String> {
        self.sampling.counted_events().map(|event| event.name().to_owned()).collect()
    }

    /// Sets the user of a command.
    ///
    /// # Errors
    /// There is no such user, or this process may not run a command as another user. A capture would grow without end.
    pub(crate) fn apply_user(&self, builder: Builder, quiet: bool) -> Result<Builder> {
        if self.sampling.capture.is_some() {
            bail!(WrongArguments::new(
                "--capture is for a session with an end: `profiler -p PID -d TIME --capture DIR`"
            ));
        }
        self.sampling.apply_user(&self.target, builder, quiet)
    }
}

/// The measures and the grammar of conditions.
pub(super) fn conditions_help() -> String {
    let mut help = "Measures of conditions:\n".to_owned();
    for (name, summary) in Measure::summaries() {
        // Writing to a String cannot fail.
        let _ = writeln!(help, "  {name:<18} {summary}");
    }
    format!("{help}\nGrammar of conditions (EBNF):\n{GRAMMAR}")
}

/// Parses `--keep`. The limit bounds the time that a file takes to write.
fn parse_keep(text: &str) -> Result<Duration, String> {
    const MAX_KEEP: Duration = Duration::from_secs(3600);
    match parse_duration(text)? {
        keep if keep > MAX_KEEP => {
            Err("the longest time is 1h; --rotate keeps more, in several files".to_owned())
        }
        keep => Ok(keep),
    }
}
