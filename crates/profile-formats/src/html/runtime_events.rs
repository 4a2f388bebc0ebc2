//! The runtime events of the page, in columns and in time order.

use std::collections::HashMap;

use serde::Serialize;

use super::{column, owner::Owners, side::Side, text::Texts};
use crate::runtime_event;
use profiler_profile::{EventTotals, Profile, RuntimeEvent, RuntimeEventKind, StackId};

/// Columns with an entry for each event.
#[derive(Serialize)]
pub(super) struct RuntimeEvents {
    /// The names of the kinds, by their index.
    kinds: Vec<&'static str>,
    /// The number of events that happened. The profile has some of them where they were too many, and the page at most
    /// [`MAX_EVENTS`].
    total: u64,
    /// Whether there were more than `total`: the runtime dropped some.
    #[serde(skip_serializing_if = "is_false")]
    is_lower_bound: bool,
    /// Nanoseconds since the previous event.
    #[serde(serialize_with = "column::numbers")]
    gap: Vec<u64>,
    #[serde(serialize_with = "column::numbers")]
    duration: Vec<u64>,
    #[serde(serialize_with = "column::numbers")]
    kind: Vec<usize>,
    #[serde(serialize_with = "column::numbers")]
    process: Vec<u32>,
    /// The index plus 1; 0 where the thread is unknown.
    #[serde(serialize_with = "column::numbers")]
    thread: Vec<u32>,
    /// The node of the call tree plus 1; 0 for an event without a stack.
    #[serde(serialize_with = "column::numbers")]
    node: Vec<u32>,
    #[serde(serialize_with = "column::numbers")]
    name: Vec<usize>,
    /// All fields in one text.
    #[serde(serialize_with = "column::numbers")]
    fields: Vec<usize>,
}

/// The maximum number of events, about 10 MB of the page before compression.
const MAX_EVENTS: usize = 200_000;

/// The events that a page shows: all, or those of the first kinds where there are too many.
pub(super) fn shown(profile: &Profile) -> Vec<&RuntimeEvent> {
    limited(profile.runtime_events(), MAX_EVENTS)
}

fn limited(events: &[RuntimeEvent], max_events: usize) -> Vec<&RuntimeEvent> {
    let mut shown: Vec<_> = events.iter().collect();
    if shown.len() > max_events {
        shown.sort_by_key(|event| kind_index(event.kind));
        shown.truncate(max_events);
        shown.sort_by_key(|event| event.time_ns);
    }
    shown
}

fn kind_index(kind: RuntimeEventKind) -> usize {
    RuntimeEventKind::ALL.iter().position(|known| *known == kind).unwrap_or(RuntimeEventKind::ALL.len() - 1)
}

impl RuntimeEvents {
    /// The columns of events; `None` without events.
    pub(super) fn of<'a>(
        side: Side<'a>,
        events: &[&RuntimeEvent],
        nodes: &HashMap<(usize, StackId), u32>,
        owners: &mut Owners<'a>,
        texts: &mut Texts<'a>,
    ) -> Option<Self> {
        let Side { number, profile } = side;
        let mut columns = Self {
            kinds: RuntimeEventKind::ALL.iter().map(|kind| kind.name()).collect(),
            total: totals(profile).map(|totals| totals.count).sum(),
            is_lower_bound: totals(profile).any(|totals| totals.is_lower_bound),
            gap: Vec::new(),
            duration: Vec::new(),
            kind: Vec::new(),
            process: Vec::new(),
            thread: Vec::new(),
            node: Vec::new(),
            name: Vec::new(),
            fields: Vec::new(),
        };
        let mut last_ns = 0;
        for event in events {
            let node = event.stack.and_then(|stack| nodes.get(&(number, stack)).copied());
            let thread = event.thread.map(|thread| owners.number(side, thread));
            columns.gap.push(event.time_ns - last_ns);
            columns.duration.push(event.duration_ns);
            columns.kind.push(kind_index(event.kind));
            columns.process.push(owners.process(side, event.process));
            columns.thread.push(thread.map_or(0, |thread| thread.saturating_add(1)));
            columns.node.push(node.map_or(0, |node| node.saturating_add(1)));
            columns.name.push(texts.number(profile.string(event.name)));
            columns.fields.push(texts.number_of_escaped(fields_text(profile, event)));
            last_ns = event.time_ns;
        }
        (!events.is_empty()).then_some(columns)
    }
}

fn totals(profile: &Profile) -> impl Iterator<Item = EventTotals> {
    RuntimeEventKind::ALL.iter().map(|kind| profile.runtime_event_totals(None, *kind))
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !value
}

/// The fields of an event, escaped: `Depth 0, Reason AllocSmall`.
fn fields_text(profile: &Profile, event: &RuntimeEvent) -> String {
    let fields = runtime_event::fields(profile, event);
    let texts = fields.iter().map(|(name, value)| {
        let value = runtime_event::value_text(profile, *value);
        format!("{name} {value}")
    });
    texts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_profile::test_profile;

    #[test]
    fn events_of_the_first_kinds_are_kept_in_time_order() {
        let profile =
            (0..100).map(test_profile::random).find(|profile| profile.runtime_events().len() > 50).unwrap();
        let kept = limited(profile.runtime_events(), 10);
        assert_eq!(kept.len(), 10);
        assert!(kept.is_sorted_by_key(|event| event.time_ns));
        let last_kind = kept.iter().map(|event| kind_index(event.kind)).max().unwrap();
        let is_of_earlier_kind = |event: &&RuntimeEvent| kind_index(event.kind) < last_kind;
        let earlier = profile.runtime_events().iter().filter(is_of_earlier_kind).count();
        assert_eq!(kept.iter().copied().filter(is_of_earlier_kind).count(), earlier);
        assert_eq!(limited(profile.runtime_events(), usize::MAX).len(), profile.runtime_events().len());
    }
}
