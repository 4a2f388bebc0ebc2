//! Tests native call chains: shares, inlined functions, kernel frames, many distinct stacks and deep stacks.

use std::time::Duration;

use profiler::{
    Unwind,
    profile::{FrameKind, StackEnd},
};
use profiler_tests::{
    FoldedStack, FoldedStacks, Workload, measure_alone, profiler, run_beside_others, run_command, sample,
    sample_pid, settle, wait_for_samples, wait_until,
};

use crate::NEARLY_ALL_PERCENT;

const CHAIN_OF_SHARES: [&str; 3] = ["main", "run", "round_of_work"];

/// Programs copy their text to anonymous memory at the same addresses, to have it in huge pages.
#[test]
fn text_that_was_copied_to_anonymous_memory_has_its_symbols_and_callers() {
    let Some(_lock) = run_beside_others() else { return };
    for how in ["copy", "move", "late"] {
        let workload = Workload::start_with("huge_text", &["600", how]);
        let mut session = sample_pid(workload.pid()).build().unwrap().start().unwrap();
        let maps = || std::fs::read_to_string(format!("/proc/{}/maps", workload.pid())).unwrap();
        wait_until("copied text", || {
            maps().lines().any(|line| line.contains("r-xp") && line.ends_with(" 0 ")).then_some(())
        });
        settle(&mut session);
        wait_for_samples(&mut session, 1_000);
        let stacks = FoldedStacks::from_profile(&session.stop().unwrap());
        let chain = ["main", "outer", "middle", "leaf"];
        let whole = stacks.count(|stack| stack.frames[0] == "_start" && stack.has_chain(&chain));
        let works = stacks.count(|stack| !stack.has("goes_on"));
        assert!(works * 2 > stacks.total() && whole * 100 > works * 95, "{how}: {stacks:#?}");
    }
}

#[test]
fn every_function_has_its_known_share_and_callers() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let stacks = FoldedStacks::from_profile(&sample(sample_pid(workload.pid()), 4_000));
    stacks.assert_shares(&[("alpha", 60.0), ("beta", 30.0), ("gamma", 10.0)]);
    let whole = stacks.percent(|stack| stack.has_chain(&CHAIN_OF_SHARES));
    assert!(whole > NEARLY_ALL_PERCENT, "{stacks:#?}");
    assert!(stacks.0.iter().any(|stack| stack.has_chain(&["main", "run", "round_of_work", "alpha"])));
    assert!(stacks.0.iter().all(|stack| stack.comm == "shares"));
}

/// The frames of the workload in a stack, without those of the standard library around them.
fn inlines_of(stack: &FoldedStack) -> Vec<&str> {
    let own = |frame: &&String| frame.contains("inlines::");
    stack.frames.iter().filter(own).map(|frame| frame.rsplit("inlines::").next().unwrap()).collect()
}

#[test]
fn inlined_functions_are_frames_when_enabled() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("inlines");
    let profile = sample(sample_pid(workload.pid()).inlines(true), 4_000);
    let stacks = FoldedStacks::from_profile(&profile);
    stacks.assert_shares(&[("inlines::alpha", 70.0), ("inlines::beta", 30.0)]);
    let chain = ["main", "run", "outer", "middle", "alpha", "spin"];
    let whole = stacks.with("inlines::alpha").percent(|stack| inlines_of(stack) == chain);
    assert!(whole > NEARLY_ALL_PERCENT, "{whole} %");
    let inlined = ["inlines::middle", "inlines::alpha", "inlines::beta"];
    for sample in profile.samples() {
        for frame in profile.stack(sample.stack).frames.iter().map(|frame| profile.frame(*frame)) {
            let name = profile.string(frame.name);
            assert!(!inlined.contains(&name) || frame.kind == FrameKind::Inlined, "{name}");
            assert!(name != "inlines::outer" || frame.kind == FrameKind::Native);
        }
    }
}

#[test]
fn without_inlined_frames_samples_belong_to_the_enclosing_function() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("inlines");
    let stacks = FoldedStacks::from_profile(&sample(sample_pid(workload.pid()), 1_000));
    let whole = stacks.percent(|stack| inlines_of(stack) == ["main", "run", "outer"]);
    assert!(whole > NEARLY_ALL_PERCENT, "{stacks:#?}");
}

