//! Tests targets with many threads, and single threads as targets.

use std::collections::{BTreeMap, HashSet};

use profiler::{Format, OutputOptions, Profiler, Target, WriteFormat as _};
use profiler_tests::{FoldedStacks, Workload, measure_alone, sample, sample_pid, wait_until};

const THREADS: usize = 200;

fn worker(workload: &Workload, name: &str) -> u32 {
    let is_it = |tid: &u32| {
        let comm = std::fs::read_to_string(format!("/proc/{}/task/{tid}/comm", workload.pid()));
        comm.is_ok_and(|comm| comm.trim_end() == name)
    };
    wait_until(name, || workload.tids().into_iter().find(is_it))
}

#[test]
fn two_hundred_threads_are_all_sampled_with_their_names() {
    let Some(_lock) = measure_alone() else { return };
    let workload = Workload::start_nice("threads");
    let profile = sample(sample_pid(workload.pid()).frequency_hz(999), 4_000);
    assert!(profile.ledger().adds_up());
    assert_eq!(profile.first_ledger().lost_total(), 0, "{:?}", profile.ledger());
    let mut threads = BTreeMap::<&str, HashSet<u32>>::new();
    for sample in profile.samples() {
        let thread = profile.thread(sample.thread);
        threads.entry(profile.string(thread.comm)).or_default().insert(thread.tid);
    }
    let workers = threads.iter().filter(|(name, tids)| name.starts_with("worker-") && tids.len() == 1);
    assert_eq!(workers.count(), THREADS, "{threads:?}");
}

#[test]
fn threads_are_root_frames_when_enabled() {
    let Some(_lock) = measure_alone() else { return };
    let workload = Workload::start_nice("threads");
    let tid = worker(&workload, "worker-7");
    let profile = sample(sample_pid(workload.pid()).frequency_hz(999), 3_000);
    let mut folded = Vec::new();
    let options = OutputOptions { per_thread: true, ..OutputOptions::default() };
    profile.write_with(Format::Folded, &options, &mut folded).unwrap();
    let stacks = FoldedStacks::parse(&String::from_utf8(folded).unwrap());
    assert!(stacks.0.iter().all(|stack| stack.frames[0].starts_with("thread ")), "{stacks:#?}");
    assert!(stacks.count(|stack| stack.frames[0] == format!("thread {tid} (worker-7)")) > 0, "{stacks:#?}");
}

#[test]
fn one_thread_is_sampled_without_the_others() {
    let Some(_lock) = measure_alone() else { return };
    let workload = Workload::start_nice("threads");
    let tid = worker(&workload, "worker-3");
    let builder = Profiler::builder().target(Target::Tid(tid)).frequency_hz(9_999);
    let profile = sample(builder, 50);
    assert!(profile.total_value() >= 50);
    assert!(profile.samples().iter().all(|sample| profile.thread(sample.thread).tid == tid));
    assert!(profile.ledger().adds_up());
    assert!(
        FoldedStacks::from_profile(&profile).percent(|stack| stack.has_chain(&["thread_main", "burn"]))
            > 90.0
    );
}

#[test]
fn the_reader_thread_has_a_higher_priority_than_targets() {
    let Some(_lock) = measure_alone() else { return };
    let session = sample_pid(std::process::id()).build().unwrap().start().unwrap();
    // proc_pid_stat(5): field 19. The first field behind the name is field 3.
    let nice = |stat: &str| stat.rsplit(')').next()?.split_whitespace().nth(16)?.parse::<i32>().ok();
    let own = nice(&std::fs::read_to_string("/proc/thread-self/stat").unwrap()).unwrap();
    wait_until("the reader to go first", || {
        let tasks = std::fs::read_dir("/proc/self/task").ok()?.flatten();
        let mut stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
        let reader = nice(&stats.find(|stat| stat.contains("(reader)"))?)?;
        (reader < own).then_some(())
    });
    drop(session);
}
