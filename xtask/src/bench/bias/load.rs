//! Starts threads that sleep and compute in turns, with so much to compute that a quarter of the machine is busy.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use fs_err as fs;

use crate::{
    bench::target::{SECONDS, Target, cpu_time},
    process::wait_for,
    workloads,
};

/// The share of the CPUs that the threads use.
const BUSY: f64 = 0.25;

/// A load and the frequency at which it is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) sleep_ms: u64,
    pub(super) threads: u64,
    /// Timer slack in nanoseconds; 0 leaves the kernel's default of 50 us.
    pub(super) slack_ns: u64,
    pub(super) frequency_hz: u64,
}

/// The running workload.
pub(super) struct Sleepers {
    target: Target,
}

impl Sleepers {
    /// Starts the threads, each with `steps` of computing between two sleeps.
    pub(super) fn start(load: &Load, steps: u64) -> Result<Self> {
        const LIMIT: Duration = Duration::from_secs(10);
        let arguments = [load.threads, load.sleep_ms * 1_000, steps, load.slack_ns];
        let mut command = Command::new(workloads::output_folder().join("sleepers"));
        let arguments = arguments.map(|number| number.to_string());
        let target = Target::from_command(command.arg(SECONDS).args(&arguments))?;
        let tasks = format!("/proc/{}/task", target.pid());
        wait_for(LIMIT, "the threads of the workload do not start", || {
            Ok((fs::read_dir(&tasks)?.count() as u64 > load.threads).then_some(()))
        })?;
        Ok(Self { target })
    }

    pub(super) fn pid(&self) -> u32 {
        self.target.pid()
    }

    /// The CPU time of its threads, by the scheduler.
    pub(super) fn cpu_time(&self) -> Result<Duration> {
        cpu_time(self.pid())
    }
}

/// The steps with which the threads use a quarter of all CPUs, found by trying. With many short sleeps, going to sleep and
/// waking takes more than that by itself.
pub(super) fn steps_for_a_quarter(load: &Load) -> Result<u64> {
    const TRIES: u32 = 5;
    const TRIAL: Duration = Duration::from_millis(500);
    const TOLERANCE: f64 = 0.15;
    /// Of one step, a multiplication that waits for the one before.
    const GUESSED_NANOSECONDS: f64 = 1.2;
    let cpus = thread::available_parallelism()?.get() as f64;
    let guess_ns = BUSY * cpus * load.sleep_ms as f64 * 1e6 / load.threads as f64;
    let mut steps = guess_ns / GUESSED_NANOSECONDS;
    for _ in 0..TRIES {
        let sleepers = Sleepers::start(load, steps as u64)?;
        let (before, started) = (sleepers.cpu_time()?, Instant::now());
        thread::sleep(TRIAL);
        let used = (sleepers.cpu_time()? - before).as_secs_f64();
        let busy = used / started.elapsed().as_secs_f64() / cpus;
        if (busy / BUSY - 1.0).abs() < TOLERANCE || steps < 2.0 {
            break;
        }
        steps = (steps * BUSY / busy).max(1.0);
    }
    Ok(steps as u64)
}
