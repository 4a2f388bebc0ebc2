//! Compares two profiles: the functions whose share of the samples changed.

mod change;

use std::collections::BTreeMap;

pub use self::change::Change;
use crate::{EventId, Profile, sum};

/// An earlier and a later profile.
///
/// Shares are compared, so the two may differ in frequency and duration.
///
/// ```
/// use profiler_profile::{Difference, Header, ProfileBuilder};
///
/// let before = ProfileBuilder::default().finish(Header::default());
/// let after = before.clone();
/// assert!(Difference::between(&before, &after).functions().is_empty());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Difference<'a> {
    before: &'a Profile,
    after: &'a Profile,
    durations_ns: [u64; 2],
}

/// The change of a function.
#[derive(Clone, Debug)]
pub struct FunctionChange<'a> {
    /// The name of the function.
    pub name: &'a str,
    /// The file name of its module, empty where it has none.
    pub module: &'a str,
    /// Samples whose leaf is the function.
    pub self_change: Change,
    /// Samples with the function anywhere in the stack.
    pub total_change: Change,
}

impl<'a> Difference<'a> {
    /// The difference between two profiles.
    #[must_use]
    pub fn between(before: &'a Profile, after: &'a Profile) -> Self {
        let durations_ns = [before, after].map(|profile| profile.header().duration_ns);
        Self { before, after, durations_ns }
    }

    /// The same for samples of a part of the time of each profile, of these lengths in nanoseconds.
    #[must_use]
    pub fn in_times(self, durations_ns: [u64; 2]) -> Self {
        Self { durations_ns, ..self }
    }

    /// The difference between views of the two profiles.
    #[must_use]
    pub fn of_views<'b>(&self, before: &'b Profile, after: &'b Profile) -> Difference<'b> {
        Difference { before, after, durations_ns: self.durations_ns }
    }

    /// The lengths of time of the samples of each profile, nanoseconds.
    #[must_use]
    pub fn durations_ns(&self) -> [u64; 2] {
        self.durations_ns
    }

    /// The earlier profile.
    #[must_use]
    pub fn before(&self) -> &'a Profile {
        self.before
    }

    /// The later profile.
    #[must_use]
    pub fn after(&self) -> &'a Profile {
        self.after
    }

    /// Every function of either profile, by descending change of its self share. Functions are equal when their name and
    /// the file name of their module are, so that two builds can be compared.
    #[must_use]
    pub fn functions(&self) -> Vec<FunctionChange<'a>> {
        let no_change = Change {
            before_total: self.before.total_value(),
            after_total: self.after.total_value(),
            before_samples: self.before.effective_samples(EventId::FIRST),
            after_samples: self.after.effective_samples(EventId::FIRST),
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
    fn functions_are_ordered_by_the_change_of_their_self_share() {
        let before = folded(&[("p;main;parse", 60), ("p;main;read", 40)]);
        let after = folded(&[("p;main;parse", 60), ("p;main;read", 90), ("p;main;write", 50)]);
        let functions = Difference::between(&before, &after).functions();
        let names: Vec<_> = functions.iter().map(|function| function.name).collect();
        assert_eq!(names, ["parse", "write", "read", "main"]);
        let expected = Change {
            before_count: 60,
            before_total: 100,
            after_count: 60,
            after_total: 200,
            before_samples: 100,
            after_samples: 200,
        };
        assert_eq!(functions[0].self_change, expected);
        assert_eq!(functions[3].total_change.points(), 0.0);
    }

    #[test]
    fn a_profile_does_not_differ_from_itself_or_from_a_longer_measurement() {
        let once = folded(&[("p;main;parse", 6), ("p;main;read", 4)]);
        let longer = folded(&[("p;main;parse", 60), ("p;main;read", 40)]);
        for function in Difference::between(&once, &longer).functions() {
            assert!(function.self_change.points().abs() < 1e-9 && !function.self_change.is_beyond_noise());
        }
    }
}
