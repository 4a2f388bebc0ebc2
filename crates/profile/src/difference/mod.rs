//! Two profiles beside each other: what takes more of the samples now, and what less.

mod change;

use std::collections::BTreeMap;

pub use self::change::Change;
use crate::{Profile, sum};

/// A profile from before a change, and one from after it.
///
/// What is compared are shares: the two need neither the same frequency nor the same duration.
///
/// ```
/// use profiler::{Difference, Format, profile::{Header, ProfileBuilder}};
///
/// let before = ProfileBuilder::default().finish(Header::default());
/// let after = before.clone();
/// let mut folded = Vec::new();
/// Difference::between(&before, &after).write(Format::Folded, &mut folded)?;
/// assert!(folded.is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Difference<'a> {
    before: &'a Profile,
    after: &'a Profile,
}

/// What became of a function.
#[derive(Clone, Debug)]
pub struct FunctionChange<'a> {
    /// What it is called.
    pub name: &'a str,
    /// The name of the file it is from, empty where there is none.
    pub module: &'a str,
    /// Of the samples that hit the function itself.
    pub self_change: Change,
    /// Of the samples that hit it or what it called.
    pub total_change: Change,
}

impl<'a> Difference<'a> {
    /// The difference between two profiles.
    #[must_use]
    pub fn between(before: &'a Profile, after: &'a Profile) -> Self {
        Self { before, after }
    }

    /// The profile from before.
    #[must_use]
    pub fn before(&self) -> &'a Profile {
        self.before
    }

    /// The profile from after.
    #[must_use]
    pub fn after(&self) -> &'a Profile {
        self.after
    }

    /// Every function of either profile, the one whose own share changed most first. A function is the same when name
    /// and file name are: another build may lie elsewhere.
    #[must_use]
    pub fn functions(&self) -> Vec<FunctionChange<'a>> {
        let no_change = Change {
            before_total: self.before.sample_count(),
            after_total: self.after.sample_count(),
            ..Change::default()
        };
        let mut changes = BTreeMap::<(&str, &str), (Change, Change)>::new();
        for (profile, is_after) in [(self.before, false), (self.after, true)] {
            for function in profile.functions() {
                let key = (profile.string(function.name), profile.module_name(function.module));
                let (own, total) = changes.entry(key).or_insert((no_change, no_change));
                for (change, count) in [(own, function.self_count), (total, function.total_count)] {
                    sum::add(
                        if is_after { &mut change.after_count } else { &mut change.before_count },
                        count,
                    );
                }
            }
        }
        let mut changes: Vec<_> = changes
            .into_iter()
            .map(|((name, module), (self_change, total_change))| FunctionChange {
                name,
                module,
                self_change,
                total_change,
            })
            .collect();
        let size = |change: &FunctionChange<'_>| {
            (change.self_change.points().abs(), change.total_change.points().abs())
        };
        changes.sort_by(|a, b| size(b).partial_cmp(&size(a)).unwrap_or(std::cmp::Ordering::Equal));
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_profile::folded;

    #[test]
    fn functions_stand_by_how_much_their_own_share_changed() {
        let before = folded(&[("p;main;parse", 60), ("p;main;read", 40)]);
        let after = folded(&[("p;main;parse", 60), ("p;main;read", 90), ("p;main;write", 50)]);
        let functions = Difference::between(&before, &after).functions();
        let names: Vec<_> = functions.iter().map(|function| function.name).collect();
        assert_eq!(names, ["parse", "write", "read", "main"]);
        let expected = Change { before_count: 60, before_total: 100, after_count: 60, after_total: 200 };
        assert_eq!(functions[0].self_change, expected);
        assert_eq!(functions[3].total_change.points(), 0.0);
    }

    #[test]
    fn a_profile_has_no_difference_to_itself_or_to_a_longer_one_of_the_same() {
        let once = folded(&[("p;main;parse", 6), ("p;main;read", 4)]);
        let longer = folded(&[("p;main;parse", 60), ("p;main;read", 40)]);
        for function in Difference::between(&once, &longer).functions() {
            assert!(function.self_change.points().abs() < 1e-9 && !function.self_change.is_beyond_noise());
        }
    }
}
