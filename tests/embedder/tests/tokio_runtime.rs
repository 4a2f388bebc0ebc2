//! Tests the library without its command line in a program that runs on tokio.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "not a program for users")]

use profiler::ErrorKind;
use profiler_embedder::profile_own_tasks;
use tokio::runtime::Builder;

#[test]
fn a_session_in_a_tokio_task_samples_the_tasks_of_its_runtime() {
    const COMPUTATION: &str = "profiler_embedder::compute_until";
    const SAMPLES: u64 = 500;
    let runtime = Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let profile = match runtime.block_on(profile_own_tasks(SAMPLES)) {
        Ok(profile) => profile,
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::PermissionDenied(_)), "{error}");
            let is_required =
                ["CI", "PROFILER_REQUIRE_PRIVILEGED"].map(|name| std::env::var_os(name).is_some());
            assert_eq!(is_required, [false; 2], "a privileged test cannot run: {error}");
            return eprintln!("skipped, a privileged test cannot run: {error}");
        }
    };
    assert!(profile.ledger().adds_up(), "{:?}", profile.ledger());
    let has_computation = |sample: &&profiler::profile::Sample| {
        let frames = profile.stack(sample.stack).frames.iter();
        frames.map(|frame| profile.string(profile.frame(*frame).name)).any(|name| name.contains(COMPUTATION))
    };
    let found = profile.samples().iter().filter(has_computation).count();
    // The task computes all the time, and little else runs in this process.
    assert!(found * 100 > profile.samples().len() * 80, "{found} of {}", profile.samples().len());
}
