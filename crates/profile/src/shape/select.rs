//! Selects samples by thread, process, container and time, and frames by pattern.

use std::time::Duration;

use super::{Choice, Pattern, Shape};
use crate::{
    Frame, LockOwner, ManagedThread, OmittedEvents, PollReading, ProcessId, Profile, RuntimeEvent, Sample,
    Stack, StringId, ThreadId,
};

/// Whether the filters for thread, process, container, state and time select a sample.
pub(super) fn is_selected(profile: &Profile, shape: &Shape, sample: &Sample) -> bool {
    let is_in_state = sample.state.is_some_and(|state| shape.states.contains(&state));
    (shape.states.is_empty() || is_in_state)
        && is_thread_selected(profile, shape, sample.thread)
        && is_process_selected(profile, shape, profile.thread(sample.thread).process)
        && shape.from.is_none_or(|from| Duration::from_nanos(sample.time_ns) >= from)
        && shape.to.is_none_or(|to| Duration::from_nanos(sample.time_ns) < to)
}

/// Whether the filters for thread, process, container and time select a runtime event. One that is partly in the time
/// range is selected.
pub(super) fn is_event_selected(profile: &Profile, shape: &Shape, event: &RuntimeEvent) -> bool {
    let is_thread_selected = match event.thread {
        Some(thread) => is_thread_selected(profile, shape, thread),
        None => shape.thread.is_none(),
    };
    is_thread_selected
        && is_process_selected(profile, shape, event.process)
        && shape.from.is_none_or(|from| Duration::from_nanos(event.end_ns()) >= from)
        && shape.to.is_none_or(|to| Duration::from_nanos(event.time_ns) < to)
}

/// What the filters for process, container and time select of runtime events that are counted alone. Of one thread, their number
/// is not known.
pub(super) fn selected_omitted(
    profile: &Profile,
    shape: &Shape,
    omitted: &OmittedEvents,
) -> Option<OmittedEvents> {
    let is_selected = is_process_selected(profile, shape, omitted.process)
        && shape.from.is_none_or(|from| Duration::from_nanos(omitted.time_ns) >= from)
        && shape.to.is_none_or(|to| Duration::from_nanos(omitted.time_ns) < to);
    let unknown = OmittedEvents { count: 0, duration_ns: 0, longest_ns: 0, is_lower_bound: true, ..*omitted };
    is_selected.then_some(if shape.thread.is_some() { unknown } else { *omitted })
}

/// Whether the filters for process, container and time select an observation of a lock: threads of all filters wait for its owner.
pub(super) fn is_lock_selected(profile: &Profile, shape: &Shape, lock: &LockOwner) -> bool {
    is_process_selected(profile, shape, lock.process(profile))
        && shape.from.is_none_or(|from| Duration::from_nanos(lock.time_ns) >= from)
        && shape.to.is_none_or(|to| Duration::from_nanos(lock.time_ns) < to)
}

/// Whether the filters for process, container and time select a reading of an owner of locks, as they select the locks.
pub(super) fn is_owner_selected(profile: &Profile, shape: &Shape, owner: &ManagedThread) -> bool {
    is_process_selected(profile, shape, owner.process(profile))
        && shape.from.is_none_or(|from| Duration::from_nanos(owner.time_ns) >= from)
        && shape.to.is_none_or(|to| Duration::from_nanos(owner.time_ns) < to)
}

/// Whether the filters for process, container, thread and time select what a thread waited for.
pub(super) fn is_poll_selected(profile: &Profile, shape: &Shape, reading: &PollReading) -> bool {
    is_process_selected(profile, shape, profile.thread(reading.thread).process)
        && is_thread_selected(profile, shape, reading.thread)
        && shape.from.is_none_or(|from| Duration::from_nanos(reading.time_ns) >= from)
        && shape.to.is_none_or(|to| Duration::from_nanos(reading.time_ns) < to)
}

fn is_thread_selected(profile: &Profile, shape: &Shape, thread: ThreadId) -> bool {
    let thread = profile.thread(thread);
    is_chosen(profile, &shape.thread, thread.tid, thread.comm)
}

fn is_process_selected(profile: &Profile, shape: &Shape, process: ProcessId) -> bool {
    let process = profile.process(process);
    is_chosen(profile, &shape.process, process.pid, process.comm)
        && shape.container.as_ref().is_none_or(|beginning| {
            process.container.is_some_and(|id| profile.string(id).starts_with(beginning.as_str()))
        })
}

fn is_chosen(profile: &Profile, choice: &Option<Choice>, id: u32, name: StringId) -> bool {
    choice.as_ref().is_none_or(|choice| choice.matches(id, profile.string(name)))
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
