//! Where one is in the flame graph: which part of it is seen, and which box is selected.
//!
//! Both are paths of functions, so that they stay when the next tree comes, and come back when their samples do.

use super::{
    boxes::Boxes,
    function::Function,
    tree::{NodeId, ROOT, Tree},
};

/// A step from one box to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Left,
    Right,
    /// To the caller.
    Up,
    /// To the callee with most samples.
    Down,
}

/// The place.
#[derive(Debug, Default)]
pub(super) struct Graph {
    zoom: Vec<Function>,
    selected: Vec<Function>,
}

impl Graph {
    /// The node that has the whole width.
    pub(super) fn zoomed(&self, tree: &Tree) -> NodeId {
        tree.find(&self.zoom)
    }

    /// The selected node, below the zoomed one.
    pub(super) fn selected(&self, tree: &Tree) -> NodeId {
        let (zoomed, selected) = (self.zoomed(tree), tree.find(&self.selected));
        if tree.callers(selected).any(|caller| caller == zoomed) { selected } else { zoomed }
    }

    /// Goes to another box.
    pub(super) fn step(&mut self, tree: &Tree, columns: u16, step: Step) {
        let (zoomed, selected) = (self.zoomed(tree), self.selected(tree));
        let boxes = Boxes::below(tree, zoomed, columns);
        let to = match (step, boxes.find(selected)) {
            (Step::Up, _) if selected == zoomed => return self.zoom_out(tree),
            (Step::Up, _) => tree.node(selected).parent,
            (Step::Down, _) => widest_callee(tree, &boxes, selected),
            (Step::Left, Some((row, at))) => {
                at.checked_sub(1).and_then(|left| boxes.rows().get(row)?.get(left)).map(|place| place.node)
            }
            (Step::Right, Some((row, at))) => {
                boxes.rows().get(row).and_then(|row| row.get(at + 1)).map(|place| place.node)
            }
            // A box too narrow to be seen has no neighbours: its caller has.
            (Step::Left | Step::Right, None) => tree.node(selected).parent,
        };
        if let Some(to) = to {
            self.selected = tree.path(to);
        }
    }

    /// Selects a node, and zooms out or in as far as it takes to see it.
    pub(super) fn show(&mut self, tree: &Tree, columns: u16, node: NodeId) {
        self.selected = tree.path(node);
        if !tree.callers(node).any(|caller| caller == self.zoomed(tree)) {
            self.zoom.clear();
        }
        if Boxes::below(tree, self.zoomed(tree), columns).find(node).is_none() {
            self.zoom = tree.path(tree.node(node).parent.unwrap_or(ROOT));
        }
    }

    /// Gives the selected box the whole width.
    pub(super) fn zoom_in(&mut self, tree: &Tree) {
        self.zoom = tree.path(self.selected(tree));
        self.selected.clone_from(&self.zoom);
    }

    /// Gives the caller of what is zoomed the whole width.
    pub(super) fn zoom_out(&mut self, tree: &Tree) {
        let caller = tree.node(self.zoomed(tree)).parent.unwrap_or(ROOT);
        self.zoom = tree.path(caller);
        self.selected.clone_from(&self.zoom);
    }

    /// Shows everything.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}

fn widest_callee(tree: &Tree, boxes: &Boxes, caller: NodeId) -> Option<NodeId> {
    let (row, _) = boxes.find(caller)?;
    let callees = boxes.rows().get(row + 1)?.iter().map(|place| place.node);
    let callees = callees.filter(|node| tree.node(*node).parent == Some(caller));
    // Of equals the first, as one reads.
    callees.rev().max_by_key(|node| tree.node(*node).count.total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_profile::test_profile::folded;
    use profiler_profile_formats::OutputOptions;

    const COLUMNS: u16 = 80;

    fn tree(stacks: &[(&str, u64)]) -> Tree {
        Tree::of(&folded(stacks), &OutputOptions::default())
    }

    fn known() -> Tree {
        tree(&[("p;main;a;x", 30), ("p;main;b", 60), ("p;main;c;y;z", 10)])
    }

    fn label(tree: &Tree, node: NodeId) -> &str {
        &tree.function(node).label
    }

    /// The label of the box where so many steps lead.
    fn walked(graph: &mut Graph, tree: &Tree, steps: &[Step]) -> String {
        steps.iter().for_each(|step| graph.step(tree, COLUMNS, *step));
        label(tree, graph.selected(tree)).to_owned()
    }

    #[test]
    fn steps_lead_to_callees_callers_and_neighbours() {
        use Step::{Down, Left, Right, Up};
        let tree = known();
        let mut graph = Graph::default();
        assert_eq!(walked(&mut graph, &tree, &[Down, Down, Down]), "b");
        assert_eq!(walked(&mut graph, &tree, &[Left]), "a");
        assert_eq!(walked(&mut graph, &tree, &[Left]), "a");
        assert_eq!(walked(&mut graph, &tree, &[Right, Right, Down, Down]), "z");
        assert_eq!(walked(&mut graph, &tree, &[Down, Up]), "y");
        assert_eq!(walked(&mut graph, &tree, &[Up; 9]), "all");
    }

    #[test]
    fn what_is_zoomed_is_left_upwards() {
        let tree = known();
        let mut graph = Graph::default();
        walked(&mut graph, &tree, &[Step::Down; 3]);
        graph.zoom_in(&tree);
        assert_eq!(label(&tree, graph.zoomed(&tree)), "b");
        assert_eq!(walked(&mut graph, &tree, &[Step::Up]), "main");
        assert_eq!(label(&tree, graph.zoomed(&tree)), "main");
        graph.reset();
        assert_eq!(graph.zoomed(&tree), ROOT);
    }

    #[test]
    fn a_place_stays_while_its_samples_come_and_go() {
        let tree = known();
        let mut graph = Graph::default();
        walked(&mut graph, &tree, &[Step::Down; 3]);
        graph.zoom_in(&tree);
        let meanwhile = self::tree(&[("p;main;a", 1)]);
        assert_eq!(label(&meanwhile, graph.zoomed(&meanwhile)), "main");
        assert_eq!(graph.zoomed(&self::tree(&[("o;other", 1)])), ROOT);
        assert_eq!(label(&tree, graph.zoomed(&tree)), "b");
    }

    #[test]
    fn a_match_that_is_too_narrow_to_be_seen_is_zoomed_to() {
        let tree = tree(&[("p;main;work", 100_000), ("p;main;rare;leaf", 1)]);
        let mut graph = Graph::default();
        let leaf = tree.outermost(ROOT, |number| tree.function_numbered(number).unwrap().label == "leaf")[0];
        graph.show(&tree, COLUMNS, leaf);
        assert_eq!(label(&tree, graph.selected(&tree)), "leaf");
        assert_eq!(label(&tree, graph.zoomed(&tree)), "rare");
        let work = tree.outermost(ROOT, |number| tree.function_numbered(number).unwrap().label == "work")[0];
        graph.show(&tree, COLUMNS, work);
        assert_eq!(graph.zoomed(&tree), ROOT);
    }
}
