//! Decodes nettrace streams: the events that a .NET runtime writes to an EventPipe session.
//!
//! The format with object tags, which runtimes write since .NET Core 3.0 (PerfView,
//! src/TraceEvent/EventPipe/NetTraceFormat_v5.md). A stream is decoded as it arrives, in pieces of any size.
//!
//! ```text
//! Nettrace | 20 !FastSerialization.1 | object | object | ... | tag 1
//! object: tag 5, tag 5, tag 1, version, oldest reader, name, tag 6, content, tag 6
//! content of a block: size, zeros up to a multiple of 4 in the stream, events
//! ```

mod event_kind;
mod gaps;
mod stacks;

use std::collections::HashMap;

use profiler_binary_reader::{ByteCursor, ParseError};

pub use self::{
    event_kind::{EventKind, FieldDefinition, FieldType},
    gaps::Gap,
};
use self::{gaps::Gaps, stacks::Stacks};

/// Size of the largest object that is decoded. Runtimes begin a new block after 100 KB.
const MAX_OBJECT_BYTES: usize = 4 << 20;

/// Kinds of events per stream. A runtime's own providers have about 300.
const MAX_EVENT_KINDS: usize = 1 << 14;

/// Length of the longest provider name that is kept. Events of providers with longer names are skipped.
const MAX_PROVIDER_BYTES: usize = 256;

/// Memory of the names and fields of all kinds of events of a stream.
const MAX_KIND_BYTES: usize = 8 << 20;

/// Threads per stream whose sequence numbers are checked.
const MAX_THREADS: usize = 1 << 16;

const HEADER: &[u8; 32] = b"Nettrace\x14\0\0\0!FastSerialization.1";
const TAG_END_OF_STREAM: u8 = 1;
const TAG_BEGIN: u8 = 5;
const TAG_END: u8 = 6;

/// One event.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// Its provider and id.
    pub kind: &'a EventKind,
    /// The id of the thread that wrote it, in the pid namespace of its process.
    pub thread: u64,
    /// Its time in ticks of the stream's [`Clock`].
    pub ticks: u64,
    /// The activity that its thread worked on, in the order of its bytes; 0 is no activity.
    pub activity: u128,
    /// Its fields. Their layout depends on the kind.
    pub payload: &'a [u8],
    /// The return addresses of the managed frames of its thread, leaf first. Empty where the runtime captured none, and
    /// unless details are decoded ([`Decoder::with_details`]).
    pub stack: &'a [u64],
}

/// The clock of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The time at which the stream began.
    pub begin_ticks: u64,
    /// The frequency of the clock.
    pub ticks_per_second: u64,
}

/// Decodes one stream.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The bytes that have arrived of an incomplete object.
    pending: Vec<u8>,
    /// The offset of `pending` in the stream.
    offset: usize,
    clock: Option<Clock>,
    /// By metadata id.
    kinds: HashMap<u32, EventKind>,
    /// The memory of the kinds.
    kind_bytes: usize,
    /// The stacks, if details are decoded.
    stacks: Option<Stacks>,
    /// The last event of each thread.
    last_events: HashMap<u64, LastEvent>,
    dropped_events: u64,
    /// Where events were dropped, if details are decoded.
    gaps: Option<Gaps>,
    is_ended: bool,
}

/// The last event of a thread that is known.
#[derive(Clone, Copy, Debug)]
struct LastEvent {
    sequence_number: u32,
    ticks: u64,
}

/// Why an object was not decoded.
enum ObjectError {
    /// The rest of the object has not arrived.
    Incomplete,
    Malformed,
}

/// Reading past the received bytes fails with a [`ParseError`].
impl From<ParseError> for ObjectError {
    fn from(_: ParseError) -> Self {
        Self::Incomplete
    }
}

/// One object of a stream.
enum Object<'a> {
    Header,
    Trace(Clock),
    Block { name: &'a [u8], content: &'a [u8] },
    EndOfStream,
}

