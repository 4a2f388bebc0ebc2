//! Decodes the payload of an event into named values.

use std::borrow::Cow;

use profiler_binary_reader::{ByteCursor, ParseError};

use super::{
    nettrace::{FieldDefinition, FieldType},
    utf16::read_terminated,
};

/// Length of the longest text that is kept whole. Messages of exceptions have a line, those of compilers thousands.
const MAX_TEXT_BYTES: usize = 1 << 10;

/// The name of a field: of a known event, or as its metadata spells it.
pub type FieldName = Cow<'static, str>;

/// A field of an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The name, as the definition of the event spells it.
    pub name: FieldName,
    /// The value.
    pub value: Value,
}

/// The value of a [`Field`].
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number that is never negative; a truth value is 0 or 1.
    Unsigned(u64),
    /// A number.
    Signed(i64),
    /// A floating-point number.
    Real(f64),
    /// A text, cut at 1 KiB, or the name of an enumerated value.
    Text(Cow<'static, str>),
}

impl Field {
    /// The memory of the field.
    pub fn memory_bytes(&self) -> usize {
        let owned = |text: &Cow<'static, str>| if let Cow::Owned(text) = text { text.capacity() } else { 0 };
        let text = if let Value::Text(text) = &self.value { owned(text) } else { 0 };
        size_of::<Self>() + owned(&self.name) + text
    }
}

/// Decodes a payload by the metadata of its event. Decoding ends at the first array: its elements, and the fields after it,
/// are left out.
///
/// # Errors
/// [`ParseError::Malformed`] when the payload is too short.
pub fn decode_fields(definitions: &[FieldDefinition], payload: &[u8]) -> Result<Vec<Field>, ParseError> {
    let mut bytes = ByteCursor::new(payload, 0);
    let mut fields = Vec::with_capacity(definitions.len());
    for FieldDefinition { name, field_type } in definitions {
        let Some(value) = read_value(*field_type, &mut bytes)? else { break };
        fields.push(Field { name: FieldName::Owned(name.to_string()), value });
    }
    Ok(fields)
}

/// Reads the value of a field. `None` is a type without a known length.
pub(super) fn read_value(
    field_type: FieldType,
    bytes: &mut ByteCursor<'_>,
) -> Result<Option<Value>, ParseError> {
    Ok(Some(match field_type {
        FieldType::Boolean => Value::Unsigned((bytes.u32()? != 0).into()),
        FieldType::U8 => Value::Unsigned(bytes.u8()?.into()),
        FieldType::U16 => Value::Unsigned(bytes.u16()?.into()),
        FieldType::U32 => Value::Unsigned(bytes.u32()?.into()),
        FieldType::U64 => Value::Unsigned(bytes.u64()?),
        FieldType::I8 => Value::Signed(bytes.u8()?.cast_signed().into()),
        FieldType::I16 => Value::Signed(bytes.u16()?.cast_signed().into()),
        FieldType::I32 => Value::Signed(bytes.u32()?.cast_signed().into()),
        FieldType::I64 => Value::Signed(bytes.u64()?.cast_signed()),
        FieldType::F32 => Value::Real(f32::from_bits(bytes.u32()?).into()),
        FieldType::F64 => Value::Real(f64::from_bits(bytes.u64()?)),
        FieldType::Text => Value::Text(cut(read_terminated(bytes)?).into()),
        FieldType::Guid => Value::Text(read_guid(bytes)?.into()),
        FieldType::Other => return Ok(None),
    }))
}

fn read_guid(bytes: &mut ByteCursor<'_>) -> Result<String, ParseError> {
    let (first, second, third) = (bytes.u32()?, bytes.u16()?, bytes.u16()?);
    let [a, b, c, d, e, f, g, h] = bytes.array()?;
    Ok(format!(
        "{first:08x}-{second:04x}-{third:04x}-{a:02x}{b:02x}-{c:02x}{d:02x}{e:02x}{f:02x}{g:02x}{h:02x}"
    ))
}

fn cut(mut text: String) -> String {
    if text.len() > MAX_TEXT_BYTES {
        let mut length = MAX_TEXT_BYTES;
        while !text.is_char_boundary(length) {
            length -= 1;
        }
        text.truncate(length);
        text.shrink_to_fit();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventpipe::testing::text;

    fn definition(name: &str, field_type: FieldType) -> FieldDefinition {
        FieldDefinition { name: name.into(), field_type }
    }

    fn values(types: &[FieldType], payload: &[u8]) -> Result<Vec<Value>, ParseError> {
        let definitions: Vec<_> = types.iter().map(|field_type| definition("x", *field_type)).collect();
        Ok(decode_fields(&definitions, payload)?.into_iter().map(|field| field.value).collect())
    }

    #[test]
    fn a_payload_has_its_fields_in_order_without_padding() {
        let definitions = [definition("Id", FieldType::U16), definition("Name", FieldType::Text)];
        let payload = [&[7, 0][..], &text("caf\u{e9}")].concat();
        let fields = decode_fields(&definitions, &payload).unwrap();
        let expected = [
            Field { name: "Id".into(), value: Value::Unsigned(7) },
            Field { name: "Name".into(), value: Value::Text("caf\u{e9}".into()) },
        ];
        assert_eq!(fields, expected);
        for length in 0..payload.len() {
            assert_eq!(
                decode_fields(&definitions, &payload[..length]),
                Err(ParseError::Malformed),
                "{length}"
            );
        }
    }

    #[test]
    fn every_type_has_its_encoding() {
        let negative = [0xff; 8];
        let signed = [(FieldType::I8, 1), (FieldType::I16, 2), (FieldType::I32, 4), (FieldType::I64, 8)];
        for (field_type, bytes) in signed {
            assert_eq!(values(&[field_type], &negative[..bytes]), Ok(vec![Value::Signed(-1)]));
            assert_eq!(values(&[field_type], &negative[..bytes - 1]), Err(ParseError::Malformed));
        }
        let unsigned = [(FieldType::U8, 1), (FieldType::U16, 2), (FieldType::U32, 4), (FieldType::U64, 8)];
        for (field_type, bytes) in unsigned {
            let largest = u64::MAX >> (64 - 8 * bytes);
            assert_eq!(values(&[field_type], &negative[..bytes]), Ok(vec![Value::Unsigned(largest)]));
        }
        assert_eq!(values(&[FieldType::Boolean], &[4, 0, 0, 0]), Ok(vec![Value::Unsigned(1)]));
        assert_eq!(values(&[FieldType::F32], &1.5_f32.to_le_bytes()), Ok(vec![Value::Real(1.5)]));
        assert_eq!(values(&[FieldType::F64], &2.5_f64.to_le_bytes()), Ok(vec![Value::Real(2.5)]));
        let guid: Vec<u8> = (0..16).collect();
        let expected = Value::Text("03020100-0504-0706-0809-0a0b0c0d0e0f".into());
        assert_eq!(values(&[FieldType::Guid], &guid), Ok(vec![expected]));
    }

    #[test]
    fn decoding_ends_at_an_array() {
        let types = [FieldType::U8, FieldType::Other, FieldType::U8];
        assert_eq!(values(&types, &[1, 2, 3]), Ok(vec![Value::Unsigned(1)]));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = "\u{20ac}".repeat(MAX_TEXT_BYTES);
        let found = values(&[FieldType::Text], &text(&long)).unwrap();
        let [Value::Text(found)] = &found[..] else { panic!("{found:?} is no text") };
        assert!(
            found.len() <= MAX_TEXT_BYTES && found.len() > MAX_TEXT_BYTES - 3 && long.starts_with(&**found)
        );
    }
}
