//! Options that all formats share.

use std::borrow::Cow;

use profiler_profile::{EventId, Profile};

/// Options of all formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputOptions {
    /// Append the kind of each frame to its name: `_[k]` kernel, `_[j]` JIT, `_[i]` inlined.
    pub annotate: bool,
    /// Add a frame with name and id of the thread above the root.
    pub per_thread: bool,
    /// Add a frame with name and id of the process above the root.
    pub per_process: bool,
    /// Add a frame with the state of the thread above its root: `[blocked]`.
    pub per_state: bool,
    /// Add a frame with the id of the container above the process.
    pub per_container: bool,
    /// Show each unsymbolized frame with its address in flame graphs, pages and tables, where consecutive ones of a module
    /// are one frame `[module]` otherwise. Other formats always have the addresses.
    pub addresses: bool,
    /// The event that formats of a single event show and that pages begin with; else that of `Profile::default_event`.
    pub event: Option<EventId>,
    /// Width of tables in columns of a terminal; 100 when not set.
    pub width_columns: Option<u16>,
}

impl OutputOptions {
    /// The profile as pictures, tables and views show it: consecutive unsymbolized frames of a module are one frame,
    /// unless addresses are requested.
    pub fn displayed<'a>(&self, profile: &'a Profile) -> Cow<'a, Profile> {
        if self.addresses { Cow::Borrowed(profile) } else { profile.with_merged_unsymbolized_frames() }
    }

    /// The event of a profile that is shown first.
    pub fn event_of(&self, profile: &Profile) -> EventId {
        self.event.unwrap_or_else(|| profile.default_event())
    }

    /// The width of tables, columns.
    pub(crate) fn width(&self) -> usize {
        const DEFAULT_COLUMNS: u16 = 100;
        self.width_columns.unwrap_or(DEFAULT_COLUMNS).into()
    }
}
