//! Compares profiles with other tools on the same process: shares and complete stacks with perf, symbols with nm.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use profiler::{
    Profiler, Target,
    profile::{Frame, FrameKind, Symbolization},
};
use profiler_tests::{
    Chain, ChainComparison, FoldedStacks, Workload, assert_share, measure_alone, run_beside_others,
    run_command, sample, sample_pid, sample_settled, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

/// The functions of each sample of perf, from the leaf to the root.
fn perf_samples(script: &str) -> Vec<Vec<&str>> {
    let symbol = |line| {
        let symbol = str::split_whitespace(line).nth(1)?;
        Some(symbol.split('+').next().unwrap_or(symbol))
    };
    let samples = script.split("\n\n").filter(|sample| !sample.trim().is_empty());
    samples.map(|sample| sample.lines().filter_map(symbol).collect()).collect()
}

/// Records a process with perf until there are so many samples. Returns one line for each frame of a sample.
fn perf_script(workload: &Workload, options: &[&str], least_samples: usize) -> String {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("perf.data");
    let mut cpu_time = Duration::from_secs(1);
    wait_until("samples of perf", || {
        let mut record = Command::new("perf");
        record.args(["record", "-q"]).args(options).args(["-p", &workload.pid().to_string(), "-o"]);
        let begin = workload.cpu_time();
        let mut recorder = record.arg(&data).stdin(Stdio::null()).spawn().unwrap();
        wait_until("CPU time", || (workload.cpu_time() >= begin + cpu_time).then_some(()));
        kill_process(Pid::from_child(&recorder), Signal::INT).unwrap();
        recorder.wait().unwrap();
        cpu_time *= 2;
        let mut script = Command::new("perf");
        let script = run_command(script.args(["script", "--no-inline", "-F", "ip,sym", "-i"]).arg(&data));
        assert_eq!(script.code(), 0, "{}", script.stderr);
        (perf_samples(&script.stdout).len() >= least_samples).then_some(script.stdout)
    })
}

#[test]
fn shares_and_symbols_agree_with_perf_in_the_same_run() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let session = sample_pid(workload.pid()).frequency_hz(4_999).build().unwrap().start().unwrap();
    let script = perf_script(&workload, &["-e", "cpu-clock", "-F", "4999", "-g"], 1_000);
    let ours = FoldedStacks::from_profile(&session.stop().unwrap());
    let theirs = perf_samples(&script);
    for function in ["main", "run", "round_of_work", "alpha", "beta", "gamma"] {
        let found = theirs.iter().filter(|sample| sample.contains(&function)).count() as u64;
        let percent = ours.percent(|stack| stack.has(function));
        println!("{function}: {percent:.1} % of ours, {found} of {} of perf's", theirs.len());
        // The shares of both are estimates.
        let share = percent / 100.0;
        let tolerance_percent = 1.0 + 442.0 * (share * (1.0 - share) / ours.total() as f64).sqrt();
        assert_share(found, theirs.len() as u64, percent, tolerance_percent);
    }
}

#[test]
fn without_frame_pointers_at_least_as_many_stacks_are_whole_as_with_perf_stack_copies() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start_with("unwinding/shapes", &["600", "40"]);
    let shapes = ["array;saved;variable;realigned"; 10].join(";");
    let chains = [format!("run;{shapes};leaf"), "run;goes_on;*".to_owned()];
    let chains = chains.map(|links| Chain::below_main(&links));
    let profile = sample_settled(sample_pid(workload.pid()), 4_000);
    let ours_percent = ChainComparison::new(&profile, &chains).exact_percent();
    let script =
        perf_script(&workload, &["-e", "cpu-clock:u", "-F", "999", "--call-graph", "dwarf,16384"], 100);
    let theirs = perf_samples(&script);
    let is_exact = |sample: &&Vec<&str>| {
        let from_the_root: Vec<&str> = sample.iter().rev().copied().collect();
        chains.iter().any(|chain| chain.is_followed_by(&from_the_root))
    };
    let theirs_percent = 100.0 * theirs.iter().filter(is_exact).count() as f64 / theirs.len() as f64;
    println!("exact: {ours_percent:.2} % of ours, {theirs_percent:.2} % of perf's");
    assert!(theirs_percent > 90.0, "{theirs_percent} %: is the chain known? {:?}", theirs.first());
    // The tolerance covers the samples that neither tool can unwind, which differ by chance.
    assert!(ours_percent >= theirs_percent.min(99.9), "{ours_percent} % and not {theirs_percent} %");
}

/// The symbols of a file as nm prints them: start -> (end, name).
#[derive(Default)]
struct Symbols(BTreeMap<u64, Vec<(u64, String)>>);

