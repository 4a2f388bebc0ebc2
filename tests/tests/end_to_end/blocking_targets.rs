//! Tests that a process which tries to block or exhaust its profiler delays no output, costs little, and costs no symbols
//! of others.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    process::{Child, Command},
    sync::OnceLock,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use lzma_rust2::{XzOptions, XzWriter};
use profiler::{
    Profile,
    profile::{Cost, EventLedger, Reason, StackEnd},
};
use profiler_tests::{
    FoldedStacks, Workload, profiler, run_beside_others, start_sampling, wait_until, workload_path,
};
use rustix::process::{Pid, Signal, kill_process};

/// From the end of sampling to the end of the profiler. Each attack blocks for longer: the kernel breaks a lease after 45 s
/// (`fs.lease-break-time`), and what the others wait for comes when the attacker exits.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// How long the targets of these tests run.
const LIFETIME_SECONDS: &str = "300";

/// The CPU time of each target for which it is sampled.
const SAMPLED_CPU_TIME: Duration = Duration::from_millis(500);

const FREQUENCY_HZ: u64 = 997;

/// Fewer samples than targets have in their CPU time, and enough for shares.
const LEAST_SAMPLES: u64 = 250;

/// What the profiler uses at most, as a multiple of what it uses for two targets without an attack.
const MAX_CPU_RATIO: f64 = 15.0;

/// Beside what the profile of these takes.
const MAX_MEMORY_MB: f64 = 50.0;
const MAX_DESCRIPTORS: usize = 256;

/// Starts a process with an attack, and an honest one with a perf map.
fn start(attack: &str, directory: &tempfile::TempDir) -> (Workload, Workload) {
    let mut command = Command::new(workload_path("attacks"));
    let attacker = Workload::run(command.args([LIFETIME_SECONDS, attack]).env("TMPDIR", directory.path()));
    (attacker, start_victim())
}

fn start_victim() -> Workload {
    Workload::start_with("jit", &[LIFETIME_SECONDS, "lower"])
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
    let (frequency, output) = (FREQUENCY_HZ.to_string(), recording.to_str().unwrap());
    let mut command = profiler(&["-q", "-p", &pids, "-F", &frequency, "-o", output]);
    let mut run = start_sampling(command.args(arguments));
    let targets = [attacker, victim].map(|target| (target, target.cpu_time_of_threads()));
    act();
    wait_until("CPU time of the targets", || {
        let has_run = |(target, before): &(&Workload, Duration)| {
            // A process that is stopped has none.
            is_stopped(target.pid()) || target.cpu_time_of_threads() >= *before + SAMPLED_CPU_TIME
        };
        targets.iter().all(has_run).then_some(())
    });
    kill_process(Pid::from_child(&run), Signal::INT).unwrap();
    let (ended, descriptors) = most_descriptors(&mut run);
    assert!(run.wait().unwrap().success());
    let profile = Profile::read(File::open(recording).unwrap()).unwrap();
    let header = profile.header();
    let sampled_until = Duration::from_nanos(header.started_unix_ns + header.duration_ns);
    Outcome { delay: ended.saturating_sub(sampled_until), profile, descriptors }
}

fn is_stopped(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:\tT"))
}

/// CPU time and peak memory of the profiler.
#[derive(Clone, Copy, Debug)]
struct Used {
    cpu: Duration,
    memory_mb: f64,
}

impl Used {
    fn by(profile: &Profile) -> Self {
        let Cost { user_cpu_ns, system_cpu_ns, peak_memory_bytes, .. } = profile.ledger().cost;
        let cpu = Duration::from_nanos(user_cpu_ns + system_cpu_ns);
        Self { cpu, memory_mb: peak_memory_bytes as f64 / 1e6 }
    }

