//! Checks the result of each step on a machine.

use anyhow::{Context as _, Result, bail, ensure};

use super::transcript::{Step, Transcript};
use crate::bench::stacks::{Stack, samples};

/// The tolerance of a known share, in percent of all samples.
const TOLERANCE_POINTS: f64 = 5.0;

/// The least share of samples with the whole stack, for code without frame pointers.
const EXACT_PERCENT_MIN: f64 = 99.9;

/// The least share of samples with the whole stack, for code without call frame information.
const MUSL_PERCENT_MIN: f64 = 99.5;

/// The least share of samples in system calls that have both the kernel function and its caller in user space.
const KERNEL_PERCENT_MIN: f64 = 90.0;

/// The least number of samples for a check of shares.
const SAMPLES_MIN: u64 = 300;

/// The longest that two seconds of sampling may take beside a fork storm.
const STORM_SECONDS_MAX: f64 = 2.3;

/// A figure, or an error.
type Check = fn(&Transcript) -> Result<String>;

/// The columns of the table with their checks.
pub(super) const COLUMNS: [(&str, Check); 15] = [
    ("doctor", doctor),
    ("off by, points", shares),
    ("lost", lost),
    ("exact %", frameless),
    ("musl %", musl),
    ("kernel %", kernel),
    ("wall", wall),
    ("off-CPU", off_cpu),
    ("tracepoint", tracepoint),
    ("uprobe", uprobe),
    ("page faults", page_faults),
    ("command", command),
    ("children", children),
    ("storm", storm),
    ("privileges", privileges),
];

/// Runs all checks.
pub(super) fn all(transcript: &Transcript) -> Vec<Result<String>> {
    COLUMNS.iter().map(|(_, check)| check(transcript)).collect()
}

fn ok() -> Result<String> {
    Ok("ok".to_owned())
}

fn doctor(transcript: &Transcript) -> Result<String> {
    let step = ended(transcript, "doctor", 0)?;
    let verdict = step.printed.lines().last().unwrap_or_default();
    ensure!(verdict == "everything works", "{verdict}");
    // The VMAs of older kernels are in no maple tree.
    let searches_vmas = !transcript.kernel.starts_with("5.");
    let has_tables = step.printed.contains("unwound from their first sample");
    ensure!(
        has_tables == searches_vmas,
        "short-lived processes, unwound from their first sample: {has_tables}"
    );
    ok()
}

/// `tests/workloads/shares.c` and its known shares.
fn shares(transcript: &Transcript) -> Result<String> {
    let stacks = profile(transcript, "shares")?;
    let mut worst_points: f64 = 0.0;
    for (function, expected_percent) in [("alpha", 60.0), ("beta", 30.0), ("gamma", 10.0)] {
        let found_percent = percent(&stacks, |frames| has(frames, &[function]));
        let off_points = (found_percent - expected_percent).abs();
        ensure!(
            off_points <= TOLERANCE_POINTS,
            "{function} has {found_percent:.1} %, not {expected_percent}"
        );
        worst_points = worst_points.max(off_points);
    }
    Ok(format!("{worst_points:.1}"))
}

fn lost(transcript: &Transcript) -> Result<String> {
    for (name, step) in transcript.steps() {
        let Some(summary) = step.summary() else { continue };
        ensure!(summary.ends_with(", 0 lost") || is_lost_to_the_target(summary), "{name}: {summary}");
    }
    Ok("0".to_owned())
}

/// Whether at most one sample in 100 is lost, all because the thread woke up while its stack was copied. On a slow machine that
/// takes long enough.
fn is_lost_to_the_target(summary: &str) -> bool {
    let Some(counts) = summary.strip_suffix(" lost (thread ran while its stack was read)") else {
        return false;
    };
    let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
    let samples = number(counts.split_whitespace().nth(1));
    let lost = number(counts.split_whitespace().last());
    samples.zip(lost).is_some_and(|(samples, lost)| lost * 100 <= samples)
}

/// `tests/workloads/chain.c` without frame pointers, from the entry point of the program to the leaf.
fn frameless(transcript: &Transcript) -> Result<String> {
    let exact_percent = percent(&profile(transcript, "frameless")?, is_whole_chain);
    ensure!(exact_percent >= EXACT_PERCENT_MIN, "{exact_percent:.1} % of the stacks are whole");
    Ok(format!("{exact_percent:.1}"))
}

