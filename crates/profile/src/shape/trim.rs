//! The tree of all call paths, with how many samples take each: what few take is cut off.

use std::collections::HashMap;

use super::Share;
use crate::{Frame, FrameKind, Profile, SourceLocation, Stack, StringId, sum};

/// What is one box in a flame graph: address and module do not matter.
type Label = (StringId, FrameKind, Option<SourceLocation>);

/// A node of the tree; the root of all is no process's.
type Node = usize;

/// The call paths of a profile, from the names of processes on.
#[derive(Debug, Default)]
pub(super) struct CallTree {
    children: HashMap<(Node, Label), Node>,
    roots: HashMap<StringId, Node>,
    /// Samples that go through each node.
    counts: Vec<u64>,
    total: u64,
}

impl CallTree {
    pub(super) fn of(profile: &Profile) -> Self {
        let mut stacks = HashMap::<_, u64>::new();
        for sample in profile.samples() {
            let root = profile.process(profile.thread(sample.thread).process).comm;
            sum::add(stacks.entry((root, sample.stack)).or_default(), sample.count);
        }
        let mut tree = Self::default();
        for ((root, stack), count) in stacks {
            tree.add(profile, root, profile.stack(stack), count);
        }
        tree
    }

    /// How many frames of a stack, from the root on, reach the share.
    pub(super) fn depth_with(
        &self,
        min_share: Share,
        profile: &Profile,
        root: StringId,
        stack: &Stack,
    ) -> usize {
        let Some(mut node) = self.roots.get(&root).copied() else { return 0 };
        let mut depth = 0;
        for frame in stack.frames.iter().rev() {
            match self.children.get(&(node, label(profile.frame(*frame)))) {
                Some(child) if min_share.is_reached_by(self.counts[*child], self.total) => node = *child,
                _ => break,
            }
            depth += 1;
        }
        depth
    }

    fn add(&mut self, profile: &Profile, root: StringId, stack: &Stack, count: u64) {
        sum::add(&mut self.total, count);
        let counts = &mut self.counts;
        let mut grow = || {
            counts.push(0);
            counts.len() - 1
        };
        let mut node = *self.roots.entry(root).or_insert_with(&mut grow);
        let mut path = vec![node];
        for frame in stack.frames.iter().rev() {
            node = *self.children.entry((node, label(profile.frame(*frame)))).or_insert_with(&mut grow);
            path.push(node);
        }
        path.into_iter().for_each(|node| sum::add(&mut self.counts[node], count));
    }
}

fn label(frame: &Frame) -> Label {
    (frame.name, frame.kind, frame.location)
}
