//! Selects samples by thread, process, container and time, and frames by pattern.

use std::time::Duration;

use super::{Choice, Pattern, Shape};
use crate::{Frame, Profile, Sample, Stack};

/// Whether the filters for thread, process, container and time select a sample.
pub(super) fn is_selected(profile: &Profile, shape: &Shape, sample: &Sample) -> bool {
    let thread = profile.thread(sample.thread);
    let process = profile.process(thread.process);
    let is_in = |choice: &Option<Choice>, id, name| {
        choice.as_ref().is_none_or(|choice| choice.matches(id, profile.string(name)))
    };
    let is_in_state = sample.state.is_some_and(|state| shape.states.contains(&state));
    let time = Duration::from_nanos(sample.time_ns);
    shape.from.is_none_or(|from| time >= from)
        && shape.to.is_none_or(|to| time < to)
        && (shape.states.is_empty() || is_in_state)
        && is_in(&shape.thread, thread.tid, thread.comm)
        && is_in(&shape.process, process.pid, process.comm)
        && shape.container.as_ref().is_none_or(|beginning| {
            process.container.is_some_and(|id| profile.string(id).starts_with(beginning.as_str()))
        })
}

/// For each frame of a profile, whether each pattern of a shape matches it.
#[derive(Debug)]
pub(super) struct FrameMatches {
    focus: Option<Vec<bool>>,
    ignore: Option<Vec<bool>>,
    hide: Option<Vec<bool>>,
    show_from: Option<Vec<bool>>,
}

impl FrameMatches {
    pub(super) fn new(profile: &Profile, shape: &Shape) -> Self {
        let all = |pattern: &Option<Pattern>| {
            let pattern = pattern.as_ref()?;
            Some(profile.frames().map(|frame| matches(profile, frame, pattern)).collect())
        };
        Self {
            focus: all(&shape.focus),
            ignore: all(&shape.ignore),
            hide: all(&shape.hide),
            show_from: all(&shape.show_from),
        }
    }

    /// Whether each frame of a stack is kept; `None` when its samples are dropped.
    pub(super) fn kept(&self, stack: &Stack) -> Option<Vec<bool>> {
        let of = |matching: &Option<Vec<bool>>| -> Option<Vec<bool>> {
            let matching = matching.as_ref()?;
            Some(stack.frames.iter().map(|frame| matching[frame.index()]).collect())
        };
        let mut kept = vec![true; stack.frames.len()];
        if of(&self.focus).is_some_and(|focused| !focused.contains(&true)) {
            return None;
        }
        if let Some(ignored) = of(&self.ignore)
            && (ignored.contains(&true) || ignored.is_empty())
        {
            return None;
        }
        if let Some(hidden) = of(&self.hide) {
            kept = hidden.iter().map(|is_hidden| !is_hidden).collect();
        }
        if let Some(shown) = of(&self.show_from) {
            // Frames are leaf first: those after the last match are its callers.
            let outermost = (0..kept.len()).rev().find(|index| kept[*index] && shown[*index])?;
            kept[outermost + 1..].fill(false);
        }
        let is_bare = kept.is_empty() && self.hide.is_none();
        (is_bare || kept.contains(&true)).then_some(kept)
    }
}

fn matches(profile: &Profile, frame: &Frame, pattern: &Pattern) -> bool {
    let file = frame.location.map(|location| location.file);
    let module = frame.module.map(|module| profile.module(module).path);
    [Some(frame.name), file, module].into_iter().flatten().any(|text| pattern.matches(profile.string(text)))
}
