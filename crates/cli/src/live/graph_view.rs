//! Zoom and selection in the flame graph.
//!
//! Both are stored as paths of functions, which stay valid when the next profile replaces the tree.

use super::{
    box_layout::BoxLayout,
    function::Function,
    tree::{NodeId, ROOT, Tree},
};

/// A movement of the selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Left,
    Right,
    /// To the caller.
    Up,
    /// To the callee with most samples.
    Down,
}

/// The zoomed and the selected node.
#[derive(Debug, Default)]
pub(super) struct GraphView {
    zoom: Vec<Function>,
    selected: Vec<Function>,
}

impl GraphView {
    /// The node that fills the width of the graph.
    pub(super) fn zoomed(&self, tree: &Tree) -> NodeId {
        tree.find(&self.zoom)
    }

    /// The selected node: the zoomed node or one of its descendants.
    pub(super) fn selected(&self, tree: &Tree) -> NodeId {
        let (zoomed, selected) = (self.zoomed(tree), tree.find(&self.selected));
        if tree.callers(selected).any(|caller| caller == zoomed) { selected } else { zoomed }
    }

    /// Moves the selection to another box.
    pub(super) fn step(&mut self, tree: &Tree, columns: u16, step: Step) {
        let (zoomed, selected) = (self.zoomed(tree), self.selected(tree));
        let boxes = BoxLayout::new(tree, zoomed, columns);
        let to = match (step, boxes.find(selected)) {
            (Step::Up, _) if selected == zoomed => return self.zoom_out(tree),
            (Step::Up, _) => tree.node(selected).parent,
            (Step::Down, _) => widest_callee(tree, &boxes, selected),
            (Step::Left, Some((row, at))) => at
                .checked_sub(1)
                .and_then(|left| boxes.rows().get(row)?.get(left))
                .map(|flame_box| flame_box.node),
            (Step::Right, Some((row, at))) => {
                boxes.rows().get(row).and_then(|row| row.get(at + 1)).map(|flame_box| flame_box.node)
            }
            // A node without a box has no neighbours.
            (Step::Left | Step::Right, None) => tree.node(selected).parent,
        };
        if let Some(to) = to {
            self.selected = tree.path(to);
        }
    }

    /// Selects a node, and zooms out or in as far as needed to show it.
    pub(super) fn show(&mut self, tree: &Tree, columns: u16, node: NodeId) {
        self.selected = tree.path(node);
        if !tree.callers(node).any(|caller| caller == self.zoomed(tree)) {
            self.zoom.clear();
        }
        if BoxLayout::new(tree, self.zoomed(tree), columns).find(node).is_none() {
            self.zoom = tree.path(tree.node(node).parent.unwrap_or(ROOT));
        }
    }

    /// Zooms to the selected node.
    pub(super) fn zoom_in(&mut self, tree: &Tree) {
        self.zoom = tree.path(self.selected(tree));
        self.selected.clone_from(&self.zoom);
    }

    /// Zooms to the caller of the zoomed node.
    pub(super) fn zoom_out(&mut self, tree: &Tree) {
        let caller = tree.node(self.zoomed(tree)).parent.unwrap_or(ROOT);
        self.zoom = tree.path(caller);
        self.selected.clone_from(&self.zoom);
    }

    /// Zooms out to the root.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}

fn widest_callee(tree: &Tree, boxes: &BoxLayout, caller: NodeId) -> Option<NodeId> {
    let (row, _) = boxes.find(caller)?;
    let callees = boxes.rows().get(row + 1)?.iter().map(|flame_box| flame_box.node);
    let callees = callees.filter(|node| tree.node(*node).parent == Some(caller));
    // `max_by_key` returns the last maximum: reversed, it is the leftmost.
    callees.rev().max_by_key(|node| tree.node(*node).count.total)
}

#[cfg(test)]
mod tests {
    use profiler_profile::test_profile::folded;
    use profiler_profile_formats::OutputOptions;

    use super::*;

    const COLUMNS: u16 = 80;

    fn tree(stacks: &[(&str, u64)]) -> Tree {
        Tree::from_profile(&folded(stacks), &OutputOptions::default())
    }

    fn known() -> Tree {
        tree(&[("p;main;a;x", 30), ("p;main;b", 60), ("p;main;c;y;z", 10)])
    }

    fn label(tree: &Tree, node: NodeId) -> &str {
        &tree.function(node).label
    }

    /// The label of the selected box after these steps.
    fn selected_after(graph: &mut GraphView, tree: &Tree, steps: &[Step]) -> String {
        steps.iter().for_each(|step| graph.step(tree, COLUMNS, *step));
        label(tree, graph.selected(tree)).to_owned()
    }

    #[test]
    fn steps_lead_to_callees_callers_and_neighbours() {
        use Step::{Down, Left, Right, Up};
        let tree = known();
        let mut graph = GraphView::default();
        assert_eq!(selected_after(&mut graph, &tree, &[Down, Down, Down]), "b");
        assert_eq!(selected_after(&mut graph, &tree, &[Left]), "a");
        assert_eq!(selected_after(&mut graph, &tree, &[Left]), "a");
        assert_eq!(selected_after(&mut graph, &tree, &[Right, Right, Down, Down]), "z");
        assert_eq!(selected_after(&mut graph, &tree, &[Down, Up]), "y");
        assert_eq!(selected_after(&mut graph, &tree, &[Up; 9]), "all");
    }

    #[test]
    fn a_step_up_from_the_zoomed_node_zooms_out() {
        let tree = known();
        let mut graph = GraphView::default();
        selected_after(&mut graph, &tree, &[Step::Down; 3]);
        graph.zoom_in(&tree);
        assert_eq!(label(&tree, graph.zoomed(&tree)), "b");
        assert_eq!(selected_after(&mut graph, &tree, &[Step::Up]), "main");
        assert_eq!(label(&tree, graph.zoomed(&tree)), "main");
        graph.reset();
        assert_eq!(graph.zoomed(&tree), ROOT);
    }

    #[test]
    fn zoom_and_selection_survive_a_profile_without_their_samples() {
        let tree = known();
        let mut graph = GraphView::default();
        selected_after(&mut graph, &tree, &[Step::Down; 3]);
        graph.zoom_in(&tree);
        let other = self::tree(&[("p;main;a", 1)]);
        assert_eq!(label(&other, graph.zoomed(&other)), "main");
        assert_eq!(graph.zoomed(&self::tree(&[("o;other", 1)])), ROOT);
        assert_eq!(label(&tree, graph.zoomed(&tree)), "b");
    }

    #[test]
    fn showing_a_node_without_a_box_zooms_in() {
        let tree = tree(&[("p;main;work", 100_000), ("p;main;rare;leaf", 1)]);
        let mut graph = GraphView::default();
        let leaf = tree.outermost(ROOT, |number| tree.function_by_number(number).unwrap().label == "leaf")[0];
        graph.show(&tree, COLUMNS, leaf);
        assert_eq!(label(&tree, graph.selected(&tree)), "leaf");
        assert_eq!(label(&tree, graph.zoomed(&tree)), "rare");
        let work = tree.outermost(ROOT, |number| tree.function_by_number(number).unwrap().label == "work")[0];
        graph.show(&tree, COLUMNS, work);
        assert_eq!(graph.zoomed(&tree), ROOT);
    }
}
