//! Encodes and decodes the header and the ledger.

use std::collections::BTreeMap;

use super::{
    body::{Body, Fields},
    codes::VariantCode,
};
use crate::{Cost, Header, Ledger, TimerTicks, UnsymbolizedFrames};

/// Encodes the header.
pub(super) fn push_header(header: &Header, body: &mut Body) {
    body.text(&header.target);
    body.text(&header.event);
    for number in [
        header.frequency_hz,
        header.duration_ns,
        header.started_unix_ns,
        header.started_monotonic_ns,
        header.cpus.into(),
    ] {
        body.number(number);
    }
    body.index(header.edits.len());
    header.edits.iter().for_each(|edit| body.text(edit));
}

pub(super) fn read_header(fields: &mut Fields<'_>) -> Option<Header> {
    let mut header = Header {
        target: fields.text()?.to_owned(),
        event: fields.text()?.to_owned(),
        frequency_hz: fields.number()?,
        duration_ns: fields.number()?,
        started_unix_ns: fields.number()?,
        started_monotonic_ns: fields.number()?,
        cpus: fields.number_u32()?,
        edits: Vec::new(),
    };
    for _ in 0..fields.number()? {
        header.edits.push(fields.text()?.to_owned());
    }
    Some(header)
}

/// Encodes the ledger.
pub(super) fn push_ledger(ledger: &Ledger, body: &mut Body) {
    for number in [
        ledger.target_ticks,
        ledger.reported,
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
    push_counts(&ledger.lost, body);
    push_counts(&ledger.stacks, body);
    push_counts(&ledger.found_by, body);
    push_counts(&ledger.symbolized, body);
    body.index(ledger.unsymbolized.len());
    for (frames, count) in &ledger.unsymbolized {
        body.text(&frames.module);
        body.number(frames.reason.code());
        body.number(*count);
    }
    body.number(ledger.timer.due);
    push_counts(&ledger.timer.missed, body);
    body.number(ledger.late_process_events);
    body.number(ledger.skipped_ticks);
    body.number(ledger.cut_stacks);
}

pub(super) fn read_ledger(fields: &mut Fields<'_>) -> Option<Ledger> {
    let mut ledger = Ledger {
        target_ticks: fields.number()?,
        reported: fields.number()?,
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
        lost: read_counts(fields)?,
        stacks: read_counts(fields)?,
        found_by: read_counts(fields)?,
        symbolized: read_counts(fields)?,
        unsymbolized: BTreeMap::new(),
        timer: TimerTicks::default(),
        late_process_events: 0,
        skipped_ticks: 0,
        cut_stacks: 0,
    };
    for _ in 0..fields.number()? {
        let module = fields.text()?.to_owned();
        let reason = VariantCode::from_code(fields.number()?)?;
        ledger.unsymbolized.insert(UnsymbolizedFrames { module, reason }, fields.number()?);
    }
    // Recordings of 0.1.0 end here.
    if !fields.is_empty() {
        ledger.timer = TimerTicks { due: fields.number()?, missed: read_counts(fields)? };
        ledger.late_process_events = fields.number()?;
        ledger.skipped_ticks = fields.number()?;
        ledger.cut_stacks = fields.number()?;
    }
    Some(ledger)
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
    use crate::{FoundBy, Loss, MissedTick, Reason, StackEnd, SymbolSource};

    fn ledger() -> Ledger {
        let cost = Cost { bpf_run_time_ns: 6, user_cpu_ns: 7, system_cpu_ns: 8, peak_memory_bytes: u64::MAX };
        let frames = UnsymbolizedFrames { module: "/lib/a.so".to_owned(), reason: Reason::NoSymbols };
        Ledger {
            target_ticks: 1,
            reported: 2,
            lost: [(Loss::NoThreadId, 9), (Loss::Undecodable, u64::MAX)].into(),
            lost_process_events: 3,
            late_process_events: 17,
            skipped_ticks: 22,
            cut_stacks: 23,
            lost_children: 4,
            malformed_jit_entries: 5,
            dropped_runtime_events: 11,
            stacks: [(StackEnd::Backwards, 12)].into(),
            found_by: [(FoundBy::Cfi, 13)].into(),
            symbolized: [(SymbolSource::Dwarf, 14)].into(),
            unsymbolized: [(frames, 15)].into(),
            timer: TimerTicks { due: 20, missed: [(MissedTick::Throttled, 16)].into() },
            cost,
        }
    }

    #[test]
    fn decoding_a_ledger_inverts_encoding() {
        let mut body = Body::default();
        push_ledger(&ledger(), &mut body);
        assert_eq!(read_ledger(&mut Fields::new(body.bytes())), Some(ledger()));
        // The older ledger in the test below, too, ends at a whole field.
        for length in (0..body.bytes().len()).filter(|length| *length != body.bytes().len() - NEWER_BYTES) {
            assert_eq!(read_ledger(&mut Fields::new(&body.bytes()[..length])), None, "{length}");
        }
    }

    /// The bytes of what recordings of 0.1.0 do not have: four numbers, and one count with its cause.
    const NEWER_BYTES: usize = 7;

    #[test]
    fn a_ledger_of_an_older_recording_has_zeros_for_newer_fields() {
        let mut body = Body::default();
        push_ledger(&ledger(), &mut body);
        let older = &body.bytes()[..body.bytes().len() - NEWER_BYTES];
        let expected = Ledger {
            timer: TimerTicks::default(),
            late_process_events: 0,
            skipped_ticks: 0,
            cut_stacks: 0,
            ..ledger()
        };
        assert_eq!(read_ledger(&mut Fields::new(older)), Some(expected));
    }

    #[test]
    fn additional_fields_at_the_end_are_skipped() {
        let header =
            Header { target: "pid 1".to_owned(), edits: vec!["--focus a".to_owned()], ..Header::default() };
        let mut body = Body::default();
        push_header(&header, &mut body);
        body.text("more");
        assert_eq!(read_header(&mut Fields::new(body.bytes())), Some(header));
    }
}
