//! Tests containers and cgroups as targets.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use profiler::{Builder, Ended, ErrorKind, Profile, Profiler, Shape, Target};
use profiler_tests::{DEADLINE, Workload, run_beside_others, sample, wait_until, workload_path};

use crate::{container::Container, container_builder::ContainerBuilder};

/// Cgroup paths of a container id in the two cgroup drivers and several container runtimes.
const PLACES: [&str; 4] = [
    "kubepods/besteffort/pod0d4b8f4e-52f1-4a0c-9c0e-0d2c3c2e5a3e/ID",
    "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0d4b8f4e.slice/cri-containerd-ID.scope",
    "system.slice/docker-ID.scope",
    "machine.slice/crio-ID.scope",
];

/// A container id that no other container of this machine has.
pub(crate) fn id() -> String {
    let seed = std::collections::hash_map::RandomState::new();
    let part = |n: u32| format!("{:016x}", std::hash::BuildHasher::hash_one(&seed, n));
    (0..4).map(part).collect()
}

fn start(place: &str, id: &str) -> Container {
    ContainerBuilder::workload("shares-static", &["300"]).cgroup(&place.replace("ID", id)).start()
}

fn profiler_builder(target: Target) -> Builder {
    Profiler::builder().target(target).frequency_hz(1_999)
}

fn pids(profile: &Profile) -> BTreeSet<u32> {
    let process = |sample: &profiler::profile::Sample| profile.thread(sample.thread).process;
    profile.samples().iter().map(|sample| profile.process(process(sample)).pid).collect()
}

#[test]
fn a_container_is_found_by_a_prefix_of_its_id_and_only_its_processes_are_sampled() {
    let Some(_lock) = run_beside_others() else { return };
    let _beside = Workload::start("shares");
    for place in PLACES {
        let id = id();
        let container = start(place, &id);
        let _other = start(place, &self::id());
        for prefix in [&id[..12], &id] {
            let profile = sample(profiler_builder(Target::Container(prefix.to_owned())), 200);
            assert_eq!(pids(&profile), BTreeSet::from([container.pid()]), "{place}");
            assert!(profile.ledger().adds_up());
            assert_eq!(profile.header().target, format!("container {id}"));
        }
    }
}

#[test]
fn processes_have_the_id_of_their_container() {
    let Some(_lock) = run_beside_others() else { return };
    let outside = Workload::start("shares");
    for place in PLACES {
        let id = id();
        let container = start(place, &id);
        let ours = [container.pid(), outside.pid()];
        let profile = sample(profiler_builder(Target::Pids(ours.to_vec())), 400);
        assert_eq!(pids(&profile), BTreeSet::from(ours), "{place}");
        for process in profile.processes() {
            // The test itself may run in a container.
            let is_in_it = process.container.is_some_and(|found| profile.string(found) == id);
            assert_eq!(is_in_it, process.pid == ours[0], "{place}");
        }
        let shape = Shape { container: Some(id[..12].to_owned()), ..Shape::default() };
        assert_eq!(pids(&profile.shaped(&shape)), BTreeSet::from([ours[0]]), "{place}");
    }
}

#[test]
fn a_container_id_prefix_that_matches_twice_is_rejected_with_both_ids() {
    let Some(_lock) = run_beside_others() else { return };
    let stem = &id()[..32];
    let ids = ["a", "b"].map(|end| format!("{stem}{end}"));
    let _containers = ids.each_ref().map(|id| start(PLACES[0], id));
    let error = profiler_builder(Target::Container(stem.to_owned())).build().unwrap().start().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(ids.iter().all(|id| error.to_string().contains(id)), "{error}");
}

/// Moves a process into a new child of a cgroup.
fn move_below(cgroup: &Path, name: &str, pid: u32) {
    let below = cgroup.join(name);
    fs::create_dir(&below).unwrap();
    fs::write(below.join("cgroup.procs"), pid.to_string()).unwrap();
}

#[test]
fn a_cgroup_of_either_version_is_sampled_with_its_descendants_alone() {
    let Some(_lock) = run_beside_others() else { return };
    let _beside = Workload::start("shares");
    let script = "syscalls-static 300 & exec shares-static 300";
    let container = ContainerBuilder::new(&["sh", "-c", script])
        .program(&workload_path("shares-static"))
        .program(&workload_path("syscalls-static"))
        .cgroup("a/b")
        .start();
    let both = BTreeSet::from([container.pid(), container.wait_for("syscalls-static")]);
    // A version 2 hierarchy, version 1 hierarchies, or both.
    let directories = container.cgroups();
    assert!(!directories.is_empty());
    for above in directories {
        let cgroup = above.join("a/b");
        move_below(&cgroup, "worker", container.wait_for("syscalls-static"));
        let profile = sample(profiler_builder(Target::Cgroup(cgroup.clone())), 500);
        assert_eq!(pids(&profile), both, "{}", cgroup.display());
        assert!(profile.ledger().adds_up());
        let profile = sample(profiler_builder(Target::Cgroup(cgroup.join("worker"))), 200);
        let worker = BTreeSet::from([container.wait_for("syscalls-static")]);
        assert_eq!(pids(&profile), worker, "{}", cgroup.display());
        let profile = sample(profiler_builder(Target::Cgroup(above.clone())), 500);
        assert_eq!(pids(&profile), both, "{}", above.display());
    }
    let memberships = fs::read_to_string(format!("/proc/{}/cgroup", container.pid())).unwrap();
    let mut shown = memberships.lines().filter_map(|line| line.split(':').nth(2));
    // Hierarchies that are not mounted show their root.
    let shown = shown.find(|path| path.contains("a/b")).unwrap();
    assert_eq!(pids(&sample(profiler_builder(Target::Cgroup(shown.into())), 500)), both, "{shown}");
}

#[test]
fn a_session_ends_when_its_container_ends() {
    let Some(_lock) = run_beside_others() else { return };
    let id = id();
    let container = start(PLACES[0], &id);
    let mut session = profiler_builder(Target::Container(id)).build().unwrap().start().unwrap();
    wait_until("a sample", || {
        assert_eq!(session.wait(Some(Duration::from_millis(20))), Ended::Elapsed);
        (session.progress().samples > 0).then_some(())
    });
    container.end();
    assert_eq!(session.wait(Some(DEADLINE)), Ended::TargetExited);
    let profile = session.stop().unwrap();
    assert!(profile.ledger().adds_up() && profile.total_value() > 0, "{:?}", profile.ledger());
}

#[test]
fn an_unknown_container_is_an_error_that_names_the_searched_files() {
    let Some(_lock) = run_beside_others() else { return };
    let error = profiler_builder(Target::Container(id())).build().unwrap().start().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSuchTarget);
    assert!(error.to_string().contains("/proc/PID/cgroup"), "{error}");
}
