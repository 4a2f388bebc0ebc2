//! Encodes and decodes the facts of a finding.

use super::{
    body::{Body, Fields},
    codes::VariantCode,
};
use crate::{Certainty, FindingFacts, Partner, Place, Selection, Share};

const PROVEN: u64 = 0;

pub(super) fn push_facts(facts: &FindingFacts, body: &mut Body) {
    let FindingFacts {
        processes,
        threads,
        threads_at_a_time,
        share,
        place,
        cause_thread,
        // In a section of its own.
        partner: _,
        since_ns,
        certainty,
        selection,
    } = facts;
    push_ids(processes, body);
    push_optional(*threads, body, |threads, body| body.number(threads.into()));
    push_optional(*threads_at_a_time, body, |threads, body| body.number(threads.to_bits()));
    push_optional(*share, body, |share, body| {
        body.number(share.of.code());
        body.number(share.percent.to_bits());
    });
    push_optional(place.as_ref(), body, |place, body| {
        body.text(&place.method);
        push_optional(place.location.as_ref(), body, |(file, line), body| {
            body.text(file);
            body.number((*line).into());
        });
    });
    push_optional(*cause_thread, body, |thread, body| body.number(thread.into()));
    push_optional(*since_ns, body, |since_ns, body| body.number(since_ns));
    body.number(match certainty {
        Certainty::Proven => PROVEN,
        Certainty::Likely(proof) => proof.code(),
    });
    push_selection(selection, body);
}

/// The index of a finding, and what its threads wait for.
pub(super) fn push_partner((finding, partner): (usize, &Partner), body: &mut Body) {
    body.index(finding);
    body.text(&partner.name);
    push_optional(partner.process, body, |process, body| body.number(process.into()));
}

pub(super) fn read_partner(fields: &mut Fields<'_>) -> Option<(usize, Partner)> {
    let finding = fields.index()?;
    let name = fields.text()?.to_owned();
    Some((finding, Partner { name, process: read_optional(fields, Fields::number_u32)? }))
}

fn push_selection(selection: &Selection, body: &mut Body) {
    body.number(selection.begin_ns);
    body.number(selection.end_ns);
    push_ids(&selection.threads, body);
    body.number(selection.runtime_events.map_or(0, VariantCode::code));
    push_optional(selection.search.as_deref(), body, |search, body| body.text(search));
}

fn push_ids(ids: &[u32], body: &mut Body) {
    body.index(ids.len());
    ids.iter().for_each(|id| body.number((*id).into()));
}

/// 0, or 1 and the value.
fn push_optional<T>(value: Option<T>, body: &mut Body, push: impl FnOnce(T, &mut Body)) {
    body.number(value.is_some().into());
    if let Some(value) = value {
        push(value, body);
    }
}

pub(super) fn read_facts(fields: &mut Fields<'_>) -> Option<FindingFacts> {
    Some(FindingFacts {
        processes: read_ids(fields)?,
        threads: read_optional(fields, Fields::number_u32)?,
        threads_at_a_time: read_optional(fields, read_real)?,
        share: read_optional(fields, |fields| {
            Some(Share { of: VariantCode::from_code(fields.number()?)?, percent: read_real(fields)? })
        })?,
        place: read_optional(fields, read_place)?,
        cause_thread: read_optional(fields, Fields::number_u32)?,
        partner: None,
        since_ns: read_optional(fields, Fields::number)?,
        certainty: fields.optional_variant()?.map_or(Certainty::Proven, Certainty::Likely),
        selection: Selection {
            begin_ns: fields.number()?,
            end_ns: fields.number()?,
            threads: read_ids(fields)?,
            runtime_events: fields.optional_variant()?,
            search: read_optional(fields, |fields| Some(fields.text()?.to_owned()))?,
        },
    })
}

fn read_place(fields: &mut Fields<'_>) -> Option<Place> {
    Some(Place {
        method: fields.text()?.to_owned(),
        location: read_optional(fields, |fields| Some((fields.text()?.to_owned(), fields.number_u32()?)))?,
    })
}

fn read_real(fields: &mut Fields<'_>) -> Option<f64> {
    fields.number().map(f64::from_bits)
}

/// Memory is taken as ids come, not as they are promised.
fn read_ids(fields: &mut Fields<'_>) -> Option<Vec<u32>> {
    let mut ids = Vec::new();
    for _ in 0..fields.number()? {
        ids.push(fields.number_u32()?);
    }
    Some(ids)
}

/// A value behind 1, none behind 0; the outer `None` is a decoding failure.
fn read_optional<'a, T>(
    fields: &mut Fields<'a>,
    read: impl FnOnce(&mut Fields<'a>) -> Option<T>,
) -> Option<Option<T>> {
    match fields.number()? {
        0 => Some(None),
        1 => read(fields).map(Some),
        _ => None,
    }
}