/// `tests/workloads/unwinding/libraries.c`, linked statically with musl, which has no call frame information: from the entry
/// point of the program to functions of the C library.
fn musl(transcript: &Transcript) -> Result<String> {
    let whole_percent = percent(&profile(transcript, "musl")?, |frames| {
        // The last frame is the name of the process.
        let is_rooted = frames.iter().rev().nth(1).is_some_and(|root| root == "_start");
        is_rooted && (has(frames, &["leaves", "run", "main"]) || has(frames, &["goes_on", "run", "main"]))
    });
    ensure!(whole_percent >= MUSL_PERCENT_MIN, "{whole_percent:.1} % of the stacks are whole");
    Ok(format!("{whole_percent:.1}"))
}

/// Whether frames, leaf first, are a possible stack of the workload `chain`: all calls from `_start` to a link, and
/// no function of the chain below it.
fn is_whole_chain(frames: &[String]) -> bool {
    const LINKS: u32 = 21;
    let links = (1..=LINKS).map(|number| format!("link_{number:02}"));
    let chain: Vec<String> = ["run".to_owned()].into_iter().chain(links).chain(["leaf".to_owned()]).collect();
    // The last frame is the name of the process.
    let mut calls = frames.iter().rev().skip(1);
    if calls.next().is_none_or(|root| root != "_start") || !calls.any(|call| call == "main") {
        return false;
    }
    let calls: Vec<&String> = calls.collect();
    let length = calls.iter().zip(&chain).take_while(|(call, link)| **call == *link).count();
    length > 0 && !calls.iter().skip(length).any(|call| chain.contains(call))
}

/// `tests/workloads/syscalls.c`: symbolized kernel functions, and their caller in user space.
fn kernel(transcript: &Transcript) -> Result<String> {
    let stacks = profile(transcript, "kernel")?;
    let found_percent = percent(&stacks, |frames| {
        has(frames, &["vfs_read"]) && has(frames, &["read", "read_zeros", "run", "main"])
    });
    ensure!(
        found_percent >= KERNEL_PERCENT_MIN,
        "{found_percent:.1} % of the stacks go from main to vfs_read"
    );
    Ok(format!("{found_percent:.1}"))
}

/// `tests/workloads/waits.c`: the stack of a thread that waits.
fn wall(transcript: &Transcript) -> Result<String> {
    says(transcript, "with-cpu", 0, "wall: ")?;
    finds(ended(transcript, "wall", 0)?, &["read", "read_nothing", "reader", "run"])
}

fn off_cpu(transcript: &Transcript) -> Result<String> {
    // Older kernels unwind by frame pointer, and capture the stacks of waits that begin while sampling: the function that
    // `clock_nanosleep` returns to is missing.
    let is_old = transcript.kernel.starts_with("5.");
    let calls: &[&str] =
        if is_old { &["clock_nanosleep", "run"] } else { &["read", "read_nothing", "reader", "run"] };
    finds(ended(transcript, "off-cpu", 0)?, calls)
}

/// `tests/workloads/syscalls.c`: the stacks of system calls, by a tracepoint, and their time.
fn tracepoint(transcript: &Transcript) -> Result<String> {
    // Older kernels unwind by frame pointer: the function that `read` returns to is missing.
    let is_old = transcript.kernel.starts_with("5.");
    let calls: &[&str] =
        if is_old { &["run", "main"] } else { &["[read]", "read", "read_zeros", "run", "main"] };
    says(transcript, "tracepoint", 0, "profiler: syscall-time: ")?;
    finds(ended(transcript, "tracepoint", 0)?, calls)
}

/// `tests/workloads/syscalls.c`: the stacks of the calls of a function, by a uprobe.
fn uprobe(transcript: &Transcript) -> Result<String> {
    // As above: the function that `read_zeros` returns to is missing.
    let is_old = transcript.kernel.starts_with("5.");
    let calls: &[&str] = if is_old { &["read_zeros", "main"] } else { &["read_zeros", "run", "main"] };
    finds(ended(transcript, "uprobe", 0)?, calls)
}

