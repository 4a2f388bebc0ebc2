//! Tests stacks of functions whose return addresses a return probe has replaced on the stack by that of a trampoline.

use profiler::Builder;
use profiler_tests::{
    Chain, ChainComparison, Workload, run_beside_others, sample_pid, sample_settled, workload_path,
};

const SAMPLES: u64 = 2_000;

/// While the kernel handles the breakpoint of a probe, before it sets the instruction pointer back, the row of the following
/// instruction is applied: a few samples at an entry have a wrong caller.
const LEAST_EXACT_PERCENT: f64 = 99.0;

/// Adds a return probe of each function.
fn with_return_probes(builder: Builder, workload: &str, functions: &[&str]) -> Builder {
    let path = workload_path(workload);
    functions.iter().fold(builder, |builder, function| {
        let event = format!("uretprobe:{}:{function}", path.display());
        builder.counted_event(event.parse().unwrap())
    })
}

fn chain_of_links() -> Vec<Chain> {
    let links: Vec<String> = (1..=21).map(|number| format!("link_{number:02}")).collect();
    vec![Chain::below_main(&format!("run;{};leaf", links.join(";"))), Chain::below_main("run;goes_on;*")]
}

/// A CPU sample is taken below all probed functions, and the sample of a probe below those that have not returned yet.
#[test]
fn callers_of_functions_with_return_probes_are_exact() {
    let Some(_lock) = run_beside_others() else { return };
    for program in ["chain", "chain-frameless"] {
        for functions in [&["link_10"][..], &["link_01", "link_10", "link_11", "leaf"]] {
            let workload = Workload::start(program);
            let builder = with_return_probes(sample_pid(workload.pid()), program, functions);
            let profile = sample_settled(builder, SAMPLES);
            let chains = chain_of_links();
            let found = ChainComparison::new(&profile, &chains);
            found.assert_exact_to(LEAST_EXACT_PERCENT);
            let whole = found.whole_percent(&chains[0]);
            assert!(whole > 50.0, "{program}, {functions:?}: {whole} %: {:?}", profile.first_ledger());
        }
    }
}
