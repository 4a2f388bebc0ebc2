//! Tests waits of processes in containers: CPU quotas, and findings from the host, from a sidecar and from a container that
//! runs once.

use std::{fs, time::Duration};

use profiler::{
    Profile, Profiler, Target,
    profile::{EventId, FindingKind, ThreadState},
};
use profiler_tests::{assert_share, measure_alone, run_beside_others, wait_until, workload_path};

use crate::{
    container::Container,
    container_builder::{ContainerBuilder, LEAST_CAPABILITIES},
    dotnet::{builder_for, tid_of},
    sidecar::sidecar,
};

/// The time of a profile: a hundred passes over the threads.
const SECONDS: u64 = 2;

fn wall_profile(container: &Container, seconds: u64) -> Profile {
    let builder = Profiler::builder().target(Target::Pid(container.pid())).cpu_samples(false);
    let mut session = builder.wall_clock_hz(49).build().unwrap().start().unwrap();
    session.wait(Some(Duration::from_secs(seconds)));
    session.stop().unwrap()
}

#[test]
fn a_dotnet_program_whose_cpu_quota_is_used_up_has_that_finding() {
    let Some(_lock) = run_beside_others() else { return };
    for program in ["3.1", "9.0", "single-file-10.0"] {
        // So small that the program uses it up however many others compute.
        let container = builder_for(program, "cpu").variable("PERF_MAP=0").cpu_quota_percent(10).start();
        let kinds: Vec<_> =
            wall_profile(&container, SECONDS).findings().iter().map(|finding| finding.kind).collect();
        assert!(kinds.contains(&FindingKind::CpuQuota), "{program}: {kinds:?}");
    }
}

/// The profiler in a container of the node's PID namespace, which ends with the profile.
fn on_the_node(arguments: &[&str]) -> ContainerBuilder {
    let words = [&["profiler"], arguments].concat();
    let builder =
        ContainerBuilder::new(&words).program(&workload_path("profiler")).capabilities(LEAST_CAPABILITIES);
    builder.in_pid_namespace_of(std::process::id()).mount("/sys", "sysfs", &["ro"])
}

#[test]
fn a_starved_pool_is_found_from_the_host_from_a_sidecar_and_from_a_container_of_the_node() {
    const FINDING: &str = "pool workers block in Task.Wait below Workload.Cart.Get (sync over async)";
    /// The threads of a .NET program with a pool that has begun to starve.
    const THREADS: usize = 15;
    let Some(_lock) = run_beside_others() else { return };
    for (version, has_profilers_in_containers) in [("3.1", false), ("9.0", true)] {
        let container = builder_for(version, "starve").variable("PERF_MAP=0").start();
        let threads = format!("/proc/{}/task", container.pid());
        wait_until("the threads of the pool", || {
            (fs::read_dir(&threads).unwrap().count() >= THREADS).then_some(())
        });
        // On a busy machine the first profile can end before the runtime has sent its methods.
        wait_until("the finding from the host", || {
            let from_host = wall_profile(&container, SECONDS);
            from_host.findings().iter().any(|finding| finding.to_string().contains(FINDING)).then_some(())
        });
        if !has_profilers_in_containers {
            continue;
        }
        let seconds = SECONDS.to_string();
        let options = |pid| ["-p", pid, "--wall", "-d", &seconds, "--format", "folded"];
        let pid = container.pid().to_string();
        for profiler in [sidecar(&container, &options("1")), on_the_node(&options(&pid))] {
            let run = wait_until("the finding from a container", || {
                let run = profiler.run();
                assert_eq!(run.code(), 0, "{version}: {}", run.stderr);
                run.stderr.contains(FINDING).then_some(run)
            });
            let blocked = run.stdout.lines().filter(|line| line.contains("Workload.Cart.Get"));
            assert!({ blocked }.any(|line| line.contains("do_syscall_64")), "{version}: {}", run.stdout);
        }
    }
}

mod measured {
    use super::*;

    const SECONDS: u64 = 4;

    /// The CPU time of the first thread, nanoseconds (proc_pid_schedstat, `Documentation/scheduler/sched-stats.rst`).
    fn cpu_time_ns(container: &Container) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", container.pid())).unwrap();
        text.split_whitespace().next().unwrap().parse().unwrap()
    }

    #[test]
    fn a_container_whose_cpu_quota_is_used_up_is_throttled() {
        let Some(_lock) = measure_alone() else { return };
        let container = ContainerBuilder::workload("shares-static", &["300"]).cpu_quota_percent(20).start();
        let wall = wall_profile(&container, SECONDS);
        let states = wall.values_by_state(EventId::FIRST);
        // A fifth of each period has CPU time. The ends of the other part are not those of the passes.
        assert_share(states[&ThreadState::Throttled], wall.total_value(), 80.0, 3.0);
        let finding = wall.findings().iter().find(|finding| finding.kind == FindingKind::CpuQuota);
        let evidence = &finding.expect("the quota is found").evidence;
        assert!(evidence.contains("are throttled by the CPU quota of their cgroup"), "{evidence}");

        let builder = Profiler::builder().target(Target::Pid(container.pid())).cpu_samples(false);
        let mut session = builder.off_cpu(Duration::ZERO, false).build().unwrap().start().unwrap();
        let before_ns = cpu_time_ns(&container);
        session.wait(Some(Duration::from_secs(SECONDS)));
        let ran_ns = cpu_time_ns(&container) - before_ns;
        let off_cpu = session.stop().unwrap();
        let states = off_cpu.values_by_state(EventId::FIRST);
        // Without the time for which other processes of the machine had the CPU.
        let runnable_ns = states.get(&ThreadState::Runnable).copied().unwrap_or(0);
        let waited_ns = off_cpu.header().duration_ns - ran_ns - runnable_ns;
        let throttled = states[&ThreadState::Throttled] as f64 / waited_ns as f64;
        assert!((0.95..1.05).contains(&throttled), "{states:?} of {waited_ns} ns without a CPU");
    }
}

#[test]
fn the_owner_of_a_mutex_has_the_id_of_the_profilers_namespace() {
    let Some(_lock) = run_beside_others() else { return };
    let mut container = ContainerBuilder::workload("mutexes-static", &["300", "sleeps"]).start();
    let pid = container.pid();
    let own_id = container.line("owner ").trim().parse().unwrap();
    let owner = tid_of(pid, own_id);
    assert_ne!(owner, own_id, "the container has its own ids");
    let wall = Profiler::builder().target(Target::Pid(pid)).cpu_samples(false).wall_clock_hz(49);
    let mut session = wall.build().unwrap().start().unwrap();
    let profile = wait_until("the owner of the mutex", || {
        let profile = session.take_profile(Duration::from_secs(SECONDS)).unwrap();
        (!profile.lock_owners().is_empty()).then_some(profile)
    });
    for lock in profile.lock_owners() {
        let thread = profile.thread(lock.owner);
        assert_eq!((thread.tid, profile.string(thread.comm)), (owner, "owner"), "{lock:?}");
    }
}
