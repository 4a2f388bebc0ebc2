//! Folds the frames in which threads wait into the frame of their cause, for pictures and tables.

use std::{borrow::Cow, collections::HashMap};

use crate::{FrameId, FrameKind, Profile, ProfileCopy, Stack, StackId};

impl Profile {
    /// A copy in which the frame of the cause of a wait ([`FrameKind::Wait`]) is the leaf of its stack: without the frames of the
    /// runtime, of libc and of the kernel in which the thread waits. The stacks of wakers remain, and so does the ledger.
    #[must_use]
    pub fn with_folded_waits(&self) -> Cow<'_, Self> {
        self.with_stacks_of_waits(fold_stack)
    }

    /// A copy without the frames of the causes of waits: with the stacks that were measured.
    #[must_use]
    pub fn without_wait_causes(&self) -> Cow<'_, Self> {
        self.with_stacks_of_waits(|profile, stack, copy| {
            copy.stack_with(stack, |index| profile.frame(stack.frames[index]).kind != FrameKind::Wait)
        })
    }

    fn with_stacks_of_waits(
        &self,
        copy_stack: impl Fn(&Self, &Stack, &mut ProfileCopy<'_>) -> StackId,
    ) -> Cow<'_, Self> {
        if !self.frames().any(|frame| frame.kind == FrameKind::Wait) {
            return Cow::Borrowed(self);
        }
        let mut copy = ProfileCopy::of(self);
        let mut stacks = HashMap::new();
        for sample in self.samples() {
            let stack = *stacks
                .entry(sample.stack)
                .or_insert_with(|| copy_stack(self, self.stack(sample.stack), &mut copy));
            copy.sample(sample, stack);
        }
        copy.runtime_events();
        Cow::Owned(copy.finish(self.header().clone()))
    }
}

fn fold_stack(profile: &Profile, stack: &Stack, copy: &mut ProfileCopy<'_>) -> StackId {
    let is_of = |id: &FrameId, kind| profile.frame(*id).kind == kind;
    let wait = stack.frames.iter().rposition(|id| is_of(id, FrameKind::Wait)).unwrap_or(0);
    let of_waker = stack.frames[..wait].iter().rposition(|id| is_of(id, FrameKind::Label));
    let own = of_waker.map_or(0, |label| label + 1);
    copy.stack_with(stack, |index| index < own || index >= wait)
}

#[cfg(test)]
mod tests {
    use profiler_addresses::ElfAddress;

    use super::*;
    use crate::{Frame, Header, ProfileBuilder, StackEnd, SymbolSource, Symbolization};

    /// A profile with one stack, leaf first. Labels begin with `~`, causes with `[`.
    fn profile(names: &[&str]) -> Profile {
        let mut builder = ProfileBuilder::default();
        let mut frame = |text: &&str| {
            let name = builder.string(text);
            builder.frame(Frame {
                name,
                kind: match text.as_bytes() {
                    [b'~', ..] => FrameKind::Label,
                    [b'[', ..] => FrameKind::Wait,
                    _ => FrameKind::Native,
                },
                module: None,
                address: ElfAddress(0),
                location: None,
                symbolization: Symbolization::Symbol(SymbolSource::SymbolTable),
            })
        };
        let frames = names.iter().map(&mut frame).collect();
        let stack = builder.stack(frames, StackEnd::Root);
        let process = builder.process(1, "app");
        let thread = builder.thread(process, 1, "app");
        builder.sample(0, 0, thread, stack, 1);
        builder.finish(Header::default())
    }

    fn names(profile: &Profile) -> Vec<String> {
        let stack = profile.stack(profile.samples()[0].stack);
        stack.frames.iter().map(|id| profile.string(profile.frame(*id).name).to_owned()).collect()
    }

    fn folded(frames: &[&str]) -> Vec<String> {
        names(&profile(frames).with_folded_waits())
    }

    #[test]
    fn without_causes_a_stack_is_as_it_was_measured() {
        let stack = profile(&["futex_wait", "lock", "[lock]", "work"]);
        assert_eq!(names(&stack.without_wait_causes()), ["futex_wait", "lock", "work"]);
        assert!(matches!(profile(&["work"]).without_wait_causes(), Cow::Borrowed(_)));
    }

    #[test]
    fn the_cause_of_a_wait_is_the_leaf() {
        assert_eq!(folded(&["futex_wait", "lock", "[lock]", "work", "main"]), ["[lock]", "work", "main"]);
        assert_eq!(folded(&["[lock]"]), ["[lock]"]);
    }

    #[test]
    fn a_stack_without_a_wait_keeps_its_frames() {
        assert_eq!(folded(&["work", "main"]), ["work", "main"]);
        assert_eq!(folded(&[]), [""; 0]);
    }

    #[test]
    fn the_stack_of_the_waker_remains() {
        let waker = ["~owner", "start", "unlock", "~--"];
        let own = ["futex_wait", "[lock]", "work"];
        assert_eq!(folded(&[&waker[..], &own].concat()), [&waker[..], &own[1..]].concat());
    }
}
