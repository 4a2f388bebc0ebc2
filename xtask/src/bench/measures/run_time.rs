//! Reads the run time of BPF programs from kernel statistics, which exist while `kernel.bpf_stats_enabled` is 1.

use std::{path::Path, time::Duration};

use fs_err as fs;

use crate::process::number_behind;

/// The run time of the BPF programs that process `pid` has open. `None` if it has none open.
pub(crate) fn of_process(pid: u32) -> Option<Duration> {
    let folder = Path::new("/proc").join(pid.to_string()).join("fdinfo");
    let files = fs::read_dir(folder).ok()?.flatten();
    let mut programs: Vec<(u64, u64)> =
        files.filter_map(|file| program(&fs::read_to_string(file.path()).ok()?)).collect();
    // A program may be open more than once.
    programs.sort_unstable();
    programs.dedup();
    let sum = programs.iter().map(|(_, run_time_ns)| run_time_ns).sum();
    (!programs.is_empty()).then_some(Duration::from_nanos(sum))
}

/// Id and run time of the program of a file descriptor.
fn program(fdinfo: &str) -> Option<(u64, u64)> {
    Some((number_behind(fdinfo, "prog_id:")?, number_behind(fdinfo, "run_time_ns:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_file_descriptors_of_bpf_programs_have_a_run_time() {
        let text = "pos:\t0\nprog_type:\t7\nprog_id:\t12\nrun_time_ns:\t3456\nrun_cnt:\t7\n";
        assert_eq!(program(text), Some((12, 3456)));
        assert_eq!(program("pos:\t0\nlink_type:\tperf\nprog_id:\t12\n"), None);
    }
}
