//! What is searched for, and what of a tree it matches.

use super::{
    function::{Function, Kind},
    tree::{NodeId, ROOT, Tree},
};
use crate::error::Result;
use profiler_profile::shape::Pattern;

/// A search that goes on from one tree to the next.
#[derive(Debug)]
pub(super) struct Search {
    pattern: Pattern,
    /// What was typed, or the function that was chosen.
    pub(super) text: String,
    /// By the functions' numbers in the tree.
    is_match: Vec<bool>,
    /// The outermost matches, the heaviest first.
    found: Vec<NodeId>,
    /// In a match or in what it called.
    pub(super) samples: u64,
}

impl Search {
    /// Of what matches a regular expression.
    pub(super) fn of(text: &str, tree: &Tree) -> Result<Self> {
        Ok(Self::with(text.parse()?, text, tree))
    }

    /// Of this function, and others of its name.
    pub(super) fn of_function(function: &Function, tree: &Tree) -> Result<Self> {
        Ok(Self::with(Pattern::exact(&function.label)?, &function.label, tree))
    }

    fn with(pattern: Pattern, text: &str, tree: &Tree) -> Self {
        let text = text.to_owned();
        let mut search = Self { pattern, text, is_match: Vec::new(), found: Vec::new(), samples: 0 };
        search.look_at(tree);
        search
    }

    /// Finds what matches in another tree.
    pub(super) fn look_at(&mut self, tree: &Tree) {
        let matches = |function: &Function| {
            self.pattern.matches(&function.label)
                || function.kind != Kind::Group && self.pattern.matches(&function.module)
        };
        let root = tree.node(ROOT).function;
        self.is_match =
            tree.functions().map(|(number, function)| number != root && matches(function)).collect();
        self.found = tree.outermost(ROOT, |number| self.matches(number));
        self.samples = self.found.iter().map(|id| tree.node(*id).count.total).sum();
    }

    /// Whether a function of the tree matches, by its number.
    pub(super) fn matches(&self, function: usize) -> bool {
        self.is_match.get(function).copied().unwrap_or_default()
    }

    /// The match after the one that is selected, or the one before it; the heaviest when none is.
    pub(super) fn next(&self, selected: NodeId, is_backwards: bool) -> Option<NodeId> {
        let last = self.found.len().checked_sub(1)?;
        let next = match (self.found.iter().position(|id| *id == selected), is_backwards) {
            (None, _) => 0,
            (Some(0), true) => last,
            (Some(at), true) => at - 1,
            (Some(at), false) if at == last => 0,
            (Some(at), false) => at + 1,
        };
        self.found.get(next).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_profile::test_profile::folded;
    use profiler_profile_formats::OutputOptions;

    fn tree(stacks: &[(&str, u64)]) -> Tree {
        Tree::of(&folded(stacks), &OutputOptions::default())
    }

    #[test]
    fn a_sample_counts_once_and_matches_follow_by_weight() {
        let tree = tree(&[("p;a;work;work", 1), ("p;b;work", 3), ("p;c", 4)]);
        let search = Search::of("^wo", &tree).unwrap();
        assert_eq!(search.samples, 4);
        let first = search.next(ROOT, false).unwrap();
        let second = search.next(first, false).unwrap();
        assert_eq!((tree.node(first).count.total, tree.node(second).count.total), (3, 1));
        assert_eq!((search.next(second, false), search.next(first, true)), (Some(first), Some(second)));
    }

    #[test]
    fn what_is_not_there_is_not_found_until_it_is() {
        let mut search = Search::of("later", &tree(&[("p;all", 1)])).unwrap();
        assert_eq!((search.samples, search.next(ROOT, false)), (0, None));
        search.look_at(&tree(&[("p;later", 7)]));
        assert_eq!(search.samples, 7);
    }

    #[test]
    fn a_function_is_found_by_its_name_alone() {
        let tree = tree(&[("p;a.b(c)", 2), ("p;a.b(c)d", 1), ("p;axb(c)", 1)]);
        let (_, function) = tree.functions().find(|(_, function)| function.label == "a.b(c)").unwrap();
        assert_eq!(Search::of_function(function, &tree).unwrap().samples, 2);
    }

    #[test]
    fn all_is_no_match_and_nonsense_is_refused() {
        let tree = tree(&[("p;f", 1)]);
        assert_eq!(Search::of("^all$", &tree).unwrap().samples, 0);
        assert_eq!(Search::of("^p$", &tree).unwrap().samples, 1);
        assert!(Search::of("(", &tree).is_err());
    }
}
