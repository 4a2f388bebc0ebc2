//! Parses `/proc/PID/stat`.

/// Times and counts of a process, from `/proc/PID/stat` (proc_pid_stat(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Whether its first thread has exited. The process goes on while others run.
    pub zombie: bool,
    /// CPU time in user mode of all threads, clock ticks (`utime`).
    pub user_ticks: u64,
    /// CPU time in the kernel of all threads, clock ticks (`stime`).
    pub system_ticks: u64,
    /// Threads, a first one that has exited among them; 0 after the end of the process.
    pub threads: u64,
    /// Start time, clock ticks since boot.
    pub start_ticks: u64,
    /// Resident pages. The kernel's counter is inaccurate by some pages per CPU.
    pub resident_pages: u64,
}

impl Stat {
    /// Parses the text of `/proc/PID/stat`; `None` when a field is missing or malformed.
    pub fn parse(text: &str) -> Option<Self> {
        // The second field is the name in parentheses, which can contain parentheses and spaces.
        const FIRST_AFTER_NAME: usize = 3;
        const LAST: usize = 24;
        let (_, after_name) = text.rsplit_once(')')?;
        let fields: Vec<_> = after_name.split_ascii_whitespace().take(LAST - FIRST_AFTER_NAME + 1).collect();
        let field = |position: usize| fields.get(position - FIRST_AFTER_NAME).copied();
        let number = |position: usize| field(position)?.parse::<u64>().ok();
        Some(Self {
            zombie: field(3)?.starts_with(['Z', 'X']),
            user_ticks: number(14)?,
            system_ticks: number(15)?,
            threads: number(20)?,
            start_ticks: number(22)?,
            resident_pages: number(24)?,
        })
    }

    /// Whether all threads have exited.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.zombie && self.threads <= 1
    }

    /// Threads that have not exited.
    #[must_use]
    pub fn living_threads(&self) -> u64 {
        self.threads.saturating_sub(self.zombie.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of a process with a state. The value of each number is that of its field.
    fn text(state: &str) -> String {
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        format!("1 (a) R 9 (b) {state} {}", fields.join(" "))
    }

    #[test]
    fn fields_are_found_after_a_name_with_parentheses() {
        let wanted = Stat {
            zombie: false,
            user_ticks: 14,
            system_ticks: 15,
            threads: 20,
            start_ticks: 22,
            resident_pages: 24,
        };
        assert_eq!(Stat::parse(&text("S")), Some(wanted));
    }

    #[test]
    fn a_process_has_ended_when_all_threads_have() {
        let zombie = Stat::parse(&text("Z")).unwrap();
        assert!(!zombie.has_ended());
        assert_eq!(zombie.living_threads(), 19);
        let ended = Stat::parse(&text("Z").replace(" 20 ", " 1 ")).unwrap();
        assert!(ended.has_ended());
        assert_eq!(ended.living_threads(), 0);
    }

    #[test]
    fn malformed_texts_have_no_values() {
        for malformed in ["", "1 (a", "1 (a) S 1 2", &text("S").replace(" 14 ", " x "), &text("S")[..60]] {
            assert_eq!(Stat::parse(malformed), None, "{malformed}");
        }
    }

    #[test]
    fn the_kernel_text_of_the_own_process_is_parsed() {
        let own = Stat::parse(&std::fs::read_to_string("/proc/self/stat").unwrap()).unwrap();
        assert!(own.resident_pages > 0 && own.living_threads() > 0 && !own.has_ended());
    }
}