impl Symbols {
    fn read(&mut self, path: &Path, dynamic: bool) {
        let mut nm = Command::new("nm");
        nm.args(["--defined-only", "--print-size", "--without-symbol-versions"]);
        let listed = run_command(nm.args(dynamic.then_some("--dynamic")).arg(path));
        for line in listed.stdout.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [start, size, kind, name] = words[..] else { continue };
            if !"tTwWiIuVvNn".contains(kind) {
                continue;
            }
            let (Ok(start), Ok(size)) = (u64::from_str_radix(start, 16), u64::from_str_radix(size, 16))
            else {
                continue;
            };
            self.0.entry(start).or_default().push((start + size, name.to_owned()));
        }
    }

    fn at(&self, address: u64) -> BTreeSet<&str> {
        let before = self.0.range(..=address).rev().take(64).flat_map(|(_, symbols)| symbols);
        before.filter(|(end, _)| address < *end).map(|(_, name)| name.as_str()).collect()
    }
}

/// The path of the debug file of a build id on Debian.
fn debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let digits: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (folder, name) = digits.split_at_checked(2)?;
    let path = PathBuf::from(format!("/usr/lib/debug/.build-id/{folder}/{name}.debug"));
    path.exists().then_some(path)
}

#[test]
fn symbols_of_a_real_program_agree_with_nm() {
    let Some(_lock) = run_beside_others() else { return };
    let script = "import json, os, re, select, sys\nprint('ready', os.getpid(), flush=True)\n\
                  while not select.select([sys.stdin], [], [], 0)[0]:\n  json.loads(json.dumps({str(i): [i, i * 0.5] for i in range(999)}))\n  \
                  re.sub('[aeiou]+', '-', 'the quick brown fox' * 99)\n  sorted(range(999), key=lambda x: -x)\n";
    let mut python = Command::new("python3");
    let workload = Workload::run(python.args(["-c", script]));
    let profile = sample(sample_pid(workload.pid()), 3_000);
    let mut modules = BTreeMap::<String, Symbols>::new();
    let (mut right, mut wrong) = (0, BTreeSet::new());
    let stacks = profile.samples().iter().map(|sample| profile.stack(sample.stack));
    let frames: BTreeSet<_> = stacks.flat_map(|stack| stack.frames.iter().copied()).collect();
    for frame in frames.into_iter().map(|frame| profile.frame(frame)) {
        let (FrameKind::Native, Some(module)) = (frame.kind, frame.module) else { continue };
        let module = profile.module(module);
        let path = profile.string(module.path);
        if !path.starts_with('/') {
            continue;
        }
        let symbols = modules.entry(path.to_owned()).or_insert_with(|| {
            let mut symbols = Symbols::default();
            symbols.read(Path::new(path), false);
            symbols.read(Path::new(path), true);
            debug_file(&module.build_id).inspect(|debug| symbols.read(debug, false));
            symbols
        });
        let there = symbols.at(frame.address.0);
        let name = profile.string(frame.name);
        let agrees = match frame.symbolization {
            Symbolization::Symbol(_) => there.contains(name),
            Symbolization::Address(_) => there.is_empty(),
        };
        if agrees {
            right += 1;
        } else {
            wrong.insert(format!("{path} {:x}: {name}, nm has {there:?}", frame.address));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(right > 100, "{right} addresses");
}

mod measured {
    use super::*;

    #[test]
    fn kernel_symbols_agree_with_kallsyms() {
        let Some(_lock) = measure_alone() else { return };
        let list = std::fs::read_to_string("/proc/kallsyms").unwrap();
        let mut functions = BTreeMap::<u64, BTreeSet<&str>>::new();
        for line in list.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (Ok(start), true) = (u64::from_str_radix(words[0], 16), "tTwW".contains(words[1])) else {
                continue;
            };
            // The bytes before an entry belong to the function.
            let name = words[2].strip_prefix("__pfx_").unwrap_or(words[2]);
            functions.entry(start).or_default().insert(name);
        }
        let workload = Workload::start("syscalls");
        let everything = Profiler::builder().target(Target::Everything).frequency_hz(1_999);
        let profile = sample(everything, 3_000);
        drop(workload);
        let stacks = profile.samples().iter().map(|sample| profile.stack(sample.stack));
        let frames: BTreeSet<_> = stacks.flat_map(|stack| stack.frames.iter().copied()).collect();
        let kernel = frames.into_iter().map(|frame| profile.frame(frame));
        // BPF programs may be loaded and unloaded meanwhile.
        let stays = |frame: &&Frame| !profile.string(frame.name).starts_with("bpf_prog_");
        let kernel: Vec<_> = kernel.filter(|frame| frame.kind == FrameKind::Kernel).filter(stays).collect();
        assert!(kernel.len() > 20, "{} addresses", kernel.len());
        // A kernel frame has the offset in its function. The length of a function is that to the next one.
        let mut lengths = BTreeMap::<&str, u64>::new();
        for ((start, names), (end, _)) in functions.iter().zip(functions.iter().skip(1)) {
            for name in names {
                let longest = lengths.entry(name).or_default();
                *longest = (*longest).max(end - start);
            }
        }
        for frame in kernel {
            let name = profile.string(frame.name);
            let length = lengths.get(name).copied();
            let is_inside = length.is_some_and(|length| frame.address.0 < length);
            assert!(is_inside, "{name}+{:x}, its length in the list is {length:?}", frame.address);
        }
    }
}
