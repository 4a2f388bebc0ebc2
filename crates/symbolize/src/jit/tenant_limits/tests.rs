//! Tests of how containers share the listeners and the memory of a session.

use std::{fs, os::unix::net::UnixListener, sync::Arc, time::Duration};

use profiler_addresses::{MonotonicTime, RuntimeAddress};
use profiler_dotnet_diagnostics::{MemoryBudget, RuntimeProcess, SIMULATED_SOCKET_NAME};
use profiler_processes::root_directory::RootDirectory;

use super::*;
use crate::jit::JitProcess;

/// A container, with a directory as its root.
struct Container(tempfile::TempDir);

impl Container {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> RootDirectory {
        RootDirectory::open(self.0.path()).unwrap()
    }

    fn process(&self, namespace_pid: u32, runtime: Option<RuntimeNames>) -> JitNames {
        let uid = rustix::process::geteuid().as_raw();
        let process = JitProcess { namespace_pid, uid, started_unix_ns: 0, environ: &[] };
        JitNames::with_runtime(&process, Some(Arc::new(self.root())), runtime, Arc::default())
    }

    fn process_with_runtime(&self) -> JitNames {
        let runtime = RuntimeProcess::simulated(self.root());
        self.process(1, Some(RuntimeNames::new(runtime, MemoryBudget::default())))
    }

    fn process_with_map(&self, namespace_pid: u32, map: &str) -> JitNames {
        let directory = self.0.path().join("tmp");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("perf-{namespace_pid}.map")), map).unwrap();
        self.process(namespace_pid, None)
    }
}

fn references(all: &mut [JitNames]) -> Vec<&mut JitNames> {
    all.iter_mut().collect()
}

#[test]
fn a_container_with_many_runtimes_leaves_listeners_for_other_containers() {
    let [hostile, honest] = [Container::new(), Container::new()];
    let sockets = [&hostile, &honest]
        .map(|container| UnixListener::bind(container.0.path().join(SIMULATED_SOCKET_NAME)).unwrap());
    let listening = |all: &[JitNames]| all.iter().filter(|names| names.is_listening()).count();

    let mut all: Vec<JitNames> = (0..MAX_LISTENERS).map(|_| hostile.process_with_runtime()).collect();
    start_listeners(&mut references(&mut all));
    assert_eq!(listening(&all), MAX_LISTENERS / 2);

    all.push(honest.process_with_runtime());
    start_listeners(&mut references(&mut all));
    assert!(all.last().unwrap().is_listening());
    assert_eq!(listening(&all), MAX_LISTENERS / 2 + 1);
    // This resets the connections, so that no listener waits for a reply.
    drop(sockets);
}

#[test]
fn the_maps_of_one_container_leave_memory_for_those_of_other_containers() {
    const MAX_BYTES: usize = 16 << 20;
    const MAX_EXCESS_BYTES: usize = 1 << 20;
    const LAST_LINE: u64 = 500;
    let name = "f".repeat(4_000);
    let map: String = (0..=LAST_LINE).map(|line| format!("{:x} 10 {name}\n", 16 * line)).collect();
    let has_last_line =
        |names: &JitNames| names.lookup(RuntimeAddress(16 * LAST_LINE), MonotonicTime(20)).is_ok();
    let poll = |all: &mut [JitNames]| {
        poll_in_turns(
            references(all),
            MonotonicTime(10),
            MAX_BYTES,
            Instant::now() + Duration::from_secs(60),
        );
    };
    let [hostile, honest] = [Container::new(), Container::new()];

    let mut all: Vec<JitNames> = (1..=9).map(|pid| hostile.process_with_map(pid, &map)).collect();
    poll(&mut all);
    let hostile_bytes: usize = all.iter().map(JitNames::memory_bytes).sum();
    assert!(hostile_bytes < MAX_BYTES / 2 + MAX_EXCESS_BYTES, "{hostile_bytes}");
    assert!(!all.iter().all(has_last_line), "the maps are larger than the share of their container");

    all.push(honest.process_with_map(1, &map));
    poll(&mut all);
    assert!(all.last().is_some_and(has_last_line));
}
