//! Search in functions and modules, and its matches in the call tree.

use profiler::Result;
use profiler_profile::shape::Pattern;

use super::{
    function::{Function, Kind},
    tree::{NodeId, ROOT, Tree},
};

/// A search and its matches in the current tree.
#[derive(Debug)]
pub(super) struct Search {
    pattern: Pattern,
    /// The typed pattern, or the name of the selected function.
    pub(super) text: String,
    /// By the number of the function.
    is_match: Vec<bool>,
    /// The outermost matches, by descending number of samples.
    found: Vec<NodeId>,
    /// Samples in a match or its callees.
    pub(super) samples: u64,
}

impl Search {
    /// Searches for a regular expression.
    pub(super) fn new(text: &str, tree: &Tree) -> Result<Self> {
        Ok(Self::from_pattern(text.parse()?, text, tree))
    }

    /// Searches for functions with the name of this one.
    pub(super) fn for_function(function: &Function, tree: &Tree) -> Result<Self> {
        Ok(Self::from_pattern(Pattern::exact(&function.label)?, &function.label, tree))
    }

    fn from_pattern(pattern: Pattern, text: &str, tree: &Tree) -> Self {
        let text = text.to_owned();
        let mut search = Self { pattern, text, is_match: Vec::new(), found: Vec::new(), samples: 0 };
        search.update(tree);
        search
    }

    /// Searches in another tree.
    pub(super) fn update(&mut self, tree: &Tree) {
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

    /// The match after or before the selected one; the first if no match is selected.
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
    use profiler_profile::test_profile::folded;
    use profiler_profile_formats::OutputOptions;

    use super::*;

    fn tree(stacks: &[(&str, u64)]) -> Tree {
        Tree::from_profile(&folded(stacks), &OutputOptions::default())
    }

    #[test]
    fn a_sample_counts_once_and_matches_are_sorted_by_samples() {
        let tree = tree(&[("p;a;work;work", 1), ("p;b;work", 3), ("p;c", 4)]);
        let search = Search::new("^wo", &tree).unwrap();
        assert_eq!(search.samples, 4);
        let first = search.next(ROOT, false).unwrap();
        let second = search.next(first, false).unwrap();
        assert_eq!((tree.node(first).count.total, tree.node(second).count.total), (3, 1));
        assert_eq!((search.next(second, false), search.next(first, true)), (Some(first), Some(second)));
    }

    #[test]
    fn a_search_without_matches_finds_those_of_a_later_tree() {
        let mut search = Search::new("later", &tree(&[("p;all", 1)])).unwrap();
        assert_eq!((search.samples, search.next(ROOT, false)), (0, None));
        search.update(&tree(&[("p;later", 7)]));
        assert_eq!(search.samples, 7);
    }

    #[test]
    fn a_function_is_found_by_its_exact_name() {
        let tree = tree(&[("p;a.b(c)", 2), ("p;a.b(c)d", 1), ("p;axb(c)", 1)]);
        let (_, function) = tree.functions().find(|(_, function)| function.label == "a.b(c)").unwrap();
        assert_eq!(Search::for_function(function, &tree).unwrap().samples, 2);
    }

    #[test]
    fn the_root_does_not_match_and_invalid_patterns_are_refused() {
        let tree = tree(&[("p;f", 1)]);
        assert_eq!(Search::new("^all$", &tree).unwrap().samples, 0);
        assert_eq!(Search::new("^p$", &tree).unwrap().samples, 1);
        assert!(Search::new("(", &tree).is_err());
    }
}
