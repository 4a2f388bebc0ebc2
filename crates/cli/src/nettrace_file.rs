//! The output with the events of a runtime as it sends them: `-o FILE.nettrace`.

use std::path::Path;

use anyhow::{Result, bail};
use profiler::{EventStream, StreamEnd};

use super::{arguments::OutputArguments, destination::Destination, wrong_arguments::WrongArguments};

const EXTENSION: &str = "nettrace";

/// An output file for the stream of a runtime.
#[derive(Debug)]
pub(super) struct NettraceFile {
    name: String,
    to: Destination,
    stream: EventStream,
}

/// Whether an output has the stream of a runtime, and not a format of the profile.
pub(super) fn is_nettrace(path: &Path, arguments: &OutputArguments) -> bool {
    arguments.format.is_none() && path.extension().is_some_and(|extension| extension == EXTENSION)
}

impl NettraceFile {
    /// Opens the output, if the arguments select one.
    pub(super) fn open(arguments: &OutputArguments) -> Result<Option<Self>> {
        let mut paths = arguments.output.iter().filter(|path| is_nettrace(path, arguments));
        let Some(path) = paths.next() else { return Ok(None) };
        if let Some(second) = paths.next() {
            let message = format!("`{}` is a second .nettrace file: give one", second.display());
            bail!(WrongArguments::new(message));
        }
        let (name, to) = (path.display().to_string(), Destination::open(path)?);
        Ok(Some(Self { name, to, stream: EventStream::default() }))
    }

    /// The stream that is written.
    pub(super) fn stream(&self) -> EventStream {
        self.stream.clone()
    }

    /// Writes the stream after the end of the session.
    pub(super) fn write(self) -> Result<()> {
        let Self { name, to, stream } = self;
        to.write(|to| stream.write(to))?;
        match stream.end() {
            StreamEnd::Missing => {
                log::warn!("`{name}` lacks the last events: the runtime did not end its stream");
            }
            StreamEnd::Cut => {
                log::warn!(
                    "`{name}` lacks the last events, which exceed the memory for them: request fewer events, or -d less time"
                );
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        output: OutputArguments,
    }

    fn open(words: &[&str]) -> Result<Option<NettraceFile>> {
        let line = Line::try_parse_from(std::iter::once(&"x").chain(words)).unwrap();
        NettraceFile::open(&line.output)
    }

    #[test]
    fn the_extension_selects_the_stream_unless_a_format_does() {
        assert!(open(&["-o", "-.nettrace", "-o", "-.svg"]).unwrap().is_some());
        assert!(open(&["-o", "-.svg"]).unwrap().is_none());
        assert!(open(&["-o", "-.nettrace", "--format", "svg"]).unwrap().is_none());
        let error = open(&["-o", "-.nettrace", "-o", "second.nettrace"]).unwrap_err();
        assert!(error.to_string().contains("`second.nettrace`"), "{error}");
    }

    #[test]
    fn a_stream_without_events_is_an_error_and_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("app.nettrace");
        let file = open(&["-o", path.to_str().unwrap()]).unwrap().unwrap();
        let error = format!("{:#}", file.write().unwrap_err());
        assert!(
            error.contains("app.nettrace") && error.contains("no .NET runtime has sent events"),
            "{error}"
        );
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
