//! The output formats: names, file extensions, cargo features.

use std::{path::Path, str::FromStr};

use thiserror::Error;

macro_rules! formats {
    ($($(#[doc = $doc:literal])+ $variant:ident: $feature:literal, $name:literal, [$($extension:literal),+];)+) => {
        /// An output format.
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Format {
            $($(#[doc = $doc])+ #[cfg(feature = $feature)] $variant,)+
        }

        impl Format {
            /// Every format that is compiled in.
            pub const ALL: &'static [Self] = &[$(#[cfg(feature = $feature)] Self::$variant,)+];

            /// The name of the format on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(#[cfg(feature = $feature)] Self::$variant => $name,)+ }
            }

            /// The file name extensions of the format, the usual one first.
            #[must_use]
            pub fn extensions(self) -> &'static [&'static str] {
                match self { $(#[cfg(feature = $feature)] Self::$variant => &[$($extension),+],)+ }
            }
        }
    };
}

formats! {
    /// Folded stacks: `comm;root;...;leaf N`, one line for each distinct stack.
    Folded: "folded", "folded", ["folded", "txt"];
    /// An interactive flame graph.
    Svg: "svg", "svg", ["svg"];
    /// A page with flame graph, hot functions, callers and callees, heat map and ledger.
    Html: "html", "html", ["html"];
    /// The hottest functions and the heaviest call paths, as a table for a terminal.
    Top: "top", "top", ["top"];
    /// pprof's `profile.proto`, compressed by gzip.
    Pprof: "pprof", "pprof", ["pb.gz"];
    /// The file format of speedscope.
    Speedscope: "speedscope", "speedscope", ["speedscope.json"];
    /// The processed format of the Firefox Profiler.
    Firefox: "firefox", "firefox", ["json"];
    /// The text of `perf script`.
    PerfScript: "perf-script", "perf-script", ["perf.txt"];
    /// A `.trace.zip` for PerfView.
    TraceZip: "trace-zip", "trace-zip", ["trace.zip"];
    /// The runtime events, one JSON object a line.
    EventsJsonl: "events-jsonl", "events-jsonl", ["jsonl"];
    /// The findings with their facts, as one JSON object.
    FindingsJson: "findings-json", "findings-json", ["findings.json"];
    /// A recording, for [`Profile::read`](profiler_profile::Profile::read). It ignores the options.
    Recording: "recording", "profile", ["profile"];
}

impl Format {
    /// The formats a difference can be written in: two counts a line as `difffolded.pl -n` prints them, a flame graph
    /// of the later profile in red where it has more samples and blue where it has fewer, a page with flame graph and
    /// functions in orange and blue, a table of the functions that changed most.
    pub const OF_DIFFERENCES: &'static [Self] = &[
        #[cfg(feature = "folded")]
        Self::Folded,
        #[cfg(feature = "svg")]
        Self::Svg,
        #[cfg(feature = "html")]
        Self::Html,
        #[cfg(feature = "top")]
        Self::Top,
    ];

    /// Whether people look at the output: a picture, a page or a table. Other formats are data for tools.
    #[must_use]
    pub fn is_view(self) -> bool {
        match self {
            #[cfg(feature = "svg")]
            Self::Svg => true,
            #[cfg(feature = "html")]
            Self::Html => true,
            #[cfg(feature = "top")]
            Self::Top => true,
            _ => false,
        }
    }

    /// The format for the extension of a file name.
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
        // `.perf.txt` also ends in `.txt`: the longest extension wins.
        let known = Self::ALL.iter().copied().filter_map(fitting).max_by_key(|(length, _)| *length);
        let known = known.map(|(_, format)| format);
        known.ok_or_else(|| {
            let extensions: Vec<String> = Self::ALL
                .iter()
                .flat_map(|format| format.extensions())
                .map(|extension| format!(".{extension}"))
                .collect();
            let message = format!(
                "`{}` has no extension of a known format{} (known: {})",
                path.display(),
                advice(name),
                extensions.join(", ")
            );
            UnknownFormat { message }
        })
    }
}

/// What to do about a file name with an unknown extension; empty where it is not a known case.
fn advice(name: &str) -> String {
    const PICTURES: [&str; 6] = [".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf"];
    let lower = name.to_ascii_lowercase();
    if lower != name && Format::from_path(Path::new(&lower)).is_ok() {
        return format!(": extensions are in lower case, as in `{lower}`");
    }
    match PICTURES.iter().find_map(|extension| lower.strip_suffix(extension)) {
        Some(stem) => {
            format!(
                ": write `{stem}.svg`, which a browser and tools such as rsvg-convert convert to other pictures"
            )
        }
        None => String::new(),
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        Self::ALL.iter().copied().find(|format| format.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|format| format.name()).collect();
            let message = format!("`{name}` is not a known format (known: {})", names.join(", "));
            UnknownFormat { message }
        })
    }
}

/// A name or an extension of no format.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct UnknownFormat {
    message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_select_the_format() {
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
        for (name, advice) in [
            ("a/out.png", "has no extension of a known format: write `out.svg`, which a browser"),
            ("out.HTML", "extensions are in lower case, as in `out.html` (known"),
            ("out.xyz", "of a known format (known"),
        ] {
            let error = Format::from_path(Path::new(name)).unwrap_err().to_string();
            assert!(error.contains(advice), "{error}");
        }
        assert!(Format::from_path(Path::new("svg")).is_err());
    }

    #[test]
    fn every_format_has_a_name_and_extensions() {
        for &format in Format::ALL {
            assert_eq!(format.name().parse::<Format>().unwrap(), format);
            for extension in format.extensions() {
                assert_eq!(Format::from_path(&Path::new("x").with_extension(extension)).unwrap(), format);
            }
        }
        assert!("xyz".parse::<Format>().unwrap_err().to_string().contains("folded"));
    }
}
