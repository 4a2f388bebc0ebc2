//! Looks up which method the JIT compiled on a thread at a time.
//!
//! The runtime writes an event before it calls the JIT (`MethodJittingStarted`), and one when the method has code
//! (`MethodLoadVerbose`), both on the thread that compiles. Compilations nest: the JIT can make the runtime call a static
//! constructor that has to be compiled first.

use std::collections::HashMap;

use profiler_addresses::MonotonicTime;

/// Compilations per process. The largest programs compile a hundred thousand methods, all tiers included.
const MAX_COMPILATIONS: usize = 1 << 18;

/// Bytes of the names of all compilations of a process, as many as of all its methods.
const MAX_NAME_BYTES: usize = 24 << 20;

/// Compilations of a thread among which that of a time, or of an event, is searched: the newest before it.
const MAX_SEARCHED_COMPILATIONS: usize = 256;

/// The end of a compilation without an event of its end.
const OPEN: MonotonicTime = MonotonicTime::MAX;

/// The event at the beginning or at the end of a compilation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CompilationEdge {
    pub(super) time: MonotonicTime,
    /// In the pid namespace of the process.
    pub(super) thread: u64,
    pub(super) method_id: u64,
    /// `None` is the end.
    pub(super) begun: Option<CompiledMethod>,
}

/// The method that is compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CompiledMethod {
    pub(super) module_id: u64,
    /// Without its module.
    pub(super) name: Box<str>,
}

#[derive(Debug)]
struct Compilation {
    begin: MonotonicTime,
    end: MonotonicTime,
    method_id: u64,
    method: CompiledMethod,
}

/// Memory of a thread in the hash table, and of the unused capacity of its compilations.
const THREAD_BYTES: usize = 2 * size_of::<(u64, Vec<Compilation>)>() + 3 * size_of::<Compilation>();

/// The compilations of one process.
#[derive(Debug, Default)]
pub(super) struct Compilations {
    /// By thread, in the order of their beginnings.
    threads: HashMap<u64, Vec<Compilation>>,
    count: usize,
    name_bytes: usize,
}

impl Compilations {
    /// Adds the edges of a report, later ones than those of the report before.
    pub(super) fn add(&mut self, mut edges: Vec<CompilationEdge>) {
        edges.sort_by_key(|edge| edge.time);
        for CompilationEdge { time, thread, method_id, begun } in edges {
            match begun {
                Some(method) => self.begin(time, thread, method_id, method),
                None => self.end(time, thread, method_id),
            }
        }
    }

    fn begin(&mut self, begin: MonotonicTime, thread: u64, method_id: u64, method: CompiledMethod) {
        let name_bytes = self.name_bytes.saturating_add(method.name.len());
        if self.count < MAX_COMPILATIONS && name_bytes <= MAX_NAME_BYTES {
            self.count += 1;
            self.name_bytes = name_bytes;
            let compilation = Compilation { begin, end: OPEN, method_id, method };
            self.threads.entry(thread).or_default().push(compilation);
        }
    }

    /// Ends a compilation, and those inside it that ended without code.
    fn end(&mut self, time: MonotonicTime, thread: u64, method_id: u64) {
        let Some(compilations) = self.threads.get_mut(&thread) else { return };
        let newest = compilations.len().saturating_sub(MAX_SEARCHED_COMPILATIONS);
        let is_open =
            |compilation: &Compilation| compilation.end == OPEN && compilation.method_id == method_id;
        if let Some(ended) = compilations[newest..].iter().rposition(is_open) {
            let inside = compilations[newest + ended..].iter_mut();
            inside.for_each(|compilation| compilation.end = compilation.end.min(time));
        }
    }

    /// The innermost method that a thread compiled at a time.
    pub(super) fn at(&self, thread: u64, time: MonotonicTime) -> Option<&CompiledMethod> {
        let compilations = self.threads.get(&thread)?;
        let begun = compilations.partition_point(|compilation| compilation.begin <= time);
        let mut newest = compilations[..begun].iter().rev().take(MAX_SEARCHED_COMPILATIONS);
        newest.find(|compilation| time < compilation.end).map(|compilation| &compilation.method)
    }

    /// Discards the compilations that ended before a time.
    pub(super) fn retire_ended(&mut self, before: MonotonicTime) {
        for compilations in self.threads.values_mut() {
            compilations.retain(|compilation| compilation.end >= before);
            compilations.shrink_to(2 * compilations.len());
        }
        self.threads.retain(|_, compilations| !compilations.is_empty());
        let left = || self.threads.values().flatten();
        self.count = left().count();
        self.name_bytes = left().map(|compilation| compilation.method.name.len()).sum();
    }

