//! Output files and standard output of a profile: checked before sampling starts, written at its end.

use std::{
    env,
    io::{self, IsTerminal as _, Write},
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
};

use anyhow::{Result, anyhow};
use profiler::sandbox;
use profiler_profile::{EventId, Profile};
use profiler_profile_formats::{Format, OutputOptions};

use super::{
    arguments::{CommonArguments, OutputArguments},
    destination::Destination,
    nettrace_file::is_nettrace,
    wrong_arguments::WrongArguments,
};

/// The outputs that a profile is written to.
#[derive(Debug)]
pub(super) struct Outputs {
    options: OutputOptions,
    outputs: Vec<Output>,
    /// Whether the only output is the table on a terminal because the arguments select neither a file nor a format.
    is_default_table: bool,
}

#[derive(Debug)]
struct Output {
    format: Format,
    to: Destination,
}

impl Output {
    /// The directory in which a file is replaced.
    fn directory(&self) -> Option<BorrowedFd<'_>> {
        match &self.to {
            Destination::File { file, .. } => file.directory(),
            Destination::StandardOutput => None,
        }
    }
}

impl Outputs {
    /// Opens the outputs of a profile. Without `-o` and `--format` it is written to standard output: as a table of hot
    /// functions on a terminal, as folded stacks into a pipe or file.
    pub(super) fn for_profile(arguments: &OutputArguments) -> Result<Self> {
        Self::for_profile_at(&arguments.output, arguments)
    }

    /// Opens the outputs of the profile of a session, all but a [`NettraceFile`](super::nettrace_file::NettraceFile).
    pub(super) fn for_session(arguments: &OutputArguments) -> Result<Self> {
        let is_profile = |path: &&PathBuf| !is_nettrace(path, arguments);
        Self::for_profile_at(arguments.output.iter().filter(is_profile), arguments)
    }

    fn for_profile_at<'a>(
        paths: impl IntoIterator<Item = &'a PathBuf>,
        arguments: &OutputArguments,
    ) -> Result<Self> {
        let is_terminal = io::stdout().is_terminal();
        let outputs = Self::of_paths(paths, arguments, default_format(is_terminal))?;
        let is_default = arguments.output.is_empty() && arguments.format.is_none();
        Ok(Self { is_default_table: is_terminal && is_default, ..outputs })
    }

    /// Opens all output files; existing ones keep their content. Without `-o` the output is standard output, in the format
    /// `default` unless `--format` selects another.
    pub(super) fn open(arguments: &OutputArguments, default: Format) -> Result<Self> {
        Self::of_paths(&arguments.output, arguments, default)
    }

    fn of_paths<'a>(
        paths: impl IntoIterator<Item = &'a PathBuf>,
        arguments: &OutputArguments,
        default: Format,
    ) -> Result<Self> {
        let mut outputs = Vec::new();
        for path in paths {
            let format = format_of(path, arguments.format)?;
            outputs.push(Output { format, to: Destination::open(path)? });
        }
        if arguments.output.is_empty() {
            let format = arguments.format.unwrap_or(default);
            outputs.push(Output { format, to: Destination::StandardOutput });
        }
        let options = OutputOptions { width_columns: width_columns(), ..arguments.options() };
        Ok(Self { options, outputs, is_default_table: false })
    }

    /// Standard output as the only output.
    pub(super) fn standard(format: Format) -> Self {
        let options = OutputOptions { width_columns: width_columns(), ..OutputOptions::default() };
        let outputs = vec![Output { format, to: Destination::StandardOutput }];
        Self { options, outputs, is_default_table: false }
    }

    /// Confines the process to these outputs, before it reads what a stranger may have written. `asks_servers`: it also
    /// asks symbol servers.
    pub(super) fn confine(&self, common: &CommonArguments, asks_servers: bool) -> Result<()> {
        if common.no_sandbox {
            return Ok(());
        }
        let directories: Vec<_> = self.outputs.iter().filter_map(Output::directory).collect();
        Ok(sandbox::confine_to_files(&directories, asks_servers)?)
    }

    /// The options of all outputs.
    pub(super) fn options(&self) -> OutputOptions {
        self.options
    }

    /// The formats of all outputs.
    pub(super) fn formats(&self) -> impl Iterator<Item = Format> {
        self.outputs.iter().map(|output| output.format)
    }

    /// A line for users who got the table because they did not select an output.
    pub(super) fn hint(&self) -> Option<&'static str> {
        self.is_default_table.then_some("`-o flame.html` writes a flame graph, `-o -` folded stacks")
    }

    /// Writes the profile to all outputs, and `view` in place of it to pictures, pages and tables; those of a single event
    /// show `event`.
    pub(super) fn write(mut self, profile: &Profile, view: &Profile, event: EventId) -> WrittenOutputs {
        self.options.event = Some(event);
        self.write_each(|format, options, to| {
            let shown = if format.is_view() { view } else { profile };
            format.write_with(shown, options, to)
        })
    }

    /// Whether the table is written to a terminal.
    pub(super) fn has_table_on_terminal(&self) -> bool {
        let is_table = |output: &Output| {
            output.format == Format::Top && matches!(output.to, Destination::StandardOutput)
        };
        io::stdout().is_terminal() && self.outputs.iter().any(is_table)
    }

    /// Whether an output is a picture, a page or a table.
    pub(super) fn has_views(&self) -> bool {
        self.formats().any(Format::is_view)
    }

    /// Calls `write` for each output, also after one has failed.
    pub(super) fn write_each(
        self,
        write: impl Fn(Format, &OutputOptions, &mut dyn Write) -> io::Result<()>,
    ) -> WrittenOutputs {
        let mut written = WrittenOutputs::default();
        for Output { format, to } in self.outputs {
            match to.write(|to| write(format, &self.options, to)) {
                Ok(()) => written.count += 1,
                Err(error) => written.failures.push(error),
            }
        }
        written
    }
}

