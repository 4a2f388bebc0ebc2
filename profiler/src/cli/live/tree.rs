//! The call tree of a profile by functions, with what each function has of it.

use std::collections::HashMap;

use super::function::{Function, Functions};
use profiler_profile::{Profile, StackId, ThreadId};
use profiler_profile_formats::{OutputOptions, printable};

/// The place of a node in its tree.
pub(super) type NodeId = usize;

/// The node of all samples.
pub(super) const ROOT: NodeId = 0;

/// A function as it was called on one path.
#[derive(Debug)]
pub(super) struct Node {
    /// The function's number.
    pub(super) function: usize,
    pub(super) parent: Option<NodeId>,
    /// By name, so that they stay in their places from one profile to the next.
    pub(super) children: Vec<NodeId>,
    pub(super) count: Count,
}

/// Samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// That hit the function itself.
    pub(super) own: u64,
    /// That hit it or what it called; one in which it called itself counts once.
    pub(super) total: u64,
}

/// The tree.
#[derive(Debug)]
pub(super) struct Tree {
    functions: Functions,
    /// Of each function, by its number.
    counts: Vec<Count>,
    nodes: Vec<Node>,
}

impl Tree {
    pub(super) fn of(profile: &Profile, options: &OutputOptions) -> Self {
        let mut functions = Functions::of(profile);
        let all = functions.add(Function::group("all".to_owned()));
        let mut growth = Growth::new(functions, all);
        let mut counts = HashMap::<(ThreadId, StackId), u64>::new();
        for sample in profile.samples() {
            *counts.entry((sample.thread, sample.stack)).or_default() += sample.count;
        }
        let mut path = Vec::new();
        for ((thread, stack), count) in counts {
            path.clear();
            for group in groups(profile, options, thread) {
                path.push(growth.functions.add(Function::group(group)));
            }
            let frames = profile.stack(stack).frames.iter().rev();
            path.extend(frames.map(|frame| growth.functions.number(frame.index())));
            growth.add(&path, count);
        }
        growth.finish()
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    pub(super) fn function(&self, id: NodeId) -> &Function {
        &self.functions.all()[self.nodes[id].function]
    }

    /// All functions with their numbers.
    pub(super) fn functions(&self) -> impl Iterator<Item = (usize, &Function)> {
        self.functions.all().iter().enumerate()
    }

    pub(super) fn function_numbered(&self, number: usize) -> Option<&Function> {
        self.functions.all().get_index(number)
    }

    /// The samples of a function on all paths.
    pub(super) fn count_of(&self, number: usize) -> Count {
        self.counts.get(number).copied().unwrap_or_default()
    }

    pub(super) fn samples(&self) -> u64 {
        self.nodes[ROOT].count.total
    }

    /// The functions on the way from the root, without the root, to a node.
    pub(super) fn path(&self, id: NodeId) -> Vec<Function> {
        let mut path: Vec<_> = self.callers(id).filter(|id| *id != ROOT).collect();
        path.reverse();
        path.into_iter().map(|id| self.function(id).clone()).collect()
    }

    /// The node at the end of a path, or as far as the path is there.
    pub(super) fn find(&self, path: &[Function]) -> NodeId {
        let mut found = ROOT;
        for function in path {
            let children = &self.node(found).children;
            let Some(next) = children.iter().find(|child| self.function(**child) == function) else { break };
            found = *next;
        }
        found
    }

    /// A node and what it was called by, up to the root.
    pub(super) fn callers(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        std::iter::successors(Some(id), |id| self.node(*id).parent)
    }

    /// The outermost nodes below `from` that `is_meant`, the heaviest first.
    pub(super) fn outermost(&self, from: NodeId, is_meant: impl Fn(usize) -> bool) -> Vec<NodeId> {
        let mut found = Vec::new();
        let mut open = vec![from];
        while let Some(id) = open.pop() {
            if is_meant(self.node(id).function) {
                found.push(id);
            } else {
                open.extend(self.node(id).children.iter().rev());
            }
        }
        found.sort_by_key(|id| std::cmp::Reverse(self.node(*id).count.total));
        found
    }
}

/// What stands above the outermost frame: as in folded stacks.
fn groups(profile: &Profile, options: &OutputOptions, thread: ThreadId) -> Vec<String> {
    let thread = profile.thread(thread);
    let process = profile.process(thread.process);
    let name = |comm| printable(profile.string(comm));
    let mut groups = vec![name(process.comm).into_owned()];
    if options.per_process {
        groups.push(format!("process {} ({})", process.pid, name(process.comm)));
    }
    if options.per_thread {
        groups.push(format!("thread {} ({})", thread.tid, name(thread.comm)));
    }
    groups
}

/// A tree that grows by one path after the other.
struct Growth {
    functions: Functions,
    counts: Vec<Count>,
    /// The last path that counted for each function.
    seen: Vec<usize>,
    paths: usize,
    nodes: Vec<Node>,
    known: HashMap<(NodeId, usize), NodeId>,
}

impl Growth {
    fn new(functions: Functions, root: usize) -> Self {
        let root = Node { function: root, parent: None, children: Vec::new(), count: Count::default() };
        Self {
            functions,
            counts: Vec::new(),
            seen: Vec::new(),
            paths: 0,
            nodes: vec![root],
            known: HashMap::new(),
        }
    }

