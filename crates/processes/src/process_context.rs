//! Reads the name of its service that a process publishes in its memory for readers outside of it: the process context of
//! OpenTelemetry.
//!
//! OpenTelemetry specification, OTEP 4719 ("Process Context: Sharing Resource Attributes with External Readers"), "Header
//! Structure" and "Reading Protocol". A mapping with the name `OTEL_CTX` begins with a header (all numbers little-endian):
//!
//! | offset | size | content |
//! |---|---|---|
//! | 0 | 8 | signature: `OTEL_CTX` |
//! | 8 | 4 | version: 2 |
//! | 12 | 4 | length of the payload, bytes |
//! | 16 | 8 | time of the publication, another one for each update; 0 while it is changed |
//! | 24 | 8 | address of the payload, a protobuf message |

use std::io;

use profiler_addresses::RuntimeAddress;

use crate::{maps, service_name};

/// The names of the mapping: with and without a memory file, named by the process or not.
const MAPPING_NAMES: [&[u8]; 3] = [b"[anon_shmem:OTEL_CTX]", b"[anon:OTEL_CTX]", b"/memfd:OTEL_CTX"];

const SIGNATURE: [u8; 8] = *b"OTEL_CTX";
const VERSION: u32 = 2;
const HEADER_BYTES: usize = 32;

/// The longest payload. The specification expects kilobytes; the reader of the OpenTelemetry profiler has this limit
/// (`processcontext/processcontext.go`).
const MAX_PAYLOAD_BYTES: usize = 64 << 10;

/// The mappings with the name that are tried. A process should have one.
const MAX_MAPPINGS: usize = 4;

/// The readings of a context that the process changes at the same time.
const MAX_READINGS: usize = 3;

// Numbers of fields: `processcontext/v1development/process_context.proto`, `resource/v1/resource.proto` and
// `common/v1/common.proto` of opentelemetry-proto.
const CONTEXT_RESOURCE: u64 = 1;
const RESOURCE_ATTRIBUTES: u64 = 1;
const KEY_VALUE_KEY: u64 = 1;
const KEY_VALUE_VALUE: u64 = 2;
const ANY_VALUE_STRING: u64 = 1;

/// The header of a process context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    payload_bytes: u32,
    published_ns: u64,
    payload: RuntimeAddress,
}

impl Header {
    /// `None` for another signature or version.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (signature, numbers) = bytes.split_first_chunk()?;
        let (version, numbers) = numbers.split_first_chunk()?;
        let (payload_bytes, numbers) = numbers.split_first_chunk()?;
        let (published_ns, payload) = numbers.split_first_chunk()?;
        let is_known = *signature == SIGNATURE && u32::from_le_bytes(*version) == VERSION;
        is_known.then_some(Self {
            payload_bytes: u32::from_le_bytes(*payload_bytes),
            published_ns: u64::from_le_bytes(*published_ns),
            payload: RuntimeAddress(u64::from_le_bytes(*payload.first_chunk()?)),
        })
    }
}

/// The service name that a process publishes. `maps` is the text of its `/proc/PID/maps`, and `read` reads a number of bytes
/// of its memory.
pub(crate) fn published_service_name(
    maps: &[u8],
    read: impl Fn(RuntimeAddress, usize) -> io::Result<Vec<u8>>,
) -> Option<String> {
    let mut mappings = maps::starts_of_named(maps, &MAPPING_NAMES).take(MAX_MAPPINGS);
    let payload = mappings.find_map(|start| payload_at(start, &read))?;
    service_name_in(&payload)
}

/// The payload of a context, if the process does not change it meanwhile.
fn payload_at(
    start: RuntimeAddress,
    read: impl Fn(RuntimeAddress, usize) -> io::Result<Vec<u8>>,
) -> Option<Vec<u8>> {
    let read_header = || Header::decode(&read(start, HEADER_BYTES).ok()?);
    for _ in 0..MAX_READINGS {
        let header = read_header()?;
        let length = usize::try_from(header.payload_bytes).ok()?;
        if header.published_ns == 0 || !(1..=MAX_PAYLOAD_BYTES).contains(&length) {
            continue;
        }
        let payload = read(header.payload, length);
        if read_header()? == header {
            return payload.ok();
        }
    }
    None
}

/// The attribute `service.name` of a `ProcessContext`, bounded.
fn service_name_in(context: &[u8]) -> Option<String> {
    for resource in fields(context, CONTEXT_RESOURCE)? {
        for attribute in fields(resource, RESOURCE_ATTRIBUTES)? {
            if fields(attribute, KEY_VALUE_KEY)?.last() == Some(&&b"service.name"[..]) {
                let values = fields(attribute, KEY_VALUE_VALUE)?;
                let texts = fields(values.last()?, ANY_VALUE_STRING)?;
                return service_name::bounded(texts.last()?);
            }
        }
    }
    None
}

/// The fields with a number that have a length: texts and messages. `None` if the message is malformed
/// (<https://protobuf.dev/programming-guides/encoding/>).
fn fields(mut message: &[u8], number: u64) -> Option<Vec<&[u8]>> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let length = match tag & 7 {
            0 => {
                varint(&mut message)?;
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut message)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (field, rest) = message.split_at_checked(length)?;
        message = rest;
        if tag == number << 3 | 2 {
            found.push(field);
        }
    }
    Some(found)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Reads a context from memory that begins at an address. Checks that the name is bounded.
