//! Signals that would end the program without its outputs.

use std::fs;

use profiler_tests::{FoldedStacks, Workload, profiler, run_beside_others, start_sampling};
use rustix::process::Signal;

use super::{await_samples, send};

#[test]
fn each_signal_that_would_end_the_program_ends_the_session_with_its_outputs() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let pid = workload.pid().to_string();
    for signal in
        [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::XCPU]
    {
        let child = start_sampling(&mut profiler(&["-p", &pid, "-F", "999"]));
        await_samples(&workload);
        send(&child, signal);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{signal:?}");
        let stacks = FoldedStacks::parse(&String::from_utf8(output.stdout).unwrap());
        assert!(stacks.count(|stack| stack.has("round_of_work")) > 20, "{signal:?}: {stacks:#?}");
    }
}

#[test]
fn a_recorder_without_a_condition_for_sigusr2_ignores_it() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("trap-%n.profile");
    let pid = workload.pid().to_string();
    let arguments = ["record", "-p", &pid, "--rotate", "1h", "-o", output.to_str().unwrap()];
    let child = start_sampling(&mut profiler(&arguments));
    send(&child, Signal::USR2);
    await_samples(&workload);
    send(&child, Signal::QUIT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
