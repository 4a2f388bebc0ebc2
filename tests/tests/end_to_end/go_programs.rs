//! Tests stripped Go programs: their function table names their frames, and has the sizes of these.

use std::{collections::HashSet, fs, process::Command, time::Duration};

use profiler::profile::{Sample, StackEnd, SymbolSource, Symbolization};
use profiler_tests::{
    FoldedStack, FoldedStacks, Workload, assert_share, run_beside_others, sample_pid, sample_pid_often,
    sample_settled, settle, wait_for_samples, wait_until,
};

const SAMPLES: u64 = 1_000;

/// Runs the program again and again until the input is closed.
const LOOP: &str = "echo ready $$; while :; do read -r -t 0.001 line; [ $? -eq 1 ] && exit; \
                    runc --help >/dev/null </dev/null; done";

/// Debian's runc has no symbol table, and code of C besides that of Go.
#[test]
fn a_stripped_go_program_has_the_names_of_its_function_table() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::run(Command::new("bash").args(["-c", LOOP]));
    let profile = sample_settled(sample_pid(workload.pid()).children(true).lines(true), SAMPLES);
    let stacks = profile.samples().iter().map(|sample| profile.stack(sample.stack));
    let frames: HashSet<_> = stacks.flat_map(|stack| stack.frames.iter().copied()).collect();
    let frames = frames.into_iter().map(|frame| profile.frame(frame));
    let is_of_runc = |module| profile.string(profile.module(module).path).ends_with("/runc");
    let frames: Vec<_> = frames.filter(|frame| frame.module.is_some_and(is_of_runc)).collect();
    let is_named = |frame: &&&profiler::profile::Frame| {
        frame.symbolization == Symbolization::Symbol(SymbolSource::GoFunctionTable)
    };
    let named: Vec<_> = frames.iter().filter(is_named).collect();
    // The table has every function between the first and the last of Go; code of C is outside.
    let first = named.iter().map(|frame| frame.address).min().expect("functions of Go");
    let last = named.iter().map(|frame| frame.address).max().expect("functions of Go");
    let others: Vec<_> = frames.iter().filter(|frame| !is_named(frame)).collect();
    assert!(others.iter().all(|frame| frame.address < first || last < frame.address), "{others:?}");
    let names: HashSet<_> = named.iter().map(|frame| profile.string(frame.name)).collect();
    assert!(names.iter().any(|name| name.starts_with("runtime.")), "{names:?}");
    assert!(named.iter().any(|frame| frame.location.is_some()), "lines of {names:?}");
    let is_of_go = |sample: &&Sample| {
        let frames = profile.stack(sample.stack).frames.iter();
        frames.map(|frame| profile.frame(*frame)).any(|frame| frame.module.is_some_and(is_of_runc))
    };
    let (mut whole, mut all) = (0, 0);
    for sample in profile.samples().iter().filter(is_of_go) {
        all += 1;
        whole += u64::from(profile.stack(sample.stack).end == StackEnd::Root);
    }
    // The C library's code before the program starts is among the others.
    assert!(whole * 100 >= all * 97, "{whole} of {all}: {:?}", profile.first_ledger().stacks);
}

/// Prometheus' unit test of a rule that is evaluated a million times, in memory.
const RULES: &str =
    "groups: [{name: g, interval: 1s, rules: [{record: total, expr: 'sum(rate(requests[5m]))'}]}]";
const RULES_TEST: &str = "rule_files: [rules.yml]
evaluation_interval: 1s
tests:
  - interval: 1s
    input_series: [{series: 'requests{instance=\"1\"}', values: '0+1x1000000'}]
    promql_expr_test: [{expr: total, eval_time: 11d, exp_samples: []}]";

