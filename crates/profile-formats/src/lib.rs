//! Writing a profile: pure functions from a [`Profile`] to bytes, one file a format.
//!
//! A new format is a file with a `write` function, a variant of [`Format`] and a row in its tables.

#[cfg(test)]
mod bad_input;
mod deflate;
mod differential;
mod firefox;
mod folded;
mod html;
mod label;
mod perf_script;
mod pprof;
mod speedscope;
mod stack_counts;
mod svg;
mod table;
mod top;
mod trace_zip;
mod visible;

use std::{borrow::Cow, io, path::Path, str::FromStr};

use profiler_profile::{Difference, Profile};
use thiserror::Error;

pub use self::label::{frame_label, printable};

/// The formats a profile can be written in.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Folded stacks: `comm;root;...;leaf N`, one line for each distinct stack.
    Folded,
    /// An interactive flame graph.
    Svg,
    /// A page with flame graph, hot functions, callers and callees, heat map and ledger.
    Html,
    /// The hottest functions and the heaviest call paths, as a table for a terminal.
    Top,
    /// pprof's `profile.proto`, packed with gzip.
    Pprof,
    /// speedscope's own format.
    Speedscope,
    /// The processed format of the Firefox Profiler.
    Firefox,
    /// Samples as `perf script` prints them.
    PerfScript,
    /// A trace as PerfView opens it.
    TraceZip,
    /// All of the profile, for [`Profile::read`]: the options do not matter.
    Recording,
}

impl Format {
    /// Every format.
    pub const ALL: &'static [Self] = &[
        Self::Folded,
        Self::Svg,
        Self::Html,
        Self::Top,
        Self::Pprof,
        Self::Speedscope,
        Self::Firefox,
        Self::PerfScript,
        Self::TraceZip,
        Self::Recording,
    ];

    /// The formats a difference can be written in: two counts a line as `difffolded.pl -n` prints them, a flame graph
    /// of the later profile in red where it has more samples and blue where it has fewer, a page with flame graph and
    /// functions in orange and blue, a table of the functions that changed most.
    pub const OF_DIFFERENCES: &'static [Self] = &[Self::Folded, Self::Svg, Self::Html, Self::Top];

    /// The name by which `--format` takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Folded => "folded",
            Self::Svg => "svg",
            Self::Html => "html",
            Self::Top => "top",
            Self::Pprof => "pprof",
            Self::Speedscope => "speedscope",
            Self::Firefox => "firefox",
            Self::PerfScript => "perf-script",
            Self::TraceZip => "trace-zip",
            Self::Recording => "profile",
        }
    }

    /// The file name extensions that stand for it, the usual one first.
    #[must_use]
    pub fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::Folded => &["folded", "txt"],
            Self::Svg => &["svg"],
            Self::Html => &["html"],
            Self::Top => &["top"],
            Self::Pprof => &["pb.gz"],
            Self::Speedscope => &["speedscope.json"],
            Self::Firefox => &["json"],
            Self::PerfScript => &["perf.txt"],
            Self::TraceZip => &["trace.zip"],
            Self::Recording => &["profile"],
        }
    }

    /// The format that a file's name asks for.
    ///
    /// # Errors
    /// The extensions that exist, when the name has none of them.
    pub fn from_path(path: &Path) -> Result<Self, UnknownFormat> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_end = |extension: &str| name.strip_suffix(extension).is_some_and(|stem| stem.ends_with('.'));
        let fitting = |format: Self| {
            let extensions = format.extensions().iter().filter(|extension| is_end(extension));
            extensions.map(|extension| extension.len()).max().map(|length| (length, format))
        };
        // `.perf.txt` ends in `.txt` too: the longer one says more.
        let known = Self::ALL.iter().copied().filter_map(fitting).max_by_key(|(length, _)| *length);
        let known = known.map(|(_, format)| format);
        known.ok_or_else(|| {
            let extensions: Vec<String> = Self::ALL
                .iter()
                .flat_map(|format| format.extensions())
                .map(|extension| format!(".{extension}"))
                .collect();
            let message = format!(
                "the name of `{}` says no known format (known: {})",
                path.display(),
                extensions.join(", ")
            );
            UnknownFormat { message }
        })
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        Self::ALL.iter().copied().find(|format| format.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|format| format.name()).collect();
            let message = format!("`{name}` is no known format (known: {})", names.join(", "));
            UnknownFormat { message }
        })
    }
}

/// The name or the extension of no format.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct UnknownFormat {
    message: String,
}

