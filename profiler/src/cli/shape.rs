//! The arguments that filter and shape a profile, the same when it is made and when it is looked at later.

use std::time::Duration;

use clap::Args;

use super::duration::parse_duration;
use profiler_profile::{
    Profile,
    shape::{Choice, Pattern, Shape, Share},
};

/// What to show of a profile.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Filter and shape")]
pub(super) struct ShapeArguments {
    /// Show samples of this thread alone: its id, or a regular expression that its name matches
    #[arg(long, value_name = "TID|REGEX")]
    thread: Option<Choice>,
    /// Show samples of this process alone: its id, or a regular expression that its name matches
    #[arg(long, value_name = "PID|REGEX")]
    process: Option<Choice>,
    /// Show samples of this container alone, by the beginning of its id
    #[arg(long, value_name = "ID")]
    in_container: Option<String>,
    /// Show samples from this time on: 2s, 500ms, since sampling began
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    from: Option<Duration>,
    /// Show samples before this time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    to: Option<Duration>,
    /// Show samples with a matching frame alone; frames match by name, source file and module, anywhere in them
    #[arg(long, value_name = "REGEX")]
    focus: Option<Pattern>,
    /// Leave out samples with a matching frame
    #[arg(long, value_name = "REGEX")]
    ignore: Option<Pattern>,
    /// Leave out matching frames
    #[arg(long, value_name = "REGEX")]
    hide: Option<Pattern>,
    /// Leave out what calls the outermost matching frame, and samples without one
    #[arg(long, value_name = "REGEX")]
    show_from: Option<Pattern>,
    /// Make one frame of a function that calls itself directly
    #[arg(long)]
    collapse_recursion: bool,
    /// Make one frame of all addresses and lines of a function
    #[arg(long)]
    merge_addresses: bool,
    /// Cut off call paths below this share of the samples (0.5%); they count for their callers
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    min_share: Share,
}

impl ShapeArguments {
    /// The profile as it is to be shown.
    pub(super) fn apply(&self, profile: Profile) -> Profile {
        let shape = self.shape();
        if shape.is_empty() { profile } else { profile.shaped(&shape) }
    }

    /// Whether times choose samples.
    pub(super) fn has_times(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    fn shape(&self) -> Shape {
        Shape {
            thread: self.thread.clone(),
            process: self.process.clone(),
            container: self.in_container.clone(),
            from: self.from,
            to: self.to,
            focus: self.focus.clone(),
            ignore: self.ignore.clone(),
            hide: self.hide.clone(),
            show_from: self.show_from.clone(),
            collapse_recursion: self.collapse_recursion,
            merge_addresses: self.merge_addresses,
            min_share: self.min_share,
        }
    }
}

/// As a duration, or the very beginning.
fn parse_time(text: &str) -> Result<Duration, String> {
    if text.trim_end_matches(['h', 'm', 's']) == "0" { Ok(Duration::ZERO) } else { parse_duration(text) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use profiler_profile::{Header, ProfileBuilder};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        shape: ShapeArguments,
    }

    fn parse(line: &str) -> Result<ShapeArguments, clap::Error> {
        Line::try_parse_from(std::iter::once("x").chain(line.split_whitespace())).map(|line| line.shape)
    }

    #[test]
    fn every_flag_reaches_the_library_by_its_name() {
        let flags = "--thread ^GC --process 7 --in-container 3f2a --from 1.5s --to 3s --focus a --ignore b --hide c --show-from d \
                     --collapse-recursion --merge-addresses --min-share 0.5%";
        let profile = ProfileBuilder::default().finish(Header::default());
        let shaped = parse(flags).unwrap().apply(profile);
        assert_eq!(shaped.header().edits.join(" "), flags);
    }

    #[test]
    fn the_defaults_are_those_of_the_library() {
        assert_eq!(format!("{:?}", parse("").unwrap().shape()), format!("{:?}", Shape::default()));
        assert!(parse("").unwrap().shape().is_empty());
    }

    #[test]
    fn time_begins_at_zero() {
        for zero in ["0", "0s", "0ms", "0m"] {
            assert_eq!(parse(&format!("--from {zero}")).unwrap().from, Some(Duration::ZERO));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for line in ["--focus (", "--min-share 200%", "--from soon", "--thread ["] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