#[test]
fn frames_have_source_file_and_line_when_enabled() {
    let Some(_lock) = run_beside_others() else { return };
    let source = std::fs::read_to_string(profiler_tests::file("workloads/inlines.rs")).unwrap();
    let lines: Vec<&str> = source.lines().collect();
    let function_at =
        |line: u32| lines[..line as usize].iter().rfind(|line| line.starts_with("fn ")).unwrap();
    let workload = Workload::start("inlines");
    let profile = sample(sample_pid(workload.pid()).inlines(true).lines(true), 500);
    let (mut checked, mut without_line) = (0, 0);
    for sample in profile.samples() {
        for frame in profile.stack(sample.stack).frames.iter().map(|frame| profile.frame(*frame)) {
            let name = profile.string(frame.name);
            let own = ["main", "run", "outer", "middle", "alpha", "beta", "spin"];
            let Some(function) = own.into_iter().find(|own| name.strip_prefix("inlines::") == Some(own))
            else {
                continue;
            };
            let location = frame.location.expect("the workload has debug information");
            assert!(profile.string(location.file).ends_with("inlines.rs"));
            // The compiler gives line 0 to instructions that belong to no single line.
            if location.line == 0 {
                without_line += 1;
                continue;
            }
            let found = function_at(location.line);
            assert!(found.starts_with(&format!("fn {function}(")), "{function} in line {}", location.line);
            checked += 1;
        }
    }
    assert!(checked > 1_000, "{checked} frames");
    assert!(without_line * 10 < checked, "{without_line} frames have no line, {checked} have one");
}

#[test]
fn a_stack_deeper_than_the_kernel_limit_is_truncated_marked_and_counted() {
    const KERNEL_LIMIT: usize = 127;
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("deep");
    let profile = sample(sample_pid(workload.pid()).unwind(Unwind::FramePointer), 500);
    let cut = profile.first_ledger().stacks[&StackEnd::DepthLimit];
    assert!(cut * 100 > profile.total_value() * 95, "{:?}", profile.ledger());
    for stack in FoldedStacks::from_profile(&profile).0 {
        let dives = stack.frames.iter().filter(|frame| *frame == "dive").count();
        assert!(dives < KERNEL_LIMIT, "{dives}");
        assert!(dives > KERNEL_LIMIT - 8 || stack.has("main"), "{stack:?}");
    }
    let pid = workload.pid().to_string();
    let run = run_command(&mut profiler(&["-p", &pid, "-F", "999", "-d", "1", "--unwind", "fp", "-v"]));
    assert!(run.stderr.contains("depth limit"), "{}", run.stderr);
}

#[test]
fn system_calls_have_symbolized_kernel_frames() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("syscalls");
    let profile = sample(sample_pid(workload.pid()), 1_000);
    let stacks = FoldedStacks::from_profile(&profile);
    let in_kernel = stacks.percent(|stack| stack.has("ksys_read") || stack.has("vfs_read"));
    assert!(in_kernel > 80.0, "{stacks:#?}");
    let whole = ["main", "run", "read_zeros", "read"];
    assert!(stacks.percent(|stack| stack.has_chain(&whole)) > NEARLY_ALL_PERCENT, "{stacks:#?}");
    let unnamed = stacks.count(|stack| stack.frames.iter().any(|frame| frame.starts_with("[kernel")));
    assert_eq!(unnamed, 0, "{stacks:#?}");
}

#[test]
fn user_only_and_kernel_only_stacks_have_no_other_frames() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("syscalls");
    let kinds = |profile: &profiler::Profile| -> Vec<FrameKind> {
        let stacks = profile.samples().iter().map(|sample| profile.stack(sample.stack));
        stacks.flat_map(|stack| stack.frames.iter().map(|frame| profile.frame(*frame).kind)).collect()
    };
    let user = sample(sample_pid(workload.pid()).kernel_stacks(false), 300);
    assert!(kinds(&user).iter().all(|kind| *kind == FrameKind::Native));
    assert!(FoldedStacks::from_profile(&user).percent(|stack| stack.has("read")) > 95.0);
    let kernel = sample(sample_pid(workload.pid()).user_stacks(false), 300);
    assert!(kinds(&kernel).iter().all(|kind| *kind == FrameKind::Kernel));
    assert!(FoldedStacks::from_profile(&kernel).percent(|stack| !stack.frames.is_empty()) > 80.0);
    assert!(kernel.ledger().adds_up() && user.ledger().adds_up());
}

mod measured {
    use super::*;

    #[test]
    fn the_ledger_adds_up_with_nothing_lost_at_any_frequency() {
        let Some(_lock) = measure_alone() else { return };
        let workload = Workload::start("shares");
        for (frequency_hz, samples) in [(99, 50), (999, 500), (9_999, 10_000)] {
            let profile = sample(sample_pid(workload.pid()).frequency_hz(frequency_hz), samples);
            let ledger = profile.first_ledger();
            assert!(ledger.adds_up(), "{ledger:?}");
            assert_eq!(ledger.lost_total(), 0, "{ledger:?}");
            assert_eq!(ledger.reported, profile.total_value());
            assert!(ledger.reported >= samples);
            assert_eq!(ledger.stacks.values().sum::<u64>(), ledger.reported);
            let frames =
                profile.samples().iter().map(|sample| profile.stack(sample.stack).frames.len() as u64);
            assert_eq!(ledger.symbolized_total() + ledger.unsymbolized_total(), frames.sum::<u64>());
        }
    }

