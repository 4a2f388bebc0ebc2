//! Merges frames: direct recursion, and the addresses of one function.

use std::collections::HashMap;

use crate::{Frame, FrameId, FrameKind, ModuleId, Profile, ProfileCopy, SourceLocation, Stack, StringId};

/// The fields that all frames of a function have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Function {
    name: StringId,
    kind: FrameKind,
    module: Option<ModuleId>,
}

impl Function {
    fn of(frame: &Frame) -> Self {
        Self { name: frame.name, kind: frame.kind, module: frame.module }
    }
}

/// Keeps only the innermost frame of a function that calls itself directly.
pub(super) fn collapse_recursion(profile: &Profile, stack: &Stack, kept: &mut [bool]) {
    let mut callee = None;
    for (frame, is_kept) in stack.frames.iter().zip(kept) {
        if *is_kept {
            let function = Some(Function::of(profile.frame(*frame)));
            *is_kept = function != callee;
            callee = function;
        }
    }
}

/// The representative frame of each function: its lowest address, without a line.
#[derive(Debug)]
pub(super) struct FunctionFrames<'a> {
    profile: &'a Profile,
    frames: HashMap<Function, &'a Frame>,
}

impl<'a> FunctionFrames<'a> {
    pub(super) fn of(profile: &'a Profile) -> Self {
        let mut frames = HashMap::new();
        for frame in profile.frames() {
            let lowest = frames.entry(Function::of(frame)).or_insert(frame);
            if frame.address < lowest.address {
                *lowest = frame;
            }
        }
        Self { profile, frames }
    }

    /// The representative frame of the function of `frame`, in the copy.
    pub(super) fn frame(&self, frame: FrameId, copy: &mut ProfileCopy<'_>) -> FrameId {
        let frame = self.profile.frame(frame);
        let lowest = self.frames.get(&Function::of(frame)).copied().unwrap_or(frame);
        let copied = copy.translated(lowest);
        let location = copied.location.map(|location| SourceLocation { line: 0, ..location });
        copy.builder().frame(Frame { location, ..copied })
    }
}
