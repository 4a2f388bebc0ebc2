//! The stream of events that a .NET runtime writes, decoded as it arrives: nettrace, the version with object tags that
//! all runtimes since .NET Core 3.0 write (PerfView, src/TraceEvent/EventPipe/NetTraceFormat_v5.md).
//!
//! ```text
//! Nettrace | 20 !FastSerialization.1 | object | object | ... | tag 1
//! object: tag 5, tag 5, tag 1, version, oldest reader, name, tag 6, content, tag 6
//! content of a block: size, zeros up to a multiple of 4 in the stream, events
//! ```

use std::collections::HashMap;

use super::bytes::{Bytes, Short};

/// The longest object. Runtimes begin a new block after 100 KB.
const MAX_OBJECT_BYTES: usize = 4 << 20;

/// Kinds of events in one stream. A runtime's own providers have some 300.
const MAX_KINDS: usize = 1 << 14;

/// Threads whose events are counted.
const MAX_THREADS: usize = 1 << 16;

const HEADER: &[u8; 32] = b"Nettrace\x14\0\0\0!FastSerialization.1";
const TAG_END_OF_STREAM: u8 = 1;
const TAG_BEGIN: u8 = 5;
const TAG_END: u8 = 6;

/// The stream is not what it has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// What an event is: its provider names the ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    pub provider: String,
    pub id: u32,
}

/// One event.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    pub kind: &'a Kind,
    /// In ticks of the clock that [`Clock`] describes.
    pub ticks: u64,
    pub payload: &'a [u8],
}

/// The clock of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// What it showed when the stream began.
    pub begin_ticks: u64,
    pub ticks_per_second: u64,
}

/// Decodes one stream.
#[derive(Debug, Default)]
pub struct Decoder {
    /// What arrived of an object that is not whole yet.
    pending: Vec<u8>,
    /// Where in the stream `pending` begins.
    offset: usize,
    clock: Option<Clock>,
    kinds: HashMap<u32, Kind>,
    /// The number of the last event of each thread.
    numbers: HashMap<u64, u32>,
    dropped_events: u64,
    ended: bool,
}

/// Why an object was not read.
enum Stop {
    /// Its rest has not arrived.
    Short,
    Malformed,
}

impl From<Short> for Stop {
    fn from(_: Short) -> Self {
        Self::Short
    }
}

impl From<Short> for Malformed {
    fn from(_: Short) -> Self {
        Self
    }
}

/// One object of a stream.
enum Object<'a> {
    Header,
    Clock(Clock),
    Block(&'a [u8], &'a [u8]),
    EndOfStream,
}