/// `tests/workloads/shortlived.c`: the first page faults of a program.
fn page_faults(transcript: &Transcript) -> Result<String> {
    const EXIT_CODE: i32 = 7;
    let stacks = ended(transcript, "faults", EXIT_CODE)?.stacks();
    ensure!(stacks.iter().any(|(frames, _)| has(frames, &["_start"])), "no stack has a root");
    ok()
}

/// `tests/workloads/shortlived.c`, started by the profiler, which exits with its exit code.
fn command(transcript: &Transcript) -> Result<String> {
    const EXIT_CODE: i32 = 7;
    finds(ended(transcript, "command", EXIT_CODE)?, &["burn", "run", "main"])
}

fn children(transcript: &Transcript) -> Result<String> {
    finds(ended(transcript, "children", 0)?, &["burn_in_child", "child", "main"])
}

/// `tests/workloads/forkstorm.c` twice, while the whole machine is sampled.
fn storm(transcript: &Transcript) -> Result<String> {
    const COMPLAINTS: [&str; 5] =
        ["BUG:", "WARNING:", "Oops", "Call Trace:", "rcu_sched self-detected stall"];
    let log = &ended(transcript, "kernel-log", 0)?.printed;
    if let Some(line) = log.lines().find(|line| COMPLAINTS.iter().any(|complaint| line.contains(complaint))) {
        bail!("the kernel complained: {line}");
    }
    let step = ended(transcript, "storm", 0)?;
    let seconds = step.sampled_seconds().context("storm has no summary")?;
    ensure!(seconds <= STORM_SECONDS_MAX, "sampling was to end after 2 s and took {seconds} s");
    finds(step, &["burn_in_child", "child", "main"])
}

/// The messages for missing capabilities.
fn privileges(transcript: &Transcript) -> Result<String> {
    const SYSLOG: &str =
        "addresses are hidden: no names of kernel functions -> `docker run --cap-add=SYSLOG`";
    const KPTR: &str =
        "addresses are hidden: no names of kernel functions -> `sysctl -w kernel.kptr_restrict=1`";
    says(transcript, "user", 1, "run it with `sudo`")?;
    says(transcript, "user-doctor", 1, "run it with `sudo`")?;
    says(transcript, "paranoid-3", 1, "needs CAP_SYS_ADMIN where `kernel.perf_event_paranoid` is 3")?;
    says(transcript, "paranoid-2", 0, "0 lost")?;
    says(transcript, "kptr-1", 0, SYSLOG)?;
    says(transcript, "kptr-2", 0, KPTR)?;
    says(transcript, "memlock-raised", 0, "0 lost")?;
    if transcript.kernel.starts_with("5.10.") {
        says(transcript, "memlock", 1, "needs CAP_SYS_RESOURCE before Linux 5.11")?;
    } else {
        says(transcript, "memlock", 0, "0 lost")?;
    }
    ok()
}

fn ended<'a>(transcript: &'a Transcript, name: &str, exit_code: i32) -> Result<&'a Step> {
    let step = transcript.step(name)?;
    let last = step.said.lines().last().unwrap_or_default();
    ensure!(step.exit_code == exit_code, "{name} ended with {}, not {exit_code}: {last}", step.exit_code);
    Ok(step)
}

fn says(transcript: &Transcript, name: &str, exit_code: i32, what: &str) -> Result<()> {
    let step = ended(transcript, name, exit_code)?;
    ensure!(
        step.printed.contains(what) || step.said.contains(what),
        "{name} does not say: {what}\n{}",
        step.said
    );
    Ok(())
}

/// The profile of a step, if it has enough samples.
fn profile(transcript: &Transcript, name: &str) -> Result<Vec<Stack>> {
    let stacks = ended(transcript, name, 0)?.stacks();
    let count = samples(&stacks);
    ensure!(count >= SAMPLES_MIN, "{name} has {count} samples only");
    Ok(stacks)
}

/// Checks that one of the stacks has these calls, leaf first.
fn finds(step: &Step, calls: &[&str]) -> Result<String> {
    let stacks = step.stacks();
    stacks
        .iter()
        .find(|(frames, _)| has(frames, calls))
        .with_context(|| format!("{calls:?} is in no stack"))?;
    ok()
}

