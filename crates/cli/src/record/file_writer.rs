//! Writes the files of a recorder, keeps their number and bytes within limits, and runs the command of `--exec`.

use std::{
    env,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result};
use profiler_profile::{Finding, Profile};
use profiler_profile_formats::{Format, OutputOptions};

use super::file_command::FileCommand;
use crate::{
    arguments::RecordArguments, event_log::EventLog, file_series::FileSeries, output_file::OutputFile,
    saved_profile, shape::ShapeArguments, wrong_arguments::WrongArguments,
};

/// The most profiles that a recorder saves elsewhere: nothing removes them.
const MAX_SAVED_PROFILES: usize = 4;

/// The limits on the files of the series.
#[derive(Clone, Copy, Debug)]
struct Limits {
    files: Option<usize>,
    bytes: Option<u64>,
    /// The most files that are written, also by recorders before this one.
    count: Option<u64>,
}

/// Writes one file after the other.
#[derive(Debug)]
pub(super) struct FileWriter {
    series: FileSeries,
    format: Format,
    options: OutputOptions,
    shape: ShapeArguments,
    limits: Limits,
    command: Option<FileCommand>,
    log: EventLog,
    /// The number of the last file.
    number: u64,
    /// Profiles that were saved in the directory of temporary files.
    saved: usize,
}

impl FileWriter {
    /// Checks the directory and the names, and starts the command of `--exec`.
    ///
    /// # Errors
    /// The names do not form a series, the format is unknown, or no file can be written into the directory.
    pub(super) fn open(arguments: &RecordArguments, log: EventLog) -> Result<Self> {
        let series = FileSeries::parse(&arguments.output).map_err(WrongArguments::new)?;
        let example = series.example();
        let format = match arguments.format {
            Some(format) => format,
            None => Format::from_path(&example).map_err(WrongArguments::new)?,
        };
        let failed = || format!("failed to write into the directory of `{}`", arguments.output.display());
        drop(OutputFile::open(&example).with_context(failed)?);
        let files = series.existing().with_context(failed)?;
        let highest = files.iter().map(|file| file.number()).max().unwrap_or_default();
        let command = arguments.exec.as_deref().map(FileCommand::start).transpose();
        Ok(Self {
            format,
            options: arguments.stacks.options(),
            shape: arguments.view.shape.clone(),
            limits: Limits { files: arguments.keep_files, bytes: arguments.max_disk, count: arguments.count },
            command: command.context("failed to start `sh` for --exec")?,
            log,
            number: highest.max(files.len().try_into().unwrap_or(u64::MAX)),
            series,
            saved: 0,
        })
    }

    /// Whether the files of `--count` have been written.
    pub(super) fn is_complete(&self) -> bool {
        self.limits.count.is_some_and(|count| self.number >= count)
    }

    /// The time since the newest file was written.
    pub(super) fn age_of_newest(&self) -> Option<Duration> {
        let files = self.series.existing().ok()?;
        SystemTime::now().duration_since(files.last()?.modified()).ok()
    }

    /// Writes a profile to the next file. A failure is logged: the next file may be written again. This profile is saved in the
    /// directory of temporary files, if it can be: it is of an incident that does not come again.
    pub(super) fn write(&mut self, profile: &Profile) {
        let number = self.number + 1;
        let path = self.series.path(SystemTime::now(), number);
        match self.write_file(profile, &path) {
            Ok(()) => {
                self.number = number;
                self.log_written(&path, profile.findings());
                self.run_command(&path);
            }
            Err(error) => {
                let action = format!("write `{}`", path.display());
                let saved = self.save(profile).map(|path| format!(": saved as `{}`", path.display()));
                self.log.write_failure(&action, &format!("{error:#}{}", saved.unwrap_or_default()));
            }
        }
        self.retire();
    }

    /// Saves a profile that its file could not take, and returns the path.
    fn save(&mut self, profile: &Profile) -> Option<PathBuf> {
        let may_save = self.saved < MAX_SAVED_PROFILES;
        let path = may_save.then(|| saved_profile::save_in(&env::temp_dir(), profile)).flatten()?;
        self.saved += 1;
        Some(path)
    }

    /// Waits until the command of `--exec` has run for all files.
    pub(super) fn finish(self) -> Result<()> {
        match self.command {
            Some(command) => command.finish().context("failed to wait for the command of --exec"),
            None => Ok(()),
        }
    }

    fn write_file(&self, profile: &Profile, path: &Path) -> Result<()> {
        let profile = self.shape.of(profile);
        let options = OutputOptions { event: Some(profile.event()?), ..self.options };
        let shown = if self.format.is_view() { profile.view() } else { profile.data };
        OutputFile::open(path)?.write(|to| self.format.write_with(&shown, &options, to))?;
        Ok(())
    }

    fn run_command(&mut self, path: &Path) {
        if let Some(command) = &mut self.command
            && let Err(error) = command.run(path)
        {
            self.log.write_failure("run the command of --exec", &error.to_string());
        }
    }

    fn retire(&self) {
        match self.series.retire(self.limits.files, self.limits.bytes) {
            Ok(removed) => removed.iter().for_each(|path| self.log_removed(path)),
            Err(error) => self.log.write_failure("remove old files", &error.to_string()),
        }
    }

    /// Logs a file with the number of findings, and the first one.
    fn log_written(&self, path: &Path, findings: &[Finding]) {
        let (file, count) = (path.to_string_lossy(), findings.len().to_string());
        let first = findings.first().map(ToString::to_string);
        let fields = [("file", Some(&*file)), ("findings", Some(&count)), ("finding", first.as_deref())];
        let fields: Vec<_> = fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        self.log.write("written", &fields);
    }

    fn log_removed(&self, path: &Path) {
        self.log.write("removed", &[("file", &path.to_string_lossy())]);
    }
}