    #[test]
    fn samples_have_the_configured_frequency() {
        let Some(_lock) = measure_alone() else { return };
        let workload = Workload::start("shares");
        let mut session = sample_pid(workload.pid()).frequency_hz(1_000).build().unwrap().start().unwrap();
        let cpu_before = workload.cpu_time();
        session.wait(Some(Duration::from_secs(3)));
        // Samples of the time around the two readings of the CPU time count as well.
        let cpu_ms = (workload.cpu_time() - cpu_before).as_millis() as u64;
        let profile = session.stop().unwrap();
        let (header, samples) = (profile.header(), profile.total_value());
        assert_eq!(profile.first_event().frequency_hz(), Some(1_000));
        // A thread cannot have more samples than clock ticks of its CPU.
        let ticks = header.duration_ns / 1_000_000;
        assert!(samples <= ticks + ticks / 50, "{samples} samples in {ticks} ms");
        assert!(samples >= cpu_ms - cpu_ms / 20, "{samples} samples in {cpu_ms} ms of CPU time");
        let mut times = profile.samples().iter().map(|sample| sample.time_ns);
        assert!(times.all(|time_ns| time_ns <= header.duration_ns));
    }

    #[test]
    fn consecutive_profiles_of_a_session_contain_each_sample_once() {
        let Some(_lock) = measure_alone() else { return };
        let workload = Workload::start("shares");
        let mut session = sample_pid(workload.pid()).frequency_hz(1_000).build().unwrap().start().unwrap();
        let cpu_before = workload.cpu_time();
        let mut next = || {
            wait_for_samples(&mut session, 300);
            session.take_profile(Duration::ZERO).unwrap()
        };
        let mut profiles: Vec<_> = (0..4).map(|_| next()).collect();
        let cpu_ms = (workload.cpu_time() - cpu_before).as_millis() as u64;
        profiles.push(session.stop().unwrap());

        let mut ticks = Vec::new();
        for profile in &profiles {
            assert!(
                profile.ledger().adds_up() && profile.first_ledger().lost_total() == 0,
                "{:?}",
                profile.ledger()
            );
            let started_ns = profile.header().started_monotonic_ns;
            ticks.extend(profile.samples().iter().map(|sample| (started_ns + sample.time_ns, sample.cpu)));
        }
        let samples = ticks.len() as u64;
        ticks.sort_unstable();
        ticks.dedup();
        assert_eq!(ticks.len() as u64, samples, "a sample is in two profiles");
        assert!(samples >= cpu_ms - cpu_ms / 20, "{samples} samples in {cpu_ms} ms of CPU time: a gap");
        for (before, after) in profiles.iter().zip(&profiles[1..]) {
            let (before, after) = (before.header(), after.header());
            assert_eq!(before.started_monotonic_ns + before.duration_ns, after.started_monotonic_ns);
        }
    }

    #[test]
    fn ten_thousand_distinct_stacks_are_recorded_without_losses() {
        let Some(_lock) = measure_alone() else { return };
        let workload = Workload::start("stacks");
        let profile = sample(sample_pid(workload.pid()).frequency_hz(9_999), 40_000);
        assert_eq!(profile.first_ledger().lost_total(), 0);
        assert!(profile.ledger().adds_up());
        let mut leaves = std::collections::HashSet::new();
        for stack in FoldedStacks::from_profile(&profile).0 {
            let digits: Vec<String> =
                stack.frames.into_iter().filter(|frame| frame.starts_with("digit_")).collect();
            if digits.len() == 21 {
                leaves.insert(digits);
            }
        }
        // Several timers tick at random times, so that some samples are of the same draw: 40,000 samples are of at least 25,000
        // draws from 10,000 stacks, which leave 8 % of them undrawn.
        assert!(leaves.len() > 8_000, "{} distinct stacks", leaves.len());
        assert!(leaves.len() <= 10_000, "{} distinct stacks", leaves.len());
    }

    #[test]
    fn ten_thousand_distinct_stacks_take_little_memory() {
        let Some(_lock) = measure_alone() else { return };
        let workload = Workload::start("stacks");
        let pid = workload.pid().to_string();
        let run = run_command(&mut profiler(&["-v", "-p", &pid, "-F", "9999", "-d", "2"]));
        assert_eq!(run.code(), 0, "{}", run.stderr);
        assert!(run.peak_memory_mb() < 64.0, "{}", run.stderr);
    }
}
