//! Tests stacks of .NET programs whose optimized methods have no frame pointer: by the unwind information of the JIT.

use std::time::Duration;

use profiler::{
    Profile,
    profile::{StackEnd, SymbolSource, Symbolization},
};
use profiler_tests::{
    FoldedStacks, Workload, run_beside_others, sample_pid_often, wait_for_samples, wait_until,
};

use crate::dotnet_method_memory::dotnet_without_diagnostics;

/// The methods of the workload, from the caller of all to the leaf: called as usual, and from an exception handler.
const CHAINS: [&[&str]; 2] = [
    &["Run", "Top", "Outer", "Middle", "Inner", "Work"],
    &["Run", "Handled", "Throw", "Handled", "Outer", "Middle", "Inner", "Work"],
];

/// Whether a stack has all callers of its last method.
fn is_complete(methods: &[String]) -> bool {
    let begins_with = |chain: &&[&str]| chain.get(..methods.len()).is_some_and(|begin| begin == methods);
    CHAINS.iter().any(begins_with)
}

/// Samples of the methods of the workload, and those of them that lack a caller.
fn incomplete(profile: &Profile) -> (u64, Vec<Vec<String>>) {
    let stacks = FoldedStacks::from_profile(profile);
    let (mut all, mut incomplete) = (0, Vec::new());
    for stack in &stacks.0 {
        let of_workload = |name: &String| {
            let (_, method) = name.split_once("Workload.Frameless.")?;
            Some(method.split('(').next()?.to_owned())
        };
        let methods: Vec<String> = stack.frames.iter().filter_map(of_workload).collect();
        // Run calls its argument and adds up the results.
        if methods.len() > 1 {
            all += stack.count;
            if !is_complete(&methods) {
                incomplete.push(methods);
            }
        }
    }
    (all, incomplete)
}

#[test]
fn optimized_methods_without_a_frame_pointer_have_all_their_callers() {
    let Some(_lock) = run_beside_others() else { return };
    const SAMPLES: u64 = 1_000;
    for program in ["9.0", "single-file-10.0"] {
        let mut command = dotnet_without_diagnostics(program, "frameless");
        let workload = Workload::run(command.env("DOTNET_TieredCompilation", "0"));
        let mut session = sample_pid_often(workload.pid()).build().unwrap().start().unwrap();
        // Each of them is found by the rows of its callee, which has rows after its first sample.
        wait_until("the rows of all methods", || {
            wait_for_samples(&mut session, 200);
            let (all, incomplete) = incomplete(&session.take_profile(Duration::ZERO).unwrap());
            (all > 100 && incomplete.is_empty()).then_some(())
        });
        wait_for_samples(&mut session, SAMPLES);
        let profile = session.take_profile(Duration::ZERO).unwrap();
        let (all, incomplete) = incomplete(&profile);
        assert!(all > SAMPLES / 2, "{program}: {all}");
        let handlers = FoldedStacks::from_profile(&profile).count(|stack| {
            let of_handler = |name: &&String| name.contains("Workload.Frameless.Handled(");
            stack.frames.iter().filter(of_handler).count() == 2
        });
        assert!(handlers > SAMPLES / 10, "{program}: {handlers}");
        assert!(incomplete.is_empty(), "{program}: {} of {all}: {incomplete:?}", incomplete.len());
        let ledger = profile.first_ledger();
        let whole = ledger.stacks.get(&StackEnd::Root).copied().unwrap_or(0);
        assert!(100 * whole >= 99 * ledger.stacks.values().sum::<u64>(), "{program}: {ledger:?}");
    }
}

/// The runtime reports its methods by events, which do not describe their frames.
#[test]
fn methods_have_all_their_callers_beside_events_of_the_runtime() {
    let Some(_lock) = run_beside_others() else { return };
    let mut command = Workload::dotnet_program_command("9.0", "frameless");
    let workload = Workload::run(command.env("DOTNET_TieredCompilation", "0"));
    let builder = sample_pid_often(workload.pid()).dotnet_tiers(true);
    let mut session = builder.build().unwrap().start().unwrap();
    // Until the runtime has listed its methods, memory has their names.
    wait_until("the rows of all methods, with names from events", || {
        wait_for_samples(&mut session, 200);
        let profile = session.take_profile(Duration::ZERO).unwrap();
        let (all, incomplete) = incomplete(&profile);
        let from_events = Symbolization::Symbol(SymbolSource::RuntimeEvents);
        let mut of_workload =
            profile.frames().filter(|frame| profile.string(frame.name).contains("Workload.Frameless."));
        let is_named = of_workload.all(|frame| frame.symbolization == from_events);
        (all > 100 && incomplete.is_empty() && is_named).then_some(())
    });
}
