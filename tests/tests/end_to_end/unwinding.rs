//! Tests that stacks of programs without frame pointers are exact from the leaf to the root.

use std::{ffi::OsStr, path::Path, process::Command, time::Duration};

use profiler::{
    Profile, Profiler, Target,
    profile::{FoundBy, FrameId, FrameKind, StackEnd},
};
use profiler_tests::{
    Chain, ChainComparison, FoldedStack, FoldedStacks, Workload, run_beside_others, sample, sample_pid_often,
    sample_settled, settle, wait_for_samples,
};

/// A thousandth of these is a few samples.
const SAMPLES: u64 = 4_000;

/// The recursive functions of `shapes`, in the order in which they repeat.
const SHAPES: [&str; 4] = ["array", "saved", "variable", "realigned"];

/// Frames of a whole stack of `shapes` besides the recursive functions: three of the C library's startup code,
/// `main`, `run` and `leaf`.
const OTHER_FRAMES: usize = 6;

fn profile_of(program: &str, arguments: &[&str]) -> Profile {
    let workload = Workload::start_with(&format!("unwinding/{program}"), arguments);
    sample_settled(sample_pid_often(workload.pid()), SAMPLES)
}

fn below_main(chains: &[&str]) -> Vec<Chain> {
    chains.iter().map(|links| Chain::below_main(links)).collect()
}

/// Checks that all samples follow the chains, and that each chain has at least its share of whole stacks, in percent.
fn assert_known(profile: &Profile, chains: &[Chain], least_percent: &[f64]) {
    let found = ChainComparison::new(profile, chains);
    found.assert_exact();
    for (chain, least) in chains.iter().zip(least_percent) {
        let whole = found.whole_percent(chain);
        assert!(whole >= *least, "{whole:.1} % of the samples are {chain:?}");
    }
    let ledger = profile.first_ledger();
    assert!(ledger.adds_up() && ledger.lost_total() == 0, "{ledger:?}");
}

fn shapes(count: usize) -> Vec<Chain> {
    let shapes: Vec<&str> = SHAPES.into_iter().cycle().take(count).collect();
    below_main(&[&format!("run;{};leaf", shapes.join(";")), "run;goes_on;*"])
}

#[test]
fn frames_with_every_kind_of_prologue_are_exact_in_dynamic_and_static_programs() {
    let Some(_lock) = run_beside_others() else { return };
    for program in ["shapes", "shapes-static-pie", "shapes-both-frames"] {
        assert_known(&profile_of(program, &["600", "40"]), &shapes(40), &[95.0]);
    }
}

#[test]
fn a_thousand_frames_are_exact() {
    let Some(_lock) = run_beside_others() else { return };
    for all_frames in [1_000, 1_020] {
        let count = all_frames - OTHER_FRAMES;
        let profile = profile_of("shapes", &["600", &count.to_string()]);
        assert_known(&profile, &shapes(count), &[80.0]);
    }
}

#[test]
fn a_stack_deeper_than_the_frame_limit_is_truncated_and_counted() {
    let Some(_lock) = run_beside_others() else { return };
    let profile = profile_of("shapes", &["600", "3000"]);
    let cut = profile.first_ledger().stacks[&StackEnd::DepthLimit];
    assert!(cut * 100 > profile.total_value() * 80, "{:?}", profile.first_ledger().stacks);
    let follows = |pair: &[String]| {
        let place = SHAPES.iter().position(|shape| pair[0] == *shape);
        place.is_some_and(|place| pair[1] == SHAPES[(place + 1) % 4] || pair[1] == "leaf")
    };
    let is_of_chain = |frame: &String| frame == "leaf" || SHAPES.contains(&frame.as_str());
    let exact = FoldedStacks::from_profile(&profile).percent(|stack| {
        // A stack that is not cut begins with the startup code.
        let start = stack.frames.iter().position(is_of_chain).unwrap_or_default();
        let length = stack.frames[start..].iter().take_while(|frame| is_of_chain(frame)).count();
        stack.frames[start..start + length].windows(2).all(follows)
    });
    assert!(exact >= 99.0, "{exact}");
}

