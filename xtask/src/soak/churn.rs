//! Starts the workloads that change processes, files, stacks and code all the time.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use fs_err as fs;

use super::FREQUENCY_HZ;
use crate::{
    bench::{report::Report, target::Target},
    project, setup, workloads,
};

/// Of a minute: 60 of them have 100,000 processes, 1,000,000 stacks and 50,000 files.
const PROCESSES: u64 = 1_667;
const STACKS: u64 = 16_667;
/// Half of the files.
const EXECUTED_FILES: u64 = 417;
/// The other half.
const LIBRARIES: u64 = 417;
const CODE_MAPPINGS: u64 = 600;

/// More than any run takes; the workloads end when their input is closed.
const SECONDS: &str = "90000";

/// The running workloads. Dropping it stops them.
pub(crate) struct Churn {
    processes: Target,
    libraries: Target,
    code: Target,
    /// Distinct stacks, and a .NET process where its runtime is installed.
    _others: Vec<Target>,
    /// Files are here while they are executed.
    folder: PathBuf,
}

/// The number of processes, libraries and mappings since the start.
pub(crate) struct Done {
    pub(super) processes: u64,
    pub(super) libraries: u64,
    pub(super) mappings: u64,
}

impl Churn {
    pub(crate) fn start() -> Result<Self> {
        let folder = project::root().join("target/soak");
        remove(&folder)?;
        fs::create_dir_all(&folder)?;
        let path = folder.to_str().context("the folder's path is no text")?;
        let start = |name: &str, numbers: &[u64], folder: &[&str]| {
            let mut command = Command::new(workloads::output_folder().join(name));
            command.arg(SECONDS).args(numbers.iter().map(u64::to_string)).args(folder);
            Target::from_command(&mut command).with_context(|| format!("failed to start {name}"))
        };
        let mut others = vec![start("churn_stacks", &[STACKS, FREQUENCY_HZ], &[])?];
        if setup::dotnet_runtime("9.0").exists() {
            others.push(dotnet()?);
        }
        Ok(Self {
            processes: start("churn_processes", &[PROCESSES, EXECUTED_FILES], &[path])?,
            libraries: start("churn_libraries", &[LIBRARIES], &[path])?,
            code: start("churn_code", &[CODE_MAPPINGS], &[])?,
            _others: others,
            folder,
        })
    }

    /// Ends the workloads.
    pub(crate) fn end(&mut self) -> Result<Done> {
        let done = Done {
            processes: turns(&mut self.processes)?,
            libraries: turns(&mut self.libraries)?,
            mappings: turns(&mut self.code)?,
        };
        remove(&self.folder)?;
        Ok(done)
    }
}

/// Removes the folder, which a run that was killed leaves behind.
fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// A .NET process whose runtime sends its methods. It takes what the others leave of a CPU, with few distinct stacks.
fn dotnet() -> Result<Target> {
    let launcher = workloads::output_folder().join("dotnet/run");
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(launcher).args(["9.0", "cpu", SECONDS]).env("PERF_MAP", "0");
    Target::from_command(&mut command).context("failed to start the .NET process")
}

/// Ends a workload that then prints `turns N`.
fn turns(target: &mut Target) -> Result<u64> {
    target.ask_to_end();
    let line = target.line()?;
    let turns = line.trim().strip_prefix("turns ").and_then(|number| number.parse().ok());
    turns.with_context(|| format!("a workload failed, and printed {line:?}"))
}

impl Done {
    /// Checks that the churn is that of so many minutes, less a tenth for a machine that is too slow for the pace: a run that does
    /// not reach it proves nothing.
    pub(super) fn check_pace(&self, minutes: u64, report: &mut Report) {
        for (what, done, each_minute) in [
            ("processes", self.processes, PROCESSES),
            ("libraries", self.libraries, LIBRARIES),
            ("mappings of code", self.mappings, CODE_MAPPINGS),
        ] {
            let least = each_minute * minutes * 9 / 10;
            report.at_least(&format!("churn: {what}"), done as f64, least as f64);
        }
    }
}

/// The distinct stacks that the profiles of so many minutes have to contain.
pub(super) fn least_stacks(minutes: u64) -> u64 {
    STACKS * minutes * 9 / 10
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processes, libraries, mappings } = self;
        let files = processes * EXECUTED_FILES / PROCESSES + libraries;
        write!(
            f,
            "Meanwhile {processes} processes ran, {files} distinct executable files were executed or loaded, and \
             {mappings} mappings of JIT code were made and removed."
        )
    }
}