    fn add(&mut self, path: &[usize], samples: u64) {
        self.paths += 1;
        self.counts.resize(self.functions.all().len(), Count::default());
        self.seen.resize(self.functions.all().len(), 0);
        let mut node = ROOT;
        self.nodes[ROOT].count.total += samples;
        for function in path {
            node = self.child(node, *function);
            self.nodes[node].count.total += samples;
            if std::mem::replace(&mut self.seen[*function], self.paths) != self.paths {
                self.counts[*function].total += samples;
            }
        }
        self.nodes[node].count.own += samples;
        if let Some(leaf) = path.last() {
            self.counts[*leaf].own += samples;
        }
    }

    fn child(&mut self, parent: NodeId, function: usize) -> NodeId {
        let new = self.nodes.len();
        let child = *self.known.entry((parent, function)).or_insert(new);
        if child == new {
            let node = Node { function, parent: Some(parent), children: Vec::new(), count: Count::default() };
            self.nodes.push(node);
            self.nodes[parent].children.push(new);
        }
        child
    }

    fn finish(mut self) -> Tree {
        let names: Vec<_> =
            self.nodes.iter().map(|node| self.functions.all()[node.function].identity()).collect();
        let mut children: Vec<_> = self.nodes.iter().map(|node| node.children.clone()).collect();
        for children in &mut children {
            children.sort_by(|a, b| (names[*a].0, names[*a].1).cmp(&(names[*b].0, names[*b].1)));
        }
        for (node, children) in self.nodes.iter_mut().zip(children) {
            node.children = children;
        }
        Tree { functions: self.functions, counts: self.counts, nodes: self.nodes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_profile::test_profile::folded;

    fn tree(stacks: &[(&str, u64)]) -> Tree {
        Tree::of(&folded(stacks), &OutputOptions::default())
    }

    /// The tree in one line: names, totals and own counts.
    fn told(tree: &Tree, id: NodeId) -> String {
        let Count { own, total } = tree.node(id).count;
        let children: String = tree.node(id).children.iter().map(|child| told(tree, *child)).collect();
        format!("({} {total} {own}{children})", tree.function(id).label)
    }

    #[test]
    fn paths_of_the_same_functions_are_one_and_stand_by_name() {
        let tree = tree(&[("p;main;work", 5), ("p;main;idle", 2), ("p;main;work;read", 3), ("p;main", 1)]);
        assert_eq!(told(&tree, ROOT), "(all 11 0(p 11 0(main 11 1(idle 2 2)(work 8 5(read 3 3)))))");
        assert_eq!(tree.samples(), 11);
    }

    #[test]
    fn a_function_that_calls_itself_counts_a_sample_once() {
        let tree = tree(&[("p;f;g;f", 4), ("p;f", 1)]);
        let (number, _) = tree.functions().find(|(_, function)| function.label == "f").unwrap();
        assert_eq!(tree.count_of(number), Count { own: 5, total: 5 });
    }

    #[test]
    fn a_path_is_found_in_another_tree_as_far_as_it_is_there() {
        let before = tree(&[("p;main;work;read", 1)]);
        let after = tree(&[("o;main", 1), ("p;main;work;write", 1)]);
        let leaf = before.find(&before.path(3));
        assert_eq!((leaf, before.path(leaf).len()), (3, 3));
        let read = before.find(&before.path(4));
        assert_eq!(after.function(after.find(&before.path(read))).label, "work");
        assert_eq!(after.find(&[]), ROOT);
    }

    #[test]
    fn processes_and_threads_are_groups_on_request() {
        let options = OutputOptions { per_thread: true, per_process: true, ..OutputOptions::default() };
        let tree = Tree::of(&folded(&[("p;main", 1)]), &options);
        let labels: Vec<_> = tree.path(4).into_iter().map(|function| function.label).collect();
        assert_eq!(labels, ["p", "process 1 (p)", "thread 1 (p)", "main"]);
    }

    #[test]
    fn the_outermost_matches_are_the_heaviest_first() {
        let tree = tree(&[("p;a;f;f", 1), ("p;b;f", 3), ("p;f", 2)]);
        let found = tree.outermost(ROOT, |number| tree.function_numbered(number).unwrap().label == "f");
        let counts: Vec<_> = found.iter().map(|id| tree.node(*id).count.total).collect();
        assert_eq!(counts, [3, 2, 1]);
    }

    #[test]
    fn a_profile_without_samples_is_its_root() {
        assert_eq!(told(&tree(&[]), ROOT), "(all 0 0)");
    }

    #[test]
    fn a_very_deep_stack_is_no_deep_recursion() {
        let deep = format!("p{}", ";f".repeat(100_000));
        let tree = tree(&[(&deep, 1)]);
        assert_eq!(tree.callers(100_001).count(), 100_002);
        assert_eq!(tree.outermost(ROOT, |_| false), [] as [NodeId; 0]);
    }
}
