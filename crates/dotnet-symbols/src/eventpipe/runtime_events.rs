//! Decodes the events about what a runtime does: garbage collections, suspensions, exceptions, lock contentions, adjustments
//! of the thread pool, allocations, compilations, loaded modules, counters and HTTP requests.
//!
//! Payloads of the runtime's own events: dotnet/runtime, src/coreclr/vm/ClrEtwAll.man. Their streams have no names and no
//! fields of these events. Newer versions only append fields. Events of other providers are decoded by the metadata in their
//! stream.

mod manifest;
mod requests;

use std::borrow::Cow;

use profiler_binary_reader::{ByteCursor, ParseError};
use profiler_profile::RuntimeEventKind;

pub use self::requests::{CLIENT_PROVIDER, SERVER_PROVIDER};
use self::{
    manifest::{Definition, Layout, definition},
    requests::with_request,
};
use super::{
    code_events::RUNTIME_PROVIDER,
    fields::{Field, FieldName, Value, decode_fields, read_value},
    nettrace::Event,
};

/// The name of the events with the values of counters (dotnet/runtime, `EventCounter` and its relatives).
const COUNTERS: &str = "EventCounters";

/// The part of an occurrence that an event reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// All of it.
    Whole,
    /// Its begin. The end is an event with the same [`RuntimeEvent::pair`].
    Begin,
    /// Its end.
    End,
}

/// An event about what a runtime does.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RuntimeEvent {
    /// What happened.
    pub kind: RuntimeEventKind,
    /// Whether it is the begin or the end of something.
    pub phase: Phase,
    /// Equal in the begin and the end of one occurrence, and in no other one of the kind at the same time.
    pub pair: (u64, u64),
    /// The name of the provider and that of the event: `Microsoft-Windows-DotNETRuntime/GCStart`.
    pub name: Cow<'static, str>,
    /// The fields in the order of the event's definition.
    pub fields: Vec<Field>,
}

impl RuntimeEvent {
    /// Decodes an event of a decoder [with details](super::nettrace::Decoder::with_details). `None` is another event of the
    /// runtime's own provider.
    pub fn decode(event: &Event<'_>) -> Option<Result<Self, ParseError>> {
        if event.kind.provider == RUNTIME_PROVIDER {
            return definition(event.kind.id).map(|definition| decode_known(definition, event));
        }
        Some(decode_by_metadata(event).map(|decoded| with_request(decoded, event)))
    }

    /// The name of the type of a thrown exception, in UTF-16 with the bytes in the order of the payload. `None` is another event, or
    /// a malformed one.
    pub fn exception_type<'a>(event: &Event<'a>) -> Option<&'a [u8]> {
        const EXCEPTION_THROWN: u32 = 80;
        const UNIT_BYTES: usize = 2;
        if event.kind.id != EXCEPTION_THROWN || event.kind.provider != RUNTIME_PROVIDER {
            return None;
        }
        let units = event.payload.chunks_exact(UNIT_BYTES).position(|unit| unit == [0; UNIT_BYTES])?;
        event.payload.get(..UNIT_BYTES * units)
    }

    /// The numbers of the runtime's own events of a kind.
    pub fn numbers(kind: RuntimeEventKind) -> impl Iterator<Item = u32> {
        manifest::ids(kind)
    }

    /// The value of the field with a name, if it is a number that is never negative.
    pub fn unsigned(&self, name: &str) -> Option<u64> {
        let field = self.fields.iter().find(|field| field.name == name)?;
        if let Value::Unsigned(value) = field.value { Some(value) } else { None }
    }
}

fn decode_known(definition: &Definition, event: &Event<'_>) -> Result<RuntimeEvent, ParseError> {
    let Definition { kind, phase, name, layouts, .. } = *definition;
    let fields = read_known_fields(layouts, event.payload)?;
    let mut decoded = RuntimeEvent { kind, phase, pair: (0, 0), name: Cow::Borrowed(name), fields };
    let field = |name| decoded.unsigned(name).unwrap_or(0);
    decoded.pair = match kind {
        RuntimeEventKind::GarbageCollection => (field("Count"), 0),
        RuntimeEventKind::Contention => (event.thread, 0),
        RuntimeEventKind::Compilation => (event.thread, field("MethodID")),
        // All managed threads are suspended, whichever thread does it: there is one suspension at a time.
        _ => (0, 0),
    };
    Ok(decoded)
}