    /// The memory of the compilations.
    pub(super) fn memory_bytes(&self) -> usize {
        self.count * size_of::<Compilation>() + self.name_bytes + self.threads.len() * THREAD_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(time_ns: u64, thread: u64, method_id: u64) -> CompilationEdge {
        let method = CompiledMethod { module_id: 3, name: format!("M{method_id}").into() };
        CompilationEdge { time: MonotonicTime(time_ns), thread, method_id, begun: Some(method) }
    }

    fn end(time_ns: u64, thread: u64, method_id: u64) -> CompilationEdge {
        CompilationEdge { time: MonotonicTime(time_ns), thread, method_id, begun: None }
    }

    fn at(compilations: &Compilations, thread: u64, time_ns: u64) -> Option<&str> {
        compilations.at(thread, MonotonicTime(time_ns)).map(|method| &*method.name)
    }

    #[test]
    fn a_compilation_is_between_its_events_on_their_thread() {
        let mut compilations = Compilations::default();
        compilations.add(vec![end(20, 1, 5), begin(10, 1, 5), begin(15, 2, 6), begin(30, 1, 7)]);
        for (time_ns, expected) in
            [(9, None), (10, Some("M5")), (19, Some("M5")), (20, None), (29, None), (30, Some("M7"))]
        {
            assert_eq!(at(&compilations, 1, time_ns), expected, "{time_ns}");
        }
        assert_eq!((at(&compilations, 2, 14), at(&compilations, 2, 100)), (None, Some("M6")));
        assert_eq!(at(&compilations, 3, 15), None);
        compilations.add(vec![end(40, 2, 6)]);
        assert_eq!(at(&compilations, 2, 40), None, "the end can be in a later report");
    }

    #[test]
    fn the_innermost_of_nested_compilations_is_found() {
        let mut compilations = Compilations::default();
        compilations.add(vec![
            begin(10, 1, 5),
            begin(20, 1, 6),
            end(30, 1, 6),
            begin(40, 1, 7),
            end(50, 1, 5),
        ]);
        let found = [10, 20, 29, 30, 40, 49, 50].map(|time_ns| at(&compilations, 1, time_ns));
        // The compilation of 7 ended without code.
        let expected = [Some("M5"), Some("M6"), Some("M6"), Some("M5"), Some("M7"), Some("M7"), None];
        assert_eq!(found, expected);
    }

    #[test]
    fn ended_compilations_are_retired() {
        let mut compilations = Compilations::default();
        compilations.add(vec![begin(10, 1, 5), end(20, 1, 5), begin(15, 2, 6), begin(30, 1, 7)]);
        let before_bytes = compilations.memory_bytes();
        compilations.retire_ended(MonotonicTime(25));
        assert_eq!(
            [(1, 15), (1, 30), (2, 15)].map(|(thread, time_ns)| at(&compilations, thread, time_ns)),
            [None, Some("M7"), Some("M6")]
        );
        assert!(compilations.memory_bytes() < before_bytes);
        compilations.add(vec![end(40, 1, 7), end(40, 2, 6)]);
        compilations.retire_ended(MonotonicTime(50));
        assert_eq!((compilations.memory_bytes(), compilations.threads.len()), (0, 0));
    }

    #[test]
    fn retired_compilations_leave_no_unused_memory() {
        let mut compilations = Compilations::default();
        let ended =
            (0..10_000).flat_map(|number| [begin(2 * number, 1, number), end(2 * number + 1, 1, number)]);
        compilations.add(ended.chain([begin(20_000, 1, 7)]).collect());
        compilations.retire_ended(MonotonicTime(20_000));
        assert_eq!(at(&compilations, 1, 20_000), Some("M7"));
        assert!(compilations.threads[&1].capacity() < 10);
    }

    #[test]
    fn ends_without_a_beginning_and_endless_compilations_are_bounded() {
        let mut compilations = Compilations::default();
        compilations.add((0..300).map(|time_ns| end(time_ns, 1, 5)).collect());
        assert_eq!(compilations.memory_bytes(), 0);
        let endless = MAX_COMPILATIONS as u64 + 10;
        compilations.add((0..endless).map(|time_ns| begin(time_ns, 1, time_ns)).collect());
        assert_eq!(compilations.count, MAX_COMPILATIONS);
        compilations.add((0..endless).map(|method_id| end(endless, 1, method_id)).collect());
        assert_eq!(at(&compilations, 1, endless), None);
    }

    #[test]
    fn the_bytes_of_names_are_bounded_until_compilations_are_retired() {
        const NAME_BYTES: usize = 1 << 20;
        let long_name = |time_ns: u64| {
            let method = CompiledMethod { module_id: 3, name: "x".repeat(NAME_BYTES).into() };
            CompilationEdge {
                time: MonotonicTime(time_ns),
                thread: 1,
                method_id: time_ns,
                begun: Some(method),
            }
        };
        let mut compilations = Compilations::default();
        for report in 0..3 {
            compilations.add((20 * report..20 * (report + 1)).map(long_name).collect());
        }
        assert_eq!(compilations.count, MAX_NAME_BYTES / NAME_BYTES);
        assert_eq!(compilations.name_bytes, MAX_NAME_BYTES);
        compilations.add((0..60).map(|method_id| end(60, 1, method_id)).collect());
        compilations.retire_ended(MonotonicTime(100));
        compilations.add(vec![begin(200, 1, 7)]);
        assert_eq!(at(&compilations, 1, 200), Some("M7"));
    }
}
