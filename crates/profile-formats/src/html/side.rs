//! One of the profiles that a page is of.

use profiler_profile::Profile;

/// A profile and its place among those of the page: the one from before a change stands before the one from after it.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    pub(super) number: usize,
    pub(super) profile: &'a Profile,
}
