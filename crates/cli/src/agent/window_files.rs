//! Writes each window to a file of a directory: `UNIX-SECONDS.profile`, a recording, bounded in bytes.

use std::{
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use anyhow::{Context as _, Result};
use profiler_profile::Profile;

use crate::{file_series::FileSeries, output_file::OutputFile};

const NS_PER_S: u64 = 1_000_000_000;

/// The names: the number is the start of the window, seconds since 1970-01-01 UTC.
const NAME: &str = "%n.profile";

/// The directory and its files.
#[derive(Debug)]
pub(super) struct WindowFiles {
    series: FileSeries,
    max_bytes: u64,
    /// The number of the newest file.
    newest: u64,
}

impl WindowFiles {
    /// Checks that files can be written into the directory.
    ///
    /// # Errors
    /// There is no such directory, or no right to write into it.
    pub(super) fn open(directory: &Path, max_bytes: u64) -> Result<Self> {
        let failed = || {
            let directory = directory.display();
            format!(
                "failed to write into `{directory}`: give an existing directory of your own (--write-dir)"
            )
        };
        let series = FileSeries::parse(&directory.join(NAME)).map_err(anyhow::Error::msg)?;
        drop(OutputFile::open(&series.example()).with_context(failed)?);
        let files = series.existing().with_context(failed)?;
        let newest = files.iter().map(|file| file.number()).max().unwrap_or_default();
        Ok(Self { series, max_bytes, newest })
    }

    /// Writes the file of a window, and removes the oldest files beyond the limit. Returns the path.
    ///
    /// # Errors
    /// The file cannot be written, or an old one not be removed.
    pub(super) fn write(&mut self, window: &Profile) -> io::Result<PathBuf> {
        // Two windows that begin in one second have names in their order.
        let number = (window.header().started_unix_ns / NS_PER_S).max(self.newest + 1);
        let path = self.series.path(SystemTime::UNIX_EPOCH, number);
        OutputFile::open(&path)?.write(|to| window.write_recording(to))?;
        self.newest = number;
        self.series.retire(None, Some(self.max_bytes))?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use profiler_profile::{Header, ProfileBuilder};

    use super::*;

    fn window(unix_seconds: u64) -> Profile {
        let started_unix_ns = unix_seconds * NS_PER_S + 1;
        ProfileBuilder::default().finish(Header { started_unix_ns, ..Header::default() })
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn each_window_has_a_private_file_that_can_be_read() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = WindowFiles::open(directory.path(), u64::MAX).unwrap();
        let path = files.write(&window(1_795_509_000)).unwrap();
        files.write(&window(1_795_509_000)).unwrap();
        // An agent that starts again goes on.
        let mut files = WindowFiles::open(directory.path(), u64::MAX).unwrap();
        files.write(&window(1_795_508_000)).unwrap();
        let expected = ["1795509000.profile", "1795509001.profile", "1795509002.profile"];
        assert_eq!(names(directory.path()), expected);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let read = Profile::read(fs::File::open(path).unwrap()).unwrap();
        assert_eq!(read.header().started_unix_ns, 1_795_509_000 * NS_PER_S + 1);
    }

    #[test]
    fn the_oldest_files_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = WindowFiles::open(directory.path(), u64::MAX).unwrap();
        let bytes = fs::metadata(files.write(&window(1)).unwrap()).unwrap().len();
        let mut files = WindowFiles::open(directory.path(), 3 * bytes).unwrap();
        for second in 2..=9 {
            files.write(&window(second)).unwrap();
        }
        let left = names(directory.path());
        assert!(left.len() <= 3 && left.last().unwrap() == "9.profile", "{left:?}");
    }

    #[test]
    fn a_directory_that_does_not_exist_is_an_error() {
        let error = WindowFiles::open(Path::new("/no/such/directory"), 1).unwrap_err();
        assert!(format!("{error:#}").contains("/no/such/directory"), "{error:#}");
    }
}
