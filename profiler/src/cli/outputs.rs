//! The files that a profile is written to: opened before sampling starts, written at the end.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::arguments::OutputArguments;
use profiler_profile::Profile;
use profiler_profile_formats::{Format, OutputOptions, WriteFormat as _};

/// Where a profile goes.
#[derive(Debug)]
pub(super) struct Outputs {
    options: OutputOptions,
    outputs: Vec<Output>,
}

#[derive(Debug)]
struct Output {
    format: Format,
    to: Destination,
}

#[derive(Debug)]
enum Destination {
    StandardOutput,
    File {
        path: PathBuf,
        file: File,
        /// It was not there before.
        is_new: bool,
    },
}

impl Outputs {
    /// Opens every file, and leaves what is in them until there is something to write. Without any it is standard
    /// output, in the format `default` unless another is given.
    pub(super) fn open(arguments: &OutputArguments, default: Format) -> Result<Self> {
        let mut outputs = Vec::new();
        for path in &arguments.output {
            outputs.push(Output { format: format_of(path, arguments.format)?, to: open(path)? });
        }
        if outputs.is_empty() {
            let format = arguments.format.unwrap_or(default);
            outputs.push(Output { format, to: Destination::StandardOutput });
        }
        Ok(Self { options: OutputOptions { width_columns: width_columns(), ..arguments.options() }, outputs })
    }

    /// Standard output alone.
    pub(super) fn standard(format: Format) -> Self {
        let options = OutputOptions { width_columns: width_columns(), ..OutputOptions::default() };
        Self { options, outputs: vec![Output { format, to: Destination::StandardOutput }] }
    }

    /// How to write.
    pub(super) fn options(&self) -> OutputOptions {
        self.options
    }

    /// The formats of all outputs.
    pub(super) fn formats(&self) -> impl Iterator<Item = Format> {
        self.outputs.iter().map(|output| output.format)
    }

    /// Writes the profile everywhere.
    pub(super) fn write(self, profile: &Profile) -> Result<()> {
        self.write_each(|format, options, to| profile.write_with(format, options, to))
    }

    /// Writes to every output. A reader of standard output that has gone away is no error.
    pub(super) fn write_each(
        self,
        write: impl Fn(Format, &OutputOptions, &mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        for Output { format, to } in self.outputs {
            match to {
                Destination::StandardOutput => match write(format, &self.options, &mut io::stdout().lock()) {
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                    result => result.context("failed to write to standard output")?,
                },
                Destination::File { path, file, .. } => {
                    write_file(&file, |to| write(format, &self.options, to))
                        .with_context(|| format!("failed to write `{}`", path.display()))?;
                }
            }
        }
        Ok(())
    }

    /// Takes back the files that were made for nothing.
    pub(super) fn discard(self) {
        for output in self.outputs {
            if let Destination::File { path, is_new: true, .. } = output.to
                && let Err(error) = std::fs::remove_file(&path)
            {
                log::warn!("failed to remove the empty `{}`: {error}", path.display());
            }
        }
    }
}

/// The width of the terminal that standard output is, if it is one.
fn width_columns() -> Option<u16> {
    terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| width.0)
}

fn format_of(path: &Path, given: Option<Format>) -> Result<Format> {
    match given {
        Some(format) => Ok(format),
        None if path == Path::new("-") => Ok(Format::Folded),
        None => Ok(Format::from_path(path)?),
    }
}

/// `-`, and `-.svg` for its format.
fn is_standard_output(path: &Path) -> bool {
    path.to_str().is_some_and(|name| name == "-" || name.starts_with("-.") && !name.contains('/'))
}

fn open(path: &Path) -> Result<Destination> {
    if is_standard_output(path) {
        return Ok(Destination::StandardOutput);
    }
    let is_new = !path.exists();
    // What an older file holds is only replaced when there is something new.
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .with_context(|| format!("failed to create `{}`", path.display()))?;
    Ok(Destination::File { path: path.to_owned(), file, is_new })
}

fn write_file(file: &File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    // Devices and pipes have no length to set.
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    let mut writer = io::BufWriter::new(file);
    write(&mut writer)?;
    writer.flush()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use profiler_profile::{Header, ProfileBuilder};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        output: OutputArguments,
    }

    fn outputs(words: &[&str]) -> Result<Outputs> {
        let line = Line::try_parse_from(std::iter::once(&"x").chain(words)).unwrap();
        Outputs::open(&line.output, Format::Folded)
    }

    #[test]
    fn standard_output_and_folded_stacks_are_what_is_not_said() {
        let outputs = outputs(&[]).unwrap().outputs;
        assert!(matches!(outputs[..], [Output { format: Format::Folded, to: Destination::StandardOutput }]));
    }

    #[test]
    fn standard_output_can_have_a_format_too() {
        for (name, format) in [
            ("-", Format::Folded),
            ("-.top", Format::Top),
            ("-.svg", Format::Svg),
            ("-.pb.gz", Format::Pprof),
        ] {
            let outputs = outputs(&["-o", name]).unwrap().outputs;
            assert!(
                matches!(&outputs[..], [Output { format: found, to: Destination::StandardOutput }] if *found == format)
            );
        }
        assert!(!is_standard_output(Path::new("a/-.top")) && !is_standard_output(Path::new("-a.top")));
    }

    #[test]
    fn a_file_that_cannot_be_created_is_told_before_anything_else() {
        let error = format!("{:#}", outputs(&["-o", "/no/such/directory/x.svg"]).unwrap_err());
        assert!(error.contains("/no/such/directory/x.svg"), "{error}");
    }

    #[test]
    fn an_unknown_extension_is_refused_and_a_format_overrides_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.bin");
        let path = path.to_str().unwrap();
        assert!(outputs(&["-o", path]).unwrap_err().to_string().contains(".svg"));
        assert_eq!(outputs(&["-o", path, "--format", "svg"]).unwrap().outputs[0].format, Format::Svg);
    }

    #[test]
    fn an_older_file_is_replaced_when_there_is_something_to_write_and_not_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.folded");
        std::fs::write(&path, "old").unwrap();
        let open = outputs(&["-o", path.to_str().unwrap()]).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        open.write(&ProfileBuilder::default().finish(Header::default())).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn files_made_for_nothing_are_removed_and_older_ones_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let (new, old) = (directory.path().join("new.svg"), directory.path().join("old.svg"));
        std::fs::write(&old, "old").unwrap();
        outputs(&["-o", new.to_str().unwrap(), "-o", old.to_str().unwrap()]).unwrap().discard();
        assert!(!new.exists() && old.exists());
    }
}
