//! Tests the memory limit of `profiler agent` under load, in a cgroup with a limit.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use profiler_tests::{OtlpReceiver, Reception, Workload, measure_alone, profiler, wait_until};
use rustix::process::Signal;

use super::super::process::{Agent, assert_exact, metric, number, path_text};

/// The mount points of the memory controller, and the names of its files.
const CONTROLLERS: [Controller; 2] = [
    Controller {
        mount_point: "/sys/fs/cgroup/memory",
        limit: "memory.limit_in_bytes",
        usage: "memory.usage_in_bytes",
        cache: "cache ",
    },
    Controller {
        mount_point: "/sys/fs/cgroup",
        limit: "memory.max",
        usage: "memory.current",
        cache: "file ",
    },
];

/// The memory controller of a version of cgroups.
struct Controller {
    mount_point: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// The pages of files, in `memory.stat`.
    cache: &'static str,
}

/// A cgroup, which is removed when it is dropped.
struct Group {
    directory: PathBuf,
    controller: &'static Controller,
}

impl Group {
    fn new() -> Self {
        // Only version 2 has this file.
        let subtree = Path::new("/sys/fs/cgroup/cgroup.subtree_control");
        if subtree.exists() {
            fs::write(subtree, "+memory").unwrap();
        }
        let controller = &CONTROLLERS[usize::from(subtree.exists())];
        let name = format!("profiler-memory-test-{}", std::process::id());
        let directory = Path::new(controller.mount_point).join(name);
        fs::create_dir(&directory).unwrap();
        Self { directory, controller }
    }

    /// Bytes that the kernel cannot free: those of processes, and those of the kernel for them, such as BPF maps.
    fn used_bytes(&self) -> u64 {
        let read = |file: &str| fs::read_to_string(self.directory.join(file)).unwrap();
        let usage: u64 = read(self.controller.usage).trim().parse().unwrap();
        let statistics = read("memory.stat");
        let cache = statistics.lines().find_map(|line| line.strip_prefix(self.controller.cache)).unwrap();
        usage.saturating_sub(cache.parse().unwrap())
    }

    fn set_limit(&self, bytes: u64) {
        fs::write(self.directory.join(self.controller.limit), bytes.to_string()).unwrap();
    }

    /// Starts an agent in it.
    fn start(&self, arguments: &[&str]) -> Agent {
        let agent = profiler(&["agent", "--window", "1s", "-F", &FREQUENCY_HZ.to_string()]);
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ >\"$0/cgroup.procs\" && exec \"$@\""]).arg(&self.directory);
        command.arg(agent.get_program()).args(agent.get_args()).args(arguments);
        Agent::run(command.env_remove("SUDO_UID"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel moves processes that have ended out of it a moment later.
        wait_until("the removal of a cgroup", || fs::remove_dir(&self.directory).ok());
    }
}

const FREQUENCY_HZ: u64 = 1_999;

/// The share of the limit of a cgroup that resident memory may have, percent.
const BUDGET_PERCENT: u64 = 80;

/// The most resident memory of an agent without a limit of its cgroup.
const MAX_RESIDENT_BYTES: u64 = 64 << 20;

/// Resident memory beyond that of an agent without load, which an agent under load exceeds.
const LEAST_LOAD_BYTES: u64 = 1 << 20;

/// What the kernel uses for an agent under load, beyond what it uses for one without.
const KERNEL_LOAD_BYTES: u64 = 8 << 20;

/// The most resident memory that a process has had: memory is measured during windows as well.
fn peak_resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// A limit of the cgroup that an agent without load keeps, by what such an agent uses. What the kernel uses for it depends on the
/// number of CPUs, and what the agent needs on the other programs of the machine.
fn tight_limit(group: &Group) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let mut agent = group.start(&["--write-dir", path_text(&directory), "--listen", "127.0.0.1:0"]);
    for _ in 0..2 {
        agent.wait_for("event=window ");
    }
    let metrics = agent.metrics();
    let resident_bytes = metric(&metrics, "process_resident_memory_bytes") as u64;
    let used_bytes = group.used_bytes();
    if peak_resident_bytes(agent.child.id()) < MAX_RESIDENT_BYTES {
        assert_eq!(metric(&metrics, "profiler_agent_memory_actions_total"), 0.0, "{metrics}");
    }
    agent.signal(Signal::TERM);
    agent.finish();
    println!("{resident_bytes} bytes resident, {used_bytes} bytes in the cgroup");
    let by_budget = (resident_bytes + LEAST_LOAD_BYTES) * 100 / BUDGET_PERCENT;
    by_budget.max(used_bytes + KERNEL_LOAD_BYTES)
}

#[test]
fn an_agent_beyond_its_memory_limit_evicts_lowers_its_frequency_and_survives() {
    let Some(_lock) = measure_alone() else { return };
    let group = Group::new();
    let limit_bytes = tight_limit(&group);
    group.set_limit(limit_bytes);
    let receiver = OtlpReceiver::start(Reception::Accept);
    let mut agent = group.start(&["--otlp", &receiver.url(), "--listen", "127.0.0.1:0"]);
    agent.wait_for("event=window ");
    let metrics = agent.metrics();
    let budget = metric(&metrics, "profiler_agent_memory_limit_bytes");
    let expected = (limit_bytes as f64 * 0.8).min(MAX_RESIDENT_BYTES as f64);
    assert!((budget - expected).abs() < 4096.0, "{budget} of {limit_bytes}");
    let programs = tempfile::tempdir().unwrap();
    let frequency = FREQUENCY_HZ.to_string();
    let _stacks = [(); 2].map(|()| Workload::start_with("churn_stacks", &["600", "120000", &frequency]));
    let _processes = Workload::start_with("churn_processes", &["600", "12000", "3000", path_text(&programs)]);
    let metrics = wait_until("a lower frequency", || {
        let metrics = agent.metrics();
        (metric(&metrics, "profiler_agent_frequency_hertz") < FREQUENCY_HZ as f64).then_some(metrics)
    });
    assert!(metric(&metrics, "profiler_agent_memory_actions_total") >= 3.0, "{metrics}");
    // The windows at the lower frequency count, too.
    agent.wait_for("action=lower-frequency");
    for _ in 0..2 {
        agent.wait_for("event=window ");
    }
    agent.signal(Signal::TERM);
    let lines = agent.finish();
    let stopped = lines.iter().find(|line| line.contains("event=stopped")).unwrap();
    assert_exact(stopped);
    assert_eq!(number(stopped, "sampled"), number(stopped, "delivered"), "{stopped}");
    assert!(number(stopped, "sampled") > FREQUENCY_HZ, "{stopped}");
}
