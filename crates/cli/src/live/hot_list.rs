//! The list of hot functions: sort order and selection.

use std::cmp::Reverse;

use super::{
    function::{Function, Kind},
    tree::Tree,
};

/// The sort order of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// By samples in the function itself.
    #[default]
    Own,
    /// By samples in the function or its callees.
    Total,
}

/// The state of the list.
#[derive(Debug, Default)]
pub(super) struct HotList {
    pub(super) order: Order,
    /// Stays selected when the order changes; `None` selects the first function.
    selected: Option<Function>,
}

impl HotList {
    /// The numbers of the functions in sort order.
    pub(super) fn functions(&self, tree: &Tree) -> Vec<usize> {
        let code_functions = tree.functions().filter(|(_, function)| function.kind != Kind::Group);
        let mut functions: Vec<_> =
            code_functions.filter(|(number, _)| tree.function_count(*number).total > 0).collect();
        functions.sort_by_key(|(number, function)| {
            let count = tree.function_count(*number);
            let counts = match self.order {
                Order::Own => (count.own, count.total),
                Order::Total => (count.total, count.own),
            };
            (Reverse(counts), &function.label, &function.module)
        });
        functions.into_iter().map(|(number, _)| number).collect()
    }

    /// The row of the selected function.
    pub(super) fn selected_row(&self, tree: &Tree, functions: &[usize]) -> usize {
        let is_selected = |number: &usize| tree.function_by_number(*number) == self.selected.as_ref();
        functions.iter().position(is_selected).unwrap_or(0)
    }

    /// Moves the selection by this many rows.
    pub(super) fn step(&mut self, tree: &Tree, rows: isize) {
        let functions = self.functions(tree);
        let row = self.selected_row(tree, &functions).saturating_add_signed(rows);
        let row = row.min(functions.len().saturating_sub(1));
        self.selected = functions.get(row).and_then(|number| tree.function_by_number(*number)).cloned();
    }

    pub(super) fn selected<'a>(&self, tree: &'a Tree) -> Option<&'a Function> {
        let functions = self.functions(tree);
        let number = functions.get(self.selected_row(tree, &functions))?;
        tree.function_by_number(*number)
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

    fn labels(list: &HotList, tree: &Tree) -> Vec<String> {
        let functions = list.functions(tree);
        functions.iter().map(|number| tree.function_by_number(*number).unwrap().label.clone()).collect()
    }

    #[test]
    fn functions_are_sorted_by_self_or_total_samples() {
        let tree = tree(&[("p;main;work", 5), ("p;main;work;read", 9), ("p;main", 2)]);
        let mut list = HotList::default();
        assert_eq!(labels(&list, &tree), ["read", "work", "main"]);
        list.order = Order::Total;
        assert_eq!(labels(&list, &tree), ["main", "work", "read"]);
    }

    #[test]
    fn the_selection_stays_at_its_function_and_within_the_list() {
        let before = tree(&[("p;a", 3), ("p;b", 2), ("p;c", 1)]);
        let mut list = HotList::default();
        let selected = |list: &HotList, tree: &Tree| list.selected(tree).unwrap().label.clone();
        assert_eq!(selected(&list, &before), "a");
        list.step(&before, 1);
        let after = tree(&[("p;b", 9), ("p;a", 3)]);
        assert_eq!(selected(&list, &after), "b");
        list.step(&after, isize::MAX);
        assert_eq!(selected(&list, &after), "a");
        list.step(&after, isize::MIN);
        assert_eq!(selected(&list, &after), "b");
        assert!(list.selected(&tree(&[])).is_none());
    }
}
