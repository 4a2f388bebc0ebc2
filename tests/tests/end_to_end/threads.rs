//! Tests targets with many threads, and single threads as targets.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use profiler::{Format, OutputOptions, Profiler, Target};
use profiler_tests::{FoldedStacks, Workload, run_beside_others, sample, sample_pid, wait_until};

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
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start_nice("threads");
    let mut session = sample_pid(workload.pid()).frequency_hz(999).build().unwrap().start().unwrap();
    let mut threads = BTreeMap::<String, HashSet<u32>>::new();
    wait_until("a sample of each thread", || {
        let profile = session.take_profile(Duration::from_millis(500)).unwrap();
        assert!(profile.ledger().adds_up());
        assert_eq!(profile.first_ledger().lost_total(), 0, "{:?}", profile.ledger());
        for sample in profile.samples() {
            let thread = profile.thread(sample.thread);
            threads.entry(profile.string(thread.comm).to_owned()).or_default().insert(thread.tid);
        }
        let workers = threads.keys().filter(|name| name.starts_with("worker-"));
        (workers.count() == THREADS).then_some(())
    });
    let mut workers = threads.iter().filter(|(name, _)| name.starts_with("worker-"));
    assert!(workers.all(|(_, tids)| tids.len() == 1), "{threads:?}");
}

#[test]
fn threads_are_root_frames_when_enabled() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start_nice("threads");
    let tid = worker(&workload, "worker-7");
    let mut session = sample_pid(workload.pid()).frequency_hz(999).build().unwrap().start().unwrap();
    let frame = format!("thread {tid} (worker-7)");
    wait_until("a sample of the thread", || {
        let profile = session.take_profile(Duration::from_millis(500)).unwrap();
        let mut folded = Vec::new();
        let options = OutputOptions { per_thread: true, ..OutputOptions::default() };
        Format::Folded.write_with(&profile, &options, &mut folded).unwrap();
        let stacks = FoldedStacks::parse(&String::from_utf8(folded).unwrap());
        assert!(stacks.0.iter().all(|stack| stack.frames[0].starts_with("thread ")), "{stacks:#?}");
        stacks.0.iter().any(|stack| stack.frames[0] == frame).then_some(())
    });
}

#[test]
fn one_thread_is_sampled_without_the_others() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start_nice("threads");
    let tid = worker(&workload, "worker-3");
    let builder = Profiler::builder().target(Target::Tid(tid)).frequency_hz(9_999);
    let profile = sample(builder, 100);
    assert!(profile.total_value() >= 100);
    assert!(profile.samples().iter().all(|sample| profile.thread(sample.thread).tid == tid));
    assert!(profile.ledger().adds_up());
    assert!(
        FoldedStacks::from_profile(&profile).percent(|stack| stack.has_chain(&["thread_main", "burn"]))
            > 90.0
    );
}

#[test]
fn the_reader_thread_has_a_higher_priority_than_targets() {
    let Some(_lock) = run_beside_others() else { return };
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
