//! Tests that a process which tries to block or exhaust its profiler delays no output, costs little, and costs no symbols
//! of others.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    process::{Child, Command},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use lzma_rust2::{XzOptions, XzWriter};
use profiler::{
    Profile,
    profile::{Cost, EventLedger, Reason, StackEnd},
};
use profiler_tests::{
    FoldedStacks, Workload, base_memory_mb, profiler, run_beside_others, wait_until, workload_path,
};
use rustix::process::{Pid, Signal, kill_process};

/// From the end of sampling to the end of the profiler.
const MAX_DELAY: Duration = Duration::from_secs(3);

const SAMPLED: Duration = Duration::from_millis(1500);

/// What the profiler uses at most, far more than it takes without an attack.
const MAX_CPU: Duration = Duration::from_secs(3);
/// Beside what the profile of a small process takes.
const MAX_MEMORY_MB: f64 = 50.0;
const MAX_DESCRIPTORS: usize = 256;

/// Starts a process with an attack, and an honest one with a perf map.
fn start(attack: &str, directory: &tempfile::TempDir) -> (Workload, Workload) {
    let mut command = Command::new(workload_path("attacks"));
    let attacker = Workload::run(command.args(["60", attack]).env("TMPDIR", directory.path()));
    (attacker, start_victim())
}

fn start_victim() -> Workload {
    Workload::start_with("jit", &["60", "lower"])
}

/// What a profiler of both found, and what it took.
struct Outcome {
    profile: Profile,
    delay: Duration,
    descriptors: usize,
}

fn sample(attacker: &Workload, victim: &Workload) -> Outcome {
    sample_while(attacker, victim, &[], || ())
}

/// Samples both with further arguments, and acts after the profiler was started.
fn sample_while(attacker: &Workload, victim: &Workload, arguments: &[&str], act: impl FnOnce()) -> Outcome {
    let directory = tempfile::tempdir().unwrap();
    let recording = directory.path().join("run.profile");
    let pids = format!("{},{}", attacker.pid(), victim.pid());
    let seconds = SAMPLED.as_secs_f64().to_string();
    let output = recording.to_str().unwrap();
    let mut command = profiler(&["-q", "-p", &pids, "-F", "997", "-d", &seconds, "-o", output]);
    let mut run = command.args(arguments).spawn().unwrap();
    act();
    let (ended, descriptors) = most_descriptors(&mut run);
    assert!(run.wait().unwrap().success());
    let profile = Profile::read(File::open(recording).unwrap()).unwrap();
    let header = profile.header();
    let sampled_until = Duration::from_nanos(header.started_unix_ns + header.duration_ns);
    Outcome { delay: ended.saturating_sub(sampled_until), profile, descriptors }
}

/// The time since 1970 at which the profiler ended, and the most descriptors that it had.
fn most_descriptors(run: &mut Child) -> (Duration, usize) {
    let folder = format!("/proc/{}/fd", run.id());
    let mut most = 0;
    wait_until("the end of the profiler", || {
        most = most.max(fs::read_dir(&folder).map_or(0, Iterator::count));
        let has_ended = run.try_wait().unwrap().is_some();
        has_ended.then(|| (SystemTime::now().duration_since(UNIX_EPOCH).unwrap(), most))
    })
}

fn assert_cheap(attack: &str, outcome: &Outcome, max_cpu: Duration) {
    let Cost { user_cpu_ns, system_cpu_ns, peak_memory_bytes, .. } = outcome.profile.ledger().cost;
    let cpu = Duration::from_nanos(user_cpu_ns + system_cpu_ns);
    println!(
        "{attack}: {:?}, CPU {cpu:?}, {peak_memory_bytes} bytes, {} descriptors",
        outcome.delay, outcome.descriptors
    );
    assert!(outcome.delay < MAX_DELAY, "{attack}: {:?}", outcome.delay);
    assert!(cpu < max_cpu, "{attack}: {cpu:?}");
    let memory_mb = peak_memory_bytes as f64 / 1e6 - base_memory_mb();
    assert!(memory_mb < MAX_MEMORY_MB, "{attack}: {memory_mb} MB more than without it");
    assert!(outcome.descriptors < MAX_DESCRIPTORS, "{attack}: {} descriptors", outcome.descriptors);
}

