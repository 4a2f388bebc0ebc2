//! Tests that a session leaves no kernel objects and no files behind.

use std::{collections::BTreeSet, fs};

use profiler_tests::{Workload, profiler, run_beside_others, run_command, sample_pid, wait_until};

/// Number of BPF programs, maps, links and perf events that this process holds open.
fn kernel_objects() -> Vec<String> {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let names = descriptors.filter_map(|fd| fs::read_link(fd.path()).ok()?.to_str().map(str::to_owned));
    names.filter(|name| name.contains("bpf") || name.contains("perf_event")).collect()
}

fn entries(directory: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[test]
fn a_dropped_session_leaves_no_kernel_objects() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let before = kernel_objects();
    let session = sample_pid(workload.pid()).build().unwrap().start().unwrap();
    assert!(kernel_objects().len() > before.len(), "a session holds programs and maps");
    drop(session);
    wait_until("the end of what the session held", || (kernel_objects() == before).then_some(()));
}

#[test]
fn a_session_leaves_no_files_behind() {
    let Some(_lock) = run_beside_others() else { return };
    let workload = Workload::start("shares");
    let pid = workload.pid().to_string();
    let pinned = entries("/sys/fs/bpf");
    let folder = format!("/proc/{pid}/root/tmp");
    let before = entries(&folder);
    let names_it = |name: &&String| name.contains(&pid) || name.contains("profiler-under-test");
    let run = run_command(profiler(&["-p", &pid, "-d", "0.3"]).current_dir("/"));
    assert!([0, 3].contains(&run.code()), "{}", run.stderr);
    let newly_pinned: Vec<_> = entries("/sys/fs/bpf").difference(&pinned).cloned().collect();
    assert!(newly_pinned.is_empty(), "{newly_pinned:?}");
    let after = entries(&folder);
    let new: Vec<_> = after.difference(&before).filter(names_it).collect();
    assert!(new.is_empty(), "{new:?}");
}