impl Decoder {
    /// A decoder that also decodes the name and the fields of each kind of event, the stacks of events, and where events were
    /// dropped.
    pub fn with_details() -> Self {
        Self { stacks: Some(Stacks::default()), gaps: Some(Gaps::default()), ..Self::default() }
    }

    /// Decodes the next bytes of the stream, and calls `on_event` with the stream's clock and each complete event.
    ///
    /// # Errors
    /// [`ParseError::Malformed`] when the bytes are no nettrace stream. The decoder cannot be used afterwards.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        mut on_event: impl FnMut(Option<Clock>, &Event<'_>),
    ) -> Result<(), ParseError> {
        let mut pending = std::mem::take(&mut self.pending);
        pending.extend_from_slice(bytes);
        let mut decoded = 0;
        while !self.is_ended {
            let undecoded = &pending[decoded..];
            let (object, length) = match decode_object(undecoded, self.offset) {
                Ok(found) => found,
                Err(ObjectError::Incomplete) if undecoded.len() < MAX_OBJECT_BYTES => break,
                Err(_) => return Err(ParseError::Malformed),
            };
            self.process_object(&object, &mut on_event)?;
            decoded += length;
            self.offset += length;
        }
        pending.drain(..decoded);
        self.pending = pending;
        Ok(())
    }

    /// The length of the stream up to the last object that was decoded whole.
    pub fn decoded_bytes(&self) -> usize {
        self.offset
    }

    /// The clock of the stream, once it was decoded.
    pub fn clock(&self) -> Option<Clock> {
        self.clock
    }

    /// Whether the end of the stream was decoded.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Events that the runtime dropped because its buffer was full, found by gaps in the sequence numbers.
    pub fn dropped_events(&self) -> u64 {
        self.dropped_events
    }

    /// Where events were dropped since the last call, in no order. Empty unless details are decoded.
    pub fn take_gaps(&mut self) -> Vec<Gap> {
        self.gaps.as_mut().map(Gaps::take).unwrap_or_default()
    }

    fn process_object(
        &mut self,
        object: &Object<'_>,
        on_event: &mut impl FnMut(Option<Clock>, &Event<'_>),
    ) -> Result<(), ParseError> {
        match object {
            Object::Header => {}
            Object::Trace(clock) => self.clock = Some(*clock),
            Object::Block { name: b"MetadataBlock", content } => {
                self.decode_events(content, true, on_event)?;
            }
            Object::Block { name: b"EventBlock", content } => self.decode_events(content, false, on_event)?,
            Object::Block { name: b"SPBlock", content } => self.decode_sequence_point(content)?,
            Object::Block { name: b"StackBlock", content } => {
                if let Some(stacks) = &mut self.stacks {
                    stacks.add_block(content);
                }
            }
            Object::Block { .. } => {}
            Object::EndOfStream => self.is_ended = true,
        }
        Ok(())
    }

    fn decode_events(
        &mut self,
        content: &[u8],
        is_metadata: bool,
        on_event: &mut impl FnMut(Option<Clock>, &Event<'_>),
    ) -> Result<(), ParseError> {
        const HAS_COMPRESSED_HEADERS: u16 = 1;
        let mut bytes = ByteCursor::new(content, 0);
        let header_bytes = usize::from(ByteCursor::new(content, 0).u16()?);
        let mut header = ByteCursor::new(bytes.take(header_bytes)?, 0);
        let (_size, flags) = (header.u16()?, header.u16()?);
        if flags & HAS_COMPRESSED_HEADERS == 0 {
            return Err(ParseError::Malformed);
        }
        let mut event = EventHeader::default();
        while !bytes.remaining().is_empty() {
            event.decode(&mut bytes)?;
            let payload = bytes.take(event.payload_bytes)?;
            if is_metadata {
                self.add_event_kind(payload)?;
                continue;
            }
            self.count_dropped_events(event.thread, event.sequence_number, event.ticks);
            if let Some(kind) = self.kinds.get(&(event.metadata_id & !IS_SORTED)) {
                let EventHeader { thread, ticks, activity, stack_id, .. } = event;
                let stack = self.stacks.as_ref().map_or(&[][..], |stacks| stacks.get(stack_id));
                on_event(self.clock, &Event { kind, thread, ticks, activity, payload, stack });
            }
        }
        Ok(())
    }

    fn add_event_kind(&mut self, payload: &[u8]) -> Result<(), ParseError> {
        let (metadata_id, kind) = event_kind::decode(payload, self.stacks.is_some())?;
        let replaced = if kind.provider.len() > MAX_PROVIDER_BYTES {
            self.kinds.remove(&metadata_id)
        } else if self.kinds.len() < MAX_EVENT_KINDS && self.kind_bytes < MAX_KIND_BYTES {
            self.kind_bytes += kind.memory_bytes();
            self.kinds.insert(metadata_id, kind)
        } else {
            None
        };
        self.kind_bytes -= replaced.map_or(0, |replaced| replaced.memory_bytes());
        Ok(())
    }

    /// A sequence point states the sequence number of each thread's last event, whether that was dropped or not.
    fn decode_sequence_point(&mut self, content: &[u8]) -> Result<(), ParseError> {
        if let Some(stacks) = &mut self.stacks {
            stacks.clear();
        }
        let mut bytes = ByteCursor::new(content, 0);
        let ticks = bytes.u64()?;
        for _ in 0..bytes.u32()? {
            let (thread, number) = (bytes.u64()?, bytes.u32()?);
            self.count_dropped_events(thread, number.wrapping_add(1), ticks);
            self.last_events.entry(thread).and_modify(|last| last.sequence_number = number);
        }
        Ok(())
    }

    /// The sequence numbers of a thread are consecutive from 1 on: missing ones are dropped events. A number lower than
    /// the last one belongs to another thread that has the same id.
    fn count_dropped_events(&mut self, thread: u64, sequence_number: u32, ticks: u64) {
        if self.last_events.len() >= MAX_THREADS && !self.last_events.contains_key(&thread) {
            return;
        }
        let begin_ticks = self.clock.map_or(0, |clock| clock.begin_ticks);
        let last = self.last_events.insert(thread, LastEvent { sequence_number, ticks });
        let last = last.unwrap_or(LastEvent { sequence_number: 0, ticks: begin_ticks });
        let missing = sequence_number.wrapping_sub(last.sequence_number).wrapping_sub(1);
        if missing == 0 || missing >= u32::MAX / 2 {
            return;
        }
        self.dropped_events += u64::from(missing);
        if let Some(gaps) = &mut self.gaps {
            let (from_ticks, to_ticks) = (last.ticks, ticks.max(last.ticks));
            gaps.add(Gap { thread: Some(thread), from_ticks, to_ticks, events: missing.into() });
        }
    }
}

/// The flag in the metadata id of an event.
const IS_SORTED: u32 = 1 << 31;

/// The header of an event. Fields that an event omits are those of the event before it in the block.
#[derive(Default)]
struct EventHeader {
    metadata_id: u32,
    thread: u64,
    sequence_number: u32,
    stack_id: u32,
    ticks: u64,
    activity: u128,
    payload_bytes: usize,
}

impl EventHeader {
    fn decode(&mut self, bytes: &mut ByteCursor<'_>) -> Result<(), ParseError> {
        const HAS_METADATA_ID: u8 = 1;
        const HAS_SEQUENCE_NUMBER: u8 = 2;
        const HAS_THREAD: u8 = 4;
        const HAS_STACK: u8 = 8;
        const HAS_ACTIVITY: u8 = 16;
        const HAS_RELATED_ACTIVITY: u8 = 32;
        const HAS_PAYLOAD_BYTES: u8 = 128;
        const GUID_BYTES: usize = 16;
        let flags = bytes.u8()?;
        if flags & HAS_METADATA_ID != 0 {
            self.metadata_id = bytes.uleb128()? as u32;
        }
        if flags & HAS_SEQUENCE_NUMBER != 0 {
            self.sequence_number = self.sequence_number.wrapping_add(bytes.uleb128()? as u32);
            self.thread = bytes.uleb128()?;
            let _processor = bytes.uleb128()?;
        }
        if self.metadata_id & !IS_SORTED != 0 {
            self.sequence_number = self.sequence_number.wrapping_add(1);
        }
        if flags & HAS_THREAD != 0 {
            bytes.uleb128()?;
        }
        if flags & HAS_STACK != 0 {
            self.stack_id = bytes.uleb128()? as u32;
        }
        self.ticks = self.ticks.wrapping_add(bytes.uleb128()?);
        if flags & HAS_ACTIVITY != 0 {
            self.activity = u128::from_le_bytes(bytes.array()?);
        }
        if flags & HAS_RELATED_ACTIVITY != 0 {
            bytes.take(GUID_BYTES)?;
        }
        if flags & HAS_PAYLOAD_BYTES != 0 {
            // A size that does not fit is larger than any block.
            self.payload_bytes = usize::try_from(bytes.uleb128()?).unwrap_or(usize::MAX);
        }
        Ok(())
    }
}

/// Decodes the object at the front of `bytes`, which begin at `offset` in the stream. Also returns its length in bytes.
fn decode_object(bytes: &[u8], offset: usize) -> Result<(Object<'_>, usize), ObjectError> {
    let mut cursor = ByteCursor::new(bytes, 0);
    let object =
        if offset == 0 { decode_header(&mut cursor)? } else { decode_tagged_object(&mut cursor, offset)? };
    Ok((object, cursor.position()))
}

fn decode_header<'a>(bytes: &mut ByteCursor<'a>) -> Result<Object<'a>, ObjectError> {
    let received = bytes.remaining();
    if !HEADER.starts_with(&received[..received.len().min(HEADER.len())]) {
        return Err(ObjectError::Malformed);
    }
    bytes.take(HEADER.len())?;
    Ok(Object::Header)
}