/// Which outputs were written.
#[derive(Debug, Default)]
pub(super) struct WrittenOutputs {
    count: usize,
    failures: Vec<anyhow::Error>,
}

impl WrittenOutputs {
    /// Whether there are outputs, and none of them was written.
    pub(super) fn has_none(&self) -> bool {
        self.count == 0 && !self.failures.is_empty()
    }

    /// All failures in one error.
    pub(super) fn into_result(mut self) -> Result<()> {
        match self.failures.len() {
            0 => Ok(()),
            1 => Err(self.failures.remove(0)),
            _ => {
                let texts: Vec<_> = self.failures.iter().map(|error| format!("{error:#}")).collect();
                Err(anyhow!(texts.join("; ")))
            }
        }
    }
}

/// The width of tables: that of the variable `COLUMNS`, else that of the terminal at standard output; `None` if standard output is not a
/// terminal.
fn width_columns() -> Option<u16> {
    let window = terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| width.0);
    width_of(env::var("COLUMNS").ok().as_deref(), window)
}

fn width_of(variable: Option<&str>, window: Option<u16>) -> Option<u16> {
    let columns = variable.and_then(|columns| columns.parse().ok());
    columns.filter(|columns| *columns > 0).or(window)
}

/// The format of standard output when the arguments select none.
fn default_format(is_terminal: bool) -> Format {
    if is_terminal { Format::Top } else { Format::Folded }
}

fn format_of(path: &Path, selected: Option<Format>) -> Result<Format> {
    match selected {
        Some(format) => Ok(format),
        None if path == Path::new("-") => Ok(Format::Folded),
        None => Ok(Format::from_path(path).map_err(WrongArguments::new)?),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use profiler_profile::{Header, ProfileBuilder};

    use super::*;

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
    fn without_arguments_the_output_is_standard_output_in_the_default_format() {
        let outputs = outputs(&[]).unwrap().outputs;
        assert!(matches!(outputs[..], [Output { format: Format::Folded, to: Destination::StandardOutput }]));
        assert_eq!((default_format(true), default_format(false)), (Format::Top, Format::Folded));
    }

    #[test]
    fn a_dash_with_an_extension_selects_the_format_of_standard_output() {
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
    }

    #[test]
    fn the_stream_of_a_runtime_is_no_output_of_a_profile() {
        let words = ["x", "-o", "-.nettrace"];
        let line = Line::try_parse_from(words).unwrap();
        assert!(Outputs::for_session(&line.output).unwrap().outputs.is_empty());
        let line = Line::try_parse_from(words.into_iter().chain(["-o", "-.svg"])).unwrap();
        assert_eq!(Outputs::for_session(&line.output).unwrap().outputs.len(), 1);
        assert!(Outputs::for_profile(&line.output).is_err(), "a recording has no such stream");
    }

    #[test]
    fn a_file_that_cannot_be_created_is_an_error_with_its_path() {
        let error = format!("{:#}", outputs(&["-o", "/no/such/directory/x.svg"]).unwrap_err());
        assert!(error.contains("/no/such/directory/x.svg"), "{error}");
    }

    #[test]
    fn the_width_of_tables_is_that_of_the_variable_or_of_the_window() {
        assert_eq!(width_of(Some("150"), Some(80)), Some(150));
        assert_eq!(width_of(Some("150"), None), Some(150));
        for unusable in [None, Some(""), Some("0"), Some("wide")] {
            assert_eq!((width_of(unusable, Some(80)), width_of(unusable, None)), (Some(80), None));
        }
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
    fn an_existing_file_is_replaced_when_the_profile_is_written_and_not_before() {
        let directory = tempfile::tempdir().unwrap();
        let (new, old) = (directory.path().join("new.folded"), directory.path().join("old.folded"));
        std::fs::write(&old, "old").unwrap();
        let open = outputs(&["-o", new.to_str().unwrap(), "-o", old.to_str().unwrap()]).unwrap();
        assert!(!new.exists() && std::fs::read(&old).unwrap() == b"old");
        let profile = ProfileBuilder::default().finish(Header::default());
        open.write(&profile, &profile, EventId::FIRST).into_result().unwrap();
        assert_eq!((std::fs::read(&new).unwrap(), std::fs::read(&old).unwrap()), (vec![], vec![]));
    }
}