#[cfg(fuzzing)]
pub fn check_process_context(maps: &[u8], start: u64, memory: &[u8]) {
    let name = published_service_name(maps, |address, bytes| {
        let offset = address.0.checked_sub(start).and_then(|offset| usize::try_from(offset).ok());
        let end = offset.and_then(|offset| offset.checked_add(bytes));
        let read = offset.zip(end).and_then(|(offset, end)| memory.get(offset..end));
        read.map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    });
    assert!(name.is_none_or(|name| (1..=service_name::MAX_NAME_BYTES).contains(&name.len())));
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MAPS: &[u8] = b"1000-2000 r-xp 00000000 fd:01 12 /srv/app\n\
        3000-4000 rw-p 00000000 00:01 9                      /memfd:OTEL_CTX (deleted)\n";
    const START: u64 = 0x3000;
    const PAYLOAD: u64 = 0x9000;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
    }

    fn attribute(key: &str, value: &str) -> Vec<u8> {
        field(1, &[field(1, key.as_bytes()), field(2, &field(1, value.as_bytes()))].concat())
    }

    /// A context with two attributes of the resource, and another attribute beside it.
    fn context(name: &str) -> Vec<u8> {
        let resource = [attribute("service.version", "1"), attribute("service.name", name)].concat();
        let other = field(2, &field(1, b"threadlocal.schema_version"));
        [field(1, &resource), vec![3 << 3, 0x80, 1], other].concat()
    }

    fn header(version: u32, payload_bytes: usize, published_ns: u64) -> Vec<u8> {
        let length = u32::try_from(payload_bytes).unwrap();
        let numbers = [version.to_le_bytes(), length.to_le_bytes()].concat();
        [&SIGNATURE[..], &numbers, &published_ns.to_le_bytes(), &PAYLOAD.to_le_bytes()].concat()
    }

    /// The name that a process with these mappings publishes; the header is that of the number of the reading.
    fn name_of(maps: &[u8], header: impl Fn(u64) -> Vec<u8>, payload: &[u8]) -> Option<String> {
        let readings = Cell::new(0);
        published_service_name(maps, |address, bytes| match address.0 {
            START => {
                assert_eq!(bytes, HEADER_BYTES);
                Ok(header(readings.replace(readings.get() + 1)))
            }
            PAYLOAD if bytes <= payload.len() => Ok(payload[..bytes].to_vec()),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        })
    }

    #[test]
    fn a_published_name_is_read_from_the_address_in_the_header() {
        let payload = context("shop");
        let name = |maps: &[u8]| name_of(maps, |_| header(2, payload.len(), 7), &payload);
        assert_eq!(name(MAPS).as_deref(), Some("shop"));
        for mapping in MAPPING_NAMES {
            let line = [b"3000-4000 rw-p 00000000 00:00 0 ", mapping, b"\n"].concat();
            assert_eq!(name(&line).as_deref(), Some("shop"));
        }
        for other in
            ["", "3000-4000 rw-p 0 00:00 0 [anon:other]", "3000-4000 rw-p 0 00:01 9 /x/memfd:OTEL_CTX"]
        {
            assert_eq!(name(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_context_that_is_changed_meanwhile_is_read_again() {
        let payload = context("shop");
        let name = |published: fn(u64) -> u64| {
            name_of(MAPS, |reading| header(2, payload.len(), published(reading)), &payload)
        };
        // Not yet published, published, and the same afterwards.
        assert_eq!(name(|reading| reading.min(1)).as_deref(), Some("shop"));
        assert_eq!(name(|reading| reading.max(2)).as_deref(), Some("shop"));
        assert_eq!(name(|reading| reading + 1), None);
        assert_eq!(name(|_| 0), None);
    }

    #[test]
    fn headers_and_payloads_that_are_not_of_the_specification_have_no_name() {
        let payload = context("shop");
        let name = |header: Vec<u8>, payload: &[u8]| name_of(MAPS, |_| header.clone(), payload);
        assert_eq!(name(header(1, payload.len(), 7), &payload), None);
        assert_eq!(name(header(2, 0, 7), &payload), None);
        assert_eq!(name(header(2, MAX_PAYLOAD_BYTES + 1, 7), &[0; MAX_PAYLOAD_BYTES + 1]), None);
        assert_eq!(name(header(2, payload.len() + 1, 7), &payload), None);
        assert_eq!(name(vec![0; HEADER_BYTES], &payload), None);
        assert_eq!(name(SIGNATURE.to_vec(), &payload), None);
        for length in 1..payload.len() {
            let cut = name(header(2, length, 7), &payload);
            assert!(cut.is_none_or(|name| name == "shop"), "{length}");
        }
        // A number with too many bytes, a group, an integer as name.
        let integer = field(1, &field(1, &[field(1, b"service.name"), field(2, &[3 << 3, 1])].concat()));
        for payload in [&[0xff; 11][..], &[3], &integer, &context("")] {
            assert_eq!(name(header(2, payload.len(), 7), payload), None);
        }
    }
}
