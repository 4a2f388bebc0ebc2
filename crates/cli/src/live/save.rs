//! Saves the shown profile to a file, in the format of its extension.

use std::{borrow::Cow, io, path::Path};

use profiler_profile::Profile;
use profiler_profile_formats::{Format, OutputOptions, printable};

use crate::output_file::OutputFile;

/// Writes the profile, and returns a message about the result.
pub(super) fn save(profile: &Profile, options: &OutputOptions, path: &Path, format: Format) -> String {
    let text = match write(profile, options, path, format) {
        Ok(()) => format!("saved {} samples to {}", profile.total_value(), path.display()),
        Err(error) => format!("failed to write {}: {error}", path.display()),
    };
    printable(&text).into_owned()
}

fn write(profile: &Profile, options: &OutputOptions, path: &Path, format: Format) -> io::Result<()> {
    // The shown profile has the causes of waits, which are no code.
    let written = if format.is_view() { Cow::Borrowed(profile) } else { profile.without_wait_causes() };
    OutputFile::open(path)?.write(|to| format.write_with(&written, options, to))
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
            assert!(message.starts_with("saved 7 samples to "), "{message}");
            // The profile has no runtime events.
            let is_empty = path.metadata().unwrap().len() == 0;
            assert_eq!(is_empty, format == Format::EventsJsonl, "{message}");
        }
        let nowhere = Path::new("/no/such/\u{1b}folder/x.svg");
        let message = save(&profile, &OutputOptions::default(), nowhere, Format::Svg);
        assert!(message.contains("No such file") && !message.contains('\u{1b}'), "{message}");
    }

    #[test]
    fn a_planted_link_is_replaced_and_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (victim, path) = (directory.path().join("victim"), directory.path().join("x.svg"));
        std::fs::write(&victim, "kept").unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        let profile = folded(&[("p;main;work", 7)]);
        let message = save(&profile, &OutputOptions::default(), &path, Format::Svg);
        assert!(message.starts_with("saved") && std::fs::read(&victim).unwrap() == b"kept", "{message}");
    }
}
