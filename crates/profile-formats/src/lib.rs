//! Writes sampling profiles in the formats of other tools: folded stacks, SVG flame graphs, an interactive HTML page,
//! pprof, speedscope, the Firefox Profiler, `perf script` text, PerfView archives, terminal tables, JSON lines of runtime
//! events and findings as JSON.
//!
//! Every writer is a pure function from a [`Profile`](profiler_profile::Profile) to bytes: no file, no clock, no process. Names of the profiled
//! program are hostile data and are escaped in every format; time and memory grow linearly with the profile.
//!
//! ```
//! use profiler_profile::{Header, ProfileBuilder};
//! use profiler_profile_formats::Format;
//!
//! let profile = ProfileBuilder::default().finish(Header::default());
//! let mut svg = Vec::new();
//! Format::Svg.write(&profile, &mut svg)?;
//! assert!(svg.starts_with(b"<?xml"));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Backends that store series of profiles take pprof from [`write_aggregated_pprof`].
//!
//! Each format is a module and a cargo feature; the default feature `all` has all of them. A new format is a module with
//! a `write` function, a line in `format.rs` and an arm in `write.rs`.

#![cfg_attr(
    not(feature = "all"),
    allow(
        dead_code,
        unreachable_patterns,
        unused_imports,
        unused_variables,
        reason = "shared by formats that are not selected"
    )
)]

#[cfg(feature = "trace-zip")]
mod deflate;
mod differential;
#[cfg(feature = "events-jsonl")]
mod events_jsonl;
#[cfg(any(feature = "findings-json", feature = "html"))]
mod finding;
#[cfg(feature = "findings-json")]
mod findings_json;
#[cfg(feature = "firefox")]
mod firefox;
mod folded;
mod format;
#[cfg(feature = "html")]
mod html;
mod label;
mod options;
#[cfg(any(feature = "perf-script", feature = "trace-zip"))]
mod perf_script;
#[cfg(feature = "pprof")]
mod pprof;
#[cfg(any(feature = "events-jsonl", feature = "firefox", feature = "html"))]
mod runtime_event;
mod short_name;
#[cfg(feature = "speedscope")]
mod speedscope;
mod stack_values;
#[cfg(feature = "svg")]
mod svg;
#[cfg(feature = "svg")]
mod svg_labels;
mod table;
#[cfg(test)]
mod tests;
mod title;
#[cfg(feature = "top")]
mod top;
#[cfg(feature = "trace-zip")]
mod trace_zip;
mod visible;
#[cfg(feature = "top")]
mod wait_table;
mod write;

#[cfg(feature = "pprof")]
pub use self::pprof::write_aggregated_pprof;
pub use self::{
    format::{Format, UnknownFormat},
    label::{escaped, frame_label, printable},
    options::OutputOptions,
    short_name::{fitting_function, fitting_name, truncated},
};
