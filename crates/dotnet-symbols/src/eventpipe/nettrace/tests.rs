//! Tests of decoding whole, truncated and hostile streams.

use super::*;
use crate::eventpipe::testing::{
    METHOD_LOADED, MODULE_IN_RUNDOWN, TestEvent, TestStream, simple_field, stack_block,
};

type DecodedEvents = Vec<(u32, u64, u64, Vec<u8>)>;

fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<(Decoder, DecodedEvents), ParseError> {
    let (mut decoder, mut events) = (Decoder::default(), DecodedEvents::new());
    for piece in pieces {
        decoder.feed(piece, |_, event| {
            events.push((event.kind.id, event.thread, event.ticks, event.payload.to_vec()));
        })?;
    }
    Ok((decoder, events))
}

fn stream() -> Vec<u8> {
    TestStream::new(1_000)
        .block("StackBlock", &[1; 7])
        .events(&[(METHOD_LOADED, 1, 10, vec![1, 2, 3])])
        .events(&[(MODULE_IN_RUNDOWN, 2, 20, vec![])])
        .sequence_point(2)
        .end()
}

#[test]
fn events_have_a_kind_a_thread_a_time_and_a_payload() {
    let stream = stream();
    let (decoder, events) = decode([&stream[..]]).unwrap();
    assert_eq!(events, [(143, 7, 10, vec![1, 2, 3]), (154, 7, 20, vec![])]);
    assert!(decoder.is_ended());
    assert_eq!(decoder.dropped_events(), 0);
    assert_eq!(decoder.clock, Some(Clock { begin_ticks: 1_000, ticks_per_second: 1_000_000_000 }));
}

#[test]
fn a_stream_decodes_the_same_in_pieces_of_any_size() {
    let stream = stream();
    let (_, whole) = decode([&stream[..]]).unwrap();
    for piece_bytes in [1, 2, 3, 17, 100] {
        let (decoder, events) = decode(stream.chunks(piece_bytes)).unwrap();
        assert_eq!(events, whole);
        assert!(decoder.is_ended());
    }
}

#[test]
fn events_have_stacks_and_fields_on_request() {
    const KIND: u8 = 9;
    let event = |number, stack| TestEvent { kind: KIND, thread: 8, number, stack, ..TestEvent::default() };
    let stream = TestStream::new(0)
        .kind(KIND, "My-Provider", 3, &[simple_field(10, "Count")])
        .block("StackBlock", &stack_block(1, &[&[0x10, 0x20], &[0x30]]))
        .event(&event(1, 2))
        .event(&event(2, 0))
        .sequence_point(0)
        .event(&event(3, 1))
        .end();
    let mut found = Vec::new();
    let mut decoder = Decoder::with_details();
    decoder
        .feed(&stream, |_, event| {
            let name = event.kind.fields.first().map(|field| field.name.to_string());
            found.push((event.thread, event.stack.to_vec(), name));
        })
        .unwrap();
    let name = Some("Count".to_owned());
    // A sequence point ends the use of the stacks before it.
    let expected = [(8, vec![0x30], name.clone()), (8, vec![], name.clone()), (8, vec![], name)];
    assert_eq!(found, expected);
    let mut plain = Decoder::default();
    let is_plain = |event: &Event<'_>| event.stack.is_empty() && event.kind.fields.is_empty();
    plain.feed(&stream, |_, event| assert!(is_plain(event))).unwrap();
}

#[test]
fn events_have_the_activity_of_their_thread() {
    const KIND: u8 = 9;
    let event = |number, activity| TestEvent { kind: KIND, number, activity, ..TestEvent::default() };
    let stream = TestStream::new(0)
        .kind(KIND, "My-Provider", 3, &[])
        .event(&event(1, u128::MAX - 2))
        .event(&event(2, 0));
    let mut activities = Vec::new();
    Decoder::default().feed(&stream.end(), |_, event| activities.push(event.activity)).unwrap();
    assert_eq!(activities, [u128::MAX - 2, 0]);
}

#[test]
fn missing_sequence_numbers_are_dropped_events() {
    let event = |number| [(METHOD_LOADED, number, 0, vec![])];
    let gap = TestStream::new(0).events(&event(1)).events(&event(5)).end();
    assert_eq!(decode([&gap[..]]).unwrap().0.dropped_events(), 3);
    let first = TestStream::new(0).events(&event(3)).end();
    assert_eq!(decode([&first[..]]).unwrap().0.dropped_events(), 2);
    let last = TestStream::new(0).events(&event(1)).sequence_point(11).sequence_point(11).end();
    assert_eq!(decode([&last[..]]).unwrap().0.dropped_events(), 10);
    let new_thread = TestStream::new(0).events(&event(100)).events(&event(1)).events(&event(2)).end();
    assert_eq!(decode([&new_thread[..]]).unwrap().0.dropped_events(), 99);
}

