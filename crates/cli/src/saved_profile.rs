//! Saves a profile whose outputs could not be written: what was measured cannot be measured again.

use std::{
    env,
    path::{Path, PathBuf},
    process,
    time::SystemTime,
};

use anyhow::Result;
use profiler_profile::Profile;
use profiler_profile_formats::{Format, OutputOptions};

use super::{file_series::format_time, output_file::OutputFile, standard_streams::write_result};

/// Saves the profile as a recording in the working directory, else in that of temporary files, else as folded stacks at
/// standard output. Returns the message that says where it is.
///
/// # Errors
/// No destination can be written.
pub(super) fn save(profile: &Profile) -> Result<String> {
    let directories = [env::current_dir().unwrap_or_default(), env::temp_dir()];
    match directories.iter().find_map(|directory| save_in(directory, profile)) {
        Some(path) => Ok(format!(
            "the profile is saved as `{path}`: `profiler report FILE -o NAME` writes it in any format",
            path = path.display()
        )),
        None => {
            write_result(|to| Format::Folded.write_with(profile, &OutputOptions::default(), to))?;
            Ok("the profile is at standard output, as folded stacks".to_owned())
        }
    }
}

/// Saves the profile in a directory, and returns its path; `None` if that fails.
pub(super) fn save_in(directory: &Path, profile: &Profile) -> Option<PathBuf> {
    let name = format!("profiler-{}-{}.profile", format_time(SystemTime::now()), process::id());
    let path = directory.join(name);
    let write = |file: OutputFile| {
        file.write(|to| Format::Recording.write_with(profile, &OutputOptions::default(), to))
    };
    match OutputFile::open(&path).and_then(write) {
        Ok(()) => Some(path),
        Err(error) => {
            log::info!("failed to save the profile as `{}`: {error}", path.display());
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use profiler_profile::{Header, ProfileBuilder};

    use super::*;

    #[test]
    fn a_saved_profile_can_be_read() {
        let directory = tempfile::tempdir().unwrap();
        let profile =
            ProfileBuilder::default().finish(Header { target: "pid 7".to_owned(), ..Header::default() });
        let path = save_in(directory.path(), &profile).unwrap();
        let read = Profile::read(fs::File::open(path).unwrap()).unwrap();
        assert_eq!(read.header().target, "pid 7");
        assert_eq!(save_in(Path::new("/no/such/directory"), &profile), None);
    }
}
