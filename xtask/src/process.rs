//! Child processes that end with their owner, and what a process uses by `/proc`.

#![cfg(feature = "commands")]

use std::{
    io::{self, BufRead as _, BufReader},
    ops::{Deref, DerefMut},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use fs_err as fs;

/// A child process. Dropping it ends it.
pub(crate) struct OwnedChild(Child);

impl OwnedChild {
    pub(crate) fn spawn(command: &mut Command) -> io::Result<Self> {
        command.spawn().map(Self)
    }

    /// Starts a child without input, and returns it with its output.
    pub(crate) fn with_output(command: &mut Command) -> Result<(Self, BufReader<ChildStdout>)> {
        let mut child = Self::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
        let output = child.stdout.take().context("a child has an output")?;
        Ok((child, BufReader::new(output)))
    }
}

impl Deref for OwnedChild {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for OwnedChild {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for OwnedChild {
    fn drop(&mut self) {
        // It may have exited by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The next line of an output.
///
/// # Errors
/// If the output has ended.
pub(crate) fn next_line(output: &mut BufReader<ChildStdout>) -> Result<String> {
    let mut line = String::new();
    output.read_line(&mut line)?;
    ensure!(!line.is_empty(), "the program ended");
    Ok(line)
}

/// Waits until `look` finds something, at most for `limit`. After that, `failure` is the error.
pub(crate) fn wait_for<T>(
    limit: Duration,
    failure: &str,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    const POLL: Duration = Duration::from_millis(2);
    let started = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        ensure!(started.elapsed() < limit, "{failure}");
        thread::sleep(POLL);
    }
}

/// The user and system time of all threads of a process since its start.
pub(crate) fn cpu_time(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    times(&stat, USER_TIME).context("no CPU time")
}

/// The user and system time of the children of this process that have ended.
pub(crate) fn cpu_time_of_children() -> Result<Duration> {
    times(&fs::read_to_string("/proc/self/stat")?, USER_TIME + 2).context("no CPU time")
}

/// Field 14 of proc_pid_stat(5), counted behind the command, which is field 2.
const USER_TIME: usize = 11;

/// The sum of a user time and the system time behind it.
fn times(stat: &str, user_time: usize) -> Option<Duration> {
    /// `USER_HZ`, which is the same on every architecture that the profiler supports.
    const MS_PER_TICK: u64 = 10;
    // The command may contain spaces and parentheses.
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks = fields.split(' ').skip(user_time).take(2).map(str::parse::<u64>);
    let ticks = ticks.collect::<Result<Vec<_>, _>>().ok()?;
    Some(Duration::from_millis(ticks.iter().sum::<u64>() * MS_PER_TICK))
}

/// The most resident memory of a process since its start, bytes.
pub(crate) fn peak_bytes(pid: u32) -> Result<u64> {
    memory_bytes(pid, "VmHWM:")
}

/// The resident memory of a process, bytes.
pub(crate) fn resident_bytes(pid: u32) -> Result<u64> {
    memory_bytes(pid, "VmRSS:")
}

/// A line of proc_pid_status(5), in bytes.
fn memory_bytes(pid: u32, name: &str) -> Result<u64> {
    const BYTES_PER_KIB: u64 = 1024;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = number_behind(&status, name).with_context(|| format!("no {name} of process {pid}"))?;
    Ok(kib * BYTES_PER_KIB)
}

/// The number behind a name that begins a line, as in files of proc(5).
pub(crate) fn number_behind(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_cpu_time_are_read_from_proc() {
        assert_eq!(number_behind("VmHWM:\t  9 kB\nVmRSS:\t    2 kB\n", "VmRSS:"), Some(2));
        assert_eq!(number_behind("VmHWM:\t  9 kB\n", "VmRSS:"), None);
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 1 2 3 4 250 50 100 50 20 0 1 0 99";
        assert_eq!(times(stat, USER_TIME), Some(Duration::from_secs(3)));
        assert_eq!(times(stat, USER_TIME + 2), Some(Duration::from_millis(1_500)));
        assert_eq!(times("7 (x", USER_TIME), None);
    }

    #[test]
    fn what_does_not_happen_is_an_error_after_the_limit() {
        let mut turns = 0..3;
        assert_eq!(wait_for(Duration::MAX, "", || Ok(turns.find(|turn| *turn == 2))).unwrap(), 2);
        let error = wait_for(Duration::ZERO, "nothing starts", || Ok(None::<()>)).unwrap_err();
        assert_eq!(error.to_string(), "nothing starts");
    }

    #[test]
    fn a_child_ends_with_its_owner() {
        let (child, mut output) =
            OwnedChild::with_output(Command::new("sh").args(["-c", "echo ready; exec sleep 600"])).unwrap();
        assert_eq!(next_line(&mut output).unwrap(), "ready\n");
        drop(child);
        assert!(next_line(&mut output).is_err(), "its output is closed");
    }
}
