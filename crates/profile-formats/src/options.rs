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
    /// Show the frames of the runtime, of libc and of the kernel in which threads wait, below the cause of the wait, in flame graphs
    /// and tables; pages begin with them. Otherwise the cause is the leaf. Other formats always have the frames, and no causes.
    pub wait_frames: bool,
    /// The event that formats of a single event show and that pages begin with; else that of `Profile::default_event`.
    pub event: Option<EventId>,
    /// Width of tables in columns of a terminal; 100 when not set.
    pub width_columns: Option<u16>,
}

impl OutputOptions {
    /// The profile as pictures and tables show it: consecutive unsymbolized frames of a module are one frame, unless addresses are
    /// requested, and the cause of a wait is the leaf, unless the frames of waits are.
    pub fn displayed<'a>(&self, profile: &'a Profile) -> Cow<'a, Profile> {
        let merged = self.merged(profile);
        if self.wait_frames { merged } else { view_of(merged, Profile::with_folded_waits) }
    }

    /// The profile with the frames of waits: consecutive unsymbolized frames of a module are one frame, unless addresses are requested.
    pub(crate) fn merged<'a>(&self, profile: &'a Profile) -> Cow<'a, Profile> {
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

/// A view of a profile that is a view itself.
pub(crate) fn view_of<'a>(
    profile: Cow<'a, Profile>,
    view: impl for<'b> FnOnce(&'b Profile) -> Cow<'b, Profile>,
) -> Cow<'a, Profile> {
    match view(&profile) {
        Cow::Owned(view) => Cow::Owned(view),
        Cow::Borrowed(_) => profile,
    }
}
