//! What all scenarios share: the machine, the profilers, how many runs and how long they are.

use std::{path::PathBuf, process::Command, time::Duration};

use anyhow::Result;

use super::{
    report::Report,
    run::{self, End, Run},
    tool::Tool,
};

/// Settings of all measurements.
pub(super) struct Setting {
    pub(super) machine: String,
    pub(super) runs: usize,
    /// Runs for a mean and a standard deviation.
    pub(super) runs_of_spread: usize,
    pub(super) seconds: Option<u64>,
    pub(super) is_quick: bool,
    /// The profiler first, with its defaults and with frame pointers alone.
    pub(super) tools: Vec<Tool>,
    pub(super) profiler: PathBuf,
    /// The folder for recordings and outputs.
    pub(super) folder: PathBuf,
}

impl Setting {
    /// A report that begins with the machine and with how it was measured.
    pub(super) fn report(&self, how: &str) -> Report {
        Report::new(&format!("Measured on {}, {how}.", self.machine))
    }

    /// The profiler, to sample for a time.
    pub(super) fn profiler(&self, seconds: u64) -> Command {
        let mut command = Command::new(&self.profiler);
        command.args(["-d", &seconds.to_string()]);
        command
    }

    /// Runs a command that samples for a time, and measures it. The file `NAME.output` in the folder has what it prints.
    pub(super) fn measure(&self, command: &mut Command, seconds: u64, name: &str) -> Result<Run> {
        let output = self.folder.join(name).with_extension("output");
        run::measure(command, Duration::from_secs(seconds), End::Itself, &output)
    }

    /// The sampling time of a measurement whose regular time is `seconds`.
    pub(super) fn seconds(&self, seconds: u64) -> u64 {
        const QUICK: u64 = 2;
        self.seconds.unwrap_or(if self.is_quick { QUICK } else { seconds })
    }
}
