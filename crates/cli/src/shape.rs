//! Arguments that filter and shape a profile, shared by sampling and the commands on recorded profiles.

use std::{borrow::Cow, time::Duration};

use anyhow::{Context as _, Result};
use clap::Args;
use profiler_findings::{IdleThreads, with_wait_causes};
use profiler_profile::{
    EventId, Profile, ThreadState,
    shape::{Choice, Pattern, Shape, Share},
};

use super::duration::parse_duration;

/// Arguments of [`Shape`].
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Filter and shape")]
pub(super) struct ShapeArguments {
    /// The event that is shown in formats of a single event: cpu-clock, or the start of its name [default: the first
    /// one that has samples]
    #[arg(long, value_name = "NAME")]
    event: Option<String>,
    /// Show only samples of this thread: an id, or a regular expression for the name
    #[arg(long, value_name = "TID|REGEX")]
    thread: Option<Choice>,
    /// Show only samples of this process: an id, or a regular expression for the name
    #[arg(long, value_name = "PID|REGEX")]
    in_process: Option<Choice>,
    /// Show only samples of this container, by a prefix of its id
    #[arg(long, value_name = "ID")]
    in_container: Option<String>,
    /// Show only wall-clock samples and waits of threads in these states: on-cpu, runnable, throttled, blocked, disk, stopped;
    /// several with commas
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    state: Vec<ThreadState>,
    /// Show only samples from this time on: 2s, 500ms after the start of sampling
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    from: Option<Duration>,
    /// Show only samples before this time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    to: Option<Duration>,
    /// Show only samples with a matching frame; patterns match anywhere in function name, source file and module
    #[arg(long, value_name = "REGEX")]
    focus: Option<Pattern>,
    /// Remove samples with a matching frame
    #[arg(long, value_name = "REGEX")]
    ignore: Option<Pattern>,
    /// Remove matching frames
    #[arg(long, value_name = "REGEX")]
    hide: Option<Pattern>,
    /// Remove the callers of the outermost matching frame, and samples without a matching frame
    #[arg(long, value_name = "REGEX")]
    show_from: Option<Pattern>,
    /// Merge the frames of a function that calls itself directly
    #[arg(long)]
    collapse_recursion: bool,
    /// Merge the frames of a function with different addresses and lines
    #[arg(long)]
    merge_addresses: bool,
    /// Remove call paths below this share of the samples (0.5%); their samples count for the callers
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    min_share: Share,
    /// Also show threads that wait for work in flame graphs, pages, tables and the live view; data for other tools always
    /// has them
    #[arg(long)]
    show_idle: bool,
}

impl ShapeArguments {
    /// A profile with the filters.
    pub(super) fn of<'a>(&'a self, whole: &'a Profile) -> ShapedProfile<'a> {
        ShapedProfile { arguments: self, whole, data: self.shaped(whole) }
    }

    /// A profile as pictures, pages and tables show it: with the cause of each wait, without idle threads unless `--show-idle` is
    /// given, and with the filters. They come last, since causes are those of whole stacks.
    pub(super) fn view<'a>(&self, whole: &'a Profile) -> Cow<'a, Profile> {
        let idle = if self.show_idle { IdleThreads::Shown } else { IdleThreads::Hidden };
        match with_wait_causes(whole, idle) {
            Cow::Borrowed(profile) => self.shaped(profile),
            Cow::Owned(profile) => match self.shaped(&profile) {
                Cow::Owned(shaped) => Cow::Owned(shaped),
                Cow::Borrowed(_) => Cow::Owned(profile),
            },
        }
    }

    fn shaped<'a>(&self, profile: &'a Profile) -> Cow<'a, Profile> {
        let shape = self.shape();
        if shape.is_empty() { Cow::Borrowed(profile) } else { Cow::Owned(profile.shaped(&shape)) }
    }

    /// Checks the settings that depend on each other.
    ///
    /// # Errors
    /// The time of the samples ends before it begins.
    pub(super) fn check(&self) -> std::result::Result<(), String> {
        match (self.from, self.to) {
            (Some(from), Some(to)) if from >= to => {
                Err(format!("--from {from:?} is not before --to {to:?}: no sample is between them"))
            }
            (_, Some(Duration::ZERO)) => Err("no sample is before --to 0".to_owned()),
            _ => Ok(()),
        }
    }

    /// The same filters for another time.
    pub(super) fn at(&self, TimeRange { from, to }: TimeRange) -> Self {
        Self { from: Some(from), to, ..self.clone() }
    }

    /// The time of the samples.
    pub(super) fn time(&self) -> TimeRange {
        TimeRange { from: self.from.unwrap_or_default(), to: self.to }
    }

    /// Whether `--from` or `--to` is given.
    pub(super) fn has_times(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    fn shape(&self) -> Shape {
        Shape {
            thread: self.thread.clone(),
            process: self.in_process.clone(),
            container: self.in_container.clone(),
            states: self.state.clone(),
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

/// A measured profile and what the filters leave of it.
#[derive(Debug)]
pub(super) struct ShapedProfile<'a> {
    arguments: &'a ShapeArguments,
    /// What was measured.
    pub(super) whole: &'a Profile,
    /// As data for other tools has it.
    pub(super) data: Cow<'a, Profile>,
}

impl ShapedProfile<'_> {
    /// As pictures, pages and tables show it.
    pub(super) fn view(&self) -> Cow<'_, Profile> {
        self.arguments.view(self.whole)
    }

    /// The event that `--event` selects, else the first one with samples.
    pub(super) fn event(&self) -> Result<EventId> {
        let Some(name) = &self.arguments.event else { return Ok(self.data.default_event()) };
        let known = || self.data.events().map(|event| &*event.name).collect::<Vec<_>>().join(", ");
        self.data
            .find_event(name)
            .with_context(|| format!("the profile has no event `{name}` (known: {})", known()))
    }
}

