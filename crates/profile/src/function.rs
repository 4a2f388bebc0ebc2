//! Self and total values of the samples of each function.

use std::collections::HashMap;

use crate::{EventId, Frame, FrameKind, ModuleId, Profile, StackId, StringId, sum};

/// The sums of the values of samples of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionCount {
    /// The name of the function.
    pub name: StringId,
    /// The file of the function. `None` for managed code, whose name starts with the assembly, so that JIT and
    /// precompiled code of a method count as one function.
    pub module: Option<ModuleId>,
    /// Samples whose leaf is the function.
    pub self_count: u64,
    /// Samples with the function anywhere in the stack; a recursive stack counts once.
    pub total_count: u64,
}

impl Profile {
    /// All functions in samples of the first event, by descending self count.
    #[must_use]
    pub fn functions(&self) -> Vec<FunctionCount> {
        let mut stacks = HashMap::<StackId, u64>::new();
        for sample in self.samples_of(EventId::FIRST) {
            sum::add(stacks.entry(sample.stack).or_default(), sample.value);
        }
        let mut functions = HashMap::<_, FunctionCount>::new();
        for (stack, count) in stacks {
            let frames = self.stack(stack).frames.iter();
            let mut of_stack: Vec<_> = frames
                .map(|id| self.frame(*id))
                .map(|frame| (frame.name, distinguishing_module(frame)))
                .collect();
            let leaf = of_stack.first().copied();
            of_stack.sort_unstable();
            of_stack.dedup();
            for (name, module) in of_stack {
                let new = FunctionCount { name, module, self_count: 0, total_count: 0 };
                let function = functions.entry((name, module)).or_insert(new);
                sum::add(&mut function.total_count, count);
                if leaf == Some((name, module)) {
                    sum::add(&mut function.self_count, count);
                }
            }
        }
        let mut functions: Vec<_> = functions.into_values().collect();
        functions.sort_unstable_by(|a, b| {
            let by_count = (b.self_count, b.total_count).cmp(&(a.self_count, a.total_count));
            by_count.then_with(|| (self.string(a.name), a.module).cmp(&(self.string(b.name), b.module)))
        });
        functions
    }

    /// The file name of a module, empty for `None`.
    #[must_use]
    pub fn module_name(&self, module: Option<ModuleId>) -> &str {
        let path = module.map_or("", |module| self.string(self.module(module).path));
        path.rsplit('/').next().unwrap_or(path)
    }
}

/// The module that distinguishes functions of equal name.
fn distinguishing_module(frame: &Frame) -> Option<ModuleId> {
    match frame.kind {
        FrameKind::Precompiled | FrameKind::Jit => None,
        FrameKind::Kernel | FrameKind::Native | FrameKind::Inlined | FrameKind::Label | FrameKind::Wait => {
            frame.module
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Header, ProfileBuilder, StackEnd, SymbolSource, Symbolization, test_profile::folded};
    use profiler_addresses::ElfAddress;

    #[test]
    fn self_counts_are_leaves_and_total_counts_are_stacks() {
        let profile = folded(&[("p;main;work", 5), ("p;main;work;read", 3), ("p;main", 2)]);
        let functions = profile.functions();
        let found: Vec<_> = functions
            .iter()
            .map(|function| (profile.string(function.name), function.self_count, function.total_count))
            .collect();
        assert_eq!(found, [("work", 5, 8), ("read", 3, 3), ("main", 2, 10)]);
    }

    #[test]
    fn a_recursive_function_counts_a_sample_once() {
        let profile = folded(&[("p;f;f;g;f", 4)]);
        assert_eq!(profile.functions()[0].total_count, 4);
        assert_eq!(profile.functions()[1].self_count, 0);
    }

    #[test]
    fn all_compilations_of_a_method_are_one_function() {
        let mut builder = ProfileBuilder::default();
        let name = builder.string("App!A.B()");
        let file = Some(builder.module("/app/App.dll", &[]));
        let process = builder.process(1, "app");
        let thread = builder.thread(process, 1, "app");
        for (kind, module) in [(FrameKind::Precompiled, file), (FrameKind::Jit, None)] {
            let symbolization = Symbolization::Symbol(SymbolSource::RuntimeEvents);
            let address = ElfAddress(0);
            let frame = builder.frame(Frame { name, kind, module, address, location: None, symbolization });
            let stack = builder.stack(vec![frame], StackEnd::Root);
            builder.sample(0, 0, thread, stack, 2);
        }
        let functions = builder.finish(Header::default()).functions();
        assert_eq!(functions, [FunctionCount { name, module: None, self_count: 4, total_count: 4 }]);
    }
}
