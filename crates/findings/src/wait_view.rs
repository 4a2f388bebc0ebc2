//! The view of a profile in which each wait has a frame with its cause, with or without the samples of idle threads.

use std::{borrow::Cow, collections::HashMap};

use profiler_addresses::ElfAddress;
use profiler_profile::{
    FoundBy, Frame, FrameId, FrameKind, Profile, ProfileCopy, Stack, StackId, SymbolSource, Symbolization,
};

use crate::{ProgramPlace, WaitCause, Waits, frames::own_begin};

/// The edit that the header of a profile without idle threads lists.
const EDIT: &str = "without idle threads (--show-idle)";

/// Whether a view has the samples of threads that wait for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleThreads {
    /// The view is without these samples.
    Hidden,
    /// The view has these samples.
    Shown,
}

/// A copy in which the stack of each wait has a frame with its cause ([`FrameKind::Wait`]), below the method of the program that waits;
/// the profile itself where no sample has a state, or where its waits have their causes. As for other views, the ledger stays that of
/// the measurement, and the header lists that idle threads are hidden.
///
/// Causes are those of the whole stacks: apply this before filters that remove frames.
///
/// ```
/// use profiler_findings::{IdleThreads, with_wait_causes};
/// use profiler_profile::{Header, ProfileBuilder};
///
/// let profile = ProfileBuilder::default().finish(Header::default());
/// assert!(with_wait_causes(&profile, IdleThreads::Hidden).header().edits.is_empty());
/// ```
#[must_use]
pub fn with_wait_causes(profile: &Profile, idle: IdleThreads) -> Cow<'_, Profile> {
    let has_causes = || profile.frames().any(|frame| frame.kind == FrameKind::Wait);
    if profile.samples().iter().all(|sample| sample.state.is_none()) || has_causes() {
        return Cow::Borrowed(profile);
    }
    let waits = Waits::of(profile);
    let mut copy = ProfileCopy::of(profile);
    let mut stacks = HashMap::new();
    let mut header = profile.header().clone();
    for sample in profile.samples() {
        let cause = waits.cause(sample);
        if idle == IdleThreads::Hidden && cause == Some(WaitCause::Idle) {
            if header.edits.last().is_none_or(|edit| edit != EDIT) {
                header.edits.push(EDIT.to_owned());
            }
            continue;
        }
        let stack = *stacks
            .entry((sample.stack, cause))
            .or_insert_with(|| copy_stack(profile, profile.stack(sample.stack), cause, &mut copy));
        copy.sample(sample, stack);
    }
    copy.runtime_events();
    Cow::Owned(copy.finish(header))
}

/// Copies a stack, with a frame for the cause of a wait between the method of the program and the frames in which it waits.
fn copy_stack(
    profile: &Profile,
    stack: &Stack,
    cause: Option<WaitCause>,
    copy: &mut ProfileCopy<'_>,
) -> StackId {
    let Some(cause) = cause else { return copy.stack_with(stack, |_| true) };
    let place = ProgramPlace::of(profile, stack).map_or(0, |place| place.frames.len());
    let at = (stack.frames.len() - place).max(own_begin(profile, stack));
    let found = stack.frames.iter().copied().zip(stack.found_by.iter().copied());
    let mut frames: Vec<_> = found.map(|(id, found_by)| (copy.frame(id), found_by)).collect();
    frames.insert(at, (wait_frame(cause, copy), FoundBy::NotRecorded));
    copy.builder().unwound_stack(frames, stack.end)
}

fn wait_frame(cause: WaitCause, copy: &mut ProfileCopy<'_>) -> FrameId {
    let name = copy.builder().string(&cause.frame_name());
    copy.builder().frame(Frame {
        name,
        kind: FrameKind::Wait,
        module: None,
        address: ElfAddress(0),
        location: None,
        symbolization: Symbolization::Symbol(SymbolSource::Kallsyms),
    })
}