fn unsymbolized(ledger: &EventLedger, reason: Reason) -> u64 {
    ledger.unsymbolized.iter().filter(|(unnamed, _)| unnamed.reason == reason).map(|(_, count)| count).sum()
}

fn assert_harmless(attack: &str, reason: Reason) {
    let Some(_lock) = run_beside_others() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (attacker, victim) = start(attack, &directory);
    let outcome = sample(&attacker, &victim);
    assert_cheap(attack, &outcome, MAX_CPU);
    let profile = outcome.profile;
    let ledger = profile.first_ledger();
    assert!(ledger.adds_up(), "{attack}: {ledger:?}");
    let stacks = FoldedStacks::from_profile(&profile);
    let of_attacker = stacks.count(|stack| stack.comm == "attacks");
    let blocked = unsymbolized(ledger, reason);
    assert!(of_attacker > 100 && blocked * 10 > of_attacker * 9, "{attack}: {blocked} in {ledger:?}");
    assert_victim_is_named(attack, &stacks);
}

fn assert_victim_is_named(attack: &str, stacks: &FoldedStacks) {
    let named = |stack: &profiler_tests::FoldedStack| {
        stack.frames.iter().any(|frame| frame.contains("HotLoop") || frame.contains("ColdLoop"))
    };
    let of_victim = stacks.count(|stack| stack.comm == "jit");
    let victim_named = stacks.count(|stack| stack.comm == "jit" && named(stack));
    assert!(
        of_victim > 100 && victim_named * 100 > of_victim * 95,
        "{attack}: {victim_named} of {of_victim}"
    );
}

/// Writes copies of a stripped library with MiniDebugInfo that takes long to decompress, and has no symbols.
fn write_slow_libraries(directory: &Path, count: usize) {
    const BYTES: usize = 16 << 20;
    // Two random bits in each byte.
    let mut state = 1_u32;
    let letters = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        b"acgt"[(state >> 30) as usize]
    });
    let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(0)).unwrap();
    writer.write_all(&letters.take(BYTES).collect::<Vec<_>>()).unwrap();
    let compressed = directory.join("debug-info.xz");
    fs::write(&compressed, writer.finish().unwrap()).unwrap();
    let section = format!(".gnu_debugdata={}", compressed.display());
    let first = directory.join("0.so");
    let mut objcopy = Command::new("objcopy");
    objcopy.args(["--strip-all", "--remove-section=.note.gnu.build-id", "--add-section", &section]);
    assert!(objcopy.arg(workload_path("plugin.so")).arg(&first).status().unwrap().success());
    for number in 1..count {
        fs::copy(&first, directory.join(format!("{number}.so"))).unwrap();
    }
}

#[test]
fn symbols_that_take_long_to_read_delay_nothing() {
    const ATTACK: &str = "slow symbols";
    const MAX_CPU: Duration = Duration::from_secs(6);
    let Some(_lock) = run_beside_others() else { return };
    let directory = tempfile::tempdir().unwrap();
    write_slow_libraries(directory.path(), 16);
    let attacker = Workload::start_with("many_libraries", &["60", directory.path().to_str().unwrap()]);
    let outcome = sample(&attacker, &start_victim());
    assert_cheap(ATTACK, &outcome, MAX_CPU);
    let ledger = outcome.profile.first_ledger();
    assert!(ledger.adds_up() && unsymbolized(ledger, Reason::OutOfTime) > 0, "{ledger:?}");
    assert_victim_is_named(ATTACK, &FoldedStacks::from_profile(&outcome.profile));
}

#[test]
fn a_lease_on_a_perf_map_delays_nothing() {
    assert_harmless("lease", Reason::NotResponding);
}

#[test]
fn a_lease_on_a_mapped_file_delays_nothing() {
    assert_harmless("library", Reason::NotResponding);
}