    /// What two targets without an attack take.
    fn without_attack() -> Self {
        static USED: OnceLock<Used> = OnceLock::new();
        *USED.get_or_init(|| Self::by(&sample(&start_victim(), &start_victim()).profile))
    }
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

fn assert_cheap(attack: &str, outcome: &Outcome) {
    assert_bounded(attack, outcome);
    let (used, least) = (Used::by(&outcome.profile), Used::without_attack());
    assert!(used.cpu < least.cpu.mul_f64(MAX_CPU_RATIO), "{attack}: {used:?} and {least:?} without it");
}

/// Checks the delay, the memory and the descriptors.
fn assert_bounded(attack: &str, outcome: &Outcome) {
    let (used, least) = (Used::by(&outcome.profile), Used::without_attack());
    let Outcome { delay, descriptors, .. } = outcome;
    println!("{attack}: {delay:?}, {used:?}, without it {least:?}, {descriptors} descriptors");
    assert!(*delay < MAX_DELAY, "{attack}: {delay:?}");
    let memory_mb = used.memory_mb - least.memory_mb;
    assert!(memory_mb < MAX_MEMORY_MB, "{attack}: {memory_mb} MB more than without it");
    assert!(*descriptors < MAX_DESCRIPTORS, "{attack}: {descriptors} descriptors");
}

fn unsymbolized(ledger: &EventLedger, reason: Reason) -> u64 {
    ledger.unsymbolized.iter().filter(|(unnamed, _)| unnamed.reason == reason).map(|(_, count)| count).sum()
}

fn assert_harmless(attack: &str, reason: Reason) {
    let Some(_lock) = run_beside_others() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (attacker, victim) = start(attack, &directory);
    let outcome = sample(&attacker, &victim);
    assert_cheap(attack, &outcome);
    let profile = outcome.profile;
    let ledger = profile.first_ledger();
    assert!(ledger.adds_up(), "{attack}: {ledger:?}");
    let stacks = FoldedStacks::from_profile(&profile);
    let of_attacker = stacks.count(|stack| stack.comm == "attacks");
    let blocked = unsymbolized(ledger, reason);
    assert!(
        of_attacker > LEAST_SAMPLES && blocked * 10 > of_attacker * 9,
        "{attack}: {blocked} in {ledger:?}"
    );
    assert_victim_is_named(attack, &stacks);
}

fn assert_victim_is_named(attack: &str, stacks: &FoldedStacks) {
    let named = |stack: &profiler_tests::FoldedStack| {
        stack.frames.iter().any(|frame| frame.contains("HotLoop") || frame.contains("ColdLoop"))
    };
    let of_victim = stacks.count(|stack| stack.comm == "jit");
    let victim_named = stacks.count(|stack| stack.comm == "jit" && named(stack));
    assert!(
        of_victim > LEAST_SAMPLES && victim_named * 100 > of_victim * 95,
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
    let Some(_lock) = run_beside_others() else { return };
    let directory = tempfile::tempdir().unwrap();
    write_slow_libraries(directory.path(), 16);
    let attacker =
        Workload::start_with("many_libraries", &[LIFETIME_SECONDS, directory.path().to_str().unwrap()]);
    let outcome = sample(&attacker, &start_victim());
    assert_bounded(ATTACK, &outcome);
    let ledger = outcome.profile.first_ledger();
    // Not all of them are read, so that the CPU time is bounded, too.
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
pub(crate) struct Stopped(Pid);

impl Stopped {
    pub(crate) fn new(pid: u32) -> Self {
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
    assert_cheap(ATTACK, &outcome);
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
        assert_cheap(attack, &outcome);
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
            assert_cheap(&what, &outcome);
            let profile = outcome.profile;
            let [_, waiting] = profile.ledger().events.as_slice() else { panic!("{what}: {profile:?}") };
            assert!(profile.ledger().adds_up(), "{what}: {:?}", profile.ledger());
            let unreadable = waiting.stacks.get(&StackEnd::UnreadableStack).copied().unwrap_or_default();
            assert!(unreadable > 0, "{what}: {waiting:?}");
            assert_victim_is_named(&what, &FoldedStacks::from_profile(&profile));
        }
    }
}
