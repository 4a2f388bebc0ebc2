//! Layout of the flame graph: the column and width of each box, with callees in the row below their caller.

use super::tree::{NodeId, Tree};

/// The box of a node; its width is the node's share of the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlameBox {
    pub(super) node: NodeId,
    pub(super) column: u16,
    /// At least one column.
    pub(super) width: u16,
}

/// The boxes of a flame graph, by row from the root, each row from left to right.
#[derive(Debug, Default)]
pub(super) struct BoxLayout {
    rows: Vec<Vec<FlameBox>>,
}

impl BoxLayout {
    /// Lays out a node over all columns, and its descendants below. A node narrower than a column can have no box.
    pub(super) fn new(tree: &Tree, node: NodeId, columns: u16) -> Self {
        let mut rows = Vec::new();
        let mut row = vec![FlameBox { node, column: 0, width: columns }];
        row.retain(|flame_box| flame_box.width > 0);
        while !row.is_empty() {
            let next = row.iter().flat_map(|flame_box| callees(tree, *flame_box)).collect();
            rows.push(std::mem::replace(&mut row, next));
        }
        Self { rows }
    }

    pub(super) fn rows(&self) -> &[Vec<FlameBox>] {
        &self.rows
    }

    /// The row of a node's box, and its index in the row; `None` if the node has no box.
    pub(super) fn find(&self, node: NodeId) -> Option<(usize, usize)> {
        self.rows.iter().enumerate().find_map(|(row_index, row)| {
            let index = row.iter().position(|flame_box| flame_box.node == node)?;
            Some((row_index, index))
        })
    }
}

fn callees(tree: &Tree, caller: FlameBox) -> impl Iterator<Item = FlameBox> {
    let node = tree.node(caller.node);
    let edge = move |count: u64| {
        let columns = u128::from(count) * u128::from(caller.width) / u128::from(node.count.total.max(1));
        u16::try_from(columns).unwrap_or(caller.width)
    };
    let mut before = 0_u64;
    let boxes = node.children.iter().map(move |child| {
        let left = edge(before);
        before = before.saturating_add(tree.node(*child).count.total);
        FlameBox { node: *child, column: caller.column + left, width: edge(before) - left }
    });
    boxes.filter(|flame_box| flame_box.width > 0)
}

#[cfg(test)]
mod tests {
    use profiler_profile::test_profile::{folded, random};
    use profiler_profile_formats::OutputOptions;

    use super::*;
    use crate::live::tree::ROOT;

    #[test]
    fn boxes_are_as_wide_as_their_shares_and_below_their_callers() {
        let profile = folded(&[("p;main;a", 25), ("p;main;b;c", 50), ("p;main", 25)]);
        let tree = Tree::from_profile(&profile, &OutputOptions::default());
        let boxes = BoxLayout::new(&tree, ROOT, 40);
        let found: Vec<Vec<_>> = boxes
            .rows()
            .iter()
            .map(|row| {
                let describe = |flame_box: &FlameBox| {
                    format!(
                        "{} {}+{}",
                        tree.function(flame_box.node).label,
                        flame_box.column,
                        flame_box.width
                    )
                };
                row.iter().map(describe).collect()
            })
            .collect();
        assert_eq!(found.concat(), ["all 0+40", "p 0+40", "main 0+40", "a 0+10", "b 10+20", "c 10+20"]);
        assert_eq!(boxes.find(boxes.rows()[3][1].node), Some((3, 1)));
    }

    #[test]
    fn boxes_lie_within_their_callers_and_do_not_overlap() {
        for seed in 0..30 {
            let tree = Tree::from_profile(&random(seed), &OutputOptions::default());
            for columns in [0, 1, 2, 7, 80, u16::MAX] {
                let boxes = BoxLayout::new(&tree, ROOT, columns);
                for row in boxes.rows() {
                    assert!(row.windows(2).all(|pair| pair[0].column + pair[0].width <= pair[1].column));
                    assert!(row.iter().all(
                        |flame_box| flame_box.width > 0 && flame_box.column + flame_box.width <= columns
                    ));
                }
            }
        }
    }
}
