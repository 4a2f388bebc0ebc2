//! Decodes protobuf messages by their wire format alone (<https://protobuf.dev/programming-guides/encoding/>), independently
//! of the types that encode them.

use std::{collections::BTreeSet, io::Read};

use flate2::read::GzDecoder;

/// The fields of a message, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(Vec<(u64, Field)>);

#[derive(Clone, Debug)]
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

impl Fields {
    pub(crate) fn decode(mut bytes: &[u8]) -> Self {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let field = match tag & 7 {
                0 => Field::Number(varint(&mut bytes)),
                1 => {
                    let (number, rest) = bytes.split_first_chunk().unwrap();
                    bytes = rest;
                    Field::Number(u64::from_le_bytes(*number))
                }
                2 => {
                    let length = usize::try_from(varint(&mut bytes)).unwrap();
                    let (field, rest) = bytes.split_at(length);
                    bytes = rest;
                    Field::Bytes(field.to_vec())
                }
                wire_type => panic!("wire type {wire_type}"),
            };
            fields.push((tag >> 3, field));
        }
        Self(fields)
    }

    /// The numbers of all fields, each once, in order.
    pub(crate) fn all_numbers(&self) -> Vec<u64> {
        self.0.iter().map(|(number, _)| *number).collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub(crate) fn bytes(&self, number: u64) -> Vec<&[u8]> {
        let of_number = self.0.iter().filter(|(of, _)| *of == number);
        let bytes = of_number.map(|(_, field)| match field {
            Field::Bytes(bytes) => &**bytes,
            Field::Number(_) => panic!("field {number} is a number"),
        });
        bytes.collect()
    }

    pub(crate) fn messages(&self, number: u64) -> Vec<Self> {
        self.bytes(number).into_iter().map(Self::decode).collect()
    }

    pub(crate) fn texts(&self, number: u64) -> Vec<String> {
        self.bytes(number).into_iter().map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()).collect()
    }

    /// The numbers of a field, packed or not.
    pub(crate) fn numbers(&self, number: u64) -> Vec<u64> {
        let mut numbers = Vec::new();
        for (_, field) in self.0.iter().filter(|(of, _)| *of == number) {
            match field {
                Field::Number(number) => numbers.push(*number),
                Field::Bytes(packed) => {
                    let mut packed = &**packed;
                    while !packed.is_empty() {
                        numbers.push(varint(&mut packed));
                    }
                }
            }
        }
        numbers
    }

    /// The number of a field that occurs once at most.
    pub(crate) fn number(&self, number: u64) -> u64 {
        let numbers = self.numbers(number);
        assert!(numbers.len() <= 1, "field {number} has {numbers:?}");
        numbers.first().copied().unwrap_or(0)
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number with more than 64 bits")
}

pub(crate) fn decompressed(gzip: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(gzip).read_to_end(&mut bytes).unwrap();
    bytes
}
