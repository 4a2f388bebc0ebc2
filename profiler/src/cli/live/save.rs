//! Saves the shown profile to a file, in the format of its extension.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
};

use profiler_profile::Profile;
use profiler_profile_formats::{Format, OutputOptions, WriteFormat as _, printable};

/// Writes the profile, and returns a message about the result.
pub(super) fn save(profile: &Profile, options: &OutputOptions, path: &Path, format: Format) -> String {
    let text = match write(profile, options, path, format) {
        Ok(()) => format!("saved {} samples to {}", profile.sample_count(), path.display()),
        Err(error) => format!("failed to write {}: {error}", path.display()),
    };
    printable(&text).into_owned()
}

fn write(profile: &Profile, options: &OutputOptions, path: &Path, format: Format) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    profile.write_with(format, options, &mut file)?;
    file.flush()
}

#[cfg(test)]
mod tests {
    use profiler_profile::test_profile::folded;

    use super::*;

    #[test]
    fn every_format_is_written_and_a_failure_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let profile = folded(&[("p;main;work", 7)]);
        for &format in Format::ALL {
            let path = directory.path().join("x").with_extension(format.extensions()[0]);
            let message = save(&profile, &OutputOptions::default(), &path, format);
            assert!(
                message.starts_with("saved 7 samples to ") && path.metadata().unwrap().len() > 0,
                "{message}"
            );
        }
        let nowhere = Path::new("/no/such/\u{1b}folder/x.svg");
        let message = save(&profile, &OutputOptions::default(), nowhere, Format::Svg);
        assert!(message.contains("No such file") && !message.contains('\u{1b}'), "{message}");
    }
}