/// How a profile is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputOptions {
    /// Mark the kind of each frame behind its name: `_[k]` kernel, `_[j]` JIT, `_[i]` inlined.
    pub annotate: bool,
    /// A frame with the thread's name and id above the root.
    pub per_thread: bool,
    /// A frame with the process's name and id above the root.
    pub per_process: bool,
    /// A frame with the container's id above the process.
    pub per_container: bool,
    /// Show each unsymbolized frame with its address in flame graphs, pages and tables, where consecutive ones of a module
    /// are one frame `[module]` otherwise. Other formats always have the addresses.
    pub addresses: bool,
    /// Width of tables in columns of a terminal; 100 when not set.
    pub width_columns: Option<u16>,
}

impl OutputOptions {
    fn width(&self) -> usize {
        const DEFAULT_COLUMNS: u16 = 100;
        self.width_columns.unwrap_or(DEFAULT_COLUMNS).into()
    }
}

/// Writes profiles and differences of profiles in a [`Format`].
pub trait WriteFormat {
    /// Writes with the default options.
    ///
    /// # Errors
    /// Errors of `to`, and `Unsupported` where the format cannot show it.
    ///
    /// ```
    /// use profiler_profile::{Header, ProfileBuilder};
    /// use profiler_profile_formats::{Format, WriteFormat as _};
    ///
    /// let profile = ProfileBuilder::default().finish(Header::default());
    /// let mut folded = Vec::new();
    /// profile.write(Format::Folded, &mut folded)?;
    /// assert!(folded.is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn write(&self, format: Format, to: impl io::Write) -> io::Result<()> {
        self.write_with(format, &OutputOptions::default(), to)
    }

    /// Writes with `options`.
    ///
    /// # Errors
    /// Errors of `to`, and `Unsupported` where the format cannot show it.
    fn write_with(&self, format: Format, options: &OutputOptions, to: impl io::Write) -> io::Result<()>;
}

impl WriteFormat for Profile {
    fn write_with(&self, format: Format, options: &OutputOptions, to: impl io::Write) -> io::Result<()> {
        match format {
            Format::Folded => folded::write(self, options, to),
            Format::Svg => svg::write(&shown(self, options), options, to),
            Format::Html => html::write(&shown(self, options), options, to),
            Format::Top => top::write(&shown(self, options), options, to),
            Format::Pprof => pprof::write(self, to),
            Format::Speedscope => speedscope::write(self, options, to),
            Format::Firefox => firefox::write(self, to),
            Format::PerfScript => perf_script::write(self, to),
            Format::TraceZip => trace_zip::write(self, to),
            Format::Recording => self.write_recording(to),
        }
    }
}

impl WriteFormat for Difference<'_> {
    fn write_with(&self, format: Format, options: &OutputOptions, to: impl io::Write) -> io::Result<()> {
        let (before, after) = (shown(self.before(), options), shown(self.after(), options));
        let merged = Difference::between(&before, &after);
        match format {
            Format::Folded => differential::write_folded(self, options, to),
            Format::Svg => svg::write_difference(&merged, &differential::lines(&merged, options), to),
            Format::Html => html::write_difference(&merged, options, to),
            Format::Top => differential::write_table(&merged, options, to),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// The profile as pictures and tables show it.
fn shown<'a>(profile: &'a Profile, options: &OutputOptions) -> Cow<'a, Profile> {
    if options.addresses { Cow::Borrowed(profile) } else { profile.with_merged_unsymbolized_frames() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_file_says_its_format() {
        assert_eq!(Format::from_path(Path::new("a/b.svg")).unwrap(), Format::Svg);
        assert_eq!(Format::from_path(Path::new("out.txt")).unwrap(), Format::Folded);
        assert_eq!(Format::from_path(Path::new("out.perf.txt")).unwrap(), Format::PerfScript);
        assert_eq!(Format::from_path(Path::new("a.b.json")).unwrap(), Format::Firefox);
        assert_eq!(Format::from_path(Path::new("a.speedscope.json")).unwrap(), Format::Speedscope);
        let error = Format::from_path(Path::new("out.xyz")).unwrap_err();
        for extension in Format::ALL.iter().copied().flat_map(Format::extensions) {
            assert!(error.to_string().contains(&format!(".{extension}")), "{error}");
        }
        assert!(Format::from_path(Path::new("trace.zip.x")).is_err());
        assert!(Format::from_path(Path::new("svg")).is_err());
    }

    #[test]
    fn every_format_is_known_by_its_name_and_extensions() {
        for &format in Format::ALL {
            assert_eq!(format.name().parse::<Format>().unwrap(), format);
            for extension in format.extensions() {
                assert_eq!(Format::from_path(&Path::new("x").with_extension(extension)).unwrap(), format);
            }
        }
        assert!("xyz".parse::<Format>().unwrap_err().to_string().contains("folded"));
    }
}
