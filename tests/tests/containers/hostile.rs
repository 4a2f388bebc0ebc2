//! Tests that malicious perf maps in containers are rejected.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{chown, symlink},
    path::Path,
    time::{Duration, SystemTime},
};

use profiler::{
    Profile,
    profile::{EventLedger, Reason},
};
use profiler_tests::{FoldedStacks, run_beside_others, sample, sample_pid};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::{container::Container, container_builder::ContainerBuilder, namespaces::start_nested};

/// A function name that must not be accepted.
const FORGED_NAME: &str = "stolen";

/// The path of the perf map that the runtime itself would write.
const MAP: &str = "/tmp/perf-1.map";

/// Samples of each target.
const SAMPLES: u64 = 500;

fn start() -> Container {
    ContainerBuilder::workload("jit-static", &["300", "none"]).start()
}

/// A perf map that names all JIT code of a process.
fn forged_perf_map(pid: u32) -> String {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut lines = maps.lines().map(str::trim_end);
    let jit_mapping = lines.find(|line| line.ends_with(" r-xp 00000000 00:00 0")).expect("JIT code");
    let (start, end) = jit_mapping.split_once(' ').unwrap().0.split_once('-').unwrap();
    let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
    format!("{start:x} {:x} {FORGED_NAME}\n", end - start)
}

fn unsymbolized(ledger: &EventLedger, reason: Reason) -> u64 {
    ledger.unsymbolized.iter().filter(|(unnamed, _)| unnamed.reason == reason).map(|(_, count)| count).sum()
}

fn forged_percent(profile: &Profile) -> f64 {
    FoldedStacks::from_profile(profile).percent(|stack| stack.has(FORGED_NAME))
}

fn assert_rejected(pid: u32, reason: Reason, what: &str) {
    let profile = sample(sample_pid(pid), SAMPLES);
    assert_eq!(forged_percent(&profile), 0.0, "{what}: {:?}", profile.ledger());
    let rejected = unsymbolized(profile.first_ledger(), reason);
    assert!(rejected > SAMPLES * 9 / 10, "{what}: {rejected} in {:?}", profile.ledger());
}

#[test]
fn the_forged_perf_map_is_accepted_from_the_target_itself() {
    let Some(_lock) = run_beside_others() else { return };
    let container = start();
    fs::write(container.file(MAP), forged_perf_map(container.pid())).unwrap();
    assert!(forged_percent(&sample(sample_pid(container.pid()), SAMPLES)) > 90.0);
}

#[test]
fn a_symbolic_link_out_of_the_root_is_not_followed() {
    let Some(_lock) = run_beside_others() else { return };
    let container = start();
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::write(outside.path(), forged_perf_map(container.pid())).unwrap();
    let up = Path::new("../../../../../..").join(outside.path().strip_prefix("/").unwrap());
    for way in [outside.path(), &up] {
        symlink(way, container.file(MAP)).unwrap();
        assert_rejected(container.pid(), Reason::NoJitMap, &way.display().to_string());
        fs::remove_file(container.file(MAP)).unwrap();
    }
}

#[test]
fn magic_links_and_procfs_files_are_rejected() {
    let Some(_lock) = run_beside_others() else { return };
    let container = start();
    fs::write(container.file("/tmp/forged"), forged_perf_map(container.pid())).unwrap();
    // The second path would block as long as the kernel has no message.
    for way in ["/proc/1/root/tmp/forged", "/proc/kmsg", "/proc/1/maps"] {
        symlink(way, container.file(MAP)).unwrap();
        assert_rejected(container.pid(), Reason::JitMapRefused, way);
        fs::remove_file(container.file(MAP)).unwrap();
    }
}

#[test]
fn a_perf_map_that_is_not_a_regular_file_is_rejected() {
    let Some(_lock) = run_beside_others() else { return };
    let container = start();
    let map = container.file(MAP);
    let node = |kind, device| mknodat(CWD, &map, kind, Mode::RUSR | Mode::WUSR, device);
    let make: [(&str, &dyn Fn() -> io::Result<()>); 3] = [
        ("a FIFO", &|| Ok(node(FileType::Fifo, 0)?)),
        ("/dev/zero", &|| Ok(node(FileType::CharacterDevice, makedev(1, 5))?)),
        ("a directory", &|| fs::create_dir(&map)),
    ];
    for (what, make) in make {
        make().unwrap();
        assert_rejected(container.pid(), Reason::JitMapRefused, what);
        fs::remove_dir(&map).or_else(|_| fs::remove_file(&map)).unwrap();
    }
}

#[test]
fn the_perf_map_of_another_process_1_in_the_same_folder_is_rejected() {
    let Some(_lock) = run_beside_others() else { return };
    const HOUR: Duration = Duration::from_secs(3600);
    const OTHER_USER: u32 = 1000;
    let (container, pid) = start_nested("none");
    fs::write(container.file(MAP), forged_perf_map(pid)).unwrap();
    let map = File::options().write(true).open(container.file(MAP)).unwrap();
    map.set_modified(SystemTime::now() - HOUR).unwrap();
    assert_rejected(pid, Reason::JitMapRefused, "older than the process");
    map.set_modified(SystemTime::now()).unwrap();
    chown(container.file(MAP), Some(OTHER_USER), None).unwrap();
    assert_rejected(pid, Reason::JitMapRefused, "of another user");
}
