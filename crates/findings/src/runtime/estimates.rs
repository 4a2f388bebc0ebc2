//! Numbers and durations of runtime events where a profile has a part of the events.

use std::{collections::HashMap, fmt};

use profiler_profile::{EventTotals, OmittedEvents, RuntimeEvent, RuntimeEventKind, sum};

use super::process_events::{ProcessEvents, duration_text};

/// A number of events or of nanoseconds, and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) number: f64,
    exactness: Exactness,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exactness {
    Exact,
    /// The runtime dropped events, and no number says how many.
    AtLeast,
    /// The share of the kept events is taken for that of all.
    About,
    AtLeastAbout,
}

impl Estimate {
    /// The share of `total` that some of the kept events have: `kept` of `of_kept`.
    fn new(kept: u64, of_kept: u64, total: u64, totals: EventTotals) -> Self {
        let is_share = total > of_kept && kept < of_kept;
        let number = if is_share {
            total as f64 * kept as f64 / of_kept as f64
        } else {
            (kept + total - of_kept) as f64
        };
        let exactness = match (totals.is_lower_bound, is_share) {
            (false, false) => Exactness::Exact,
            (true, false) => Exactness::AtLeast,
            (false, true) => Exactness::About,
            (true, true) => Exactness::AtLeastAbout,
        };
        Self { number, exactness }
    }

    /// The number of a part of the kept events: each represents as many as its weight. It is that of all of them where `is_part` is false.
    pub(super) fn of_part(weight: f64, is_part: bool, totals: EventTotals) -> Self {
        let exactness = match (totals.is_lower_bound, is_part && totals.count > totals.kept) {
            (false, false) => Exactness::Exact,
            (true, false) => Exactness::AtLeast,
            (false, true) => Exactness::About,
            (true, true) => Exactness::AtLeastAbout,
        };
        Self { number: weight, exactness }
    }

    /// The number divided by another one.
    pub(super) fn divided_by(self, divisor: f64) -> Self {
        Self { number: self.number / divisor, ..self }
    }

    /// The nanoseconds as text: `at least 85 ms`.
    pub(super) fn duration_text(self) -> String {
        format!("{}{}", self.qualifier(), duration_text(self.number as u64))
    }

    /// The word before the number, with a space behind it; empty where it is exact.
    pub(super) fn qualifier(self) -> &'static str {
        match self.exactness {
            Exactness::Exact => "",
            Exactness::AtLeast => "at least ",
            Exactness::About => "about ",
            Exactness::AtLeastAbout => "at least about ",
        }
    }
}

impl fmt::Display for Estimate {
    /// With the decimals of the format, no decimals without: `at least 120`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:.*}", self.qualifier(), f.precision().unwrap_or(0), self.number)
    }
}

impl<'a> ProcessEvents<'a> {
    /// The totals of a kind.
    pub(super) fn totals(&self, kind: RuntimeEventKind) -> EventTotals {
        self.profile.runtime_event_totals(Some(self.process), kind)
    }

    /// The number of all events of a kind that are like `kept` ones of those that the profile has.
    pub(super) fn estimated_count(&self, kind: RuntimeEventKind, kept: usize) -> Estimate {
        let totals = self.totals(kind);
        Estimate::new(kept as u64, totals.kept, totals.count, totals)
    }

    /// The kept events of a kind, and how many of all events each represents. The first of each name, which is the text of a field, are
    /// kept in any case and represent themselves.
    pub(super) fn weighted(&self, kind: RuntimeEventKind, name: &str) -> Vec<(&'a RuntimeEvent, f64)> {
        let totals = self.totals(kind);
        let mut of_names = HashMap::<_, u32>::new();
        let mut is_first = |event: &RuntimeEvent| {
            let has_room = of_names.len() < OmittedEvents::MAX_NAMES;
            let name = self.text(event, name);
            if !has_room && !of_names.contains_key(&name) {
                return false;
            }
            let count = of_names.entry(name).or_default();
            *count += 1;
            *count <= OmittedEvents::FIRST_OF_NAME
        };
        let events: Vec<_> = self.of_kind(kind).map(|event| (event, is_first(event))).collect();
        let others = events.iter().filter(|(_, is_first)| !is_first).count() as f64;
        let omitted = totals.count.saturating_sub(totals.kept) as f64;
        let (of_first, of_other) = if others > 0.0 {
            (1.0, 1.0 + omitted / others)
        } else {
            (1.0 + omitted / events.len().max(1) as f64, 1.0)
        };
        events
            .into_iter()
            .map(|(event, is_first)| (event, if is_first { of_first } else { of_other }))
            .collect()
    }

    /// The duration of all events of a kind that are like these of the profile, nanoseconds.
    pub(super) fn estimated_duration(&self, kind: RuntimeEventKind, kept: &[&RuntimeEvent]) -> Estimate {
        let totals = self.totals(kind);
        let kept_ns = sum::of(kept.iter().map(|event| event.duration_ns));
        let all_kept_ns = sum::of(self.of_kind(kind).map(|event| event.duration_ns));
        Estimate::new(kept_ns, all_kept_ns, totals.duration_ns, totals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_says_how_sure_it_is() {
        let totals = |is_lower_bound| EventTotals { is_lower_bound, ..EventTotals::default() };
        let text = |kept, of_kept, total, is_lower_bound| {
            Estimate::new(kept, of_kept, total, totals(is_lower_bound)).to_string()
        };
        assert_eq!(text(3, 10, 10, false), "3");
        assert_eq!(text(3, 10, 10, true), "at least 3");
        assert_eq!(text(10, 10, 1_000, false), "1000");
        assert_eq!(text(10, 10, 1_000, true), "at least 1000");
        assert_eq!(text(3, 10, 1_000, false), "about 300");
        assert_eq!(text(3, 10, 1_000, true), "at least about 300");
        assert_eq!(text(0, 0, 5, false), "5", "all are omitted");
        let estimate = Estimate::new(3, 10, 1_000, totals(false)).divided_by(7.0);
        assert_eq!(format!("{estimate:.1}"), "about 42.9");
        let long = Estimate::new(1, 1, 3_000_000_000, totals(true));
        assert_eq!(long.duration_text(), "at least 3.0 s");
    }
}
