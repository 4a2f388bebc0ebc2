//! Runs the program that embeds the library, and reads its memory, descriptors and CPU time from outside.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use super::minute::{Account, Minute};
use crate::{project, shell, workspace::cargo};

/// The running program. Dropping it stops it.
pub(super) struct Agent {
    child: Child,
    output: BufReader<ChildStdout>,
    /// User and system time at the end of the last minute.
    cpu: Duration,
}

impl Agent {
    pub(super) fn start(frequency_hz: u64, minutes: u64) -> Result<Self> {
        const SECONDS: u64 = 60;
        shell::run(&mut cargo(&["build", "--locked", "--release", "--package", "profiler-embedder"]))?;
        let mut command = Command::new(project::root().join("target/release/agent"));
        command.args([frequency_hz, SECONDS, minutes].map(|number| number.to_string()));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().context("a child has an output")?);
        Ok(Self { child, output, cpu: Duration::ZERO })
    }

    /// Waits for the next profile and measures the process.
    pub(super) fn minute(&mut self, number: u64) -> Result<Minute> {
        let account = self.account()?;
        let folder = format!("/proc/{}", self.child.id());
        let status = fs::read_to_string(format!("{folder}/status"))?;
        let cpu = cpu_time(&fs::read_to_string(format!("{folder}/stat"))?).context("no CPU time")?;
        let since_before = cpu - std::mem::replace(&mut self.cpu, cpu);
        Ok(Minute {
            number,
            resident_bytes: kibibytes(&status, "VmRSS:").context("no resident memory")?,
            peak_bytes: kibibytes(&status, "VmHWM:").context("no peak of resident memory")?,
            descriptors: fs::read_dir(format!("{folder}/fd"))?.count(),
            cpu: since_before,
            account,
        })
    }

    /// The account of the rest, with which that of the whole session is exact.
    pub(super) fn finish(mut self) -> Result<Account> {
        let account = self.account()?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the program that embeds the library failed: {status}");
        Ok(account)
    }

    fn account(&mut self) -> Result<Account> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the program that embeds the library failed");
        Account::parse(&line).with_context(|| format!("it printed {line:?}"))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It has exited unless the run failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A line of `/proc/PID/status` (proc_pid_status(5)).
fn kibibytes(status: &str, name: &str) -> Option<u64> {
    const BYTES_PER_KIB: u64 = 1024;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * BYTES_PER_KIB)
}

/// `utime` and `stime` of proc_pid_stat(5).
fn cpu_time(stat: &str) -> Option<Duration> {
    /// `USER_HZ`, which is the same on every architecture that the profiler supports.
    const MS_PER_TICK: u64 = 10;
    /// Field 14, counted behind the command, which is field 2 and may contain spaces and parentheses.
    const USER: usize = 11;
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks = fields.split(' ').skip(USER).take(2).map(str::parse::<u64>);
    let ticks = ticks.collect::<Result<Vec<_>, _>>().ok()?;
    Some(Duration::from_millis(ticks.iter().sum::<u64>() * MS_PER_TICK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_cpu_time_are_read_from_proc() {
        assert_eq!(kibibytes("VmHWM:\t  9 kB\nVmRSS:\t    2 kB\n", "VmRSS:"), Some(2048));
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 1 2 3 4 250 50 12 13 20 0 1 0 99";
        assert_eq!(cpu_time(stat), Some(Duration::from_secs(3)));
    }
}
