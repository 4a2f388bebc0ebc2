//! Filters and shapes: pure functions from a profile to a profile with fewer samples or frames.
//!
//! The frame filters are pprof's (`FilterSamplesByName` and `ShowFrom` in its `profile/filter.go`): a frame matches by
//! its name, its source file or its module's path, and by part of one of them; matches are found before frames
//! are hidden. As in pprof, each filter drops samples without frames.

mod choice;
mod merge;
mod select;
#[cfg(test)]
mod tests;
mod trim;

use std::{collections::HashMap, time::Duration};

pub use self::choice::{Choice, Pattern, Share};
use self::{merge::FunctionFrames, select::FrameMatches, trim::CallTree};
use crate::{Header, Profile, ProfileCopy, Stack, StackId, ThreadState};

/// The samples and frames to show. Fields that are not set leave the profile as it is.
///
/// ```
/// use profiler_profile::{FilterError, Header, ProfileBuilder, Shape};
///
/// let profile = ProfileBuilder::default().finish(Header::default());
/// let shape = Shape { focus: Some("Json".parse()?), collapse_recursion: true, ..Shape::default() };
/// assert_eq!(profile.shaped(&shape).header().edits, ["--focus Json", "--collapse-recursion"]);
/// # Ok::<(), FilterError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// Only samples of these threads.
    pub thread: Option<Choice>,
    /// Only samples of these processes.
    pub process: Option<Choice>,
    /// Only samples of processes in containers whose id has this prefix.
    pub container: Option<String>,
    /// Only samples of threads in these states; all where it is empty.
    pub states: Vec<ThreadState>,
    /// Only samples from this time on, measured from the start of sampling.
    pub from: Option<Duration>,
    /// Only samples before this time, measured from the start of sampling.
    pub to: Option<Duration>,
    /// Only samples with a matching frame.
    pub focus: Option<Pattern>,
    /// Only samples without a matching frame.
    pub ignore: Option<Pattern>,
    /// Removes matching frames; samples whose frames all match are dropped.
    pub hide: Option<Pattern>,
    /// Removes the callers of the outermost matching frame; samples without a match are dropped.
    pub show_from: Option<Pattern>,
    /// Merges the frames of a function that calls itself directly.
    pub collapse_recursion: bool,
    /// Merges all frames of a function: without address and line.
    pub merge_addresses: bool,
    /// Cuts call paths with a smaller share of the samples; the samples count for the caller.
    pub min_share: Share,
}

impl Shape {
    /// Whether the shape leaves every profile as it is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.edits().is_empty()
    }

    /// The edits that the header of a shaped profile lists, spelled as command-line options.
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
            choice("--in-process", &self.process),
            self.container.as_ref().map(|id| format!("--in-container {id}")),
            (!self.states.is_empty()).then(|| format!("--state {}", state_list(&self.states))),
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

/// States as the command line takes them.
fn state_list(states: &[ThreadState]) -> String {
    states.iter().map(|state| state.option()).collect::<Vec<_>>().join(",")
}

impl Profile {
    /// Applies `shape`: selects samples, then frames, and cuts rare paths last. The ledger stays that of the measurement,
    /// and the header lists the edits.
    #[must_use]
    pub fn shaped(&self, shape: &Shape) -> Self {
        let mut profile = self.filtered(shape);
        if shape.merge_addresses {
            profile = profile.with_merged_addresses();
        }
        if shape.min_share.percent() > 0.0 {
            profile = profile.trimmed(shape.min_share);
        }
        profile
    }

    /// The selected samples and frames, with a header that lists all edits of the shape.
    fn filtered(&self, shape: &Shape) -> Self {
        let header = self.header_with(shape.edits());
        let mut copy = ProfileCopy::of(self);
        let matches = FrameMatches::new(self, shape);
        let mut stacks = HashMap::<StackId, Option<StackId>>::new();
        for sample in self.samples().iter().filter(|sample| select::is_selected(self, shape, sample)) {
            let chosen = stacks.entry(sample.stack).or_insert_with(|| {
                let stack = self.stack(sample.stack);
                let mut kept = matches.kept(stack)?;
                if shape.collapse_recursion {
                    merge::collapse_recursion(self, stack, &mut kept);
                }
                Some(copy.stack_with(stack, |index| kept[index]))
            });
            if let Some(stack) = chosen {
                copy.sample(sample, *stack);
            }
        }
        let selected =
            self.runtime_events().iter().filter(|event| select::is_event_selected(self, shape, event));
        selected.for_each(|event| copy.runtime_event(event));
        let omitted = self.omitted_events().iter();
        let omitted = omitted.filter_map(|omitted| select::selected_omitted(self, shape, omitted));
        omitted.for_each(|omitted| copy.omitted_events(&omitted));
        let locks = self.lock_owners().iter().filter(|lock| select::is_lock_selected(self, shape, lock));
        locks.for_each(|lock| copy.lock_owner(lock));
        let owners = self.managed_threads().iter();
        let owners = owners.filter(|thread| select::is_owner_selected(self, shape, thread));
        owners.for_each(|thread| copy.managed_thread(thread));
        let polls = self.poll_readings().iter().filter(|poll| select::is_poll_selected(self, shape, poll));
        polls.for_each(|poll| copy.poll_reading(poll));
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
                copy.builder().unwound_stack(frames, *end)
            });
            copy.sample(sample, stack);
        }
        copy.runtime_events();
        copy.finish(self.header().clone())
    }

    fn trimmed(&self, min_share: Share) -> Self {
        let trees: Vec<_> = self.event_ids().map(|event| CallTree::of(self, event)).collect();
        let mut copy = ProfileCopy::of(self);
        let mut stacks = HashMap::new();
        for sample in self.samples() {
            let tree = &trees[sample.event.index()];
            let root = self.process(self.thread(sample.thread).process).comm;
            let stack = *stacks.entry((sample.event, root, sample.stack)).or_insert_with(|| {
                let stack = self.stack(sample.stack);
                let depth = tree.depth_above(min_share, self, root, stack);
                copy.stack_with(stack, |index| index >= stack.frames.len() - depth)
            });
            copy.sample(sample, stack);
        }
        copy.runtime_events();
        copy.finish(self.header().clone())
    }

    fn header_with(&self, edits: Vec<String>) -> Header {
        let mut header = self.header().clone();
        header.edits.extend(edits);
        header
    }
}
