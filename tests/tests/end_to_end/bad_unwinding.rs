//! Tests targets with malicious or damaged stacks and unwind tables: at most whole stacks are lost, and each is
//! counted.

use std::{
    fs,
    os::unix::fs::FileExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use object::{Object as _, ObjectSection as _};
use profiler::{Profile, profile::StackEnd};
use profiler_tests::{
    Chain, ChainComparison, FoldedStacks, Outcome, Workload, base_memory_mb, profiler, run_beside_others,
    run_command, sample, sample_pid, sample_settled, workload_path, write_program,
};

fn is_alive(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:\tR") || line.starts_with("State:\tS"))
}

/// Checks that every tick and every stack is counted and that the target still runs.
fn assert_harmless(profile: &Profile, pid: u32) {
    let ledger = profile.first_ledger();
    assert!(ledger.adds_up() && ledger.lost_total() == 0, "{ledger:?}");
    assert!(profile.total_value() > 0);
    assert_eq!(ledger.stacks.values().sum::<u64>(), ledger.reported, "{ledger:?}");
    assert!(is_alive(pid));
}

/// Profiles a process for a second by the command line, in limited memory.
fn profile_in_limits(pid: u32, memory_mb: f64) -> Outcome {
    let run = run_command(&mut profiler(&["-v", "-p", &pid.to_string(), "-F", "999", "-d", "1"]));
    assert_eq!(run.code(), 0, "{}", run.stderr);
    assert!(run.peak_memory_mb() < memory_mb, "{}", run.stderr);
    assert!(is_alive(pid));
    run
}

/// The next number of a linear congruential generator.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// The offset and length of `.eh_frame` in a file.
fn eh_frame_range(file: &[u8]) -> (usize, usize) {
    let parsed = object::File::parse(file).unwrap();
    let (offset, length) = parsed.section_by_name(".eh_frame").unwrap().file_range().unwrap();
    (usize::try_from(offset).unwrap(), usize::try_from(length).unwrap())
}

#[test]
fn a_cyclic_stack_is_truncated_and_counted() {
    let Some(_lock) = run_beside_others() else { return };
    for mode in ["pointer", "pair", "table"] {
        let workload = Workload::start_with("unwinding/rings", &["600", mode]);
        let builder = sample_pid(workload.pid());
        // Frame pointers need no tables.
        let profile = if mode == "table" { sample_settled(builder, 1_000) } else { sample(builder, 1_000) };
        assert_harmless(&profile, workload.pid());
        let ring = format!("{mode}_ring");
        let stacks = FoldedStacks::from_profile(&profile);
        assert!(stacks.percent(|stack| stack.has(&ring)) > 95.0, "{stacks:#?}");
        // Both records of the ring may occur once more. Unlimited repetition may not.
        let rounds = |stack: &&profiler_tests::FoldedStack| {
            stack.frames.iter().filter(|frame| **frame == ring).count()
        };
        assert!(stacks.0.iter().map(|stack| rounds(&stack)).max() <= Some(3), "{mode}: {stacks:#?}");
        let whole = profile.first_ledger().stacks.get(&StackEnd::Root).copied().unwrap_or_default();
        assert!(whole * 20 < profile.total_value(), "{mode}: {:?}", profile.first_ledger().stacks);
    }
}

#[test]
fn the_maximum_number_of_mappings_takes_little_memory_and_time() {
    let Some(_lock) = run_beside_others() else { return };
    let mut command = Command::new(workload_path("unwinding/mappings"));
    let workload = Workload::run(command.arg("600"));
    let mappings = fs::read_to_string(format!("/proc/{}/maps", workload.pid())).unwrap().lines().count();
    assert!(mappings > 60_000, "{mappings} mappings");
    let stacks = FoldedStacks::parse(&profile_in_limits(workload.pid(), 128.0).stdout);
    assert!(stacks.percent(|stack| stack.has("leaf")) > 95.0, "{stacks:#?}");
    let profile = sample(sample_pid(workload.pid()), 1_000);
    assert_harmless(&profile, workload.pid());
}

#[test]
fn ten_megabytes_of_unwind_tables_take_little_memory_and_are_exact() {
    /// 8 MB for functions and rows. `.eh_frame`, 8 MB, is not in memory as a whole.
    const MEMORY_MB: f64 = 10.0;
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start_with("unwinding/huge_tables", &["600"]);
    profile_in_limits(workload.pid(), base_memory_mb() + MEMORY_MB);
    let profile = sample_settled(sample_pid(workload.pid()), 2_000);
    assert_harmless(&profile, workload.pid());
    let chains = ["run;behind_them;leaf", "run;goes_on;*"].map(Chain::below_main);
    ChainComparison::new(&profile, &chains).assert_exact();
}

/// Starts a copy of a program with changed unwind tables.
fn start_with_changed_tables(folder: &Path, change: impl Fn(&mut [u8])) -> Workload {
    let mut bytes = fs::read(workload_path("unwinding/shapes")).unwrap();
    let (offset, length) = eh_frame_range(&bytes);
    change(&mut bytes[offset..offset + length]);
    let program = folder.join("shapes");
    // A running program cannot be written, but it can be removed.
    let _ = fs::remove_file(&program);
    write_program(&program, &bytes);
    Workload::run(Command::new(&program).arg("600"))
}

#[test]
fn corrupted_unwind_tables_cost_at_most_whole_stacks() {
    /// One of this many bytes is changed.
    const SPARSE: u64 = 16;
    let Some(_lock) = run_beside_others() else { return };
    let folder = tempfile::tempdir().unwrap();
    for seed in 1..=6 {
        for every in [1, SPARSE] {
            let workload = start_with_changed_tables(folder.path(), |tables| {
                let mut state = seed;
                for byte in tables {
                    if next_random(&mut state).is_multiple_of(every) {
                        *byte = next_random(&mut state) as u8;
                    }
                }
            });
            let profile = sample(sample_pid(workload.pid()), 300);
            assert_harmless(&profile, workload.pid());
            let stacks = FoldedStacks::from_profile(&profile);
            assert!(stacks.percent(|stack| stack.has("leaf")) > 90.0, "seed {seed}: {stacks:#?}");
        }
    }
}

#[test]
fn invalid_entry_lengths_in_unwind_tables_cost_at_most_whole_stacks() {
    let Some(_lock) = run_beside_others() else { return };
    let folder = tempfile::tempdir().unwrap();
    // The length of the first entry and that of the second entry.
    for length in [1_u32, 0xffff_fff0, u32::MAX, 0x7fff_ffff] {
        let workload = start_with_changed_tables(folder.path(), |tables| {
            let first = u32::from_ne_bytes(tables[..4].try_into().unwrap()) as usize;
            tables[4 + first..8 + first].copy_from_slice(&length.to_ne_bytes());
        });
        assert_harmless(&sample(sample_pid(workload.pid()), 300), workload.pid());
    }
}

/// Starts the workload that loads a library, with the library in a separate folder.
fn start_with_library(folder: &Path, seconds_before: &str) -> Workload {
    let program = folder.join("dlopen");
    fs::copy(workload_path("unwinding/dlopen"), &program).unwrap();
    fs::copy(workload_path("unwinding/plugin.so"), folder.join("plugin.so")).unwrap();
    Workload::run(Command::new(&program).args(["600", seconds_before]))
}

#[test]
fn a_mapped_file_that_changes_costs_at_most_whole_stacks() {
    let Some(_lock) = run_beside_others() else { return };
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("plugin.so");
    let mut workload = start_with_library(folder.path(), "0");
    workload.wait_for("loaded");
    let mut session = sample_pid(workload.pid()).build().unwrap().start().unwrap();
    let before = session.take_profile(Duration::from_millis(500)).unwrap();
    assert_harmless(&before, workload.pid());
    // Overwrites the tables in place. The code stays the same.
    let mut bytes = fs::read(&library).unwrap();
    let (offset, length) = eh_frame_range(&bytes);
    bytes[offset..offset + length].fill(0x5a);
    fs::File::options().write(true).open(&library).unwrap().write_all_at(&bytes, 0).unwrap();
    assert_harmless(&session.take_profile(Duration::from_millis(500)).unwrap(), workload.pid());
    // A later session reads the same tables.
    assert_harmless(&sample(sample_pid(workload.pid()), 300), workload.pid());
    // Replaces the file by another one.
    fs::write(folder.path().join("other"), "no library").unwrap();
    fs::rename(folder.path().join("other"), &library).unwrap();
    assert_harmless(&session.stop().unwrap(), workload.pid());
    let profile = sample(sample_pid(workload.pid()), 300);
    assert_harmless(&profile, workload.pid());
}

/// A 32-bit x86 program in one page: `call next; next: jmp next`.
fn program_32_bit() -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    const HEADERS_BYTES: u32 = 52 + 32;
    const CODE: [u8; 7] = [0xe8, 0, 0, 0, 0, 0xeb, 0xfe];
    let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x03\0".to_vec();
    let length = HEADERS_BYTES + CODE.len() as u32;
    // e_version, e_entry, e_phoff, e_shoff, e_flags.
    for word in [1, BASE + HEADERS_BYTES, 52, 0, 0] {
        file.extend(u32::to_le_bytes(word));
    }
    // e_ehsize, e_phentsize, e_phnum, e_shentsize, e_shnum, e_shstrndx.
    for half in [52_u16, 32, 1, 0, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    // PT_LOAD at offset 0, readable and executable.
    for word in [1, 0, BASE, BASE, length, length, 5, 0x1000] {
        file.extend(u32::to_le_bytes(word));
    }
    file.extend(CODE);
    file
}

/// A process that is killed when this is dropped.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // The process may already have exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_32_bit_process_is_sampled_without_callers() {
    let Some(_lock) = run_beside_others() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("narrow");
    write_program(&program, &program_32_bit());
    let Ok(child) = Command::new(&program).stdin(Stdio::null()).spawn() else {
        return profiler_tests::skip_on_this_machine("its kernel does not run 32-bit programs");
    };
    let child = KilledOnDrop(child);
    let profile = sample(sample_pid(child.0.id()), 500);
    assert_harmless(&profile, child.0.id());
    let stacks = FoldedStacks::from_profile(&profile);
    let narrow = stacks.percent(|stack| stack.frames.iter().any(|frame| frame.contains("narrow+0x")));
    assert!(narrow > 95.0, "{stacks:#?}");
}
