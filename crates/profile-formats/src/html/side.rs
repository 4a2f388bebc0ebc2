//! A profile of a page and its index: 0, or 0 for the earlier and 1 for the later one of a difference.

use profiler_profile::Profile;

/// A profile and its index in the page.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    pub(super) number: usize,
    pub(super) profile: &'a Profile,
}