#[test]
fn a_static_program_whose_c_library_has_no_unwind_tables_is_exact_below_main() {
    let Some(_lock) = run_beside_others() else { return };
    for program in ["shapes-musl", "shapes-debug-frame"] {
        let stacks = FoldedStacks::from_profile(&profile_of(program, &["600", "40"]));
        let chain = [&["main", "run"][..], &SHAPES.repeat(10), &["leaf"]].concat();
        let at_the_leaf = stacks.count(|stack| stack.has("leaf"));
        let whole = stacks.count(|stack| stack.has_chain(&chain));
        assert!(at_the_leaf > SAMPLES / 2, "{program}: {stacks:#?}");
        assert!(whole * 1_000 >= at_the_leaf * 999, "{program}: {whole} of {at_the_leaf} in {stacks:#?}");
    }
}

/// The edge of a function says where its return address is: no frame pointer is needed there.
#[test]
fn jit_code_without_a_frame_pointer_has_its_callers() {
    let Some(_lock) = run_beside_others() else { return };
    let evaluated = ["trampoline", "evaluate"].repeat(10).join(";");
    let trampolines = below_main(&[&format!("run;enter;{evaluated};leaf"), "run;goes_on;*"]);
    // At the first two instructions of a trampoline, nothing shows that it has no frame: 0.1 % of the samples.
    let found_trampolines = profile_of("jit_edges", &["600", "trampolines"]);
    let found = ChainComparison::new(&found_trampolines, &trampolines);
    found.assert_exact_to(99.0);
    assert!(found.whole_percent(&trampolines[0]) >= 95.0);
    let entries = below_main(&["run;call_many;entry", "run;goes_on;*"]);
    assert_known(&profile_of("jit_edges", &["600", "entries"]), &entries, &[50.0]);
}

/// Traces of LuaJIT continue in the frame of its interpreter, and nothing in their code says where the return address is. Here one
/// calls a function of the C library as well.
#[test]
fn stacks_in_traces_of_luajit_end_there_with_the_reason() {
    const LOOP: &str = "local sum = 0 while true do sum = sum + math.sin(sum) * 7 end";
    let Some(_lock) = run_beside_others() else { return };
    let shell = format!("echo ready $$; exec luajit -e '{LOOP}'");
    let workload = Workload::run(Command::new("sh").args(["-c", &shell]));
    let profile = sample(sample_pid_often(workload.pid()), SAMPLES);
    let is_trace = |frame: &FrameId| profile.frame(*frame).kind == FrameKind::Jit;
    let (mut in_traces, mut with_reason) = (0, 0);
    for sample in profile.samples() {
        let stack = profile.stack(sample.stack);
        if stack.frames.iter().any(is_trace) {
            in_traces += sample.value;
            with_reason += u64::from(stack.end == StackEnd::BrokenFramePointer) * sample.value;
            assert_ne!(stack.end, StackEnd::Root);
        }
    }
    // The others are in the interpreter, before the loop is compiled.
    assert!(in_traces * 100 > profile.total_value() * 90, "{in_traces} of {}", profile.total_value());
    assert!(with_reason * 1_000 >= in_traces * 999, "{:?}", profile.first_ledger().stacks);
}

/// A program without `.eh_frame`, whose `.debug_frame` was moved to a debug file.
#[test]
fn a_stripped_program_is_unwound_by_the_call_frame_information_of_its_debug_file() {
    let Some(_lock) = run_beside_others() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (program, debug_file) = (folder.path().join("shapes"), folder.path().join("shapes.debug"));
    let original = profiler_tests::workload_path("unwinding/shapes-debug-frame");
    let objcopy = |options: &[&OsStr], to: &Path| {
        let status = Command::new("objcopy").args(options).arg(&original).arg(to).status();
        assert!(status.unwrap().success());
    };
    objcopy(&["--only-keep-debug".as_ref()], &debug_file);
    let link = [OsStr::new("--add-gnu-debuglink="), debug_file.as_os_str()].join(OsStr::new(""));
    objcopy(&["--strip-all".as_ref(), &link], &program);
    let workload = Workload::run(Command::new(&program).args(["600", "40"]));
    let profile = sample_settled(sample_pid_often(workload.pid()), SAMPLES);
    let is_shape = |frame: FrameId| SHAPES.contains(&profile.string(profile.frame(frame).name));
    let (mut by_cfi, mut all) = (0, 0);
    for sample in profile.samples() {
        let stack = profile.stack(sample.stack);
        // How a caller was found is noted with it. The caller of a shape is one as well, except for the first.
        for (pair, found_by) in stack.frames.windows(2).zip(stack.found_by.iter().skip(1)) {
            if pair.iter().all(|frame| is_shape(*frame)) {
                all += 1;
                by_cfi += u64::from(*found_by == FoundBy::Cfi);
            }
        }
    }
    assert!(all > 10 * SAMPLES, "{all}");
    assert_eq!(by_cfi, all, "{:?}", profile.first_ledger().found_by);
}

