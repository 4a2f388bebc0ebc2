//! Tests with a process of their own, which is killed, has a full disk, or is measured.
//!
//! The process is this test program, with one test and a directory in the environment.

use std::{
    env, fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use profiler_agent::delivery::{Delivery, DeliveryOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{
    DEADLINE, SHORT_TIMEOUT, message, otlp,
    server::{Reply, Server, ok},
    spool, wait_for, wait_until_settled,
};

/// The directory of a process that a test has started.
const DIRECTORY_VARIABLE: &str = "DELIVERY_TEST_DIRECTORY";

/// The URL of the server of the test.
const URL_VARIABLE: &str = "DELIVERY_TEST_URL";

/// No server listens on it.
const CLOSED_URL: &str = "http://127.0.0.1:1";

/// What the kernel writes beyond what is counted: the message that is pushed, buffers and unused pages of the allocator.
const MAX_GROWTH_KB: u64 = 8 << 10;

/// Arguments that run one test in this program.
fn arguments(test: &str) -> [String; 4] {
    let path = format!("processes::{test}");
    ["--exact".to_owned(), path, "--nocapture".to_owned(), "--test-threads=1".to_owned()]
}

fn program() -> std::path::PathBuf {
    env::current_exe().unwrap()
}

fn closed(directory: &Path) -> DeliveryOptions {
    let mut options = otlp(CLOSED_URL);
    options.spool = spool(directory);
    options
}

/// Killed when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn whole_messages(directory: &Path) -> usize {
    names(directory).iter().filter(|name| name.ends_with(".message")).count()
}

#[test]
fn a_process_that_is_killed_while_it_writes_leaves_whole_messages() {
    if let Some(directory) = env::var_os(DIRECTORY_VARIABLE) {
        return fill_spool(directory.as_ref());
    }
    for round in 0..4 {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(program());
        command.args(arguments("a_process_that_is_killed_while_it_writes_leaves_whole_messages"));
        command.env(DIRECTORY_VARIABLE, directory.path()).stdout(Stdio::null());
        let process = Process(command.spawn().unwrap());
        let start = Instant::now();
        while whole_messages(directory.path()) < 2 + round {
            assert!(start.elapsed() < DEADLINE, "{:?}", names(directory.path()));
            thread::yield_now();
        }
        drop(process);
        let left = whole_messages(directory.path());
        let server = Server::start(|_| ok());
        let mut options = otlp(server.url());
        options.spool = spool(directory.path());
        let delivery = Delivery::start(options).unwrap();
        let ledger = wait_until_settled(&delivery);
        assert_eq!((ledger.recovered, ledger.delivered), (left as u64, left as u64));
        assert_eq!((ledger.sampled, ledger.damaged_spool_files), (0, 0));
        let expected = message(1, 200_000).messages[0].body.clone();
        assert!(server.requests().iter().all(|request| request.body == expected), "a body differs");
        assert_eq!(names(directory.path()), [""; 0]);
    }
}

/// Messages of one sample, until the process is killed.
fn fill_spool(directory: &Path) {
    let delivery = Delivery::start(closed(directory)).unwrap();
    for count in 1..200 {
        delivery.push(message(1, 200_000));
        wait_for(&delivery, |ledger| ledger.spooled == count);
    }
}

#[test]
fn messages_that_a_full_disk_does_not_take_remain_in_memory() {
    if let Some(directory) = env::var_os(DIRECTORY_VARIABLE) {
        return limit_files(directory.as_ref());
    }
    let directory = tempfile::tempdir().unwrap();
    // Without the signal, a write above the limit of file sizes fails as one to a full disk does.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]).arg(program());
    command.args(arguments("messages_that_a_full_disk_does_not_take_remain_in_memory"));
    let output = command.env(DIRECTORY_VARIABLE, directory.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(whole_messages(directory.path()), 3, "{output:?}");
}

fn limit_files(directory: &Path) {
    let delivery = Delivery::start(closed(directory)).unwrap();
    let unlimited = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(50_000), ..unlimited }).unwrap();
    delivery.push(message(1, 1_000));
    wait_for(&delivery, |ledger| ledger.spooled == 1);
    delivery.push(message(2, 100_000));
    delivery.push(message(4, 1_000));
    let ledger = wait_for(&delivery, |_| delivery.health().spool_error.is_some());
    assert_eq!((ledger.spooled, ledger.queued), (1, 6));
    // Each attempt to write has a partial file until it has failed.
    wait_for(&delivery, |_| names(directory) == ["00000000000000000000.message"]);
    setrlimit(Resource::Fsize, unlimited).unwrap();
    wait_for(&delivery, |ledger| ledger.spooled == 7);
    assert_eq!(delivery.health().spool_error, None);
    let ledger = delivery.stop(Duration::ZERO);
    assert!(ledger.is_exact() && ledger.spooled == 7, "{ledger:?}");
}

#[test]
fn an_outage_costs_at_most_8_megabytes_of_memory() {
    if env::var_os(URL_VARIABLE).is_some() {
        return measure_outage();
    }
    for has_spool in [false, true] {
        let server = Server::start(|index| if index == 0 { ok() } else { Reply::Hang });
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(program());
        command.args(arguments("an_outage_costs_at_most_8_megabytes_of_memory"));
        if has_spool {
            command.env(DIRECTORY_VARIABLE, directory.path());
        }
        let output = command
            .env(URL_VARIABLE, format!("http://localhost:{}", server.address.port()))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        println!("{}", String::from_utf8_lossy(&output.stdout));
    }
}

fn measure_outage() {
    let mut options = otlp(env::var(URL_VARIABLE).unwrap());
    options.spool = env::var_os(DIRECTORY_VARIABLE).and_then(|directory| spool(directory.as_ref()));
    options.timeout = SHORT_TIMEOUT;
    let delivery = Delivery::start(options).unwrap();
    let threads = threads();
    delivery.push(message(1, 400_000));
    wait_for(&delivery, |ledger| ledger.delivered == 1);
    let before = resident_kb();
    let mut most = before;
    let mut pushed = 0;
    let ledger = wait_for(&delivery, |ledger| {
        delivery.push(message(1, 400_000));
        pushed += 1;
        most = most.max(resident_kb());
        pushed >= 200 && ledger.ambiguous > 0
    });
    println!("from {before} kB to {most} kB: {ledger:?}");
    assert!(most - before <= MAX_GROWTH_KB, "{before} kB, {most} kB");
    // The sandbox is installed after the start.
    assert_eq!(self::threads(), threads);
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

fn resident_kb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