fn has(frames: &[String], calls: &[&str]) -> bool {
    frames.windows(calls.len()).any(|window| window == calls)
}

fn percent(stacks: &[Stack], condition: impl Fn(&[String]) -> bool) -> f64 {
    let found: u64 = stacks.iter().filter(|(frames, _)| condition(frames)).map(|(_, count)| count).sum();
    100.0 * found as f64 / samples(stacks).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAIN: &str = "_start;[libc.so.6+0x27249];main;run;link_01;link_02;link_03;link_04;link_05;link_06;link_07;\
                         link_08;link_09;link_10;link_11;link_12;link_13;link_14;link_15;link_16;link_17;link_18;\
                         link_19;link_20;link_21;leaf";

    fn step(name: &str, exit_code: i32, printed: &str, said: &str) -> String {
        format!("== step {name} {exit_code}\n{printed}\n== said\n{said}\n== end\n")
    }

    fn console(kernel: &str) -> String {
        let profile =
            |name, printed: &str| step(name, 0, printed, "profiler: 999 samples in 2.0 s of x, 0 lost");
        let hidden = "kernel symbols  degraded  addresses are hidden: no names of kernel functions -> ";
        let (memlock, said, short_lived) = match kernel {
            "5.10.0" => (
                1,
                "profiler: creating a BPF map needs CAP_SYS_RESOURCE before Linux 5.11",
                "by frame pointer",
            ),
            _ => (0, "profiler: 9 samples in 0.5 s of x, 0 lost", "unwound from their first sample"),
        };
        let off_cpu = match kernel {
            "5.10.0" => "waits;[libc.so.6+0x88ef0];run;clock_nanosleep 98",
            _ => "waits;clone3;start_thread;run;reader;read_nothing;read;vfs_read 98",
        };
        let calls = "profiler: raw_syscalls:sys_enter: 500 samples in 0.5 s of x, 0 lost\n\
                     profiler: syscall-time: 0.4 s in 0.5 s of x, 0 lost";
        let probed = match kernel {
            "5.10.0" => "s;main;read_zeros 500",
            _ => "s;main;run;read_zeros 500",
        };
        let paranoid =
            "profiler: opening a timer event needs CAP_SYS_ADMIN where `kernel.perf_event_paranoid` is 3";
        [
            format!("== kernel {kernel}\n"),
            step(
                "doctor",
                0,
                &format!("kernel  ok\nshort-lived processes  ok  {short_lived}\n\neverything works"),
                "",
            ),
            profile("shares", "s;main;alpha 590\ns;main;beta 310\ns;main;gamma 100"),
            profile("frameless", &format!("c;{CHAIN} 500")),
            profile(
                "musl",
                "l;_start;_start_c;main;run;leaves;copy;memcpy 500\nl;_start;main;run;goes_on;poll 9",
            ),
            profile("kernel", "s;main;run;read_zeros;read;vfs_read 500"),
            step("with-cpu", 0, "", "profiler: cpu-clock: 9 samples\nprofiler: wall: 9 samples"),
            profile("wall", "waits;clone3;start_thread;run;reader;read_nothing;read;vfs_read 98"),
            profile("off-cpu", off_cpu),
            step("tracepoint", 0, "s;main;run;read_zeros;read;[read] 500", calls),
            profile("uprobe", probed),
            step("faults", 7, "s;_start;main 2", ""),
            step("command", 7, "ready 1\ns;main;run;burn 5", ""),
            profile("children", "exe;main;child;burn_in_child 1"),
            profile("storm", "exe;main;child;burn_in_child 1"),
            step("user", 1, "", "profiler: this user lacks the capabilities: run it with `sudo`"),
            step("user-doctor", 1, "cannot work: run it with `sudo`", ""),
            step("paranoid-3", 1, "", paranoid),
            profile("paranoid-2", ""),
            step("kptr-1", 0, &format!("{hidden}`docker run --cap-add=SYSLOG`"), ""),
            step("kptr-2", 0, &format!("{hidden}`sysctl -w kernel.kptr_restrict=1`"), ""),
            profile("memlock-raised", ""),
            step("memlock", memlock, "", said),
            step("kernel-log", 0, "[    9.1] nothing special", ""),
        ]
        .concat()
    }

    /// The columns with an error.
    fn wrong(console: &str) -> Vec<&'static str> {
        let cells = all(&Transcript::parse(console));
        COLUMNS.iter().zip(cells).filter(|(_, cell)| cell.is_err()).map(|((name, _), _)| *name).collect()
    }

    #[test]
    fn a_correct_machine_passes_all_checks() {
        for kernel in ["5.10.0", "6.1.0"] {
            assert_eq!(wrong(&console(kernel)), [""; 0]);
        }
    }

    #[test]
    fn every_failure_is_reported_in_its_column() {
        for (column, from, to) in [
            ("doctor", "everything works", "works, without names"),
            ("doctor", "from their first sample", "by frame pointer"),
            ("off by, points", "alpha 590", "alpha 390"),
            ("off by, points", "== step shares 0", "== step shares 1"),
            (
                "lost",
                "profiler: 999 samples in 2.0 s of x, 0 lost",
                "profiler: 999 samples in 2.0 s of x, 3 lost (x)",
            ),
            (
                "lost",
                "profiler: 999 samples in 2.0 s of x, 0 lost",
                "profiler: 999 samples in 2.0 s of x, 10 lost (thread ran while its stack was read)",
            ),
            ("musl %", "l;_start;_start_c;main", "l;main"),
            ("musl %", "run;leaves;copy", "run;copy"),
            ("kernel %", "read;vfs_read 500", "read 500"),
            ("kernel %", "read;vfs_read 500", "read;vfs_read 5"),
            ("wall", "== step wall 0", "== step wall 1"),
            ("off-CPU", "run;reader;read_nothing;read;vfs_read", "run;reader"),
            ("wall", "profiler: wall: 9 samples", ""),
            ("tracepoint", "read;[read] 500", "500"),
            ("tracepoint", "profiler: syscall-time: 0.4 s in 0.5 s of x, 0 lost", ""),
            ("uprobe", "s;main;run;read_zeros 500", "s;main;run 500"),
            ("page faults", "s;_start;main 2", "s 2"),
            ("command", "== step command 7", "== step command 0"),
            ("children", "== step children 0", "== step children 137"),
            ("storm", "nothing special", "BUG: scheduling while atomic"),
            ("privileges", "--cap-add=SYSLOG", "--cap-add=BPF"),
        ] {
            let broken = console("6.1.0").replace(from, to);
            assert!(wrong(&broken).contains(&column), "{column}: {to}");
        }
        assert!(wrong(&console("6.1.0").replace("in 2.0 s", "in 4.8 s")).contains(&"storm"));
        assert_eq!(wrong("").len(), COLUMNS.len() - 1, "no profile, no loss");
    }

    #[test]
    fn few_threads_that_wake_up_while_their_stack_is_copied_are_no_failure() {
        let few = "999 samples in 2.0 s of x, 9 lost (thread ran while its stack was read)";
        let console = console("6.1.0").replace("999 samples in 2.0 s of x, 0 lost", few);
        assert!(console.contains(few) && !wrong(&console).contains(&"lost"));
    }

    #[test]
    fn a_chain_is_whole_from_the_entry_point_to_any_of_its_calls() {
        let is_whole = |stack: &str| {
            let frames: Vec<String> = stack.rsplit(';').map(str::to_owned).collect();
            is_whole_chain(&frames)
        };
        assert!(is_whole(&format!("c;{CHAIN}")));
        assert!(is_whole(&format!("c;{CHAIN};asm_sysvec_apic_timer_interrupt;irqentry_exit_to_user_mode")));
        assert!(is_whole("c;_start;main;run;goes_on;clock_gettime;__vdso_clock_gettime"));
        for broken in [
            "c;leaf".to_owned(),
            format!("c;{}", CHAIN.replace("_start;", "")),
            format!("c;{}", CHAIN.replace("link_12;", "")),
            format!("c;{}", CHAIN.replace("link_21;", "")),
            format!("c;{CHAIN};leaf"),
            "c;_start;main".to_owned(),
            "c".to_owned(),
            String::new(),
        ] {
            assert!(!is_whole(&broken), "{broken}");
        }
    }
}