/// musl is built without unwind tables. Rows are computed from its instructions.
#[test]
fn leaf_functions_of_musl_have_their_callers_up_to_the_root() {
    let Some(_lock) = run_beside_others() else { return };
    for program in ["libraries-musl", "libraries-musl-shared"] {
        for (mode, callers) in [("leaves", "leaves"), ("callbacks", "callbacks")] {
            let profile = profile_of(program, &["600", mode]);
            let whole =
                profile.samples().iter().filter(|sample| profile.stack(sample.stack).end == StackEnd::Root);
            let whole: u64 = whole.map(|sample| sample.value).sum();
            let stacks = FoldedStacks::from_profile(&profile);
            let exact =
                stacks.count(|stack| stack.has_chain(&["main", "run", callers]) || stack.has("goes_on"));
            println!("{program} {mode}: {whole} whole, {exact} with their chain of {}", stacks.total());
            assert!(whole * 1_000 >= stacks.total() * 995, "{program} {mode}: {:?}", profile.first_ledger());
            assert!(exact * 1_000 >= stacks.total() * 995, "{program} {mode}: {stacks:#?}");
        }
    }
}

/// Debian's busybox has call frame information of the C library alone. Its `main` and the function that runs an applet do not return,
/// and only a constant at the entry point has the address of `main`. Slots of functions of the C library are bound at the start.
#[test]
fn a_stripped_static_program_without_call_frame_information_reaches_its_root() {
    let Some(_lock) = run_beside_others() else { return };
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo ready $$; exec busybox sha256sum /dev/zero"]);
    let workload = Workload::run(&mut shell);
    let profile = sample_settled(sample_pid_often(workload.pid()), SAMPLES);
    let whole = profile.samples().iter().filter(|sample| profile.stack(sample.stack).end == StackEnd::Root);
    let whole: u64 = whole.map(|sample| sample.value).sum();
    let ledger = profile.first_ledger();
    assert!(whole * 1_000 >= profile.total_value() * 995, "{whole} whole: {ledger:?}");
}

#[test]
fn a_file_without_section_headers_is_exact() {
    let Some(_lock) = run_beside_others() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("shapes");
    let mut bytes = std::fs::read(profiler_tests::workload_path("unwinding/shapes")).unwrap();
    // e_shoff, and e_shnum with e_shstrndx.
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    profiler_tests::write_program(&program, &bytes);
    let workload = Workload::run(Command::new(&program).arg("600"));
    let profile = sample_settled(sample_pid_often(workload.pid()), SAMPLES);
    // Without symbols, only the number of frames can be checked.
    let is_whole = |sample: &&profiler::profile::Sample| {
        let stack = profile.stack(sample.stack);
        let user = stack.frames.iter().filter(|frame| profile.frame(**frame).kind != FrameKind::Kernel);
        stack.end == StackEnd::Root && user.count() == 40 + OTHER_FRAMES
    };
    let whole = profile.samples().iter().filter(is_whole).count();
    assert!(whole * 100 > profile.samples().len() * 95, "{whole}: {:?}", profile.first_ledger().stacks);
}

#[test]
fn a_function_that_ended_with_a_tail_call_is_absent() {
    let Some(_lock) = run_beside_others() else { return };
    let chains = below_main(&["run;first", "run;second", "run;leaf", "run;goes_on;*"]);
    assert_known(&profile_of("tail_calls", &["600"]), &chains, &[15.0, 15.0, 40.0]);
}