fn decode_tagged_object<'a>(bytes: &mut ByteCursor<'a>, offset: usize) -> Result<Object<'a>, ObjectError> {
    const MAX_NAME_BYTES: usize = 64;
    const ALIGNMENT: usize = 4;
    match bytes.u8()? {
        TAG_END_OF_STREAM => return Ok(Object::EndOfStream),
        TAG_BEGIN => {}
        _ => return Err(ObjectError::Malformed),
    }
    if bytes.take(2)? != [TAG_BEGIN, TAG_END_OF_STREAM] {
        return Err(ObjectError::Malformed);
    }
    let (_version, _oldest_reader, name_bytes) = (bytes.u32()?, bytes.u32()?, bytes.u32()? as usize);
    if name_bytes > MAX_NAME_BYTES {
        return Err(ObjectError::Malformed);
    }
    let name = bytes.take(name_bytes)?;
    expect_end_tag(bytes)?;
    let object = if name == b"Trace" {
        Object::Trace(decode_clock(bytes)?)
    } else {
        let size = bytes.u32()? as usize;
        if size > MAX_OBJECT_BYTES {
            return Err(ObjectError::Malformed);
        }
        let position = offset + bytes.position();
        bytes.take(position.next_multiple_of(ALIGNMENT) - position)?;
        Object::Block { name, content: bytes.take(size)? }
    };
    expect_end_tag(bytes)?;
    Ok(object)
}

fn expect_end_tag(bytes: &mut ByteCursor<'_>) -> Result<(), ObjectError> {
    if bytes.u8()? == TAG_END { Ok(()) } else { Err(ObjectError::Malformed) }
}

fn decode_clock(bytes: &mut ByteCursor<'_>) -> Result<Clock, ObjectError> {
    const CALENDAR_TIME_BYTES: usize = 16;
    const MACHINE_BYTES: usize = 16;
    bytes.take(CALENDAR_TIME_BYTES)?;
    let clock = Clock { begin_ticks: bytes.u64()?, ticks_per_second: bytes.u64()? };
    bytes.take(MACHINE_BYTES)?;
    Ok(clock)
}

#[cfg(test)]
mod tests;
