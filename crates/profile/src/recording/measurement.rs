//! Encodes and decodes the header and the ledger.

use std::collections::BTreeMap;

use super::{
    body::{Body, Fields},
    codes::VariantCode,
};
use crate::{Cost, EventLedger, Header, Incident, Ledger, TimerTicks, UnsymbolizedFrames};

/// Encodes the header.
pub(super) fn push_header(header: &Header, body: &mut Body) {
    body.text(&header.target);
    body.text(OTHER_EVENTS.name);
    for number in [
        OTHER_EVENTS.frequency_hz,
        header.duration_ns,
        header.started_unix_ns,
        header.started_monotonic_ns,
        header.cpus.into(),
    ] {
        body.number(number);
    }
    body.index(header.edits.len());
    header.edits.iter().for_each(|edit| body.text(edit));
    body.number(header.incident.is_some().into());
    if let Some(incident) = &header.incident {
        body.number(incident.since_ns);
        body.number(incident.time_ns);
        body.text(&incident.condition);
        body.text(&incident.values);
    }
}

/// The event in the header of version 1, the only one.
#[derive(Debug, PartialEq)]
pub(super) struct HeaderEvent<'a> {
    pub(super) name: &'a str,
    pub(super) frequency_hz: u64,
}

/// In the header since version 2, whose events are a table.
const OTHER_EVENTS: HeaderEvent<'static> = HeaderEvent { name: "", frequency_hz: 0 };

/// Decodes the header, and the event of version 1.
pub(super) fn read_header<'a>(fields: &mut Fields<'a>) -> Option<(Header, Option<HeaderEvent<'a>>)> {
    let target = fields.text()?.to_owned();
    let event = HeaderEvent { name: fields.text()?, frequency_hz: fields.number()? };
    let mut header = Header {
        target,
        duration_ns: fields.number()?,
        started_unix_ns: fields.number()?,
        started_monotonic_ns: fields.number()?,
        cpus: fields.number_u32()?,
        edits: Vec::new(),
        incident: None,
    };
    for _ in 0..fields.number()? {
        header.edits.push(fields.text()?.to_owned());
    }
    // Recordings up to version 2 end here.
    if !fields.is_empty() && fields.number()? > 0 {
        header.incident = Some(Incident {
            since_ns: fields.number()?,
            time_ns: fields.number()?,
            condition: fields.text()?.to_owned(),
            values: fields.text()?.to_owned(),
        });
    }
    Some((header, (event != OTHER_EVENTS).then_some(event)))
}

/// Encodes the ledger. The fields of the first event are among those of the session, where version 1 has them.
pub(super) fn push_ledger(ledger: &Ledger, body: &mut Body) {
    let no_event = EventLedger::default();
    let (first, others) = ledger.events.split_first().unwrap_or((&no_event, &[]));
    for number in [
        first.due,
        first.reported,
        ledger.lost_process_events,
        ledger.lost_children,
        ledger.malformed_jit_entries,
        ledger.dropped_runtime_events,
        ledger.cost.bpf_run_time_ns,
        ledger.cost.user_cpu_ns,
        ledger.cost.system_cpu_ns,
        ledger.cost.peak_memory_bytes,
    ] {
        body.number(number);
    }
    push_event_counts(first, body);
    body.number(ledger.timer.due);
    push_counts(&ledger.timer.missed, body);
    body.number(ledger.late_process_events);
    body.number(first.skipped_ticks);
    body.number(first.cut_stacks);
    body.index(others.len());
    for event in others {
        body.number(event.due);
        body.number(event.reported);
        push_event_counts(event, body);
        body.number(event.skipped_ticks);
        body.number(event.cut_stacks);
    }
    for event in &ledger.events {
        body.number(event.idle);
        body.number(event.short_waits);
        body.number(event.short_waits_ns);
    }
    push_counts(&ledger.event_sessions, body);
}

fn push_event_counts(event: &EventLedger, body: &mut Body) {
    push_counts(&event.lost, body);
    push_counts(&event.stacks, body);
    push_counts(&event.found_by, body);
    push_counts(&event.symbolized, body);
    body.index(event.unsymbolized.len());
    for (frames, count) in &event.unsymbolized {
        body.text(&frames.module);
        body.number(frames.reason.code());
        body.number(*count);
    }
}

