//! Tests JIT code that a process has from a fork: perf maps and jitdumps of its parent name it.

use std::{collections::BTreeMap, time::Duration};

use profiler::{
    Profile,
    profile::{Reason, Symbolization},
};
use profiler_tests::{Workload, run_beside_others, sample, sample_pid, wait_for_samples};

const SAMPLES: u64 = 500;

/// The JIT frames of a process: how many samples have which name.
fn jit_frames(profile: &Profile, pid: u32) -> BTreeMap<String, u64> {
    let mut frames = BTreeMap::new();
    for sample in profile.samples() {
        if profile.process(profile.thread(sample.thread).process).pid != pid {
            continue;
        }
        let stack = profile.stack(sample.stack);
        let Some(leaf) = stack.frames.first().map(|frame| profile.frame(*frame)) else { continue };
        let name = match leaf.symbolization {
            Symbolization::Address(Reason::JitCodeReplaced) => "replaced".to_owned(),
            Symbolization::Address(_) => "unnamed".to_owned(),
            _ => profile.string(leaf.name).to_owned(),
        };
        *frames.entry(name).or_default() += 1;
    }
    frames
}

/// Samples a child that was forked before the session. Its parent is no target.
fn frames_of_child(mode: &str) -> BTreeMap<String, u64> {
    let workload = Workload::start_with("inherited_jit", &["600", mode]);
    let profile = sample(sample_pid(workload.pid()), SAMPLES);
    jit_frames(&profile, workload.pid())
}

fn has(frames: &BTreeMap<String, u64>, name: &str) -> bool {
    frames.get(name).is_some_and(|samples| *samples > SAMPLES / 10)
}

#[test]
fn a_child_has_the_names_of_the_code_of_its_parent() {
    let Some(_lock) = run_beside_others() else { return };
    for mode in ["map", "dump", "grandchild"] {
        let frames = frames_of_child(mode);
        assert!(["first", "second", "unnamed"].iter().all(|name| has(&frames, name)), "{mode}: {frames:?}");
    }
}

#[test]
fn the_own_code_of_a_child_precedes_that_of_its_parent() {
    let Some(_lock) = run_beside_others() else { return };
    let frames = frames_of_child("own");
    assert!(has(&frames, "first") && has(&frames, "second_of_child"), "{frames:?}");
    assert!(!frames.contains_key("second"), "{frames:?}");
}

#[test]
fn code_that_a_parent_may_have_replaced_after_the_fork_has_no_name() {
    let Some(_lock) = run_beside_others() else { return };
    let frames = frames_of_child("replaced");
    assert!(has(&frames, "first") && has(&frames, "replaced"), "{frames:?}");
    assert!(!frames.keys().any(|name| name.starts_with("second")), "{frames:?}");
}

#[test]
fn a_program_that_a_child_executes_has_none_of_the_code() {
    let Some(_lock) = run_beside_others() else { return };
    let frames = frames_of_child("executed");
    assert!(has(&frames, "unnamed") && !frames.contains_key("first"), "{frames:?}");
}

#[test]
fn a_child_that_is_forked_in_the_session_has_the_code_from_before_the_fork() {
    let Some(_lock) = run_beside_others() else { return };
    for mode in ["map", "later", "replaced", "grandchild", "executed"] {
        let mut workload = Workload::start_with("inherited_jit", &["600", mode, "meanwhile"]);
        let builder = sample_pid(workload.pid()).children(true);
        let mut session = builder.build().unwrap().start().unwrap();
        wait_for_samples(&mut session, SAMPLES);
        workload.write_line("fork");
        let child: u32 = workload.wait_for("ready ").trim().parse().unwrap();
        wait_for_samples(&mut session, SAMPLES);
        workload.write_line("change the code");
        wait_for_samples(&mut session, 2 * SAMPLES);
        let profile = session.take_profile(Duration::ZERO).unwrap();
        let frames = jit_frames(&profile, child);
        let is_inherited = mode != "executed";
        assert_eq!(has(&frames, "first"), is_inherited, "{mode}: {frames:?}");
        // A session that reads the map late cannot tell when a line was written.
        let has_second = has(&frames, "second") || (mode == "replaced" && has(&frames, "replaced"));
        assert_eq!(has_second, is_inherited, "{mode}: {frames:?}");
        assert!(has(&frames, "unnamed"), "{mode}: {frames:?}");
        assert!(!frames.keys().any(|name| name.ends_with("of_parent")), "{mode}: {frames:?}");
    }
}
