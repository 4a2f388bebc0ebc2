//! Where the boxes of a flame graph stand: the root above, callees below their caller, all in so many columns.

use super::tree::{NodeId, Tree};

/// A node of the tree, as wide as its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) node: NodeId,
    pub(super) column: u16,
    /// At least one column.
    pub(super) width: u16,
}

/// The boxes, row by row, each row from left to right.
#[derive(Debug, Default)]
pub(super) struct Boxes {
    rows: Vec<Vec<Place>>,
}

impl Boxes {
    /// The boxes of a node, in all columns, and of what it called. What is narrower than a column may have none.
    pub(super) fn below(tree: &Tree, node: NodeId, columns: u16) -> Self {
        let mut rows = Vec::new();
        let mut row = vec![Place { node, column: 0, width: columns }];
        row.retain(|place| place.width > 0);
        while !row.is_empty() {
            let next = row.iter().flat_map(|place| callees(tree, *place)).collect();
            rows.push(std::mem::replace(&mut row, next));
        }
        Self { rows }
    }

    pub(super) fn rows(&self) -> &[Vec<Place>] {
        &self.rows
    }

    /// The row of a node that has a box, and its place in the row.
    pub(super) fn find(&self, node: NodeId) -> Option<(usize, usize)> {
        let find = |row: &Vec<Place>| row.iter().position(|place| place.node == node);
        self.rows.iter().enumerate().find_map(|(index, row)| find(row).map(|place| (index, place)))
    }
}

fn callees(tree: &Tree, caller: Place) -> impl Iterator<Item = Place> {
    let node = tree.node(caller.node);
    let edge = move |count: u64| {
        let columns = u128::from(count) * u128::from(caller.width) / u128::from(node.count.total.max(1));
        u16::try_from(columns).unwrap_or(caller.width)
    };
    let mut before = 0_u64;
    let places = node.children.iter().map(move |child| {
        let left = edge(before);
        before = before.saturating_add(tree.node(*child).count.total);
        Place { node: *child, column: caller.column + left, width: edge(before) - left }
    });
    places.filter(|place| place.width > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::live::tree::ROOT;
    use profiler_profile::test_profile::{folded, random};
    use profiler_profile_formats::OutputOptions;

    #[test]
    fn boxes_are_as_wide_as_their_shares_and_stand_below_their_callers() {
        let profile = folded(&[("p;main;a", 25), ("p;main;b;c", 50), ("p;main", 25)]);
        let tree = Tree::of(&profile, &OutputOptions::default());
        let boxes = Boxes::below(&tree, ROOT, 40);
        let told: Vec<Vec<_>> = boxes
            .rows()
            .iter()
            .map(|row| {
                let tell = |place: &Place| {
                    format!("{} {}+{}", tree.function(place.node).label, place.column, place.width)
                };
                row.iter().map(tell).collect()
            })
            .collect();
        assert_eq!(told.concat(), ["all 0+40", "p 0+40", "main 0+40", "a 0+10", "b 10+20", "c 10+20"]);
        let (row, place) = boxes.find(boxes.rows()[3][1].node).unwrap();
        assert_eq!((row, place), (3, 1));
    }

    #[test]
    fn no_box_leaves_its_caller_or_meets_its_neighbour() {
        for seed in 0..30 {
            let tree = Tree::of(&random(seed), &OutputOptions::default());
            for columns in [0, 1, 2, 7, 80, u16::MAX] {
                let boxes = Boxes::below(&tree, ROOT, columns);
                for row in boxes.rows() {
                    assert!(row.windows(2).all(|pair| pair[0].column + pair[0].width <= pair[1].column));
                    assert!(row.iter().all(|place| place.width > 0 && place.column + place.width <= columns));
                }
            }
        }
    }
}
