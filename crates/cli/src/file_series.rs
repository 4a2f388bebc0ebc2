//! The files that a service writes one after the other: their names, and the limits on their number and bytes.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use jiff::Timestamp;

/// The times in names: `20261124T083000Z`.
const TIME_FORMAT: &str = "%Y%m%dT%H%M%SZ";

/// Files with names of one pattern, in one directory.
#[derive(Clone, Debug)]
pub(super) struct FileSeries {
    directory: PathBuf,
    parts: Vec<NamePart>,
}

/// A part of a file name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NamePart {
    Text(String),
    /// `%t`: the time of the incident, UTC.
    Time,
    /// `%n`: the number of the file in the series, from 1 on.
    Number,
}

/// A file of the series.
#[derive(Clone, Debug)]
pub(super) struct WrittenFile {
    path: PathBuf,
    bytes: u64,
    modified: SystemTime,
    /// The number in the name; 0 where names have no number.
    number: u64,
}

impl FileSeries {
    /// Parses a path with `%t` (time, UTC), `%n` (number) and `%%` (a percent sign) in the name of the file.
    ///
    /// # Errors
    /// A name that is the same for each file, an unknown letter after `%`, or a name that is not UTF-8.
    pub(super) fn parse(path: &Path) -> Result<Self, String> {
        let name = path.file_name().and_then(OsStr::to_str);
        let name = name.ok_or_else(|| format!("`{}` has no file name in UTF-8", path.display()))?;
        if name.contains(char::is_control) {
            return Err("the file name contains a control character".to_owned());
        }
        let parts = parse_name(name)?;
        if parts.iter().all(|part| matches!(part, NamePart::Text(_))) {
            return Err(format!(
                "`{name}` names one file, and each recording would replace the one before: add %t (time) or %n (number)"
            ));
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok(Self { directory: parent.unwrap_or(Path::new(".")).to_owned(), parts })
    }

    /// The path of a file.
    pub(super) fn path(&self, time: SystemTime, number: u64) -> PathBuf {
        let mut name = String::new();
        for part in &self.parts {
            match part {
                NamePart::Text(text) => name.push_str(text),
                NamePart::Time => name.push_str(&format_time(time)),
                NamePart::Number => name.push_str(&number.to_string()),
            }
        }
        self.directory.join(name)
    }

    /// A path whose extension is that of each file.
    pub(super) fn example(&self) -> PathBuf {
        self.path(SystemTime::UNIX_EPOCH, 1)
    }

    /// The files of the series that exist, oldest first: also those of a process that ended before.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(super) fn existing(&self) -> io::Result<Vec<WrittenFile>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(number) = name.to_str().and_then(|name| self.number_of(name)) else { continue };
            // A file that is removed meanwhile is no error.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_file() {
                let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                files.push(WrittenFile { path: entry.path(), bytes: metadata.len(), modified, number });
            }
        }
        files.sort_by_key(|file| (file.modified, file.number));
        Ok(files)
    }

    /// Removes the oldest files until at most `max_files` with at most `max_bytes` remain. The newest one remains always.
    /// Returns the paths of the removed files.
    ///
    /// # Errors
    /// The directory cannot be read, or a file cannot be removed.
    pub(super) fn retire(
        &self,
        max_files: Option<usize>,
        max_bytes: Option<u64>,
    ) -> io::Result<Vec<PathBuf>> {
        let files = self.existing()?;
        let mut removed = Vec::new();
        let mut left = files.len();
        let mut bytes: u64 = files.iter().map(|file| file.bytes).sum();
        for file in files {
            let is_over = max_files.is_some_and(|max| left > max) || max_bytes.is_some_and(|max| bytes > max);
            if left <= 1 || !is_over {
                break;
            }
            fs::remove_file(&file.path)?;
            left -= 1;
            bytes -= file.bytes;
            removed.push(file.path);
        }
        Ok(removed)
    }

    /// The number in a name of the series (0 where names have no number); `None` for other names.
    fn number_of(&self, name: &str) -> Option<u64> {
        let mut rest = name;
        let mut number = 0;
        for part in &self.parts {
            let length = match part {
                NamePart::Text(text) => rest.starts_with(text.as_str()).then_some(text.len())?,
                NamePart::Time => time_length(rest)?,
                NamePart::Number => {
                    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
                    number = rest[..digits].parse().ok()?;
                    digits
                }
            };
            rest = &rest[length..];
        }
        rest.is_empty().then_some(number)
    }
}

