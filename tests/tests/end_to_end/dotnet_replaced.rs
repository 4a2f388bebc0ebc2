//! Tests stacks of .NET methods that were replaced while they ran (on-stack replacement).

use std::collections::BTreeSet;

use profiler::profile::SymbolSource;
use profiler_tests::{FoldedStack, FoldedStacks, Workload, run_beside_others, sample, sample_pid};

use crate::dotnet_method_memory::without_diagnostics;

const SAMPLES: u64 = 2_000;

/// The methods of the workload on a stack, each with its tier, from the root on.
fn methods(stack: &FoldedStack) -> Vec<&str> {
    stack.frames.iter().filter_map(|frame| frame.split_once("!Workload.Replaced.")?.1.into()).collect()
}

fn without_tier(method: &str) -> &str {
    method.split('(').next().unwrap_or_default()
}

/// How often a method is on a stack.
fn count(stack: &FoldedStack, method: &str) -> usize {
    methods(stack).into_iter().filter(|found| without_tier(found) == method).count()
}

/// Asserts that a method which was replaced while it ran is one frame, and that a recursive one has as many frames as calls.
fn assert_one_frame(what: &str, stacks: &FoldedStacks, is_replaced: impl Fn(&FoldedStack) -> bool) {
    let found: BTreeSet<_> = stacks.0.iter().map(methods).collect();
    let at_work =
        |stack: &FoldedStack| methods(stack).last().is_some_and(|method| without_tier(method) == "Work");
    let replaced = |stack: &FoldedStack| at_work(stack) && is_replaced(stack);
    let exact = |stack: &FoldedStack| {
        replaced(stack) && ["Descend", "Loop", "Work"].map(|method| count(stack, method)) == [9, 1, 1]
    };
    let (all, exact) = (stacks.count(replaced), stacks.count(exact));
    assert!(all * 2 >= stacks.total(), "{what}: {all} of {}: {found:#?}", stacks.total());
    // At the first instructions of a method, its caller can be missing.
    assert!(exact * 100 >= all * 99, "{what}: {exact} of {all}: {found:#?}");
}

#[test]
fn a_method_that_was_replaced_while_it_ran_is_one_frame() {
    let Some(_lock) = run_beside_others() else { return };
    for version in ["8.0", "9.0"] {
        let workload = Workload::dotnet(version, "replaced");
        let stacks =
            FoldedStacks::from_profile(&sample(sample_pid(workload.pid()).dotnet_tiers(true), SAMPLES));
        assert_one_frame(version, &stacks, |stack| {
            methods(stack).contains(&"Loop(Func<bool>)[OptimizedTier1OSR]")
        });
    }
}

/// The memory of a runtime does not say which code replaced other code. The call in which the old code requested it does.
#[test]
fn a_method_that_was_replaced_while_it_ran_is_one_frame_without_events() {
    let Some(_lock) = run_beside_others() else { return };
    for program in ["9.0", "single-file-10.0"] {
        let workload = without_diagnostics(program, "replaced");
        let profile = sample(sample_pid(workload.pid()), SAMPLES);
        assert!(!profile.first_ledger().symbolized.contains_key(&SymbolSource::RuntimeEvents));
        assert_one_frame(program, &FoldedStacks::from_profile(&profile), |_| true);
    }
}