#[test]
fn gaps_lie_between_the_events_of_a_thread() {
    let event = |thread, number, time_ns| {
        let kind = METHOD_LOADED;
        TestEvent { kind, thread, number, time_ns, ..TestEvent::default() }
    };
    let stream = TestStream::new(100)
        .event(&event(7, 1, 200))
        .event(&event(8, 3, 250))
        .event(&event(7, 5, 300))
        .sequence_point_at(400, 9)
        .event(&event(7, 10, 500))
        .end();
    let gap =
        |thread, from_ticks, to_ticks, events| Gap { thread: Some(thread), from_ticks, to_ticks, events };
    let mut decoder = Decoder::with_details();
    decoder.feed(&stream, |_, _| {}).unwrap();
    let expected = [gap(8, 100, 250, 2), gap(7, 200, 300, 3), gap(7, 300, 400, 4)];
    assert_eq!((decoder.take_gaps(), decoder.dropped_events()), (expected.to_vec(), 9));
    assert!(decoder.take_gaps().is_empty());
    let mut plain = Decoder::default();
    plain.feed(&stream, |_, _| {}).unwrap();
    assert_eq!((plain.take_gaps(), plain.dropped_events()), (Vec::new(), 9));
}

/// Adds a metadata block with one kind of event.
fn with_provider(stream: TestStream, metadata_id: u32, provider: &str) -> TestStream {
    const BLOCK_HEADER: &[u8] = &[4, 0, 1, 0];
    /// With a metadata id, which is 0 for metadata, and a payload size, after a time of 0.
    const EVENT_HEADER: &[u8] = &[1 | 128, 0, 0];
    let name: Vec<u8> = provider.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
    let payload = [&metadata_id.to_le_bytes()[..], &name, &143_u32.to_le_bytes()].concat();
    let size = payload.len();
    let leb128_size = [size as u8 | 0x80, (size >> 7) as u8 | 0x80, (size >> 14) as u8];
    stream.block("MetadataBlock", &[BLOCK_HEADER, EVENT_HEADER, &leb128_size, &payload].concat())
}

#[test]
fn the_names_of_providers_are_bounded() {
    let longest = "x".repeat(MAX_PROVIDER_BYTES);
    let mut stream = with_provider(TestStream::new(0), 100, &longest);
    for metadata_id in [101, 102, 103, u32::from(METHOD_LOADED)] {
        stream = with_provider(stream, metadata_id, &"x".repeat(500_000));
    }
    let stream = stream
        .events(&[(METHOD_LOADED, 1, 10, vec![])])
        .events(&[(100, 2, 15, vec![])])
        .events(&[(MODULE_IN_RUNDOWN, 3, 20, vec![])])
        .end();
    let (decoder, events) = decode([&stream[..]]).unwrap();
    assert_eq!(decoder.kinds.len(), 6, "five of the first six kinds, and the one with the longest name");
    assert!(decoder.kinds.values().all(|kind| kind.provider.capacity() <= 2 * MAX_PROVIDER_BYTES));
    assert_eq!(events, [(143, 7, 15, vec![]), (154, 7, 20, vec![])]);
    assert_eq!(decoder.dropped_events(), 0, "events without a kind have sequence numbers too");
}

#[test]
fn bytes_that_are_no_stream_are_malformed() {
    assert!(decode([&b"HTTP/1.1 400"[..]]).is_err());
    let whole = stream();
    let header = &whole[..32];
    for garbage in [&[0][..], &[5, 5, 5], b"\x05\x05\x01\0\0\0\0\0\0\0\0\xff\xff\xff\xff"] {
        assert!(decode([header, garbage]).is_err(), "{garbage:?}");
    }
    let beginning = TestStream::new(0).0;
    let huge = b"\x05\x05\x01\0\0\0\0\0\0\0\0\x01\0\0\0x\x06\xff\xff\xff\x7f";
    assert!(decode([&beginning[..], huge]).is_err());
    let wrong_header_size = TestStream::new(0).block("EventBlock", &[200, 0, 1, 0]).end();
    assert!(decode([&wrong_header_size[..]]).is_err());
    let uncompressed = TestStream::new(0).block("EventBlock", &[4, 0, 0, 0]).end();
    assert!(decode([&uncompressed[..]]).is_err());
}

#[test]
fn a_truncated_or_damaged_stream_does_not_panic() {
    let stream = stream();
    for at in 0..stream.len() {
        let _ = decode([&stream[..at]]);
        let mut damaged = stream.clone();
        for value in [0, 0x7f, 0x80, 0xff] {
            damaged[at] = value;
            let _ = decode([&damaged[..]]);
        }
    }
}
