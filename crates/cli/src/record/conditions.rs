//! The conditions of a recorder: those of `--trigger`, and those of a file that is read again at SIGHUP.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context as _, Result, bail};
use profiler_triggers::Condition;
use signal_hook::{consts::SIGHUP, flag};

/// The most bytes of the file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Where the conditions come from.
#[derive(Debug)]
pub(super) struct ConditionSource {
    of_arguments: Vec<Condition>,
    file: Option<PathBuf>,
    /// Whether SIGHUP has arrived.
    hangup: Arc<AtomicBool>,
}

impl ConditionSource {
    /// `file`: conditions line by line.
    ///
    /// # Errors
    /// SIGHUP cannot be handled.
    pub(super) fn new(of_arguments: &[Condition], file: Option<&Path>) -> Result<Self> {
        let hangup = Arc::new(AtomicBool::new(false));
        if file.is_some() {
            flag::register(SIGHUP, Arc::clone(&hangup)).context("failed to listen for SIGHUP")?;
        }
        Ok(Self { of_arguments: of_arguments.to_vec(), file: file.map(Path::to_owned), hangup })
    }

    /// All conditions, with those that the file has now.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not a condition: the message has the line.
    pub(super) fn read(&self) -> Result<Vec<Condition>> {
        let mut conditions = self.of_arguments.clone();
        if let Some(path) = &self.file {
            let failed = || format!("failed to read the conditions of `{}`", path.display());
            let mut text = String::new();
            let file = File::open(path).with_context(failed)?;
            let length = file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).with_context(failed)?;
            if length as u64 > MAX_FILE_BYTES {
                bail!("`{}` has more than {MAX_FILE_BYTES} bytes", path.display());
            }
            conditions.extend(parse(&text).with_context(failed)?);
        }
        Ok(conditions)
    }

    /// Whether SIGHUP has arrived since the last call.
    pub(super) fn is_requested_again(&self) -> bool {
        self.hangup.swap(false, Ordering::Relaxed)
    }
}

/// Parses conditions, one a line. Empty lines and lines that begin with `#` are left out.
fn parse(text: &str) -> Result<Vec<Condition>> {
    let mut conditions = Vec::new();
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if !line.is_empty() && !line.starts_with('#') {
            conditions.push(line.parse().with_context(|| format!("line {number}"))?);
        }
    }
    Ok(conditions)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn texts(conditions: &[Condition]) -> Vec<String> {
        conditions.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_file_is_read_again_and_a_wrong_line_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("conditions");
        fs::write(&path, "# of the shop\n\n  cpu < 20% for 10s\n").unwrap();
        let source = ConditionSource::new(&["exit".parse().unwrap()], Some(&path)).unwrap();
        assert_eq!(texts(&source.read().unwrap()), ["exit", "cpu < 20% for 10s"]);
        assert!(!source.is_requested_again());
        signal_hook::low_level::raise(SIGHUP).unwrap();
        assert!(source.is_requested_again() && !source.is_requested_again());
        fs::write(&path, "rss > 1GB\nrss >\n").unwrap();
        let error = format!("{:#}", source.read().unwrap_err());
        assert!(error.contains("line 2"), "{error}");
        fs::remove_file(&path).unwrap();
        assert!(format!("{:#}", source.read().unwrap_err()).contains("conditions of"));
    }
}
