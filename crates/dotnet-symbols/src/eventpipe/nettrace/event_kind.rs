//! Decodes the metadata of an event: its provider, id and name, and the names and types of its fields.
//!
//! PerfView, src/TraceEvent/EventPipe/NetTraceFormat_v5.md, section "Metadata event encoding".

use profiler_binary_reader::{ByteCursor, ParseError};

use crate::eventpipe::utf16::read_terminated;

/// Fields of an event. Events of the runtime have up to 30.
const MAX_FIELDS: usize = 64;

/// Length of the longest name of an event or a field that is kept. Longer names are empty.
const MAX_NAME_BYTES: usize = 128;

/// How deep fields can be inside each other. Those of `EventCounters` are on the second level.
const MAX_FIELD_DEPTH: usize = 4;

/// Type codes: those of `System.TypeCode`, and two of EventPipe alone (dotnet/runtime,
/// src/native/eventpipe/ep-types-forward.h, `EventPipeParameterType`).
const TYPE_OBJECT: u32 = 1;
const TYPE_ARRAY: u32 = 19;

/// The kind of an event: its provider, and its id among that provider's events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventKind {
    /// The name of the provider.
    pub provider: String,
    /// The id of the event. Each provider numbers its events on its own.
    pub id: u32,
    /// The name of the event. The events of the runtime itself have none. Empty unless details are decoded
    /// ([`Decoder::with_details`](super::Decoder::with_details)).
    pub name: String,
    /// The fields in the order of the payload. The events of the runtime itself have none. Empty unless details are decoded.
    pub fields: Box<[FieldDefinition]>,
}

/// A field of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldDefinition {
    /// The name.
    pub name: Box<str>,
    /// The type.
    pub field_type: FieldType,
}

/// The type of a field, by its encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldType {
    /// A truth value, in four bytes.
    Boolean,
    /// A number of one byte that is never negative.
    U8,
    /// A number of two bytes that is never negative.
    U16,
    /// A number of four bytes that is never negative.
    U32,
    /// A number of eight bytes that is never negative.
    U64,
    /// A number of one byte.
    I8,
    /// A number of two bytes.
    I16,
    /// A number of four bytes.
    I32,
    /// A number of eight bytes.
    I64,
    /// A floating-point number of four bytes.
    F32,
    /// A floating-point number of eight bytes.
    F64,
    /// A UTF-16 string with a terminating zero.
    Text,
    /// An identifier of 16 bytes.
    Guid,
    /// An array, or a type that is not known. Its length is not known either.
    Other,
}

/// The meaning of a type code.
enum ReadType {
    Simple(FieldType),
    /// The definitions of its fields follow.
    Object,
}

/// Decodes a metadata event. Returns the metadata id, and the kind without name and fields unless `has_details`.
pub(super) fn decode(payload: &[u8], has_details: bool) -> Result<(u32, EventKind), ParseError> {
    let mut bytes = ByteCursor::new(payload, 0);
    let metadata_id = bytes.u32()?;
    let (provider, id) = (read_terminated(&mut bytes)?, bytes.u32()?);
    let mut kind = EventKind { provider, id, ..EventKind::default() };
    if has_details {
        // An event whose details are malformed has none.
        let _ = decode_details(&mut bytes, &mut kind);
    }
    Ok((metadata_id, kind))
}

fn decode_details(bytes: &mut ByteCursor<'_>, kind: &mut EventKind) -> Result<(), ParseError> {
    kind.name = limited(read_terminated(bytes)?);
    let (_keywords, _version, _level) = (bytes.u64()?, bytes.u32()?, bytes.u32()?);
    let mut fields = Vec::new();
    let first = read_fields(bytes, &mut fields, MAX_FIELD_DEPTH);
    if first.is_ok() && fields.is_empty() {
        read_tagged_fields(bytes, &mut fields)?;
    }
    kind.fields = fields.into();
    Ok(())
}

/// Reads the number of fields, and each type before its name. The fields of an object take its place.
fn read_fields(
    bytes: &mut ByteCursor<'_>,
    fields: &mut Vec<FieldDefinition>,
    depth_left: usize,
) -> Result<(), ParseError> {
    for _ in 0..bytes.u32()? {
        match read_type(bytes)? {
            ReadType::Object => {
                read_fields(bytes, fields, depth_left.checked_sub(1).ok_or(ParseError::Malformed)?)?;
                let _name_of_object = read_terminated(bytes)?;
            }
            ReadType::Simple(field_type) => push_field(fields, read_terminated(bytes)?, field_type)?,
        }
    }
    Ok(())
}

/// Reads the tags that follow, and the fields of the tag for fields that can be arrays.
fn read_tagged_fields(
    bytes: &mut ByteCursor<'_>,
    fields: &mut Vec<FieldDefinition>,
) -> Result<(), ParseError> {
    const TAG_FIELDS: u8 = 2;
    while !bytes.remaining().is_empty() {
        let (size, tag) = (bytes.u32()? as usize, bytes.u8()?);
        let content = bytes.take(size)?;
        if tag == TAG_FIELDS {
            return read_sized_fields(&mut ByteCursor::new(content, 0), fields, MAX_FIELD_DEPTH);
        }
    }
    Ok(())
}

/// Reads the number of fields, and each with its size and its name before its type.
fn read_sized_fields(
    bytes: &mut ByteCursor<'_>,
    fields: &mut Vec<FieldDefinition>,
    depth_left: usize,
) -> Result<(), ParseError> {
    for _ in 0..bytes.u32()? {
        let size = (bytes.u32()? as usize).checked_sub(size_of::<u32>()).ok_or(ParseError::Malformed)?;
        let mut field = ByteCursor::new(bytes.take(size)?, 0);
        let name = read_terminated(&mut field)?;
        match read_type(&mut field)? {
            ReadType::Object => {
                let depth_left = depth_left.checked_sub(1).ok_or(ParseError::Malformed)?;
                read_sized_fields(&mut field, fields, depth_left)?;
            }
            ReadType::Simple(field_type) => push_field(fields, name, field_type)?,
        }
    }
    Ok(())
}

