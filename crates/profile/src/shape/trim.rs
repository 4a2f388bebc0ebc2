//! Cuts rare call paths, by the values of samples in the tree of all call paths of an event.

use std::collections::HashMap;

use super::Share;
use crate::{EventId, Frame, FrameKind, Profile, SourceLocation, Stack, StringId, sum};

/// The identity of a box in a flame graph: without address and module.
type Label = (StringId, FrameKind, Option<SourceLocation>);

/// The index of a node of the tree.
type Node = usize;

/// The call paths of the samples of an event, with the process name as root.
#[derive(Debug, Default)]
pub(super) struct CallTree {
    children: HashMap<(Node, Label), Node>,
    roots: HashMap<StringId, Node>,
    /// The sum of the values of the samples through each node.
    counts: Vec<u64>,
    total: u64,
}

impl CallTree {
    pub(super) fn of(profile: &Profile, event: EventId) -> Self {
        let mut stacks = HashMap::<_, u64>::new();
        for sample in profile.samples_of(event) {
            let root = profile.process(profile.thread(sample.thread).process).comm;
            sum::add(stacks.entry((root, sample.stack)).or_default(), sample.value);
        }
        let mut tree = Self::default();
        for ((root, stack), count) in stacks {
            tree.add(profile, root, profile.stack(stack), count);
        }
        tree
    }

    /// The number of frames of a stack, from the root, whose call path has at least `min_share` of the samples.
    pub(super) fn depth_above(
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
        let mut add_node = || {
            counts.push(0);
            counts.len() - 1
        };
        let mut node = *self.roots.entry(root).or_insert_with(&mut add_node);
        let mut path = vec![node];
        for frame in stack.frames.iter().rev() {
            node = *self.children.entry((node, label(profile.frame(*frame)))).or_insert_with(&mut add_node);
            path.push(node);
        }
        path.into_iter().for_each(|node| sum::add(&mut self.counts[node], count));
    }
}

fn label(frame: &Frame) -> Label {
    (frame.name, frame.kind, frame.location)
}
