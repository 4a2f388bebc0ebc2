//! Who a process is: `/proc/PID/status` and `/proc/PID/stat`.

/// The parts of `/proc/PID/status` (proc_pid_status(5)) that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Thread group: the process a thread belongs to. The id of the process itself for its first thread.
    pub pid: u32,
    /// The process's id in its own, innermost pid namespace: the one it sees itself, and names its perf map
    /// after.
    pub innermost_pid: u32,
    /// Effective user.
    pub uid: u32,
    /// A kernel thread has no memory of its own.
    pub kernel_thread: bool,
    /// It has ended and waits to be collected.
    pub zombie: bool,
}

impl Status {
    /// Reads the text; `None` without the lines that every process has.
    pub fn parse(text: &str) -> Option<Self> {
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
        let pid = value("Tgid:")?.trim().parse().ok()?;
        let innermost = value("NStgid:")
            .and_then(|ids| ids.split_ascii_whitespace().next_back()?.parse().ok())
            .unwrap_or(pid);
        let uid = value("Uid:")?.split_ascii_whitespace().nth(1)?.parse().ok()?;
        let zombie = value("State:").is_some_and(|state| state.trim_start().starts_with(['Z', 'X']));
        // A process that has ended has no memory either.
        let kernel_thread = !zombie && value("VmSize:").is_none();
        Some(Self { pid, innermost_pid: innermost, uid, kernel_thread, zombie })
    }
}

/// When a process started, in clock ticks since boot: field 22 of `/proc/PID/stat` (proc_pid_stat(5)).
///
/// The second field is the name in parentheses, and may itself hold parentheses and spaces.
pub(crate) fn start_ticks(stat: &str) -> Option<u64> {
    const FIELDS_AFTER_NAME: usize = 22 - 3;
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(FIELDS_AFTER_NAME)?.parse().ok()
}

/// The moment so many clock ticks after boot, nanoseconds since 1970-01-01 UTC.
pub(crate) fn unix_ns(ticks_since_boot: u64) -> u64 {
    const NS_PER_S: u64 = 1_000_000_000;
    let now = |clock| {
        let now = rustix::time::clock_gettime(clock);
        u64::try_from(now.tv_sec).unwrap_or(0) * NS_PER_S + u64::try_from(now.tv_nsec).unwrap_or(0)
    };
    let booted = now(rustix::time::ClockId::Realtime).saturating_sub(now(rustix::time::ClockId::Boottime));
    let tick_ns = NS_PER_S / rustix::param::clock_ticks_per_second().max(1);
    booted.saturating_add(ticks_since_boot.saturating_mul(tick_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tdotnet\nState:\tS (sleeping)\nTgid:\t1019\nPid:\t1021\nUid:\t0\t100000\t0\t0\n\
                          NStgid:\t1019\t7\t1\nVmSize:\t  1000 kB\n";

    #[test]
    fn the_innermost_pid_is_the_last_one() {
        let status = Status::parse(STATUS).unwrap();
        let wanted =
            Status { pid: 1019, innermost_pid: 1, uid: 100_000, kernel_thread: false, zombie: false };
        assert_eq!(status, wanted);
    }

    #[test]
    fn kernel_threads_and_zombies_are_told_apart() {
        let thread = Status::parse(&STATUS.replace("VmSize", "X")).unwrap();
        assert!(thread.kernel_thread && !thread.zombie);
        let zombie =
            Status::parse(&STATUS.replace("VmSize", "X").replace("S (sleeping)", "Z (zombie)")).unwrap();
        assert!(zombie.zombie && !zombie.kernel_thread);
    }

    #[test]
    fn the_start_is_found_behind_a_hostile_name() {
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        let stat = format!("1 (a) R 9 (b) S {}", fields.join(" "));
        assert_eq!(start_ticks(&stat), Some(22));
        assert_eq!(start_ticks("1 (a"), None);
        assert_eq!(start_ticks(""), None);
    }

    #[test]
    fn this_process_started_a_moment_ago() {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let started = std::time::Duration::from_nanos(unix_ns(start_ticks(&stat).unwrap()));
        let ago =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH + started).unwrap_or_default();
        assert!(ago < std::time::Duration::from_secs(3600), "{ago:?}");
    }

    #[test]
    fn nonsense_is_no_status() {
        assert_eq!(Status::parse(""), None);
        assert_eq!(Status::parse("Tgid:\tx\nUid:\t1\n"), None);
    }
}