/// Its methods have no call frame information for epilogues, and its C++ runtime has none. The package has no symbols besides
/// those of exported functions.
#[test]
fn stacks_of_a_library_of_native_aot_reach_their_root_through_its_callers() {
    let Some(_lock) = run_beside_others() else { return };
    let library = profiler_tests::workload_path("native-aot/FixedWidthParser.Native.so");
    let profile = profile_of("native_aot", &["600", library.to_str().unwrap()]);
    let whole = profile.samples().iter().filter(|sample| profile.stack(sample.stack).end == StackEnd::Root);
    let whole: u64 = whole.map(|sample| sample.value).sum();
    let stacks = FoldedStacks::from_profile(&profile);
    let is_exact = |stack: &FoldedStack| {
        let calls = |links: &[&str]| stack.has_chain(&[&["main", "run"], links].concat());
        calls(&["goes_on"])
            || calls(&["parse"]) && !stack.has("feed")
            // The library reads through this callback.
            || calls(&["parse_stream"]) && (stack.has("fw_reader_next") || !stack.has("feed"))
            || calls(&["parse_stream", "fw_reader_open_stream"])
            // A thread of the library that waits for work.
            || !stack.has("main") && !stack.has("feed") && stack.has_chain(&["clone3", "start_thread"])
    };
    let exact = stacks.count(is_exact);
    println!("{whole} whole, {exact} with their chain of {}", stacks.total());
    assert!(whole * 1_000 >= stacks.total() * 995, "{whole}: {:?}", profile.first_ledger().stacks);
    assert!(exact * 1_000 >= stacks.total() * 995, "{exact} of {}: {stacks:#?}", stacks.total());
    for (caller, function) in [("parse", "fw_read_memory"), ("parse_stream", "fw_reader_next")] {
        let calls = stacks.count(|stack| stack.has_chain(&["main", "run", caller, function]));
        assert!(calls > 0, "{function} in {stacks:#?}");
    }
    let (unsymbolized, _) = profile.first_ledger().worst_unnamed().unwrap();
    let remedy = unsymbolized.remedy().map(|remedy| remedy.to_string()).unwrap_or_default();
    assert!(remedy.contains("FixedWidthParser.Native.so.dbg"), "{remedy:?} for {unsymbolized:?}");
}

/// As the compiler of NativeAOT programs writes it.
#[test]
fn functions_whose_call_frame_information_has_no_epilogues_have_their_callers() {
    let Some(_lock) = run_beside_others() else { return };
    let profile = profile_of("epilogues", &["600"]);
    assert_known(&profile, &below_main(&["run;managed", "run", "run;goes_on;*"]), &[20.0]);
    let by_instructions = profile.first_ledger().found_by.get(&FoundBy::Instructions);
    assert!(by_instructions.is_some_and(|frames| *frames > SAMPLES / 10), "{by_instructions:?}");
}

/// They are less than 4 KiB of the code.
#[test]
fn functions_in_assembly_without_call_frame_information_have_their_callers() {
    let Some(_lock) = run_beside_others() else { return };
    let chains =
        ["run;without_cfi;inner_without_cfi", "run;without_cfi", "run;goes_on;*"].map(Chain::below_main);
    assert_known(&profile_of("assembly", &["600"]), &chains, &[30.0, 30.0]);
}

#[test]
fn leaves_with_a_frame_in_registers_have_their_callers() {
    let Some(_lock) = run_beside_others() else { return };
    for (mode, leaf) in [("cfa", "in_r9"), ("return", "in_r11"), ("signal", "caml_like;leaf")] {
        let chains = below_main(&[&format!("run;calls;{leaf}"), "run;calls;*", "run;goes_on;*"]);
        assert_known(&profile_of("registers", &["600", mode]), &chains, &[90.0]);
    }
}

#[test]
fn a_process_in_vfork_has_its_callers() {
    let Some(_lock) = run_beside_others() else { return };
    let chains = below_main(&["run;calls;spawns;*", "run;calls;*", "run;goes_on;*"]);
    assert_known(&profile_of("registers", &["600", "vfork"]), &chains, &[90.0]);
}

#[test]
fn a_return_address_behind_the_end_of_a_noreturn_caller_belongs_to_that_caller() {
    let Some(_lock) = run_beside_others() else { return };
    let chains =
        below_main(&["run;outer;inner;never_returns;leaf", "run;outer;inner;never_returns;goes_on;*"]);
    assert_known(&profile_of("noreturn", &["600"]), &chains, &[95.0]);
}

#[test]
fn signal_handlers_have_the_interrupted_function_as_caller_on_either_stack() {
    let Some(_lock) = run_beside_others() else { return };
    let chains = below_main(&[
        "run;interrupted;?;handler;leaf",
        "run;goes_on;*;?;handler;leaf",
        "run;goes_on;*",
        "run;?;handler;leaf",
    ]);
    for mode in ["alternate", "same"] {
        assert_known(&profile_of("signals", &["600", mode]), &chains, &[15.0]);
    }
}