pub(super) fn read_ledger(fields: &mut Fields<'_>) -> Option<Ledger> {
    let (due, reported) = (fields.number()?, fields.number()?);
    let mut ledger = Ledger {
        lost_process_events: fields.number()?,
        lost_children: fields.number()?,
        malformed_jit_entries: fields.number()?,
        dropped_runtime_events: fields.number()?,
        cost: Cost {
            bpf_run_time_ns: fields.number()?,
            user_cpu_ns: fields.number()?,
            system_cpu_ns: fields.number()?,
            peak_memory_bytes: fields.number()?,
        },
        ..Ledger::default()
    };
    let mut first = EventLedger { due, reported, ..read_event_counts(fields)? };
    // Recordings of 0.1.0 end here.
    if !fields.is_empty() {
        ledger.timer = TimerTicks { due: fields.number()?, missed: read_counts(fields)? };
        ledger.late_process_events = fields.number()?;
        first.skipped_ticks = fields.number()?;
        first.cut_stacks = fields.number()?;
    }
    ledger.events.push(first);
    // Version 1 ends here.
    let others = if fields.is_empty() { 0 } else { fields.number()? };
    for _ in 0..others {
        let (due, reported) = (fields.number()?, fields.number()?);
        let counts = read_event_counts(fields)?;
        let (skipped_ticks, cut_stacks) = (fields.number()?, fields.number()?);
        ledger.events.push(EventLedger { due, reported, skipped_ticks, cut_stacks, ..counts });
    }
    // Recordings without counts of waits end here.
    if !fields.is_empty() {
        for event in &mut ledger.events {
            event.idle = fields.number()?;
            event.short_waits = fields.number()?;
            event.short_waits_ns = fields.number()?;
        }
    }
    // Recordings without the causes of event sessions end here.
    if !fields.is_empty() {
        ledger.event_sessions = read_counts(fields)?;
    }
    Some(ledger)
}

fn read_event_counts(fields: &mut Fields<'_>) -> Option<EventLedger> {
    let mut event = EventLedger {
        lost: read_counts(fields)?,
        stacks: read_counts(fields)?,
        found_by: read_counts(fields)?,
        symbolized: read_counts(fields)?,
        ..EventLedger::default()
    };
    for _ in 0..fields.number()? {
        let module = fields.text()?.to_owned();
        let reason = VariantCode::from_code(fields.number()?)?;
        event.unsymbolized.insert(UnsymbolizedFrames { module, reason }, fields.number()?);
    }
    Some(event)
}

fn push_counts<T: VariantCode + Copy>(counts: &BTreeMap<T, u64>, body: &mut Body) {
    body.index(counts.len());
    for (variant, count) in counts {
        body.number(variant.code());
        body.number(*count);
    }
}

