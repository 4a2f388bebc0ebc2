//! Dispatches a profile or a difference to the writer of a format.

use std::{borrow::Cow, io};

use profiler_profile::{Difference, Profile};

use crate::{Format, OutputOptions};

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

/// The samples of the selected event, for formats of a single event.
fn of_event<'a>(profile: &'a Profile, options: &OutputOptions) -> Cow<'a, Profile> {
    profile.single_event(options.event_of(profile))
}

impl WriteFormat for Profile {
    fn write_with(&self, format: Format, options: &OutputOptions, to: impl io::Write) -> io::Result<()> {
        match format {
            #[cfg(feature = "folded")]
            Format::Folded => crate::folded::write(&of_event(self, options), options, to),
            #[cfg(feature = "svg")]
            Format::Svg => crate::svg::write(&options.displayed(&of_event(self, options)), options, to),
            #[cfg(feature = "html")]
            Format::Html => crate::html::write(&options.displayed(self), options, to),
            #[cfg(feature = "top")]
            Format::Top => crate::top::write(&options.displayed(&of_event(self, options)), options, to),
            #[cfg(feature = "pprof")]
            Format::Pprof => crate::pprof::write(self, to),
            #[cfg(feature = "speedscope")]
            Format::Speedscope => crate::speedscope::write(self, options, to),
            #[cfg(feature = "firefox")]
            Format::Firefox => crate::firefox::write(self, to),
            #[cfg(feature = "perf-script")]
            Format::PerfScript => crate::perf_script::write(&of_event(self, options), to),
            #[cfg(feature = "trace-zip")]
            Format::TraceZip => crate::trace_zip::write(&of_event(self, options), to),
            #[cfg(feature = "events-jsonl")]
            Format::EventsJsonl => crate::events_jsonl::write(self, to),
            #[cfg(feature = "findings-json")]
            Format::FindingsJson => crate::findings_json::write(self, to),
            #[cfg(feature = "recording")]
            Format::Recording => self.write_recording(to),
        }
    }
}

impl WriteFormat for Difference<'_> {
    fn write_with(&self, format: Format, options: &OutputOptions, to: impl io::Write) -> io::Result<()> {
        let (before, after) = (of_event(self.before(), options), of_event(self.after(), options));
        let single = Difference::between(&before, &after);
        let (before, after) = (options.displayed(&before), options.displayed(&after));
        let merged = Difference::between(&before, &after);
        match format {
            #[cfg(feature = "folded")]
            Format::Folded => crate::differential::write_folded(&single, options, to),
            #[cfg(feature = "svg")]
            Format::Svg => {
                crate::svg::write_difference(&merged, &crate::differential::lines(&merged, options), to)
            }
            #[cfg(feature = "html")]
            Format::Html => crate::html::write_difference(&merged, options, to),
            #[cfg(feature = "top")]
            Format::Top => crate::differential::write_table(&merged, options, to),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}
