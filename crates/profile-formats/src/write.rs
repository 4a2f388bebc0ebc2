//! Dispatches a profile or a difference to the writer of a format.

use std::{borrow::Cow, io};

#[cfg(any(feature = "svg", feature = "html", feature = "top"))]
use profiler_findings::{IdleThreads, with_wait_causes};
use profiler_profile::{Difference, Profile};

use crate::{Format, OutputOptions, options::view_of};

/// The samples of the selected event, for formats of a single event.
fn of_event<'a>(profile: &'a Profile, options: &OutputOptions) -> Cow<'a, Profile> {
    profile.single_event(options.event_of(profile))
}

/// The profile with the cause of each wait, for pictures, pages and tables.
#[cfg(any(feature = "svg", feature = "html", feature = "top"))]
fn with_causes(profile: Cow<'_, Profile>) -> Cow<'_, Profile> {
    view_of(profile, |profile| with_wait_causes(profile, IdleThreads::Shown))
}

impl Format {
    /// Writes a profile with the default options.
    ///
    /// # Errors
    /// Errors of `to`.
    ///
    /// ```
    /// use profiler_profile::{Header, ProfileBuilder};
    /// use profiler_profile_formats::Format;
    ///
    /// let profile = ProfileBuilder::default().finish(Header::default());
    /// let mut folded = Vec::new();
    /// Format::Folded.write(&profile, &mut folded)?;
    /// assert!(folded.is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write(self, profile: &Profile, to: impl io::Write) -> io::Result<()> {
        self.write_with(profile, &OutputOptions::default(), to)
    }

    /// Writes a profile with `options`.
    ///
    /// # Errors
    /// Errors of `to`.
    pub fn write_with(
        self,
        profile: &Profile,
        options: &OutputOptions,
        to: impl io::Write,
    ) -> io::Result<()> {
        match self {
            #[cfg(feature = "folded")]
            Self::Folded => crate::folded::write(&of_event(profile, options), options, to),
            #[cfg(feature = "svg")]
            Self::Svg => {
                let shown = with_causes(of_event(profile, options));
                crate::svg::write(&options.displayed(&shown), options, to)
            }
            #[cfg(feature = "html")]
            Self::Html => {
                crate::html::write(&options.merged(&with_causes(Cow::Borrowed(profile))), options, to)
            }
            #[cfg(feature = "top")]
            Self::Top => {
                let shown = with_causes(of_event(profile, options));
                crate::top::write(&options.displayed(&shown), options, to)
            }
            #[cfg(feature = "pprof")]
            Self::Pprof => crate::pprof::write(profile, to),
            #[cfg(feature = "speedscope")]
            Self::Speedscope => crate::speedscope::write(profile, options, to),
            #[cfg(feature = "firefox")]
            Self::Firefox => crate::firefox::write(profile, to),
            #[cfg(feature = "perf-script")]
            Self::PerfScript => crate::perf_script::write(&of_event(profile, options), to),
            #[cfg(feature = "trace-zip")]
            Self::TraceZip => crate::trace_zip::write(&of_event(profile, options), to),
            #[cfg(feature = "events-jsonl")]
            Self::EventsJsonl => crate::events_jsonl::write(profile, to),
            #[cfg(feature = "findings-json")]
            Self::FindingsJson => crate::findings_json::write(profile, to),
            #[cfg(feature = "recording")]
            Self::Recording => profile.write_recording(to),
        }
    }

    /// Writes what differs between two profiles with `options`.
    ///
    /// # Errors
    /// Errors of `to`, and `Unsupported` for a format that [`OF_DIFFERENCES`](Self::OF_DIFFERENCES) does not contain.
    pub fn write_difference(
        self,
        difference: &Difference<'_>,
        options: &OutputOptions,
        to: impl io::Write,
    ) -> io::Result<()> {
        let (before, after) = (of_event(difference.before(), options), of_event(difference.after(), options));
        let single = difference.of_views(&before, &after);
        match self {
            #[cfg(feature = "folded")]
            Self::Folded => crate::differential::write_folded(&single, options, to),
            #[cfg(feature = "svg")]
            Self::Svg => {
                let [before, after] = [before, after].map(with_causes);
                let [before, after] = [&before, &after].map(|profile| options.displayed(profile));
                let shown = difference.of_views(&before, &after);
                crate::svg::write_difference(&shown, &crate::differential::lines(&shown, options), to)
            }
            #[cfg(feature = "html")]
            Self::Html => {
                let [before, after] = [before, after].map(with_causes);
                let [before, after] = [&before, &after].map(|profile| options.merged(profile));
                crate::html::write_difference(&difference.of_views(&before, &after), options, to)
            }
            #[cfg(feature = "top")]
            Self::Top => {
                let [before, after] = [before, after].map(with_causes);
                let [before, after] = [&before, &after].map(|profile| options.displayed(profile));
                crate::differential::write_table(&difference.of_views(&before, &after), options, to)
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}
