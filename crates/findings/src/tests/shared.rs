//! Findings on services of several processes: what they share is one finding, and what each has for itself.

use profiler_profile::{Attribute, FindingKind, ThreadState};

use super::{HZ, POOL_ROOT, Threads, pool::WAIT};

const WORK: &str = "main;compute";
const CURL: &str = "start_thread;fetch_price;curl_easy_perform@libcurl.so.4;recv@libc.so.6;tcp_recvmsg_[k]";

/// Begins a process, with the id of its first thread.
fn begin(threads: &mut Threads, comm: &str) {
    threads.process = threads.builder.process(threads.next_tid, comm);
}

/// Adds processes with two threads each, which wait in a stack.
fn add_pairs(threads: &mut Threads, comm: &str, processes: u32, folded: &str) {
    for _ in 0..processes {
        begin(threads, comm);
        threads.add(2, ThreadState::Blocked, folded);
    }
}

fn texts(threads: &mut Threads) -> Vec<String> {
    threads.findings().iter().map(ToString::to_string).collect()
}

#[test]
fn a_slow_service_is_that_of_all_threads_of_a_service() {
    let mut threads = Threads::wall();
    add_pairs(&mut threads, "shop", 4, CURL);
    assert_eq!(
        texts(&mut threads),
        [
            "4 processes (shop): 8.0 of 8 threads at a time wait for sockets below curl_easy_perform (100 % of the time of threads with \
             work): examine the service that it calls, and call it asynchronously"
        ]
    );
    let mut threads = Threads::wall();
    for comm in ["a", "b", "c", "d"] {
        add_pairs(&mut threads, comm, 1, CURL);
    }
    assert_eq!(texts(&mut threads), [""; 0], "processes of several services");
}

/// The processes of two units, each with too few threads for a finding.
#[test]
fn processes_of_several_cgroups_are_several_services() {
    let with_units = |units: [&str; 2]| {
        let mut threads = Threads::wall();
        for unit in units {
            begin(&mut threads, "shop");
            let [name, value] = ["systemd.unit", unit].map(|text| threads.builder.string(text));
            threads.builder.set_attribute(threads.process, Attribute { name, value });
            threads.add(2, ThreadState::Blocked, CURL);
        }
        threads.kinds()
    };
    assert_eq!(with_units(["a.service", "a.service"]), [FindingKind::SlowDownstream]);
    assert_eq!(with_units(["a.service", "b.service"]), []);
}

/// Eight processes of three names, which the quota throttles for a fifth of the time in which they could run.
#[test]
fn a_quota_is_one_finding_for_all_processes_of_its_cgroup() {
    let mut threads = Threads::wall();
    for comm in ["web", "web", "web", "web", "job", "job", "log", "log"] {
        begin(&mut threads, comm);
        let parts = [(0, 20, Some(ThreadState::Throttled), WORK), (2, 80, Some(ThreadState::OnCpu), WORK)];
        threads.add_thread(comm, &parts);
    }
    begin(&mut threads, "idle");
    threads.add(1, ThreadState::Blocked, "main;accept@libc.so.6");
    let findings = threads.findings();
    let [finding] = &findings[..] else { panic!("one finding: {findings:?}") };
    assert_eq!(finding.kind, FindingKind::CpuQuota);
    assert_eq!(
        finding.evidence,
        "8 processes (web, job, log): 1.6 threads at a time are throttled by the CPU quota of their cgroup, 20 % of the time in \
         which they could run"
    );
    assert_eq!((finding.facts.processes.len(), finding.facts.threads), (8, Some(8)));
}

#[test]
fn a_build_that_waits_for_cpus_is_one_finding_for_programs_of_several_names() {
    let mut threads = Threads::wall();
    for comm in ["cc1plus", "cc1plus", "as", "ld", "sh"] {
        begin(&mut threads, comm);
        let parts = [(0, 80, Some(ThreadState::Runnable), WORK), (8, 20, Some(ThreadState::OnCpu), WORK)];
        threads.add_thread(comm, &parts);
    }
    let findings = threads.findings();
    let [finding] = &findings[..] else { panic!("one finding: {findings:?}") };
    assert_eq!(
        finding.evidence,
        "5 processes (cc1plus, as, ld and 1 other): 4.0 threads at a time wait for a CPU, 80 % of the time in which they could run"
    );
}

#[test]
fn processes_that_have_the_same_for_themselves_have_one_finding() {
    let blocked = format!("{POOL_ROOT};shop!Shop.Cart.Get(int);{WAIT}");
    let mut threads = Threads::wall();
    for workers in [3, 8, 5] {
        begin(&mut threads, "shop");
        threads.add(workers, ThreadState::Blocked, &blocked);
    }
    let findings = threads.findings();
    let [finding] = &findings[..] else { panic!("one finding: {findings:?}") };
    assert_eq!(
        finding.evidence,
        "3 processes (shop), most in process 10: 8 of 8 pool workers block in Task.Wait below Shop.Cart.Get (sync over async)"
    );
    let facts = &finding.facts;
    assert_eq!((&facts.processes[..], facts.threads), (&[7, 10, 18][..], Some(16)));
    assert_eq!((facts.selection.threads.len(), finding.value), (16, 16 * 10 * HZ));
}

/// A pool of one worker in each process is too small, and so are those of all together.
#[test]
fn what_processes_have_for_themselves_is_not_added_up() {
    let blocked = format!("{POOL_ROOT};shop!Shop.Cart.Get(int);{WAIT}");
    let lock = "start_thread;append;pthread_mutex_lock@libc.so.6";
    for folded in [&*blocked, lock] {
        let mut threads = Threads::wall();
        add_pairs(&mut threads, "shop", 4, folded);
        let kinds = threads.kinds();
        let is_of_process =
            |kind: &&FindingKind| matches!(kind, FindingKind::PoolStarvation | FindingKind::LockConvoy);
        assert_eq!(kinds.iter().find(is_of_process), None, "{folded}");
    }
}

/// One of eight processes waits for its disk, an eighth of the time of all.
#[test]
fn a_process_among_healthy_ones_is_found() {
    let mut threads = Threads::wall();
    begin(&mut threads, "shop");
    threads.add(2, ThreadState::Disk, "start_thread;flush;fsync@libc.so.6");
    for _ in 0..7 {
        begin(&mut threads, "shop");
        threads.add(2, ThreadState::OnCpu, WORK);
    }
    let findings = threads.findings();
    let [finding] = &findings[..] else { panic!("one finding: {findings:?}") };
    assert!(
        finding.evidence.starts_with("process 7 (shop): 2.0 threads at a time wait for files"),
        "{finding}"
    );
}
