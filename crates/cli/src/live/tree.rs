//! Call tree of a profile by function, with the samples of each node and each function.

use std::collections::HashMap;

use profiler_profile::{Profile, StackId, ThreadId};
use profiler_profile_formats::{OutputOptions, printable};

use super::function::{Function, Functions};

/// The index of a node in its tree.
pub(super) type NodeId = usize;

/// The node of all samples.
pub(super) const ROOT: NodeId = 0;

/// A function on one call path.
#[derive(Debug)]
pub(super) struct Node {
    /// The function's number.
    pub(super) function: usize,
    pub(super) parent: Option<NodeId>,
    /// Sorted by name, so that the order is the same in consecutive profiles.
    pub(super) children: Vec<NodeId>,
    pub(super) count: Count,
}

/// Numbers of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// In the function itself.
    pub(super) own: u64,
    /// In the function or its callees; a sample with recursion counts once.
    pub(super) total: u64,
}

/// A call tree.
#[derive(Debug)]
pub(super) struct Tree {
    functions: Functions,
    /// The samples of each function, by its number.
    counts: Vec<Count>,
    nodes: Vec<Node>,
}

impl Tree {
    pub(super) fn from_profile(profile: &Profile, options: &OutputOptions) -> Self {
        let profile = &*options.displayed(profile);
        let mut functions = Functions::from_profile(profile);
        let all = functions.add(Function::group("all".to_owned()));
        let mut builder = TreeBuilder::new(functions, all);
        let mut counts = HashMap::<(ThreadId, StackId), u64>::new();
        for sample in profile.samples_of(options.event_of(profile)) {
            *counts.entry((sample.thread, sample.stack)).or_default() += sample.value;
        }
        let mut path = Vec::new();
        for ((thread, stack), count) in counts {
            path.clear();
            for group in groups(profile, options, thread) {
                path.push(builder.functions.add(Function::group(group)));
            }
            let frames = profile.stack(stack).frames.iter().rev();
            path.extend(frames.map(|frame| builder.functions.number(frame.index())));
            builder.add(&path, count);
        }
        builder.finish()
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

    pub(super) fn function_by_number(&self, number: usize) -> Option<&Function> {
        self.functions.all().get_index(number)
    }

    /// The samples of a function on all paths.
    pub(super) fn function_count(&self, number: usize) -> Count {
        self.counts.get(number).copied().unwrap_or_default()
    }

    pub(super) fn samples(&self) -> u64 {
        self.nodes[ROOT].count.total
    }

    /// The functions on the path from the root to a node, without the root.
    pub(super) fn path(&self, id: NodeId) -> Vec<Function> {
        let mut path: Vec<_> = self.callers(id).filter(|id| *id != ROOT).collect();
        path.reverse();
        path.into_iter().map(|id| self.function(id).clone()).collect()
    }

    /// The node at the end of a path, or of its longest prefix in this tree.
    pub(super) fn find(&self, path: &[Function]) -> NodeId {
        let mut found = ROOT;
        for function in path {
            let children = &self.node(found).children;
            let Some(next) = children.iter().find(|child| self.function(**child) == function) else { break };
            found = *next;
        }
        found
    }

    /// A node and its callers, up to the root.
    pub(super) fn callers(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        std::iter::successors(Some(id), |id| self.node(*id).parent)
    }

    /// The outermost nodes at or below `from` whose function number matches, by descending number of samples.
    pub(super) fn outermost(&self, from: NodeId, matches: impl Fn(usize) -> bool) -> Vec<NodeId> {
        let mut found = Vec::new();
        let mut open = vec![from];
        while let Some(id) = open.pop() {
            if matches(self.node(id).function) {
                found.push(id);
            } else {
                open.extend(self.node(id).children.iter().rev());
            }
        }
        found.sort_by_key(|id| std::cmp::Reverse(self.node(*id).count.total));
        found
    }
}

/// The groups above the outermost frame, as in folded stacks.
fn groups(profile: &Profile, options: &OutputOptions, thread: ThreadId) -> Vec<String> {
    let thread = profile.thread_view(thread);
    let process = thread.process();
    let process_name = printable(process.name());
    let mut groups = vec![process_name.clone().into_owned()];
    if options.per_process {
        groups.push(format!("process {} ({process_name})", process.pid()));
    }
    if options.per_thread {
        groups.push(format!("thread {} ({})", thread.tid(), printable(thread.name())));
    }
    groups
}

/// Builds a tree by adding paths.
struct TreeBuilder {
    functions: Functions,
    counts: Vec<Count>,
    /// The number of the last path that counted for each function.
    seen: Vec<usize>,
    paths: usize,
    nodes: Vec<Node>,
    known: HashMap<(NodeId, usize), NodeId>,
}

impl TreeBuilder {
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
    use profiler_addresses::ElfAddress;
    use profiler_profile::{
        Frame, FrameKind, Header, ProfileBuilder, Reason, StackEnd, Symbolization, test_profile::folded,
    };