impl Decoder {
    /// Takes the next bytes, and hands the events in them to `hear`.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        mut hear: impl FnMut(Option<Clock>, &Event<'_>),
    ) -> Result<(), Malformed> {
        let mut pending = std::mem::take(&mut self.pending);
        pending.extend_from_slice(bytes);
        let mut read = 0;
        while !self.ended {
            let unread = &pending[read..];
            let (object, length) = match object(unread, self.offset) {
                Ok(found) => found,
                Err(Stop::Short) if unread.len() < MAX_OBJECT_BYTES => break,
                Err(_) => return Err(Malformed),
            };
            self.take(&object, &mut hear)?;
            read += length;
            self.offset += length;
        }
        pending.drain(..read);
        self.pending = pending;
        Ok(())
    }

    /// Whether the stream said that it is over.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Events that the runtime had no room for.
    pub fn dropped_events(&self) -> u64 {
        self.dropped_events
    }

    fn take(
        &mut self,
        object: &Object<'_>,
        hear: &mut impl FnMut(Option<Clock>, &Event<'_>),
    ) -> Result<(), Malformed> {
        match object {
            Object::Header => {}
            Object::Clock(clock) => self.clock = Some(*clock),
            Object::Block(b"MetadataBlock", content) => self.events(content, true, hear)?,
            Object::Block(b"EventBlock", content) => self.events(content, false, hear)?,
            Object::Block(b"SPBlock", content) => self.sequence_point(content)?,
            Object::Block(..) => {}
            Object::EndOfStream => self.ended = true,
        }
        Ok(())
    }

    fn events(
        &mut self,
        content: &[u8],
        describes_kinds: bool,
        hear: &mut impl FnMut(Option<Clock>, &Event<'_>),
    ) -> Result<(), Malformed> {
        const COMPRESSED: u16 = 1;
        let mut bytes = Bytes(content);
        let header_bytes = usize::from(Bytes(content).u16()?);
        let mut header = Bytes(bytes.take(header_bytes)?);
        header.u16()?;
        if header.u16()? & COMPRESSED == 0 {
            return Err(Malformed);
        }
        let mut event = EventHeader::default();
        while !bytes.0.is_empty() {
            event.read(&mut bytes)?;
            let payload = bytes.take(event.payload_bytes)?;
            if describes_kinds {
                self.learn_kind(payload)?;
                continue;
            }
            self.count(event.thread, event.number);
            if let Some(kind) = self.kinds.get(&(event.kind & !IS_SORTED)) {
                hear(self.clock, &Event { kind, ticks: event.ticks, payload });
            }
        }
        Ok(())
    }

    fn learn_kind(&mut self, payload: &[u8]) -> Result<(), Malformed> {
        let mut bytes = Bytes(payload);
        let number = bytes.u32()?;
        let kind = Kind { provider: bytes.text()?, id: bytes.u32()? };
        if self.kinds.len() < MAX_KINDS {
            self.kinds.insert(number, kind);
        }
        Ok(())
    }

    /// A sequence point has the number of each thread's last event, also where that was dropped.
    fn sequence_point(&mut self, content: &[u8]) -> Result<(), Malformed> {
        let mut bytes = Bytes(content);
        bytes.u64()?;
        for _ in 0..bytes.u32()? {
            let (thread, number) = (bytes.u64()?, bytes.u32()?);
            self.count(thread, number.wrapping_add(1));
            self.numbers.entry(thread).and_modify(|last| *last = number);
        }
        Ok(())
    }

    /// A thread's events have consecutive numbers from 1 on: those that are missing were dropped. A lower number is of
    /// another thread with the same id.
    fn count(&mut self, thread: u64, number: u32) {
        if self.numbers.len() >= MAX_THREADS && !self.numbers.contains_key(&thread) {
            return;
        }
        let last = self.numbers.insert(thread, number).unwrap_or(0);
        let missing = number.wrapping_sub(last).wrapping_sub(1);
        if missing < u32::MAX / 2 {
            self.dropped_events += u64::from(missing);
        }
    }
}

/// The bit of an event's kind that does not belong to its number.
const IS_SORTED: u32 = 1 << 31;

/// What an event says before its payload. What it leaves out is as for the event before it.
#[derive(Default)]
struct EventHeader {
    kind: u32,
    thread: u64,
    number: u32,
    ticks: u64,
    payload_bytes: usize,
}

impl EventHeader {
    fn read(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Short> {
        const HAS_KIND: u8 = 1;
        const HAS_NUMBER: u8 = 2;
        const HAS_THREAD: u8 = 4;
        const HAS_STACK: u8 = 8;
        const HAS_ACTIVITY: u8 = 16;
        const HAS_RELATED_ACTIVITY: u8 = 32;
        const HAS_PAYLOAD_BYTES: u8 = 128;
        const GUID_BYTES: usize = 16;
        let flags = bytes.u8()?;
        if flags & HAS_KIND != 0 {
            self.kind = bytes.variable()? as u32;
        }
        if flags & HAS_NUMBER != 0 {
            self.number = self.number.wrapping_add(bytes.variable()? as u32);
            self.thread = bytes.variable()?;
            let _processor = bytes.variable()?;
        }
        if self.kind & !IS_SORTED != 0 {
            self.number = self.number.wrapping_add(1);
        }
        for field in [HAS_THREAD, HAS_STACK] {
            if flags & field != 0 {
                bytes.variable()?;
            }
        }
        self.ticks = self.ticks.wrapping_add(bytes.variable()?);
        for field in [HAS_ACTIVITY, HAS_RELATED_ACTIVITY] {
            if flags & field != 0 {
                bytes.take(GUID_BYTES)?;
            }
        }
        if flags & HAS_PAYLOAD_BYTES != 0 {
            // More than memory has is more than a block has.
            self.payload_bytes = usize::try_from(bytes.variable()?).unwrap_or(usize::MAX);
        }
        Ok(())
    }
}

/// The object at the front of `unread`, which stands at `offset` in the stream, and its length.
fn object(unread: &[u8], offset: usize) -> Result<(Object<'_>, usize), Stop> {
    let mut bytes = Bytes(unread);
    let object = if offset == 0 { header(&mut bytes)? } else { tagged(&mut bytes, offset, unread.len())? };
    Ok((object, unread.len() - bytes.0.len()))
}

fn header<'a>(bytes: &mut Bytes<'a>) -> Result<Object<'a>, Stop> {
    let begins_right = HEADER.starts_with(&bytes.0[..bytes.0.len().min(HEADER.len())]);
    if !begins_right {
        return Err(Stop::Malformed);
    }
    bytes.take(HEADER.len())?;
    Ok(Object::Header)
}