fn read_type(bytes: &mut ByteCursor<'_>) -> Result<ReadType, ParseError> {
    Ok(ReadType::Simple(match bytes.u32()? {
        TYPE_OBJECT => return Ok(ReadType::Object),
        3 => FieldType::Boolean,
        4 | 8 => FieldType::U16,
        5 => FieldType::I8,
        6 => FieldType::U8,
        7 => FieldType::I16,
        9 => FieldType::I32,
        10 => FieldType::U32,
        11 => FieldType::I64,
        // A time is the number of 100 ns since 1601-01-01 UTC.
        12 | 16 => FieldType::U64,
        13 => FieldType::F32,
        14 => FieldType::F64,
        17 => FieldType::Guid,
        18 => FieldType::Text,
        TYPE_ARRAY => {
            let _element_type = bytes.u32()?;
            FieldType::Other
        }
        _ => FieldType::Other,
    }))
}

fn push_field(
    fields: &mut Vec<FieldDefinition>,
    name: String,
    field_type: FieldType,
) -> Result<(), ParseError> {
    if fields.len() >= MAX_FIELDS {
        return Err(ParseError::Malformed);
    }
    fields.push(FieldDefinition { name: limited(name).into(), field_type });
    Ok(())
}

fn limited(name: String) -> String {
    if name.len() <= MAX_NAME_BYTES { name } else { String::new() }
}

impl EventKind {
    /// The memory of the strings and fields.
    pub(super) fn memory_bytes(&self) -> usize {
        let fields = self.fields.iter().map(|field| size_of_val(field) + field.name.len());
        self.provider.len() + self.name.len() + fields.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventpipe::testing::{metadata_payload, object_field, simple_field, text};

    fn fields(kind: &EventKind) -> Vec<(&str, FieldType)> {
        kind.fields.iter().map(|field| (&*field.name, field.field_type)).collect()
    }

    #[test]
    fn metadata_has_the_fields_of_objects_in_their_place() {
        let inner = [simple_field(18, "Name"), simple_field(14, "Mean")];
        let payload =
            metadata_payload(7, "System.Runtime", 3, "EventCounters", &[object_field(&inner, "Payload")]);
        let (metadata_id, kind) = decode(&payload, true).unwrap();
        assert_eq!((metadata_id, &*kind.provider, kind.id), (7, "System.Runtime", 3));
        assert_eq!(kind.name, "EventCounters");
        assert_eq!(fields(&kind), [("Name", FieldType::Text), ("Mean", FieldType::F64)]);
        let (_, plain) = decode(&payload, false).unwrap();
        assert_eq!((&*plain.name, plain.fields.len()), ("", 0), "details are decoded on request alone");
    }

    #[test]
    fn every_type_code_has_a_type() {
        let codes: Vec<_> = (3..=19).map(|code| simple_field(code, "x")).collect();
        let (_, kind) = decode(&metadata_payload(1, "P", 1, "E", &codes), true).unwrap();
        let types: Vec<_> = kind.fields.iter().map(|field| field.field_type).collect();
        // The array has its name where its element type is expected.
        assert_eq!(types[..3], [FieldType::Boolean, FieldType::U16, FieldType::I8]);
        assert_eq!(types[12..16], [FieldType::Other, FieldType::U64, FieldType::Guid, FieldType::Text]);
    }

    #[test]
    fn fields_that_can_be_arrays_follow_in_a_tag() {
        let field = |name: &str, types: &[u32]| {
            let types = types.iter().flat_map(|code| code.to_le_bytes());
            let content: Vec<u8> = text(name).into_iter().chain(types).collect();
            [&(content.len() as u32 + 4).to_le_bytes()[..], &content].concat()
        };
        let tagged = [&2_u32.to_le_bytes()[..], &field("Id", &[10]), &field("Rest", &[19, 9])].concat();
        let opcode = [&1_u32.to_le_bytes()[..], &[1, 9]].concat();
        let tag = [&(tagged.len() as u32).to_le_bytes()[..], &[2], &tagged].concat();
        let payload = [metadata_payload(1, "P", 1, "E", &[]), opcode, tag].concat();
        let (_, kind) = decode(&payload, true).unwrap();
        assert_eq!(fields(&kind), [("Id", FieldType::U32), ("Rest", FieldType::Other)]);
        for length in 0..payload.len() {
            let _ = decode(&payload[..length], true);
        }
    }

    #[test]
    fn the_fields_of_an_event_are_bounded_in_number_depth_and_length() {
        let many: Vec<_> = (0..10 * MAX_FIELDS).map(|_| simple_field(10, &"n".repeat(1 << 10))).collect();
        let (_, kind) = decode(&metadata_payload(1, "P", 1, "E", &many), true).unwrap();
        assert_eq!(kind.fields.len(), MAX_FIELDS);
        assert!(kind.memory_bytes() < 64 * MAX_FIELDS);
        let deep = (0..1_000).fold(simple_field(10, "x"), |inner, _| object_field(&[inner], "y"));
        let (_, kind) = decode(&metadata_payload(1, "P", 1, "E", &[deep]), true).unwrap();
        assert!(kind.fields.is_empty());
        let endless = [&metadata_payload(1, "P", 1, "E", &[])[..], &[0xff; 64]].concat();
        assert!(decode(&endless, true).is_ok());
    }
}
