//! Groups the options in the help texts, and selects those that the short one has.

use clap::{Arg, Command};

/// The headings of options, in the order of the long help. Options of one subcommand, and those of all, have no heading.
const GROUPS: [(&str, &[&str]); 7] = [
    (
        "Target",
        &[
            "pid",
            "process",
            "tid",
            "all",
            "cgroup",
            "container",
            "pod",
            "namespace",
            "pod_container",
            "command",
            "children",
            "no_children",
            "user",
        ],
    ),
    ("Sampling", &["frequency", "duration", "cpus", "user_only", "kernel_only", "unwind", "capture"]),
    ("Waiting", &["wall", "off_cpu", "min_block", "wakers", "io"]),
    (
        "Events",
        &[
            "counted_events",
            "faults",
            "syscalls",
            "alloc",
            "period",
            "weight",
            "filter",
            "events",
            "event_provider",
        ],
    ),
    (
        "Names",
        &[
            "inlines",
            "lines",
            "raw_names",
            "debug_dir",
            "symbol_server",
            "symbol_cache",
            "dotnet_names",
            "dotnet_tiers",
            "dotnet_compilations",
            "dotnet_perf_map",
            "no_dotnet_events",
        ],
    ),
    (
        "Output",
        &[
            "output",
            "format",
            "annotate",
            "per_thread",
            "per_process",
            "per_container",
            "per_state",
            "addresses",
            "wait_frames",
        ],
    ),
    ("Limits", &["max_overhead"]),
];

/// The options of daily use, which the short help of sampling has. It fits on a screen.
const DAILY: [&str; 10] =
    ["pid", "process", "container", "all", "command", "frequency", "duration", "wall", "events", "output"];

/// The definition of the command line with its options in groups.
pub(super) fn grouped(command: Command) -> Command {
    with_headings(command).mut_args(|arg| {
        let is_daily = DAILY.contains(&arg.get_id().as_str());
        if is_daily { arg } else { arg.hide_short_help(true) }
    })
}

/// The options of a command and of those below it with their headings.
fn with_headings(command: Command) -> Command {
    command.mut_args(with_heading).mut_subcommands(with_headings)
}

fn with_heading(arg: Arg) -> Arg {
    let is_of = |(_, options): &&(&str, &[&str])| options.contains(&arg.get_id().as_str());
    match GROUPS.iter().find(is_of) {
        Some((heading, _)) => arg.help_heading(*heading),
        None => arg,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::arguments::Arguments;

    #[test]
    fn every_option_of_sampling_has_a_group_and_every_group_has_options() {
        let command = grouped(Arguments::command());
        let of_all_commands = ["quiet", "verbose", "no_sandbox"];
        for arg in command.get_arguments() {
            let id = arg.get_id().as_str();
            assert!(arg.get_help_heading().is_some() != of_all_commands.contains(&id), "{id}");
        }
        let grouped = GROUPS.iter().flat_map(|(_, options)| *options).chain(&DAILY);
        for option in grouped {
            assert!(command.get_arguments().any(|arg| arg.get_id() == option), "{option}");
        }
    }

    #[test]
    fn the_short_help_has_the_options_of_daily_use_on_one_screen() {
        const SCREEN_LINES: usize = 50;
        let help = grouped(Arguments::command()).render_help().to_string();
        assert!(help.lines().count() <= SCREEN_LINES, "{help}");
        for shown in ["-p, --pid", "--process", "--container", "-a, --all", "-F, ", "-d, ", "--wall", "-o, "]
        {
            assert!(help.contains(shown), "{shown}: {help}");
        }
        for hidden in ["--min-block", "--symbol-server", "--focus", "--max-overhead"] {
            assert!(!help.contains(hidden), "{hidden}: {help}");
        }
    }
}
