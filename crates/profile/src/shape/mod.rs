//! Other views of one measurement: some of its samples, some of their frames. Pure functions from profile to profile.
//!
//! The frame filters are pprof's (`FilterSamplesByName` and `ShowFrom` in its `profile/filter.go`): a frame matches by
//! its name, its source file or its module's path, and by part of one of them; matches are found before anything is
//! hidden. As there, a sample without a frame is dropped by any of them.

mod choice;
mod merge;
mod select;
#[cfg(test)]
mod tests;
mod trim;

use std::{collections::HashMap, time::Duration};

pub use self::choice::{Choice, Pattern, Share};
use self::{merge::FunctionFrames, select::FrameMatches, trim::CallTree};
use crate::{Header, Profile, ProfileCopy, Stack, StackId};

/// Which samples and which of their frames to show. What is left out of it shows everything.
///
/// ```
/// use profiler::{Format, Shape, profile::{Header, ProfileBuilder}};
///
/// let profile = ProfileBuilder::default().finish(Header::default());
/// let shape = Shape { focus: Some("Json".parse()?), collapse_recursion: true, ..Shape::default() };
/// assert_eq!(profile.shaped(&shape).header().edits, ["--focus Json", "--collapse-recursion"]);
/// # Ok::<(), profiler::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// Only samples of these threads.
    pub thread: Option<Choice>,
    /// Only samples of these processes.
    pub process: Option<Choice>,
    /// Only samples of processes in containers whose ids begin so.
    pub container: Option<String>,
    /// Only samples from this time on, since the beginning of sampling.
    pub from: Option<Duration>,
    /// Only samples before this time, since the beginning of sampling.
    pub to: Option<Duration>,
    /// Only samples with a frame that matches.
    pub focus: Option<Pattern>,
    /// Only samples without a frame that matches.
    pub ignore: Option<Pattern>,
    /// Without the frames that match; samples of such frames alone are dropped.
    pub hide: Option<Pattern>,
    /// Without what calls the outermost frame that matches; samples without one are dropped.
    pub show_from: Option<Pattern>,
    /// A function that calls itself directly is one frame.
    pub collapse_recursion: bool,
    /// The frames of one function are one, wherever in it they are: without address and line.
    pub merge_addresses: bool,
    /// A call path that fewer samples take is cut there; they count for its caller.
    pub min_share: Share,
}

impl Shape {
    /// Whether it leaves every profile as it is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.edits().is_empty()
    }

    /// What it does, in the words of the command line.
    fn edits(&self) -> Vec<String> {
        let choice = |flag: &str, choice: &Option<Choice>| {
            choice.as_ref().map(|choice| format!("{flag} {}", choice.text()))
        };
        let time =
            |flag: &str, time: Option<Duration>| time.map(|time| format!("{flag} {}s", time.as_secs_f64()));
        let pattern = |flag: &str, pattern: &Option<Pattern>| {
            pattern.as_ref().map(|pattern| format!("{flag} {}", pattern.as_str()))
        };
        let switch = |flag: &str, is_on: bool| is_on.then(|| flag.to_owned());
        let percent = self.min_share.percent();
        let edits = [
            choice("--thread", &self.thread),
            choice("--process", &self.process),
            self.container.as_ref().map(|id| format!("--in-container {id}")),
            time("--from", self.from),
            time("--to", self.to),
            pattern("--focus", &self.focus),
            pattern("--ignore", &self.ignore),
            pattern("--hide", &self.hide),
            pattern("--show-from", &self.show_from),
            switch("--collapse-recursion", self.collapse_recursion),
            switch("--merge-addresses", self.merge_addresses),
            (percent > 0.0).then(|| format!("--min-share {percent}%")),
        ];
        edits.into_iter().flatten().collect()
    }
}

impl Profile {
    /// The profile as `shape` shows it: samples are chosen first, then frames, and paths are trimmed last. The ledger
    /// stays that of the measurement, and the header says what was done.
    #[must_use]
    pub fn shaped(&self, shape: &Shape) -> Self {
        let mut profile = self.chosen(shape);
        if shape.merge_addresses {
            profile = profile.with_merged_addresses();
        }
        if shape.min_share.percent() > 0.0 {
            profile = profile.trimmed(shape.min_share);
        }
        profile
    }

    /// The samples and frames that the shape chooses, with a header that names all of the shape's edits.
    fn chosen(&self, shape: &Shape) -> Self {
        let header = self.header_with(shape.edits());
        let mut copy = ProfileCopy::of(self);
        let matches = FrameMatches::new(self, shape);
        let mut stacks = HashMap::<StackId, Option<StackId>>::new();
        for sample in self.samples().iter().filter(|sample| select::is_chosen(self, shape, sample)) {
            let chosen = stacks.entry(sample.stack).or_insert_with(|| {
                let stack = self.stack(sample.stack);
                let mut kept = matches.kept(stack)?;
                if shape.collapse_recursion {
                    merge::collapse_recursion(self, stack, &mut kept);
                }
                Some(copy.stack_of(stack, |index| kept[index]))
            });
            if let Some(stack) = chosen {
                copy.sample(sample, *stack);
            }
        }
        copy.finish(header)
    }

    fn with_merged_addresses(&self) -> Self {
        let functions = FunctionFrames::of(self);
        let mut copy = ProfileCopy::of(self);
        let mut stacks = HashMap::new();
        for sample in self.samples() {
            let stack = *stacks.entry(sample.stack).or_insert_with(|| {
                let Stack { frames, found_by, end } = self.stack(sample.stack);
                let frames = frames.iter().map(|frame| functions.frame(*frame, &mut copy));
                let frames: Vec<_> = frames.zip(found_by.iter().copied()).collect();
                copy.builder().walked_stack(frames, *end)
            });
            copy.sample(sample, stack);
        }
        copy.finish(self.header().clone())
    }

    fn trimmed(&self, min_share: Share) -> Self {
        let tree = CallTree::of(self);
        let mut copy = ProfileCopy::of(self);
        let mut stacks = HashMap::new();
        for sample in self.samples() {
            let root = self.process(self.thread(sample.thread).process).comm;
            let stack = *stacks.entry((root, sample.stack)).or_insert_with(|| {
                let stack = self.stack(sample.stack);
                let depth = tree.depth_with(min_share, self, root, stack);
                copy.stack_of(stack, |index| index >= stack.frames.len() - depth)
            });
            copy.sample(sample, stack);
        }
        copy.finish(self.header().clone())
    }

    fn header_with(&self, edits: Vec<String>) -> Header {
        let mut header = self.header().clone();
        header.edits.extend(edits);
        header
    }
}
