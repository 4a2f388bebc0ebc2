//! The call tree of all stacks, by functions, root first.

use serde::Serialize;

use super::column;

/// The nodes in preorder. Node 0 is the root of all stacks and has no entry; the columns start with node 1.
#[derive(Default, Serialize)]
pub(super) struct Tree {
    /// The number of levels from the previous node up to the parent; 0 where the previous node is the parent.
    #[serde(serialize_with = "column::numbers")]
    up: Vec<usize>,
    #[serde(serialize_with = "column::numbers")]
    function: Vec<u32>,
}

impl Tree {
    /// The tree of `stacks`, each root first, and the leaf node of each.
    pub(super) fn of<Id: Copy>(mut stacks: Vec<(Id, Vec<u32>)>) -> (Self, Vec<(Id, u32)>) {
        // In sorted order a stack shares the longest prefix with the previous one, and nodes are created in preorder.
        stacks.sort_unstable_by(|(_, one), (_, other)| one.cmp(other));
        let mut tree = Self::default();
        let mut before: &[u32] = &[];
        let mut ends = Vec::with_capacity(stacks.len());
        for (stack, functions) in &stacks {
            let shared = before.iter().zip(functions).take_while(|(one, other)| one == other).count();
            let mut up = before.len() - shared;
            for function in functions.iter().skip(shared) {
                tree.up.push(std::mem::take(&mut up));
                tree.function.push(*function);
            }
            // A stack without a new node equals the previous one, or is the first one and empty.
            ends.push((*stack, u32::try_from(tree.function.len()).unwrap_or(u32::MAX)));
            before = functions;
        }
        (tree, ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_prefixes_are_one_path() {
        let paths: [&[u32]; 5] = [&[1, 2, 3], &[4], &[], &[1, 2, 5], &[1, 2]];
        let (tree, ends) = Tree::of((0..).zip(paths.map(<[u32]>::to_vec)).collect());
        assert_eq!(tree.function, [1, 2, 3, 5, 4]);
        assert_eq!(tree.up, [0, 0, 0, 1, 3]);
        let end = |index| ends.iter().find(|(id, _)| *id == index).unwrap().1;
        assert_eq!([end(0), end(1), end(2), end(3), end(4)], [3, 5, 0, 4, 2]);
    }

    #[test]
    fn equal_stacks_end_at_the_same_node() {
        let (tree, ends) = Tree::of(vec![(0, vec![7, 8]), (1, vec![7, 8])]);
        assert_eq!((tree.function, tree.up), (vec![7, 8], vec![0, 0]));
        assert_eq!(ends.iter().map(|(_, end)| *end).collect::<Vec<_>>(), [2, 2]);
    }
}
