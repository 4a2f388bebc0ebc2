//! Starts a container and gives access to its output, files, processes and cgroups.

use std::{
    fs,
    path::{Path, PathBuf},
};

use profiler_tests::{Workload, wait_until};

use crate::bundle::{Bundle, Hierarchy, hierarchies};

/// A running container whose first process is a workload, or a shell that executes one. Dropping it ends the
/// container.
#[derive(Debug)]
pub(crate) struct Container {
    // The first field: it is dropped before the bundle that it uses.
    workload: Workload,
    pid: u32,
    bundle: Bundle,
}

impl Container {
    pub(crate) fn start(bundle: Bundle) -> Self {
        let workload = Workload::run(&mut bundle.command());
        Self { workload, pid: bundle.pid(), bundle }
    }

    /// The host's pid of the first process.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for a line of output with this prefix and returns the rest of the line.
    pub(crate) fn line(&mut self, beginning: &str) -> String {
        self.workload.wait_for(beginning)
    }

    /// The host's path of a file in the container.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        Path::new("/proc").join(self.pid.to_string()).join("root").join(path.trim_start_matches('/'))
    }

    /// The parent directory of its cgroups, in each mounted hierarchy that the profiler can filter by.
    pub(crate) fn cgroups(&self) -> Vec<PathBuf> {
        let hierarchies = hierarchies().into_iter().filter(Hierarchy::can_be_filtered_by);
        let below = self.bundle.cgroups().trim_start_matches('/');
        hierarchies.map(|hierarchy| hierarchy.mount_point.join(below)).filter(|path| path.is_dir()).collect()
    }

    /// Gives its cgroups the largest weight, so that other load does not keep it from its CPU quota.
    pub(crate) fn precede_others(&self) {
        /// The files of cgroup versions 1 and 2, with the largest weights (kernel/sched/sched.h, include/linux/cgroup.h).
        const LARGEST_WEIGHTS: [(&str, &str); 2] = [("cpu.shares", "262144"), ("cpu.weight", "10000")];
        for (name, weight) in LARGEST_WEIGHTS {
            let files = self.cgroups().into_iter().map(|directory| directory.join(name));
            files.filter(|file| file.exists()).for_each(|file| fs::write(file, weight).unwrap());
        }
    }

    /// The host's pids of all processes in the container.
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

    /// Waits for a process with this name in the container and returns the host's pid.
    pub(crate) fn wait_for(&self, comm: &str) -> u32 {
        let is_it = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == comm)
        };
        wait_until(comm, || self.pids().into_iter().find(is_it))
    }

    /// Closes the input of the first process and waits until the container ends.
    pub(crate) fn end(self) {
        let Self { workload, bundle, .. } = self;
        workload.end();
        drop(bundle);
    }
}