/// Reads fields up to the end of the payload, which can be that of an older version with fewer fields.
fn read_known_fields(
    layouts: &'static [(&'static str, Layout)],
    payload: &[u8],
) -> Result<Vec<Field>, ParseError> {
    let mut bytes = ByteCursor::new(payload, 0);
    let mut fields = Vec::new();
    for (name, layout) in layouts {
        if bytes.remaining().is_empty() {
            break;
        }
        let field_type = layout.field_type();
        let Some(value) = read_value(field_type, &mut bytes)? else { break };
        let value = match (layout, value) {
            (Layout::Skipped(_), _) => continue,
            (Layout::Enumeration(_, names), Value::Unsigned(number)) => named(names, number),
            (_, value) => value,
        };
        fields.push(Field { name: FieldName::Borrowed(name), value });
    }
    if fields.is_empty() && !layouts.is_empty() { Err(ParseError::Malformed) } else { Ok(fields) }
}

/// The name of an enumerated value; the number where it has none.
fn named(names: &[&'static str], number: u64) -> Value {
    let name = usize::try_from(number).ok().and_then(|number| names.get(number));
    name.map_or(Value::Unsigned(number), |name| Value::Text(Cow::Borrowed(name)))
}

fn decode_by_metadata(event: &Event<'_>) -> Result<RuntimeEvent, ParseError> {
    let definition = event.kind;
    let kind = if definition.name == COUNTERS { RuntimeEventKind::Counter } else { RuntimeEventKind::Other };
    let name = match definition.name.as_str() {
        "" => format!("{}/{}", definition.provider, definition.id),
        name => format!("{}/{name}", definition.provider),
    };
    let fields = decode_fields(&definition.fields, event.payload)?;
    Ok(RuntimeEvent { kind, phase: Phase::Whole, pair: (0, 0), name: Cow::Owned(name), fields })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventpipe::{
        nettrace::{EventKind, FieldDefinition, FieldType},
        testing::text,
    };

    fn decode_with(kind: &EventKind, payload: &[u8]) -> Option<Result<RuntimeEvent, ParseError>> {
        RuntimeEvent::decode(&Event { kind, thread: 7, ticks: 5, activity: 0, payload, stack: &[] })
    }

    fn decode(id: u32, payload: &[u8]) -> Option<Result<RuntimeEvent, ParseError>> {
        decode_with(&EventKind { provider: RUNTIME_PROVIDER.to_owned(), id, ..EventKind::default() }, payload)
    }

    fn decoded(id: u32, payload: &[u8]) -> RuntimeEvent {
        decode(id, payload).unwrap().unwrap()
    }

    fn words(values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn value(event: &RuntimeEvent, name: &str) -> Option<Value> {
        event.fields.iter().find(|field| field.name == name).map(|field| field.value.clone())
    }

    fn named_value(event: &RuntimeEvent, name: &str) -> String {
        match value(event, name) {
            Some(Value::Text(text)) => text.into_owned(),
            other => panic!("{other:?} is no text"),
        }
    }

    #[test]
    fn the_begin_and_the_end_of_a_collection_have_its_number_in_common() {
        let begin = decoded(1, &[words(&[12, 2, 1, 0]), vec![0; 10]].concat());
        assert_eq!((begin.kind, begin.phase), (RuntimeEventKind::GarbageCollection, Phase::Begin));
        assert_eq!(begin.name, "Microsoft-Windows-DotNETRuntime/GCStart");
        assert_eq!((begin.unsigned("Count"), begin.unsigned("Depth")), (Some(12), Some(2)));
        assert_eq!(named_value(&begin, "Reason"), "Induced");
        assert_eq!(named_value(&begin, "Type"), "NonConcurrentGC");
        let end = decoded(2, &[words(&[12, 2]), vec![0; 2]].concat());
        assert_eq!((end.phase, end.pair), (Phase::End, begin.pair));
        assert_ne!(decoded(2, &words(&[13, 2])).pair, begin.pair);
    }

    #[test]
    fn a_suspension_begins_with_a_reason() {
        let begin = decoded(9, &[words(&[1, 12]), vec![0; 2]].concat());
        assert_eq!((begin.kind, begin.phase), (RuntimeEventKind::Suspension, Phase::Begin));
        assert_eq!(
            (named_value(&begin, "Reason"), begin.unsigned("Count")),
            ("SuspendForGC".to_owned(), Some(12))
        );
        let end = decoded(3, &[0, 0]);
        assert_eq!((end.phase, end.pair), (Phase::End, begin.pair));
    }

    #[test]
    fn a_reason_without_a_name_is_a_number() {
        let begin = decoded(9, &words(&[77, 12]));
        assert_eq!(begin.unsigned("Reason"), Some(77));
    }

    #[test]
    fn an_exception_has_its_type_and_message() {
        let payload = [
            text("System.Exception"),
            text("no \u{1b} luck"),
            vec![0; 8],
            words(&[0x8013_1500]),
            vec![2, 0, 0, 0],
        ]
        .concat();
        let exception = decoded(80, &payload);
        assert_eq!((exception.kind, exception.phase), (RuntimeEventKind::Exception, Phase::Whole));
        assert_eq!(named_value(&exception, "ExceptionType"), "System.Exception");
        assert_eq!(named_value(&exception, "ExceptionMessage"), "no \u{1b} luck");
        assert_eq!(exception.unsigned("ExceptionHRESULT"), Some(0x8013_1500));
        assert_eq!(exception.unsigned("ExceptionFlags"), Some(2));
        let mut kind = EventKind { provider: RUNTIME_PROVIDER.to_owned(), id: 80, ..EventKind::default() };
        let name = |kind: &EventKind, payload: &[u8]| {
            let event = Event { kind, thread: 7, ticks: 5, activity: 0, payload, stack: &[] };
            RuntimeEvent::exception_type(&event).map(<[u8]>::to_vec)
        };
        let encoded = text("System.Exception");
        assert_eq!(name(&kind, &payload).as_deref(), encoded.strip_suffix(&[0, 0]));
        assert_eq!(name(&kind, &encoded[..8]), None, "it has no end");
        kind.id = 81;
        assert_eq!(name(&kind, &payload), None);
    }

    #[test]
    fn a_contention_has_the_owner_of_its_lock_where_the_runtime_reports_it() {
        let ids = [0xa0_u64, 0xb0, 42].map(u64::to_le_bytes).concat();
        let begin = decoded(81, &[&[0, 9, 0][..], &ids].concat());
        assert_eq!(
            (begin.kind, begin.phase, begin.pair),
            (RuntimeEventKind::Contention, Phase::Begin, (7, 0))
        );
        let expected = [Some(0xa0), Some(0xb0), Some(42)];
        assert_eq!(
            ["LockID", "AssociatedObjectID", "LockOwnerThreadID"].map(|name| begin.unsigned(name)),
            expected
        );
        let of_old_runtime = decoded(81, &[0, 9, 0]);
        assert_eq!((of_old_runtime.unsigned("LockID"), of_old_runtime.pair), (None, begin.pair));
        let end = decoded(91, &[&[0, 9, 0][..], &1.5e6_f64.to_le_bytes()].concat());
        assert_eq!((end.phase, end.pair), (Phase::End, begin.pair));
        assert_eq!(value(&end, "DurationNs"), Some(Value::Real(1.5e6)));
    }

    #[test]
    fn the_pool_is_adjusted_for_a_reason() {
        let payload = [&2.5_f64.to_le_bytes()[..], &words(&[8, 6]), &[0, 0]].concat();
        let adjustment = decoded(55, &payload);
        assert_eq!(adjustment.kind, RuntimeEventKind::PoolAdjustment);
        assert_eq!(value(&adjustment, "AverageThroughput"), Some(Value::Real(2.5)));
        assert_eq!(adjustment.unsigned("NewWorkerThreadCount"), Some(8));
        assert_eq!(named_value(&adjustment, "Reason"), "Starvation");
    }

    #[test]
    fn heap_sizes_have_the_generations_that_their_version_has() {
        let sizes: Vec<u8> = (1..=10_u64).flat_map(u64::to_le_bytes).collect();
        let version_1 = [&sizes[..], &words(&[11, 12, 13]), &[0, 0]].concat();
        let old = decoded(4, &version_1);
        let new = decoded(4, &[&version_1[..], &[14_u64, 15].map(u64::to_le_bytes).concat()].concat());
        for (event, pinned_heap) in [(old, None), (new, Some(14))] {
            assert_eq!(event.kind, RuntimeEventKind::HeapSizes);
            assert_eq!(
                (event.unsigned("GenerationSize2"), event.unsigned("TotalPromotedSize2")),
                (Some(5), Some(6))
            );
            assert_eq!(
                (event.unsigned("PinnedObjectCount"), event.unsigned("GCHandleCount")),
                (Some(11), Some(13))
            );
            assert_eq!(event.unsigned("GenerationSize4"), pinned_heap);
        }
    }

    #[test]
    fn a_compilation_ends_on_its_thread_with_the_size_of_its_code() {
        let ids = [5_u64, 6].map(u64::to_le_bytes).concat();
        let names = ["A.B", "Run", "void  ()"].map(text).concat();
        let begin = decoded(145, &[&ids[..], &words(&[1, 2]), &names, &[0, 0]].concat());
        assert_eq!((begin.kind, begin.phase), (RuntimeEventKind::Compilation, Phase::Begin));
        assert_eq!(named_value(&begin, "MethodName"), "Run");
        let end = decoded(143, &[&ids[..], &9_u64.to_le_bytes(), &words(&[16, 1, 8]), &names].concat());
        assert_eq!((end.phase, end.pair, end.unsigned("MethodSize")), (Phase::End, begin.pair, Some(16)));
    }

    #[test]
    fn allocations_have_the_type_of_their_object() {
        let tick = [
            &words(&[102_400, 1])[..],
            &[0, 0],
            &[102_400_u64, 9].map(u64::to_le_bytes).concat(),
            &text("System.Byte[]"),
            &words(&[0]),
            &[1_u64, 24].map(u64::to_le_bytes).concat(),
        ];
        let tick = decoded(10, &tick.concat());
        assert_eq!(
            (tick.kind, named_value(&tick, "AllocationKind")),
            (RuntimeEventKind::Allocation, "Large".to_owned())
        );
        assert_eq!(
            (named_value(&tick, "TypeName"), tick.unsigned("ObjectSize")),
            ("System.Byte[]".to_owned(), Some(24))
        );
        let sampled =
            [&words(&[0])[..], &[0, 0], &[9; 8], &text("T"), &[1_u64, 32, 7].map(u64::to_le_bytes).concat()];
        let sampled = decoded(303, &sampled.concat());
        assert_eq!(
            (named_value(&sampled, "TypeName"), sampled.unsigned("ObjectSize")),
            ("T".to_owned(), Some(32))
        );
    }

    #[test]
    fn other_providers_are_decoded_by_their_metadata() {
        let fields = [FieldDefinition { name: "Name".into(), field_type: FieldType::Text }];
        let kind = |name: &str| EventKind {
            provider: "System.Runtime".to_owned(),
            id: 3,
            name: name.to_owned(),
            fields: fields.clone().into(),
        };
        for (name, expected, full_name) in [
            ("EventCounters", RuntimeEventKind::Counter, "System.Runtime/EventCounters"),
            ("RequestStart", RuntimeEventKind::Other, "System.Runtime/RequestStart"),
            ("", RuntimeEventKind::Other, "System.Runtime/3"),
        ] {
            let event = decode_with(&kind(name), &text("cpu-usage")).unwrap().unwrap();
            assert_eq!((event.kind, &*event.name), (expected, full_name));
            assert_eq!(named_value(&event, "Name"), "cpu-usage");
        }
        assert_eq!(decode_with(&kind("x"), &[1]), Some(Err(ParseError::Malformed)));
    }

    #[test]
    fn truncated_payloads_end_between_fields_or_are_malformed() {
        for id in 0..400 {
            let Some(whole) = decode(id, &[0; 512]) else { continue };
            let fields = whole.unwrap().fields.len();
            for length in 0..512 {
                match decode(id, &vec![0; length]) {
                    Some(Ok(event)) => assert!(event.fields.len() <= fields),
                    Some(Err(error)) => assert_eq!(error, ParseError::Malformed),
                    None => panic!("{id} depends on its payload"),
                }
            }
        }
        assert_eq!(decode(6, &[0; 512]), None, "an event that is not collected");
    }
}