/// A part of the time of a profile, since the start of sampling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TimeRange {
    pub(super) from: Duration,
    /// `None` for the end of the profile.
    pub(super) to: Option<Duration>,
}

impl TimeRange {
    /// The length of the part of a profile of this duration, nanoseconds.
    pub(super) fn length_ns(self, duration_ns: u64) -> u64 {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.to.map_or(duration_ns, ns).min(duration_ns).saturating_sub(ns(self.from))
    }
}

/// Parses `10s..20s` and `10s..`.
pub(super) fn parse_time_range(text: &str) -> std::result::Result<TimeRange, String> {
    let (from, to) = text.split_once("..").ok_or_else(|| format!("`{text}` has no `..`, as in 10s..20s"))?;
    let to = if to.is_empty() { None } else { Some(parse_time(to)?) };
    let range = TimeRange { from: parse_time(from)?, to };
    match range.to {
        Some(to) if range.from >= to => Err(format!("{text} ends before it begins: no sample is in it")),
        _ => Ok(range),
    }
}

/// Parses a duration or zero.
fn parse_time(text: &str) -> std::result::Result<Duration, String> {
    if text.trim_end_matches(['h', 'm', 's']) == "0" { Ok(Duration::ZERO) } else { parse_duration(text) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use profiler_profile::{Event, Header, ProfileBuilder, Sample, StackEnd, test_profile};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        shape: ShapeArguments,
    }

    fn parse(line: &str) -> std::result::Result<ShapeArguments, clap::Error> {
        Line::try_parse_from(std::iter::once("x").chain(line.split_whitespace())).map(|line| line.shape)
    }

    #[test]
    fn every_flag_sets_the_setting_of_its_name() {
        let flags = "--thread ^GC --in-process 7 --in-container 3f2a --state on-cpu,disk --from 1.5s --to 3s --focus a --ignore b --hide c --show-from d \
                     --collapse-recursion --merge-addresses --min-share 0.5%";
        let profile = ProfileBuilder::default().finish(Header::default());
        let shaped = parse(flags).unwrap();
        let shaped = shaped.shaped(&profile);
        assert_eq!(shaped.header().edits.join(" "), flags);
    }

    #[test]
    fn the_defaults_equal_those_of_the_library() {
        assert_eq!(format!("{:?}", parse("").unwrap().shape()), format!("{:?}", Shape::default()));
        assert!(parse("").unwrap().shape().is_empty());
    }

    #[test]
    fn idle_threads_are_shown_on_request() {
        let mut builder = ProfileBuilder::default();
        let event = builder.event(Event::at_frequency("wall", 49));
        let frame = test_profile::function(&mut builder, "epoll_wait", 1);
        let stack = builder.stack(vec![frame], StackEnd::Root);
        let process = builder.process(1, "loop");
        let thread = builder.thread(process, 1, "loop");
        let state = Some(ThreadState::Blocked);
        builder.add_sample(Sample { time_ns: 0, cpu: 0, thread, stack, event, state, value: 1 });
        let profile = builder.finish(Header::default());
        let samples = |line| parse(line).unwrap().view(&profile).samples().len();
        assert_eq!((samples(""), samples("--show-idle")), (0, 1));
    }

    #[test]
    fn an_unknown_event_is_an_error_that_lists_the_events() {
        let mut builder = ProfileBuilder::default();
        builder.event(Event::at_frequency("cpu-clock", 99));
        let wall = builder.event(Event::at_frequency("wall", 49));
        let profile = builder.finish(Header::default());
        let event = |line| parse(line).unwrap().of(&profile).event();
        assert_eq!(event("").unwrap(), EventId::FIRST);
        assert_eq!(event("--event wall").unwrap(), wall);
        let error = event("--event off-cpu").unwrap_err().to_string();
        assert_eq!(error, "the profile has no event `off-cpu` (known: cpu-clock, wall)");
    }

    #[test]
    fn a_time_that_ends_before_it_begins_is_refused() {
        let check = |line| parse(line).unwrap().check();
        assert!(check("--from 3s --to 2s").unwrap_err().contains("--from 3s is not before --to 2s"));
        assert!(check("--from 2s --to 2000ms").is_err() && check("--to 0").is_err());
        assert!(check("--from 2s --to 3s").is_ok() && check("--from 2s").is_ok() && check("").is_ok());
    }

    #[test]
    fn a_range_of_time_has_two_ends() {
        let seconds = Duration::from_secs;
        let range = |text| parse_time_range(text);
        assert_eq!(range("10s..20s"), Ok(TimeRange { from: seconds(10), to: Some(seconds(20)) }));
        assert_eq!(range("0..1s").unwrap().length_ns(500_000_000), 500_000_000);
        assert_eq!(range("2s..").unwrap().length_ns(5_000_000_000), 3_000_000_000);
        assert_eq!(range("9s..").unwrap().length_ns(5_000_000_000), 0);
        for wrong in ["10s", "..", "20s..10s", "5s..5s", "x..y"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_can_be_zero() {
        for zero in ["0", "0s", "0ms", "0m"] {
            assert_eq!(parse(&format!("--from {zero}")).unwrap().from, Some(Duration::ZERO));
        }
    }

    #[test]
    fn invalid_values_are_refused() {
        for line in ["--focus (", "--min-share 200%", "--from soon", "--thread ["] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