impl WrittenFile {
    /// When the file was written.
    pub(super) fn modified(&self) -> SystemTime {
        self.modified
    }

    /// The number in its name; 0 where names have no number.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

fn parse_name(name: &str) -> Result<Vec<NamePart>, String> {
    let mut parts = Vec::new();
    let mut text = String::new();
    let mut letters = name.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        let part = match letters.next() {
            Some('%') => {
                text.push('%');
                continue;
            }
            Some('t') => NamePart::Time,
            Some('n') => NamePart::Number,
            _ => {
                return Err(format!(
                    "`{name}`: only %t (time), %n (number) and %% may follow a percent sign"
                ));
            }
        };
        if text.is_empty() && !parts.is_empty() {
            return Err(format!("`{name}`: put text between the time and the number"));
        }
        parts.push(NamePart::Text(std::mem::take(&mut text)));
        parts.push(part);
    }
    parts.push(NamePart::Text(text));
    Ok(parts)
}

/// `20261124T083000Z`.
pub(super) fn format_time(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    time.strftime(TIME_FORMAT).to_string()
}

/// The length of the time at the beginning of a text.
fn time_length(text: &str) -> Option<usize> {
    const SHAPE: &[u8] = b"00000000T000000Z";
    let bytes = text.as_bytes().get(..SHAPE.len())?;
    let fits = |(byte, shape): (&u8, &u8)| if *shape == b'0' { byte.is_ascii_digit() } else { byte == shape };
    bytes.iter().zip(SHAPE).all(fits).then_some(SHAPE.len())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn series(directory: &Path, name: &str) -> FileSeries {
        FileSeries::parse(&directory.join(name)).unwrap()
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Writes a file of the series that is `age_seconds` old.
    fn write(series: &FileSeries, number: u64, bytes: usize, age_seconds: u64) -> PathBuf {
        let written = SystemTime::now() - Duration::from_secs(age_seconds);
        let path = series.path(written, number);
        let file = fs::File::create(&path).unwrap();
        file.set_len(bytes as u64).unwrap();
        file.set_modified(written).unwrap();
        path
    }

    #[test]
    fn names_have_the_time_and_the_number() {
        let series = series(Path::new("/var/tmp"), "trap-%t-%n-100%%.profile");
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_509_000);
        assert_eq!(series.path(time, 12), Path::new("/var/tmp/trap-20261124T083000Z-12-100%.profile"));
        assert_eq!(series.number_of("trap-20261124T083000Z-12-100%.profile"), Some(12));
        for other in [
            "trap-20261124T083000Z--100%.profile",
            "trap-2026-12-100%.profile",
            "trap",
            "trap-20261124T083000Z-12-100%.profile.tmp",
        ] {
            assert_eq!(series.number_of(other), None, "{other}");
        }
    }

    #[test]
    fn names_that_cannot_form_a_series_are_refused() {
        for (name, message) in [
            ("trap.profile", "add %t (time) or %n (number)"),
            ("trap-%x.profile", "only %t (time), %n (number)"),
            ("trap-%", "only %t (time), %n (number)"),
            ("trap-%n%t.profile", "put text between"),
            ("tr\nap-%n", "control character"),
            ("/", "no file name"),
        ] {
            let error = FileSeries::parse(Path::new(name)).unwrap_err();
            assert!(error.contains(message), "{name}: {error}");
        }
    }

    #[test]
    fn the_oldest_files_of_the_series_are_removed_and_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let series = series(directory.path(), "trap-%n.profile");
        fs::write(directory.path().join("other-1.profile"), "kept").unwrap();
        fs::create_dir(directory.path().join("trap-9.profile")).unwrap();
        let oldest = write(&series, 1, 100, 50);
        for number in 2..=5 {
            write(&series, number, 100, 50 - number);
        }
        assert_eq!(series.retire(Some(4), None).unwrap(), [oldest]);
        assert_eq!(series.retire(None, Some(250)).unwrap().len(), 2);
        let left = ["other-1.profile", "trap-4.profile", "trap-5.profile", "trap-9.profile"];
        assert_eq!(names(directory.path()), left);
        // The newest one remains, however small the limit is.
        assert_eq!(series.retire(Some(0), Some(1)).unwrap().len(), 1);
        let numbers: Vec<_> = series.existing().unwrap().iter().map(WrittenFile::number).collect();
        assert_eq!(numbers, [5]);
    }
}
