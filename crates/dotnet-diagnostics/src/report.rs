//! A report of the methods that a listener received.

use profiler_addresses::MonotonicTime;
use profiler_profile::Reason;

use super::method_events::{EventOptions, MethodEvents};

/// The events that a report has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportScope {
    /// Those that were received. The session goes on.
    Received,
    /// All up to now. Another session continues.
    UpToNow,
    /// All up to now. The thread ends.
    Last,
}

/// The events since the last report.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) events: MethodEvents,
    /// Events that the runtime dropped, and that no rundown replaced.
    pub(super) dropped_events: u64,
    /// Why events may be missing.
    pub(super) failure: Option<Reason>,
    /// The time before which all methods were reported.
    pub(super) complete_until: MonotonicTime,
    /// The time since which no event of a loaded method was dropped.
    pub(super) complete_since: MonotonicTime,
    /// Whether events that are not in the report can replace its methods: some were dropped, or the runtime has unloaded
    /// code and can reuse its addresses.
    pub(super) is_provisional: bool,
}

impl Report {
    /// No events.
    pub(super) fn new(options: &EventOptions) -> Self {
        Self { events: MethodEvents::new(options), ..Self::default() }
    }
}