fn read_counts<T: VariantCode + Ord>(fields: &mut Fields<'_>) -> Option<BTreeMap<T, u64>> {
    let mut counts = BTreeMap::new();
    for _ in 0..fields.number()? {
        counts.insert(T::from_code(fields.number()?)?, fields.number()?);
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventSessionCause, FoundBy, Loss, MissedTick, Reason, StackEnd, SymbolSource};

    fn event() -> EventLedger {
        let frames = UnsymbolizedFrames { module: "/lib/a.so".to_owned(), reason: Reason::NoSymbols };
        EventLedger {
            due: 1,
            reported: 2,
            idle: 25,
            lost: [(Loss::NoThreadId, 9), (Loss::Undecodable, u64::MAX)].into(),
            skipped_ticks: 22,
            cut_stacks: 23,
            short_waits: 26,
            short_waits_ns: 27,
            stacks: [(StackEnd::Backwards, 12)].into(),
            found_by: [(FoundBy::Cfi, 13)].into(),
            symbolized: [(SymbolSource::Dwarf, 14)].into(),
            unsymbolized: [(frames, 15)].into(),
        }
    }

    fn ledger() -> Ledger {
        let cost = Cost { bpf_run_time_ns: 6, user_cpu_ns: 7, system_cpu_ns: 8, peak_memory_bytes: u64::MAX };
        Ledger {
            events: vec![event()],
            lost_process_events: 3,
            late_process_events: 17,
            lost_children: 4,
            malformed_jit_entries: 5,
            dropped_runtime_events: 11,
            timer: TimerTicks { due: 20, missed: [(MissedTick::Throttled, 16)].into() },
            event_sessions: [(EventSessionCause::DynamicMethods, 28)].into(),
            cost,
        }
    }

    /// The bytes of the ledger of [`ledger`] after which older recordings end, and the fields that they do not have:
    /// those of 0.1.0 lack four numbers and one count with its cause, version 1 lacks the number of further events, and
    /// the first recordings of version 2 lack three counts of waits, and those before the causes of event sessions one count with its
    /// cause.
    const BYTES_SINCE_0_1_0: usize = 14;
    const BYTES_SINCE_VERSION_1: usize = 7;
    const BYTES_SINCE_WAITS: usize = 6;
    const BYTES_SINCE_EVENT_SESSIONS: usize = 3;

    #[test]
    fn decoding_a_ledger_inverts_encoding() {
        for others in 0..3 {
            let mut ledger = ledger();
            ledger.events.extend((0..others).map(|due| EventLedger { due, ..event() }));
            let mut body = Body::default();
            push_ledger(&ledger, &mut body);
            assert_eq!(read_ledger(&mut Fields::new(body.bytes())), Some(ledger));
        }
    }

    #[test]
    fn a_truncated_ledger_is_refused() {
        let mut body = Body::default();
        push_ledger(&ledger(), &mut body);
        let whole = body.bytes();
        let ends_of_older =
            [BYTES_SINCE_0_1_0, BYTES_SINCE_VERSION_1, BYTES_SINCE_WAITS, BYTES_SINCE_EVENT_SESSIONS];
        let ends_of_older = ends_of_older.map(|bytes| whole.len() - bytes);
        for length in (0..whole.len()).filter(|length| !ends_of_older.contains(length)) {
            assert_eq!(read_ledger(&mut Fields::new(&whole[..length])), None, "{length}");
        }
    }

    #[test]
    fn a_ledger_of_an_older_recording_has_zeros_for_newer_fields() {
        let mut body = Body::default();
        push_ledger(&ledger(), &mut body);
        let read = |missing| read_ledger(&mut Fields::new(&body.bytes()[..body.bytes().len() - missing]));
        let without_waits = || EventLedger { idle: 0, short_waits: 0, short_waits_ns: 0, ..event() };
        let first = EventLedger { skipped_ticks: 0, cut_stacks: 0, ..without_waits() };
        let without_sessions = Ledger { event_sessions: BTreeMap::new(), ..ledger() };
        let events = vec![first];
        let timer = TimerTicks::default();
        let expected = Ledger { events, timer, late_process_events: 0, ..without_sessions.clone() };
        assert_eq!(read(BYTES_SINCE_0_1_0), Some(expected));
        for bytes in [BYTES_SINCE_VERSION_1, BYTES_SINCE_WAITS] {
            let expected = Ledger { events: vec![without_waits()], ..without_sessions.clone() };
            assert_eq!(read(bytes), Some(expected));
        }
        assert_eq!(read(BYTES_SINCE_EVENT_SESSIONS), Some(without_sessions));
    }

    #[test]
    fn additional_fields_at_the_end_are_skipped() {
        let incident = Incident {
            since_ns: 5,
            time_ns: 7,
            condition: "cpu < 20%".to_owned(),
            values: "cpu 3.1 %".to_owned(),
        };
        let header = Header {
            target: "pid 1".to_owned(),
            edits: vec!["--focus a".to_owned()],
            incident: Some(incident),
            ..Header::default()
        };
        let mut body = Body::default();
        push_header(&header, &mut body);
        body.text("more");
        assert_eq!(read_header(&mut Fields::new(body.bytes())), Some((header, None)));
    }

    #[test]
    fn the_header_of_version_1_has_the_event() {
        let mut body = Body::default();
        body.text("pid 1");
        body.text("cpu-clock");
        [99, 5, 6, 7, 8, 0].into_iter().for_each(|number| body.number(number));
        let (header, event) = read_header(&mut Fields::new(body.bytes())).unwrap();
        assert_eq!((header.duration_ns, header.cpus), (5, 8));
        assert_eq!(event, Some(HeaderEvent { name: "cpu-clock", frequency_hz: 99 }));
    }
}
