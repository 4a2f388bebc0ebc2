//! Ids of threads in the pid namespaces of their processes.

use crate::{ProcFs, Process, Tid};

/// The id of a thread in the innermost pid namespace of its process. `None` is a thread of a container that has ended.
pub fn thread_in_namespace(proc: &ProcFs, process: &Process, tid: Tid) -> Option<u32> {
    let status = &process.identity.as_ref()?.status;
    if status.innermost_pid == process.pid.0 {
        return Some(tid.0);
    }
    let text = proc.read(process.pid, &format!("task/{tid}/status")).ok()?;
    innermost_tid(&String::from_utf8_lossy(&text))
}

/// The last number of `NSpid` (proc_pid_status(5)).
pub fn innermost_tid(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_ascii_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_id_of_a_thread_is_the_last_one() {
        assert_eq!(innermost_tid("Name:\tx\nPid:\t9\nNSpid:\t4242\t17\t3\n"), Some(3));
        assert_eq!(innermost_tid("NSpid:\t4242\n"), Some(4242));
        for text in ["", "NSpid:\n", "NSpid:\tx\n"] {
            assert_eq!(innermost_tid(text), None, "{text}");
        }
    }
}