#[test]
fn an_interrupted_first_instruction_belongs_to_its_function() {
    let Some(_lock) = run_beside_others() else { return };
    let chains = below_main(&["run;faulting;?;handler;leaf", "run;goes_on;*"]);
    assert_known(&profile_of("signals", &["600", "fault"]), &chains, &[90.0]);
}

#[test]
fn plt_entries_have_their_caller_with_and_without_cfi() {
    let Some(_lock) = run_beside_others() else { return };
    let chains = below_main(&["run;calls;?;?;handler;leaf", "run;calls;*", "run;goes_on;*"]);
    for program in ["linkage", "linkage-bare"] {
        assert_known(&profile_of(program, &["600"]), &chains, &[90.0]);
    }
}

#[test]
fn leaf_functions_of_the_c_library_have_their_callers() {
    let Some(_lock) = run_beside_others() else { return };
    let chains = below_main(&[
        "run;leaves;allocate;*",
        "run;leaves;copy;*",
        "run;leaves;measure;*",
        "run;leaves",
        "run;goes_on;*",
    ]);
    assert_known(&profile_of("libraries", &["600", "leaves"]), &chains, &[10.0, 10.0, 10.0]);
}

#[test]
fn callbacks_have_their_callers_through_the_c_library() {
    let Some(_lock) = run_beside_others() else { return };
    let chains = below_main(&[
        "run;callbacks;sort;?;*;compare",
        "run;callbacks;search;?;compare",
        "run;callbacks;sort;*",
        "run;callbacks;search;*",
        "run;goes_on;*",
    ]);
    assert_known(&profile_of("libraries", &["600", "callbacks"]), &chains, &[20.0, 20.0]);
}

#[test]
fn vdso_functions_have_their_callers() {
    let Some(_lock) = run_beside_others() else { return };
    let profile = profile_of("libraries", &["600", "vdso"]);
    let chains = below_main(&["run;ask_time;*", "run;goes_on;*"]);
    assert_known(&profile, &chains, &[95.0]);
    let is_in_vdso = |sample: &&profiler::profile::Sample| {
        let leaf = profile.stack(sample.stack).frames.first().map(|leaf| profile.frame(*leaf));
        let module = leaf.and_then(|leaf| leaf.module).map(|module| profile.module(module));
        module.is_some_and(|module| profile.string(module.path) == "[vdso]")
    };
    let in_vdso = profile.samples().iter().filter(is_in_vdso).count();
    assert!(in_vdso * 100 > profile.samples().len() * 30, "{in_vdso} in the vdso");
}

#[test]
fn stacks_before_and_after_longjmp_are_exact() {
    let Some(_lock) = run_beside_others() else { return };
    let chains = below_main(&[
        "run;lands;passes;jumps;leaf",
        "run;lands;passes;jumps;*",
        "run;lands;*",
        "run;goes_on;*",
    ]);
    assert_known(&profile_of("jumps", &["600"]), &chains, &[95.0]);
}

#[test]
fn the_root_of_a_coroutine_is_its_entry_function() {
    let Some(_lock) = run_beside_others() else { return };
    let mut chains = below_main(&["run;*", "run;goes_on;*"]);
    chains.splice(0..0, ["?;ping;leaf", "?;pong;passes;leaf", "?;ping;*", "?;pong;*"].map(Chain::new));
    assert_known(&profile_of("coroutines", &["600"]), &chains, &[40.0, 40.0]);
}

#[test]
fn the_root_of_a_thread_is_the_thread_start_of_the_c_library() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start_nice("unwinding/threads");
    let profile = sample_settled(sample_pid_often(workload.pid()), SAMPLES);
    // On a busy machine, threads of a low priority reach the barrier late.
    let chains =
        ["?;?;thread_main;burn", "?;?;thread_main;goes_on;*", "?;?;thread_main;pthread_barrier_wait;*"]
            .map(Chain::new);
    assert_known(&profile, &chains, &[90.0]);
}

