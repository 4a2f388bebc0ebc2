//! Parses `/proc/PID/status` and the start time in `/proc/PID/stat`.

use profiler_addresses::MonotonicTime;
use rustix::time::ClockId;

#[cfg(fuzzing)]
use crate::Stat;
use crate::{
    Pid,
    clock::{NS_PER_S, monotonic_time, nanoseconds_of},
};

/// Ids and state of a process, from `/proc/PID/status` (proc_pid_status(5)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Thread group id (`Tgid`): the id of the process.
    pub pid: Pid,
    /// The process id in the innermost PID namespace of the process (last number of `NStgid`). `getpid` returns this id,
    /// and the name of the process's perf map contains it.
    pub innermost_pid: u32,
    /// Effective user id.
    pub uid: u32,
    /// Whether it is a kernel thread, which has no address space.
    pub kernel_thread: bool,
    /// Whether its first thread has exited. The process goes on while others run; else its parent has not yet waited
    /// for it.
    pub zombie: bool,
    /// Threads, a first one that has exited among them.
    pub threads: u32,
}

impl Status {
    /// Parses the text of `/proc/PID/status`; `None` when the `Tgid` or `Uid` line is missing or malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
        let pid = Pid(value("Tgid:")?.trim().parse().ok()?);
        let innermost = value("NStgid:")
            .and_then(|ids| ids.split_ascii_whitespace().next_back()?.parse().ok())
            .unwrap_or(pid.0);
        let uid = value("Uid:")?.split_ascii_whitespace().nth(1)?.parse().ok()?;
        let zombie = value("State:").is_some_and(|state| state.trim_start().starts_with(['Z', 'X']));
        // The status of a zombie has no `VmSize` line either.
        let kernel_thread = !zombie && value("VmSize:").is_none();
        let threads = value("Threads:").and_then(|threads| threads.trim().parse().ok()).unwrap_or(1);
        Some(Self { pid, innermost_pid: innermost, uid, kernel_thread, zombie, threads })
    }

    /// Threads that have not exited.
    #[must_use]
    pub fn living_threads(&self) -> u32 {
        self.threads.saturating_sub(self.zombie.into())
    }
}

/// The start time of a process, in clock ticks since boot: field 22 of `/proc/PID/stat` (proc_pid_stat(5)).
///
/// The second field is the thread name in parentheses. The name can contain parentheses and spaces.
pub(crate) fn parse_start_ticks(stat: &str) -> Option<u64> {
    const FIELDS_AFTER_NAME: usize = 22 - 3;
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(FIELDS_AFTER_NAME)?.parse().ok()
}

/// The process id of the parent: field 4 of `/proc/PID/stat`.
pub(crate) fn parse_parent(stat: &str) -> Option<Pid> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(4 - 3)?.parse().ok().map(Pid)
}

/// The address at which the stack of the first thread begins: field 28 of `/proc/PID/stat`. An exec chooses it at random, a fork
/// keeps it. 0 without the permission to read it.
pub(crate) fn parse_stack_start(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(28 - 3)?.parse().ok()
}

/// The time, and nanoseconds since 1970-01-01 UTC, at the same moment.
pub(crate) fn now() -> (MonotonicTime, u64) {
    (monotonic_time(), nanoseconds_of(ClockId::Realtime))
}

/// Converts clock ticks since boot to nanoseconds since 1970-01-01 UTC.
pub(crate) fn ticks_to_unix_ns(ticks_since_boot: u64) -> u64 {
    let booted = nanoseconds_of(ClockId::Realtime).saturating_sub(nanoseconds_of(ClockId::Boottime));
    let tick_ns = NS_PER_S / rustix::param::clock_ticks_per_second().max(1);
    booted.saturating_add(ticks_since_boot.saturating_mul(tick_ns))
}

/// Parses the same text as `/proc/PID/status` and as `/proc/PID/stat`.
#[cfg(fuzzing)]
pub fn parse_any(text: &str) {
    if let Some(status) = Status::parse(text) {
        assert!(status.living_threads() <= status.threads);
    }
    if let Some(stat) = Stat::parse(text) {
        assert!(stat.living_threads() <= stat.threads);
        assert_eq!(parse_start_ticks(text), Some(stat.start_ticks));
    }
    if let Some(ticks) = parse_start_ticks(text) {
        let _ = ticks_to_unix_ns(ticks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tdotnet\nState:\tS (sleeping)\nTgid:\t1019\nPid:\t1021\nUid:\t0\t100000\t0\t0\n\
                          NStgid:\t1019\t7\t1\nVmSize:\t  1000 kB\nThreads:\t3\n";

    #[test]
    fn the_parent_and_the_stack_are_found_after_a_name_with_parentheses() {
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        let stat = format!("1 (a) R 9 (b) S {}", fields.join(" "));
        assert_eq!((parse_parent(&stat), parse_stack_start(&stat)), (Some(Pid(4)), Some(28)));
        assert_eq!((parse_parent("1 (a"), parse_stack_start("1 (a) S 1 2")), (None, None));
    }

    #[test]
    fn the_innermost_pid_is_the_last_one() {
        let status = Status::parse(STATUS).unwrap();
        let wanted = Status {
            pid: Pid(1019),
            innermost_pid: 1,
            uid: 100_000,
            kernel_thread: false,
            zombie: false,
            threads: 3,
        };
        assert_eq!(status, wanted);
        assert_eq!(status.living_threads(), 3);
    }

    #[test]
    fn kernel_threads_and_zombies_are_distinguished() {
        let thread = Status::parse(&STATUS.replace("VmSize", "X")).unwrap();
        assert!(thread.kernel_thread && !thread.zombie);
        let zombie =
            Status::parse(&STATUS.replace("VmSize", "X").replace("S (sleeping)", "Z (zombie)")).unwrap();
        assert!(zombie.zombie && !zombie.kernel_thread);
        assert_eq!(zombie.living_threads(), 2);
    }

    #[test]
    fn the_start_time_is_found_after_a_name_with_parentheses() {
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        let stat = format!("1 (a) R 9 (b) S {}", fields.join(" "));
        assert_eq!(parse_start_ticks(&stat), Some(22));
        assert_eq!(parse_start_ticks("1 (a"), None);
        assert_eq!(parse_start_ticks(""), None);
    }

    #[test]
    fn the_start_time_of_the_own_process_is_less_than_an_hour_ago() {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let started = std::time::Duration::from_nanos(ticks_to_unix_ns(parse_start_ticks(&stat).unwrap()));
        let age =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH + started).unwrap_or_default();
        assert!(age < std::time::Duration::from_secs(3600), "{age:?}");
    }

    #[test]
    fn text_without_the_required_lines_is_rejected() {
        assert_eq!(Status::parse(""), None);
        assert_eq!(Status::parse("Tgid:\tx\nUid:\t1\n"), None);
    }
}