fn tagged<'a>(bytes: &mut Bytes<'a>, offset: usize, length: usize) -> Result<Object<'a>, Stop> {
    const MAX_NAME_BYTES: usize = 64;
    const ALIGNMENT: usize = 4;
    match bytes.u8()? {
        TAG_END_OF_STREAM => return Ok(Object::EndOfStream),
        TAG_BEGIN => {}
        _ => return Err(Stop::Malformed),
    }
    if bytes.take(2)? != [TAG_BEGIN, TAG_END_OF_STREAM] {
        return Err(Stop::Malformed);
    }
    let (_version, _oldest_reader, name_bytes) = (bytes.u32()?, bytes.u32()?, bytes.u32()? as usize);
    if name_bytes > MAX_NAME_BYTES {
        return Err(Stop::Malformed);
    }
    let name = bytes.take(name_bytes)?;
    end(bytes)?;
    let object = if name == b"Trace" {
        Object::Clock(clock(bytes)?)
    } else {
        let size = bytes.u32()? as usize;
        if size > MAX_OBJECT_BYTES {
            return Err(Stop::Malformed);
        }
        let position = offset + length - bytes.0.len();
        bytes.take(position.next_multiple_of(ALIGNMENT) - position)?;
        Object::Block(name, bytes.take(size)?)
    };
    end(bytes)?;
    Ok(object)
}

fn end(bytes: &mut Bytes<'_>) -> Result<(), Stop> {
    if bytes.u8()? == TAG_END { Ok(()) } else { Err(Stop::Malformed) }
}

fn clock(bytes: &mut Bytes<'_>) -> Result<Clock, Stop> {
    const CALENDAR_TIME_BYTES: usize = 16;
    const MACHINE_BYTES: usize = 16;
    bytes.take(CALENDAR_TIME_BYTES)?;
    let clock = Clock { begin_ticks: bytes.u64()?, ticks_per_second: bytes.u64()? };
    bytes.take(MACHINE_BYTES)?;
    Ok(clock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventpipe::test_stream::{METHOD_LOADED, MODULE_IN_RUNDOWN, TestStream};

    type Heard = Vec<(u32, u64, Vec<u8>)>;

    fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<(Decoder, Heard), Malformed> {
        let (mut decoder, mut heard) = (Decoder::default(), Heard::new());
        for piece in pieces {
            decoder.feed(piece, |_, event| {
                heard.push((event.kind.id, event.ticks, event.payload.to_vec()));
            })?;
        }
        Ok((decoder, heard))
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
    fn events_come_with_their_kind_time_and_payload() {
        let stream = stream();
        let (decoder, heard) = decode([&stream[..]]).unwrap();
        assert_eq!(heard, [(143, 10, vec![1, 2, 3]), (154, 20, vec![])]);
        assert!(decoder.ended());
        assert_eq!(decoder.dropped_events(), 0);
        assert_eq!(decoder.clock, Some(Clock { begin_ticks: 1_000, ticks_per_second: 1_000_000_000 }));
    }

    #[test]
    fn it_does_not_matter_where_the_stream_is_cut() {
        let stream = stream();
        let (_, whole) = decode([&stream[..]]).unwrap();
        for piece_bytes in [1, 2, 3, 17, 100] {
            let (decoder, heard) = decode(stream.chunks(piece_bytes)).unwrap();
            assert_eq!(heard, whole);
            assert!(decoder.ended());
        }
    }

    #[test]
    fn numbers_that_are_missing_were_dropped() {
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
    fn what_is_no_stream_is_refused_at_once() {
        assert!(decode([&b"HTTP/1.1 400"[..]]).is_err());
        let whole = stream();
        let begun = &whole[..32];
        for garbage in [&[0][..], &[5, 5, 5], b"\x05\x05\x01\0\0\0\0\0\0\0\0\xff\xff\xff\xff"] {
            assert!(decode([begun, garbage]).is_err(), "{garbage:?}");
        }
        let endless = TestStream::new(0).0;
        let huge = b"\x05\x05\x01\0\0\0\0\0\0\0\0\x01\0\0\0x\x06\xff\xff\xff\x7f";
        assert!(decode([&endless[..], huge]).is_err());
        let lying = TestStream::new(0).block("EventBlock", &[200, 0, 1, 0]).end();
        assert!(decode([&lying[..]]).is_err());
        let plain = TestStream::new(0).block("EventBlock", &[4, 0, 0, 0]).end();
        assert!(decode([&plain[..]]).is_err());
    }

    #[test]
    fn a_stream_that_is_cut_off_or_damaged_anywhere_does_no_harm() {
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
}
