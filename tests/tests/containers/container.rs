//! A container that runs. It ends when this is dropped.

use std::{
    fs,
    path::{Path, PathBuf},
};

use profiler_tests::{Workload, until};

use crate::bundle::{Bundle, Hierarchy, hierarchies};

/// A container whose first process is a workload, or a shell that becomes one.
#[derive(Debug)]
pub(crate) struct Container {
    // Asked to end before what it stands on goes.
    workload: Workload,
    pid: u32,
    bundle: Bundle,
}

impl Container {
    pub(crate) fn start(bundle: Bundle) -> Self {
        let workload = Workload::run(&mut bundle.command());
        Self { workload, pid: bundle.pid(), bundle }
    }

    /// The host's id of its first process.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until it says a line that begins so, and gives back the rest of it.
    pub(crate) fn line(&mut self, beginning: &str) -> String {
        self.workload.wait_for(beginning)
    }

    /// A file of it, as the host reaches it.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        Path::new("/proc").join(self.pid.to_string()).join("root").join(path.trim_start_matches('/'))
    }

    /// The directory above all of its cgroups, in each mounted hierarchy that the profiler can filter by.
    pub(crate) fn cgroups(&self) -> Vec<PathBuf> {
        let hierarchies = hierarchies().into_iter().filter(Hierarchy::can_be_filtered_by);
        let below = self.bundle.cgroups().trim_start_matches('/');
        hierarchies.map(|hierarchy| hierarchy.mount_point.join(below)).filter(|path| path.is_dir()).collect()
    }

    /// The host's ids of all its processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let children = |pid: &u32| {
            let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            text.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>()
        };
        let mut pids = vec![self.pid];
        let mut next = 0;
        while let Some(pid) = pids.get(next) {
            pids.extend(children(pid));
            next += 1;
        }
        pids
    }

    /// Waits for a process of it with this name, and gives the host's id.
    pub(crate) fn wait_for(&self, comm: &str) -> u32 {
        let is_it = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == comm)
        };
        until(comm, || self.pids().into_iter().find(is_it))
    }

    /// Asks it to end, and waits for that.
    pub(crate) fn end(self) {
        let Self { workload, bundle, .. } = self;
        workload.end();
        drop(bundle);
    }
}
