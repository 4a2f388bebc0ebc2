//! The files that runtimes write to `/tmp` and leave there when their process is killed. Process ids are given again after
//! `/proc/sys/kernel/pid_max` processes, 32,768 on a small machine: the next process with the id would seem to have written them.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

const FOLDER: &str = "/tmp";

/// File systems take times from a clock that advances with the kernel's ticks, at least once in 10 ms. No id is given twice within
/// a second.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

/// Removes the files of an earlier process with this id, where the process with it now was started at this time.
pub(crate) fn remove_older(pid: u32, start: SystemTime) {
    let is_older = |path: &PathBuf| {
        let modified = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
        modified.is_ok_and(|modified| modified + CLOCK_TOLERANCE < start)
    };
    runtime_files(pid).into_iter().filter(is_older).for_each(remove);
}

/// Removes the files of a process that has ended.
pub(crate) fn remove_all(pid: u32) {
    runtime_files(pid).into_iter().for_each(remove);
}

/// Perf maps, and the sockets and pipes by which .NET is diagnosed and debugged, whose names also contain the start of the process.
fn runtime_files(pid: u32) -> Vec<PathBuf> {
    let starts = [
        format!("perf-{pid}.map"),
        format!("perfinfo-{pid}.map"),
        format!("dotnet-diagnostic-{pid}-"),
        format!("clr-debug-pipe-{pid}-"),
    ];
    let is_its = |name: &str| starts.iter().any(|start| name.starts_with(start));
    let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| is_its(name)).map(|name| Path::new(FOLDER).join(name)).collect()
}

fn remove(path: PathBuf) {
    // Another test's process can have removed it.
    let _ = fs::remove_file(path);
}