/// The stack of a goroutine is memory that was used before: what is above its first frame can look like a return address. Parts of
/// the runtime execute on the stack of the thread.
#[test]
fn stacks_of_goroutines_end_at_their_first_frame_also_from_the_stack_of_the_thread() {
    const SWITCHED_SAMPLES: u64 = 300;
    let Some(_lock) = run_beside_others() else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("rules.yml"), RULES).unwrap();
    fs::write(folder.path().join("test.yml"), RULES_TEST).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo ready $$; exec promtool test rules test.yml >/dev/null 2>&1"]);
    let workload = Workload::run(shell.current_dir(folder.path()));
    let mut session = sample_pid(workload.pid()).build().unwrap().start().unwrap();
    settle(&mut session);
    let (mut stacks, mut whole) = (FoldedStacks(Vec::new()), 0);
    let switches = |stack: &FoldedStack| stack.has("runtime.systemstack") || stack.has("runtime.mcall");
    wait_until("samples on the stack of the thread", || {
        wait_for_samples(&mut session, SAMPLES);
        let profile = session.take_profile(Duration::ZERO).unwrap();
        let has_root = |sample: &&Sample| profile.stack(sample.stack).end == StackEnd::Root;
        whole += profile.samples().iter().filter(has_root).map(|sample| sample.value).sum::<u64>();
        stacks.0.extend(FoldedStacks::from_profile(&profile).0);
        (stacks.count(switches) >= SWITCHED_SAMPLES).then_some(())
    });
    let all = stacks.total();
    let goroutines = stacks.clone().with("runtime.goexit");
    let has_first_frame = |stack: &FoldedStack| stack.frames.first().is_some_and(|f| f == "runtime.goexit");
    assert_eq!(goroutines.count(has_first_frame), goroutines.total(), "{stacks:#?}");
    // Threads of the runtime have other roots.
    assert_share(goroutines.total(), all, 95.0, 5.0);
    assert_share(whole, all, 99.7, 0.3);
    let switched = stacks.count(switches);
    assert_share(goroutines.count(switches), switched, 99.5, 0.5);
    let of_main = |stack: &FoldedStack| stack.has("runtime.mallocgc") && stack.has("main.main");
    assert!(stacks.count(|stack| switches(stack) && of_main(stack)) > 0, "{stacks:#?}");
    // The functions that the runtime executes there are closures of those that call it: `runtime.(*mheap).alloc.func1`.
    let calls = |stack: &FoldedStack| {
        let at = stack.frames.iter().position(|frame| frame == "runtime.systemstack")?;
        let (function, _) = stack.frames.get(at + 1)?.rsplit_once(".func")?;
        Some(stack.frames.get(at.checked_sub(1)?)? == function)
    };
    let known = stacks.count(|stack| calls(stack).is_some());
    assert_share(stacks.count(|stack| calls(stack) == Some(true)), known, 99.0, 1.0);
}

/// Since Go 1.21, a thread has another frame pointer, or 0, while it makes the stack of a goroutine larger.
#[test]
fn functions_whose_stack_grows_have_their_callers() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("goroutines");
    let profile = sample_settled(sample_pid_often(workload.pid()), SAMPLES);
    let ledger = profile.first_ledger();
    let stacks = FoldedStacks::from_profile(&profile);
    let growing = stacks.clone().with("runtime.copystack");
    assert!(growing.total() > SAMPLES / 10, "{stacks:#?}");
    let is_below_worker = |stack: &FoldedStack| {
        let [root, .., leaf] = &*stack.frames else { return false };
        let calls = stack.frames.iter().filter(|frame| *frame == "main.deep").count();
        let callers = ["main.deep", "runtime.morestack", "runtime.newstack", "runtime.copystack"];
        root == "runtime.goexit"
            && stack.has_chain(&["main.worker", "main.deep"])
            && stack.has_chain(&callers)
            && calls <= 201
            && leaf != "main.deep"
    };
    assert_share(growing.count(is_below_worker), growing.total(), 99.7, 0.3);
    let describing = stacks.clone().with("runtime.callers.func1");
    let chain =
        ["main.main", "main.describe", "runtime.callers", "runtime.systemstack", "runtime.callers.func1"];
    let is_below_main = |stack: &FoldedStack| stack.has_chain(&chain);
    assert!(describing.total() > SAMPLES / 100, "{stacks:#?}");
    assert_share(describing.count(is_below_main), describing.total(), 99.7, 0.3);
    let whole = ledger.stacks.get(&StackEnd::Root).copied().unwrap_or_default();
    assert_share(whole, ledger.stacks.values().sum(), 99.7, 0.3);
}