/// A return address or a frame pointer of 0 is no evidence of a root.
#[test]
fn a_stack_without_a_return_address_is_not_whole() {
    let Some(_lock) = run_beside_others() else { return };
    for (mode, function) in [("switched", "switched"), ("bare", "run_bare")] {
        let profile = profile_of("false_roots", &["600", mode]);
        let stacks = FoldedStacks::from_profile(&profile);
        let cut = stacks.count(|stack| stack.has(function) && !stack.has("main"));
        assert!(cut * 10 > stacks.total() * 9, "{mode}: {stacks:#?}");
        let whole = profile.first_ledger().stacks.get(&StackEnd::Root).copied().unwrap_or_default();
        assert!(whole <= profile.total_value() - cut, "{mode}: {:?}", profile.first_ledger().stacks);
    }
}

#[test]
fn cpp_exceptions_unwind_through_libgcc_to_the_throwing_function() {
    let Some(_lock) = run_beside_others() else { return };
    let run = |links: &str| Chain::below_main(&format!("run();{links}"));
    let passing =
        |frames, links| run(&format!("catches();{};{links}", ["passes(int)"].repeat(frames).join(";")));
    let mut chains = vec![passing(4, "throws()"), passing(4, "throws();?;*")];
    chains.extend([run("catches();*"), run("goes_on();*")]);
    for frames in 1..=4 {
        chains.extend([passing(frames, "Guard::~Guard()"), passing(frames, "*")]);
    }
    assert_known(&profile_of("exceptions", &["600"]), &chains, &[20.0, 0.1]);
}

#[test]
fn optimized_rust_with_closures_and_generics_is_exact() {
    let Some(_lock) = run_beside_others() else { return };
    let run = |links: &str| Chain::below_main(&format!("*;closures::main;closures::run;{links}"));
    let of = |visitor: &str, closure: &str| {
        let sum = format!("closures::sum_with::<closures::{visitor}>");
        let visit = format!("{sum};<closures::{visitor} as closures::Visit>::visit");
        let copied = format!("{visit};*");
        [visit, format!("{sum};closures::run::{{closure#{closure}}}"), format!("{sum};*"), copied]
            .map(|links| run(&links))
    };
    let [visit_small, weigh_small, small, copied_small] = of("Small", "0");
    let [visit_large, weigh_large, large, copied_large] = of("Large", "1");
    let chains = [
        visit_small,
        weigh_small,
        visit_large,
        weigh_large,
        small,
        large,
        copied_small,
        copied_large,
        run("*"),
    ];
    assert_known(&profile_of("closures", &["600"]), &chains, &[10.0, 10.0, 10.0, 10.0]);
}

#[test]
fn rust_panics_unwind_through_the_runtime_to_the_panicking_function() {
    let Some(_lock) = run_beside_others() else { return };
    let run = |links: &str| Chain::below_main(&format!("*;panics::main;panics::run;{links}"));
    let chains = [
        run("panics::risky;panics::fails;?;*"),
        run("panics::risky;<panics::Guard as core::ops::drop::Drop>::drop"),
        run("panics::risky;panics::fails"),
        run("panics::risky;*"),
        run("*"),
    ];
    // The unwinder overwrites its own frame while it installs the registers of another frame.
    const EXACT_PERCENT: f64 = 99.5;
    let profile = profile_of("panics", &["600"]);
    let found = ChainComparison::new(&profile, &chains);
    found.assert_exact_to(EXACT_PERCENT);
    for (chain, least) in chains.iter().zip([0.5, 20.0, 20.0]) {
        assert!(found.whole_percent(chain) >= least, "{:.1} % are {chain:?}", found.whole_percent(chain));
    }
}

#[test]
fn stacks_of_a_library_loaded_while_sampling_are_exact() {
    let Some(_lock) = run_beside_others() else { return };
    let mut workload = Workload::start_with("unwinding/dlopen", &["600"]);
    let mut session = sample_pid_often(workload.pid()).build().unwrap().start().unwrap();
    workload.write_line("load");
    workload.wait_for("loaded");
    // Discards samples from before the unwind table is loaded.
    settle(&mut session);
    wait_for_samples(&mut session, SAMPLES);
    let profile = session.take_profile(Duration::ZERO).unwrap();
    // `run` is a tail call of `main`.
    let chains = ["_start;*;run;plugin_burn;plugin_leaf", "_start;*;run;goes_on;*"].map(Chain::new);
    assert_known(&profile, &chains, &[90.0]);
}

