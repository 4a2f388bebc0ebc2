//! Writes the `/proc` of a simulated node: every process has the modules of this one.

use std::{fmt::Write as _, fs, io, os::unix::fs::symlink, path::Path};

use profiler_processes::{Backing, maps};

use super::Node;

/// The first PID of the processes that run all the time; those that are forked later have the PIDs behind them.
pub(super) const FIRST_PID: u32 = 1_000;

/// Distinct return addresses of all stacks.
const CALL_SITES: usize = 10_000;

const KERNEL_START: u64 = 0xffff_ffff_8100_0000;
const KERNEL_FUNCTIONS: u64 = 10_000;
const KERNEL_FUNCTION_BYTES: u64 = 256;

/// Addresses from which stacks are made.
pub(super) struct CallSites {
    pub(super) user: Vec<u64>,
    pub(super) kernel: Vec<u64>,
}

/// Writes the directory and returns addresses in the modules of its processes.
pub(super) fn write(node: Node, directory: &Path) -> io::Result<CallSites> {
    let common = directory.join("process");
    fs::create_dir_all(common.join("map_files"))?;
    let text = fs::read("/proc/self/maps")?;
    fs::write(common.join("maps"), &text)?;
    fs::copy("/proc/self/status", common.join("status"))?;
    let mut modules = Vec::new();
    for mapping in maps::parse_executable(&text) {
        let Backing::File { path, .. } = &mapping.backing else { continue };
        let (start, end) = (mapping.start.0, mapping.end.0);
        // A copy, because no link in a capture leads out of it.
        fs::copy(&**path, common.join("map_files").join(format!("{start:x}-{end:x}")))?;
        modules.push(start..end);
    }
    for number in 0..node.processes + node.forks_per_second * node.seconds {
        symlink("process", directory.join((FIRST_PID + number).to_string()))?;
    }
    let kernel: Vec<u64> =
        (0..KERNEL_FUNCTIONS).map(|number| KERNEL_START + number * KERNEL_FUNCTION_BYTES).collect();
    let mut symbols = String::new();
    for (number, address) in kernel.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = writeln!(symbols, "{address:x} T kernel_function_{number}");
    }
    fs::write(directory.join("kallsyms"), symbols)?;
    let bytes: u64 = modules.iter().map(|module| module.end - module.start).sum();
    let step = bytes / CALL_SITES as u64;
    let user = modules.into_iter().flat_map(|module| module.step_by(step.max(1) as usize)).collect();
    Ok(CallSites { user, kernel })
}