    use super::*;

    fn tree(stacks: &[(&str, u64)]) -> Tree {
        Tree::from_profile(&folded(stacks), &OutputOptions::default())
    }

    /// The tree in one line: names, total and self samples.
    fn to_text(tree: &Tree, id: NodeId) -> String {
        let Count { own, total } = tree.node(id).count;
        let children: String = tree.node(id).children.iter().map(|child| to_text(tree, *child)).collect();
        format!("({} {total} {own}{children})", tree.function(id).label)
    }

    #[test]
    fn paths_of_the_same_functions_are_merged_and_sorted_by_name() {
        let tree = tree(&[("p;main;work", 5), ("p;main;idle", 2), ("p;main;work;read", 3), ("p;main", 1)]);
        assert_eq!(to_text(&tree, ROOT), "(all 11 0(p 11 0(main 11 1(idle 2 2)(work 8 5(read 3 3)))))");
        assert_eq!(tree.samples(), 11);
    }

    #[test]
    fn unsymbolized_frames_of_a_module_are_one_box_unless_addresses_are_shown() {
        let mut builder = ProfileBuilder::default();
        let module = Some(builder.module("/rt/lib.so", &[]));
        let frames = [1, 2].map(|address| {
            let name = builder.string(&format!("[lib.so+{address:#x}]"));
            let (kind, address) = (FrameKind::Native, ElfAddress(address));
            let symbolization = Symbolization::Address(Reason::NoSymbols);
            builder.frame(Frame { name, kind, module, address, location: None, symbolization })
        });
        let stack = builder.stack(frames.to_vec(), StackEnd::Root);
        let process = builder.process(1, "p");
        let thread = builder.thread(process, 1, "p");
        builder.sample(0, 0, thread, stack, 4);
        let profile = builder.finish(Header::default());
        let shown = |addresses| {
            let options = OutputOptions { addresses, ..OutputOptions::default() };
            to_text(&Tree::from_profile(&profile, &options), ROOT)
        };
        assert_eq!(shown(false), "(all 4 0(p 4 0([lib.so] 4 4)))");
        assert_eq!(shown(true), "(all 4 0(p 4 0([lib.so+0x2] 4 0([lib.so+0x1] 4 4))))");
    }

    #[test]
    fn a_function_that_calls_itself_counts_a_sample_once() {
        let tree = tree(&[("p;f;g;f", 4), ("p;f", 1)]);
        let (number, _) = tree.functions().find(|(_, function)| function.label == "f").unwrap();
        assert_eq!(tree.function_count(number), Count { own: 5, total: 5 });
    }

    #[test]
    fn the_longest_prefix_of_a_path_is_found_in_another_tree() {
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
        let tree = Tree::from_profile(&folded(&[("p;main", 1)]), &options);
        let labels: Vec<_> = tree.path(4).into_iter().map(|function| function.label).collect();
        assert_eq!(labels, ["p", "process 1 (p)", "thread 1 (p)", "main"]);
    }

    #[test]
    fn the_outermost_matches_are_sorted_by_samples() {
        let tree = tree(&[("p;a;f;f", 1), ("p;b;f", 3), ("p;f", 2)]);
        let found = tree.outermost(ROOT, |number| tree.function_by_number(number).unwrap().label == "f");
        let counts: Vec<_> = found.iter().map(|id| tree.node(*id).count.total).collect();
        assert_eq!(counts, [3, 2, 1]);
    }

    #[test]
    fn a_profile_without_samples_has_only_the_root() {
        assert_eq!(to_text(&tree(&[]), ROOT), "(all 0 0)");
    }

    #[test]
    fn a_deep_stack_does_not_overflow_the_stack() {
        let deep = format!("p{}", ";f".repeat(100_000));
        let tree = tree(&[(&deep, 1)]);
        assert_eq!(tree.callers(100_001).count(), 100_002);
        assert_eq!(tree.outermost(ROOT, |_| false), [] as [NodeId; 0]);
    }
}
