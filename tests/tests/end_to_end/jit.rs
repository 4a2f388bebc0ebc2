//! Tests JIT code with perf maps in the variants that runtimes write, and with malicious perf maps.

use std::{fs, path::PathBuf, time::Duration};

use profiler::{
    Profile,
    profile::{Reason, StackEnd, SymbolSource, Symbolization},
};
use profiler_tests::{
    FoldedStack, FoldedStacks, Outcome, Workload, assert_share, profiler, run_beside_others, run_command,
    sample, sample_pid, wait_for_samples, wait_until,
};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

const HOT: &str = "demo!Demo.Program.HotLoop(long)";
const COLD: &str = "demo!Demo.Program.ColdLoop(long)";
const SAMPLES: u64 = 1_000;

fn profile_of(look: &str) -> Profile {
    let workload = Workload::start_with("jit", &["600", look]);
    sample(sample_pid(workload.pid()), SAMPLES)
}

fn jit_frames(profile: &Profile, symbolization: Symbolization) -> usize {
    let stacks = profile.samples().iter().map(|sample| profile.stack(sample.stack));
    let frames = stacks.flat_map(|stack| &stack.frames).map(|frame| profile.frame(*frame));
    frames.filter(|frame| frame.symbolization == symbolization).count()
}

#[test]
fn jit_code_is_symbolized_by_perf_maps_in_every_number_format() {
    let Some(_lock) = run_beside_others() else { return };
    for look in ["lower", "prefixed", "upper", "again"] {
        let profile = profile_of(look);
        let stacks = FoldedStacks::from_profile(&profile);
        let [hot, cold] = [HOT, COLD].map(|name| stacks.count(|stack| stack.has(name)));
        assert_share(hot, hot + cold, 75.0, 0.5);
        assert!(stacks.0.iter().any(|stack| stack.has_chain(&["main", "run", HOT])), "{look}: {stacks:#?}");
        assert!(
            jit_frames(&profile, Symbolization::Symbol(SymbolSource::PerfMap)) > SAMPLES as usize * 95 / 100,
            "{look}"
        );
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn jit_code_without_frame_pointers_is_unwound_by_the_call_frame_information_of_its_jitdump() {
    const CHAIN: [&str; 4] = ["main", "run", "Outer", "Inner"];
    let Some(_lock) = run_beside_others() else { return };
    let inner_and_whole = |profile: &Profile| {
        let stacks = FoldedStacks::from_profile(profile);
        (stacks.count(|stack| stack.has("Inner")), stacks.count(|stack| stack.has_chain(&CHAIN)))
    };
    let workload = Workload::start_with("jitdump", &["600"]);
    let mut session = sample_pid(workload.pid()).build().unwrap().start().unwrap();
    // The jitdump is read while the process is sampled.
    wait_until("the unwind table of the JIT code", || {
        wait_for_samples(&mut session, 100);
        let (inner, whole) = inner_and_whole(&session.take_profile(Duration::ZERO).unwrap());
        (inner > 0 && whole == inner).then_some(())
    });
    wait_for_samples(&mut session, SAMPLES);
    let (inner, whole) = inner_and_whole(&session.take_profile(Duration::ZERO).unwrap());
    assert!(inner >= SAMPLES * 9 / 10 && whole * 1000 >= inner * 995, "{whole} of {inner} are whole");

    let workload = Workload::start_with("jitdump", &["600", "without"]);
    let (inner, whole) = inner_and_whole(&sample(sample_pid(workload.pid()), SAMPLES));
    assert!(inner >= SAMPLES * 9 / 10 && whole == 0, "nothing else leads to the callers: {whole} of {inner}");
}

/// The rows of JIT code are installed some time after the code was written.
#[cfg(target_arch = "x86_64")]
#[test]
fn jit_code_is_not_unwound_by_the_call_frame_information_of_the_code_that_it_replaced() {
    const OUTDATED_SAMPLES: u64 = 100;
    let Some(_lock) = run_beside_others() else { return };
    let innermost = |stack: &FoldedStack| stack.has("Inner") || stack.has("Other");
    let is_whole = |stack: &FoldedStack| {
        stack.has("main") && (stack.has_chain(&["Outer", "Inner"]) || stack.has_chain(&["Outer", "Other"]))
    };
    let mut workload = Workload::start_with("jitdump", &["600", "replacing"]);
    let mut session = sample_pid(workload.pid()).build().unwrap().start().unwrap();
    let (mut whole, mut outdated) = (0, 0);
    wait_until("samples of code whose rows are not installed yet", || {
        wait_for_samples(&mut session, SAMPLES);
        let profile = session.take_profile(Duration::ZERO).unwrap();
        let stacks = FoldedStacks::from_profile(&profile);
        assert_eq!(stacks.count(|stack| stack.has("decoy")), 0, "{stacks:#?}");
        whole += stacks.count(is_whole);
        outdated += profile.first_ledger().stacks.get(&StackEnd::OutdatedTable).copied().unwrap_or(0);
        (whole > 0 && outdated >= OUTDATED_SAMPLES).then_some(())
    });
    workload.write_line("stop");
    wait_until("the rows of the last code", || {
        wait_for_samples(&mut session, SAMPLES);
        let profile = session.take_profile(Duration::ZERO).unwrap();
        let outdated = profile.first_ledger().stacks.contains_key(&StackEnd::OutdatedTable);
        let stacks = FoldedStacks::from_profile(&profile);
        assert_eq!(stacks.count(|stack| stack.has("decoy")), 0, "{stacks:#?}");
        (!outdated && stacks.count(is_whole) == stacks.count(innermost)).then_some(())
    });
}

#[test]
fn replaced_code_has_no_name_of_other_code() {
    let Some(_lock) = run_beside_others() else { return };
    let mut workload = Workload::start_with("jit", &["600", "replacing"]);
    let mut session = sample_pid(workload.pid()).build().unwrap().start().unwrap();
    wait_for_samples(&mut session, SAMPLES);
    // The map is read for the first time by then.
    let _ = session.take_profile(Duration::ZERO).unwrap();
    workload.write_line("replace");
    wait_for_samples(&mut session, 4 * SAMPLES);
    let profile = session.take_profile(Duration::ZERO).unwrap();
    let stacks = FoldedStacks::from_profile(&profile);
    for (caller, own, other) in
        [("run_odd", "code_of_odd", "code_of_even"), ("run_even", "code_of_even", "code_of_odd")]
    {
        let named = |code| stacks.count(|stack| stack.has_chain(&["main", "run_replacing", caller, code]));
        assert_eq!(named(other), 0, "{stacks:#?}");
        assert!(named(own) > 0, "{stacks:#?}");
    }
}

/// Erlang, QEMU and wasmtime compile into memory files, others into shared memory.
#[test]
fn jit_code_in_files_is_symbolized_by_perf_maps() {
    let Some(_lock) = run_beside_others() else { return };
    for memory in ["memfd", "shm", "unlinked", "file"] {
        let workload = Workload::start_with("jit", &["600", "lower", memory]);
        let profile = sample(sample_pid(workload.pid()), SAMPLES);
        let stacks = FoldedStacks::from_profile(&profile);
        let [hot, cold] = [HOT, COLD].map(|name| stacks.count(|stack| stack.has(name)));
        assert!((hot + cold) * 100 > stacks.total() * 95, "{memory}: {stacks:#?}");
        let chain = stacks.count(|stack| stack.has_chain(&["main", "run", HOT]));
        assert!(chain * 100 > hot * 95, "{memory}: {stacks:#?}");
    }
    let workload = Workload::start_with("jit", &["600", "none", "memfd"]);
    let profile = sample(sample_pid(workload.pid()), SAMPLES);
    let stacks = FoldedStacks::from_profile(&profile);
    let unnamed = stacks.count(|stack| stack.frames.iter().any(|frame| frame.starts_with("[memfd:vmem+0x")));
    assert!(unnamed * 100 > stacks.total() * 95, "{stacks:#?}");
}

#[test]
fn jit_code_without_a_perf_map_is_counted_with_that_reason() {
    let Some(_lock) = run_beside_others() else { return };
    let profile = profile_of("none");
    assert!(
        jit_frames(&profile, Symbolization::Address(Reason::NoJitMap)) > SAMPLES as usize * 95 / 100,
        "{:?}",
        profile.ledger()
    );
    let stacks = FoldedStacks::from_profile(&profile);
    let generated = stacks.percent(|stack| stack.frames.iter().any(|frame| frame.starts_with("[JIT 0x")));
    assert!(generated > 95.0, "{stacks:#?}");
    let pid = Workload::start_with("jit", &["600", "none"]);
    let run = run_command(&mut profiler(&["-p", &pid.pid().to_string(), "-F", "999", "-d", "1"]));
    assert!(run.stderr.contains("a perf map (/tmp/perf-PID.map) or a jitdump"), "{}", run.stderr);
    assert!(!run.stderr.contains("node") && !run.stderr.contains("DOTNET"), "{}", run.stderr);
}

#[test]
fn a_perf_map_that_is_not_a_regular_file_is_rejected_without_a_hang() {
    let Some(_lock) = run_beside_others() else { return };
    // The target and the profiler have the same root here: a link to a secret file leads to a file of another user,
    // or to one that is older than the process.
    for look in ["symlink", "device", "fifo"] {
        let profile = profile_of(look);
        let refused = jit_frames(&profile, Symbolization::Address(Reason::JitMapRefused));
        assert!(refused > SAMPLES as usize * 95 / 100, "{look}: {:?}", profile.ledger());
        assert!(profile.ledger().adds_up());
    }
}

/// A perf map that the test creates instead of the workload.
struct PerfMapFile(PathBuf);

impl Drop for PerfMapFile {
    fn drop(&mut self) {
        // The file may not exist.
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_device_instead_of_a_perf_map_is_rejected() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start_with("jit", &["600", "none"]);
    let map = PerfMapFile(format!("/tmp/perf-{}.map", workload.pid()).into());
    // An endless device.
    mknodat(CWD, &map.0, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, makedev(1, 5)).unwrap();
    let profile = sample(sample_pid(workload.pid()), 500);
    assert!(
        jit_frames(&profile, Symbolization::Address(Reason::JitMapRefused)) > 450,
        "{:?}",
        profile.ledger()
    );
}

fn run_on(look: &str) -> Outcome {
    let workload = Workload::start_with("jit", &["600", look]);
    let pid = workload.pid().to_string();
    let run = run_command(&mut profiler(&["-v", "-p", &pid, "-F", "999", "-d", "1"]));
    assert_eq!(run.code(), 0, "{look}: {}", run.stderr);
    run
}

/// Checks that the valid entries are used, whatever else the map contains.
fn assert_named(run: &Outcome) {
    let stacks = FoldedStacks::parse(&run.stdout);
    assert!(stacks.count(|stack| stack.has(HOT)) > stacks.count(|stack| stack.has(COLD)), "{stacks:#?}");
    let named = stacks.percent(|stack| stack.has(HOT) || stack.has(COLD));
    assert!(named > 95.0, "{named} % in\n{stacks:#?}");
}

#[test]
fn a_perf_map_of_ten_gigabytes_takes_little_memory_and_time_and_its_first_symbols_are_used() {
    let Some(_lock) = run_beside_others() else { return };
    const MAX_READ_BYTES: u64 = 1 << 30;
    let run = run_on("huge");
    assert!((1 << 20..MAX_READ_BYTES).contains(&run.read_bytes), "{} bytes", run.read_bytes);
    assert!(run.peak_memory_mb() < 64.0, "{}", run.stderr);
    assert_named(&run);
}

#[test]
fn a_perf_map_line_of_one_megabyte_is_skipped() {
    let Some(_lock) = run_beside_others() else { return };
    let run = run_on("longline");
    assert!(run.peak_memory_mb() < 64.0, "{}", run.stderr);
    assert!(run.stdout.lines().all(|line| line.len() < 100_000));
    assert_named(&run);
}

#[test]
fn names_with_escapes_and_separators_are_made_safe_for_folded_output() {
    let Some(_lock) = run_beside_others() else { return };
    let run = run_on("names");
    for text in [&run.stdout, &run.stderr] {
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    }
    let stacks = FoldedStacks::parse(&run.stdout);
    let is_hot = |frame: &String| frame.starts_with("Hot\\u{3b}Loop") && frame.contains("<b>&");
    let hot = stacks.percent(|stack| {
        let at = stack.frames.iter().position(is_hot);
        at.is_some_and(|at| at > 0 && stack.frames[at - 1] == "run")
    });
    assert!(hot > 50.0, "{hot} % in\n{stacks:#?}");
}

#[test]
fn the_flame_graph_of_hostile_names_is_well_formed() {
    let Some(_lock) = run_beside_others() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flame.svg");
    let workload = Workload::start_with("jit", &["600", "names"]);
    let pid = workload.pid().to_string();
    let run = run_command(&mut profiler(&["-p", &pid, "-F", "999", "-d", "1", "-o", path.to_str().unwrap()]));
    assert_eq!(run.code(), 0, "{}", run.stderr);
    assert_eq!(run.stdout, "");
    let svg = fs::read_to_string(path).unwrap();
    assert!(
        svg.contains("Hot\\u{3b}Loop") && svg.contains("&lt;b&gt;&amp;") && !svg.contains("<b>"),
        "{svg}"
    );
    assert!(svg.chars().all(|c| c.is_ascii_whitespace() || !c.is_control()));
}