#[test]
fn functions_that_are_bound_lazily_have_their_callers() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start_with("unwinding/lazy_binding", &["600"]);
    let profile =
        sample_settled(sample_pid_often(workload.pid()).children(true).kernel_stacks(false), SAMPLES);
    let (mut bound, mut whole) = (0, 0);
    for stack in FoldedStacks::from_profile(&profile).0 {
        // The dynamic loader has the CFA of this function at rbx.
        let resolver = stack.frames.iter().position(|frame| frame.starts_with("_dl_runtime_resolve"));
        let Some(resolver) = resolver.filter(|resolver| stack.frames.len() > resolver + 1) else { continue };
        bound += stack.count;
        let callers = &stack.frames[..resolver];
        let is_whole = callers.first().is_some_and(|root| root == "_start")
            && callers.last().is_some_and(|caller| ["run", "call_all"].contains(&caller.as_str()));
        whole += if is_whole { stack.count } else { 0 };
    }
    // How much of its time the program binds depends on what its forks cost on the machine.
    const ENOUGH_FOR_A_SHARE: u64 = 500;
    assert!(bound > ENOUGH_FOR_A_SHARE, "{bound} samples");
    assert!(whole as f64 >= 0.97 * bound as f64, "{whole} of {bound} samples are whole");
}

#[test]
fn code_that_replaces_other_code_is_never_unwound_by_its_table_without_a_mark() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start_with("unwinding/replugs", &["600", "50"]);
    let profile = sample(sample_pid_often(workload.pid()).kernel_stacks(false), SAMPLES);
    let stacks = FoldedStacks::from_profile(&profile);
    let is_burning = |stack: &FoldedStack| stack.frames.iter().any(|frame| frame.ends_with("_leaf"));
    // Whole, or cut at the code that replaced other code.
    let is_right = |stack: &FoldedStack| {
        ["small", "large"].iter().any(|name| {
            let chain = ["run".to_owned(), format!("{name}_burn"), format!("{name}_leaf")];
            let is_whole = stack.frames.first().is_some_and(|root| root == "_start");
            is_whole && stack.frames.ends_with(&chain) || chain.ends_with(&stack.frames)
        })
    };
    let burning = stacks.count(is_burning);
    let wrong = stacks.count(|stack| is_burning(stack) && !is_right(stack));
    assert!(burning * 10 > 9 * stacks.total() && wrong == 0, "{wrong} of {burning} are wrong: {stacks:#?}");
    let marked = profile.first_ledger().stacks.get(&StackEnd::OutdatedTable).copied().unwrap_or(0);
    assert!(marked > 0, "{:?}", profile.first_ledger().stacks);
    assert!(profile.ledger().adds_up());
}

#[test]
fn short_lived_children_are_exact_once_their_unwind_tables_are_loaded() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start_with("unwinding/forkstorm", &["600"]);
    let profile = sample(sample_pid_often(workload.pid()).children(true), SAMPLES);
    let stacks = FoldedStacks::from_profile(&profile);
    let burning = stacks.count(|stack| stack.has("burn_in_child"));
    // `child` is a tail call of `main`.
    let whole = stacks.count(|stack| {
        stack.has("burn_in_child")
            && stack.frames.first().is_some_and(|root| root == "_start")
            && stack.has_chain(&["main", "child", "burn_in_child"])
    });
    // On an idle machine nearly all are whole: the tables for each child are requested when it starts, and it runs
    // for five milliseconds.
    assert!(burning > SAMPLES / 4 && whole * 4 >= burning, "{whole} of {burning}: {stacks:#?}");
    assert!(profile.ledger().adds_up());
}

#[test]
fn stacks_are_exact_after_exec() {
    let Some(_lock) = run_beside_others() else { return };
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo ready $$; read -r line; exec \"$0\" 600 40"]);
    let mut workload = Workload::run(shell.arg(profiler_tests::workload_path("unwinding/shapes")));
    let builder = Profiler::builder().target(Target::Pid(workload.pid())).frequency_hz(1_999);
    let mut session = builder.build().unwrap().start().unwrap();
    workload.write_line("go");
    workload.wait_for("ready");
    settle(&mut session);
    wait_for_samples(&mut session, SAMPLES);
    let profile = session.take_profile(Duration::ZERO).unwrap();
    assert_known(&profile, &shapes(40), &[95.0]);
}