/// A process that is stopped, until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(pid: u32) -> Self {
        let pid = Pid::from_raw(pid.cast_signed()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // A process that has ended cannot be continued.
        let _ = kill_process(self.0, Signal::CONT);
    }
}

#[test]
fn a_runtime_that_is_stopped_while_it_sends_its_methods_delays_nothing() {
    const ATTACK: &str = "stopped";
    let Some(_lock) = run_beside_others() else { return };
    let runtime = Workload::run(Workload::dotnet_command("9.0", "dynamic").env("PERF_MAP", "0"));
    let victim = start_victim();
    let before = runtime.sockets();
    let mut stopped = None;
    let outcome = sample_while(&runtime, &victim, &[], || {
        wait_until("an EventPipe session", || (runtime.sockets() > before).then_some(()));
        stopped = Some(Stopped::new(runtime.pid()));
    });
    assert_cheap(ATTACK, &outcome, MAX_CPU);
    assert!(outcome.profile.ledger().adds_up(), "{:?}", outcome.profile.ledger());
    assert_victim_is_named(ATTACK, &FoldedStacks::from_profile(&outcome.profile));
}

#[test]
fn a_file_system_that_does_not_answer_delays_nothing() {
    assert_harmless("fuse", Reason::NotResponding);
}

#[test]
fn descriptors_that_close_slowly_delay_nothing() {
    assert_harmless("rights", Reason::RuntimeSilent);
}

#[test]
fn a_runtime_that_never_answers_delays_nothing() {
    assert_harmless("silent", Reason::RuntimeSilent);
}

#[test]
fn an_endless_answer_delays_nothing() {
    assert_harmless("endless", Reason::RuntimeSilent);
}

#[test]
fn a_full_backlog_delays_nothing() {
    assert_harmless("backlog", Reason::RuntimeSilent);
}

#[test]
fn requests_for_runtime_events_are_not_delayed_by_a_hostile_runtime() {
    let Some(_lock) = run_beside_others() else { return };
    for attack in ["rights", "silent", "endless", "backlog"] {
        let directory = tempfile::tempdir().unwrap();
        let (attacker, victim) = start(attack, &directory);
        let outcome = sample_while(&attacker, &victim, &["--events", "default"], || ());
        assert_cheap(attack, &outcome, MAX_CPU);
        assert!(
            outcome.profile.ledger().adds_up() && outcome.profile.runtime_events().is_empty(),
            "{attack}"
        );
        assert_victim_is_named(attack, &FoldedStacks::from_profile(&outcome.profile));
    }
}

#[test]
fn a_huge_perf_map_delays_nothing() {
    assert_harmless("junk", Reason::TooLarge);
}

#[test]
fn a_perf_map_of_millions_of_functions_delays_nothing_and_takes_bounded_memory() {
    assert_harmless("distinct", Reason::TooLarge);
}

/// A thread waits with its stack in memory that another program has to fill: by an answer to a page fault, or to a read of a
/// file.
#[test]
fn the_stack_of_a_thread_that_waits_delays_nothing() {
    let Some(_lock) = run_beside_others() else { return };
    for attack in ["stack", "file"] {
        for option in ["--wall=49", "--off-cpu"] {
            let what = format!("{attack}, {option}");
            let directory = tempfile::tempdir().unwrap();
            let (attacker, victim) = start(attack, &directory);
            let outcome = sample_while(&attacker, &victim, &[option], || ());
            assert_cheap(&what, &outcome, MAX_CPU);
            let profile = outcome.profile;
            let [_, waiting] = profile.ledger().events.as_slice() else { panic!("{what}: {profile:?}") };
            assert!(profile.ledger().adds_up(), "{what}: {:?}", profile.ledger());
            let unreadable = waiting.stacks.get(&StackEnd::UnreadableStack).copied().unwrap_or_default();
            assert!(unreadable > 0, "{what}: {waiting:?}");
            assert_victim_is_named(&what, &FoldedStacks::from_profile(&profile));
        }
    }
}
