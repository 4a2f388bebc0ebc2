//! Where a thread is in its program: the method that is nearest to the leaf, and its callers.

use profiler_profile::{FrameId, FrameKind, Profile, Stack};

use crate::frames::{application_frames, is_managed, libc_frames, method_name, own_frames};

/// The place of a thread in its program.
///
/// ```
/// use profiler_findings::ProgramPlace;
/// use profiler_profile::{Header, ProfileBuilder, StackEnd};
///
/// let mut builder = ProfileBuilder::default();
/// builder.stack(Vec::new(), StackEnd::Empty);
/// let profile = builder.finish(Header::default());
/// assert!(profile.stacks().all(|stack| ProgramPlace::of(&profile, stack).is_none()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramPlace<'a> {
    /// The name of the method, without its assembly and arguments: `Shop.Cart.Get`.
    pub method: &'a str,
    /// The frames of the method and of its callers, leaf first.
    pub frames: &'a [FrameId],
}

impl<'a> ProgramPlace<'a> {
    /// The method or function of the program that is nearest to the leaf, as findings name it. In a stack without one, the
    /// first frame outside of the kernel and libc, and else the leaf. Above the cause of a wait, the first frame. `None` for an empty
    /// stack.
    #[must_use]
    pub fn of(profile: &'a Profile, stack: &'a Stack) -> Option<Self> {
        let own = own_frames(profile, stack);
        let is_wait = |id: &FrameId| profile.frame(*id).kind == FrameKind::Wait;
        let begin = match own.iter().rposition(is_wait) {
            Some(wait) => wait + 1,
            None => {
                application_frames(profile, stack).next().or_else(|| first_of_user(profile, own)).unwrap_or(0)
            }
        };
        let frames = own.get(begin..)?;
        let method = method_name(profile, profile.frame(*frames.first()?));
        Some(Self { method, frames })
    }
}

/// In a stack with managed code, only methods count, as for methods of the program.
fn first_of_user(profile: &Profile, own: &[FrameId]) -> Option<usize> {
    let begin = libc_frames(profile, own);
    let is_method = |id: &FrameId| is_managed(profile.frame(*id));
    let method = own[begin..].iter().position(is_method).map(|index| begin + index);
    method.or((begin < own.len()).then_some(begin))
}
