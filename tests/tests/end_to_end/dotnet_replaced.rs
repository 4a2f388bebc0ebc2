//! Tests stacks of .NET methods that were replaced while they ran (on-stack replacement).

use std::collections::BTreeSet;

use profiler_tests::{FoldedStack, FoldedStacks, Workload, run_beside_others, sample, sample_pid};

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

/// A recursive method has as many frames as calls.
#[test]
fn a_method_that_was_replaced_while_it_ran_is_one_frame() {
    let Some(_lock) = run_beside_others() else { return };
    for version in ["8.0", "9.0"] {
        let workload = Workload::dotnet(version, "replaced");
        let stacks =
            FoldedStacks::from_profile(&sample(sample_pid(workload.pid()).dotnet_tiers(true), SAMPLES));
        let found: BTreeSet<_> = stacks.0.iter().map(methods).collect();
        let at_work =
            |stack: &FoldedStack| methods(stack).last().is_some_and(|method| without_tier(method) == "Work");
        let replaced = |stack: &FoldedStack| {
            at_work(stack) && methods(stack).contains(&"Loop(Func<bool>)[OptimizedTier1OSR]")
        };
        let exact = |stack: &FoldedStack| {
            replaced(stack) && ["Descend", "Loop", "Work"].map(|method| count(stack, method)) == [9, 1, 1]
        };
        let (all, exact) = (stacks.count(replaced), stacks.count(exact));
        assert!(all * 2 >= stacks.total(), "{version}: {all} of {}: {found:#?}", stacks.total());
        // At the first instructions of a method, its caller can be missing.
        assert!(exact * 100 >= all * 99, "{version}: {exact} of {all}: {found:#?}");
    }
}
